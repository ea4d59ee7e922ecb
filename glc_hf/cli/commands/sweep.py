# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`glc-hf sweep`, `table` and `plot`: the experiments of the paper, and tables and plots of their results."""

from __future__ import annotations

import argparse
import shutil
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn


if TYPE_CHECKING:
    from glc_hf.experiments.jobs import Curve, Row
    from glc_hf.experiments.sweeps import Progress


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see `glc-hf sweep --help`)")


def sweep_parser() -> argparse.ArgumentParser:
    """Return the parser of `glc-hf sweep`, without importing anything heavy."""
    made = _Parser(
        prog="glc-hf sweep",
        description="Train the runs of an experiment of the paper: every method at every strength of the noise. Each "
        "finished run is one line of the results file and is not repeated.",
        allow_abbrev=False,
    )
    add = made.add_argument
    add("--preset", required=True, metavar="NAME", help="mnist, svhn, cifar10, cifar100, imdb, sst, twitter, …")
    add("--methods", nargs="+", metavar="NAME", help="default: the seven of the paper's tables")
    add("--noise", nargs="+", metavar="NAME", help="uniform, flip, hierarchical, weak; default: the preset's")
    add("--trusted", nargs="+", type=float, metavar="FRACTION", help="default: the preset's three fractions")
    add("--strengths", nargs="+", type=float, metavar="STRENGTH", help="default: 0, 0.1, … 1")
    add("--seeds", nargs="+", type=int, default=[0], metavar="SEED", help="values, not a count; default: 0")
    add("--output", required=True, metavar="FILE.jsonl", help="results file, created or appended to")
    add("--data-root", metavar="DIR", help="folder that holds the data in folders named as on the Hub")
    add("--limit", type=int, metavar="ROWS", help="maximum number of rows; marks the results as reduced")
    add("--epochs", type=float, metavar="N", help="replaces the preset's epochs; marks the results as reduced")
    add(
        "--trusted-updates",
        type=int,
        metavar="N",
        help="minimum number of updates of networks trained on trusted rows alone, instead of the paper's 2,000; "
        "marks the results as reduced",
    )
    add(
        "--options",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="options of the preset: vectors=FILE (twitter), architecture=NAME (svhn, cifar10, cifar100), "
        "architecture=NAME weights=FILE image_size=N hidden_size=N (cifar10-features, cifar100-features)",
    )
    add("--matrices", action="store_true", help="write the estimated matrices too (for `glc-hf plot --matrices`)")
    add(
        "--workers",
        type=int,
        metavar="N",
        help="number of cores to use: one process per curve, then threads; default: all",
    )
    add(
        "--ray",
        nargs="?",
        const="local",
        metavar="ADDRESS",
        help="run on Ray: a cluster's address, auto, or (without an address) a new one on this machine",
    )
    return made


def when_interrupted(argv: list[str]) -> str:
    """Return the message after Ctrl-C."""
    return "Finished runs are in the results file; run the same command again to continue."


def sweep(argv: list[str]) -> int:
    """Run the command with the arguments that follow `glc-hf sweep`."""
    options = sweep_parser().parse_args(argv)
    from glc_hf.experiments.sweeps import plan, run_sweep

    every, reduced = curves(options)
    left = plan(every, options.output, reduced)
    total, remaining = (sum(curve.size for curve in jobs) for jobs in (every, left))
    print(f"{total - remaining} of {total} runs are in {options.output}; {remaining} to go.", flush=True)
    if left:
        _show(left, run_sweep(left, options.output, options.workers, options.ray))
    return 0


def curves(options: argparse.Namespace) -> tuple[list[Curve], str | None]:
    """Check the options. Return the jobs, and what was left out of the data, if anything."""
    from glc_hf.experiments.curves import PAPER_METHODS, STRENGTHS, WEAK
    from glc_hf.experiments.jobs import Curve
    from glc_hf.experiments.presets import get_preset
    from glc_hf.methods import get_method
    from glc_hf.noise.families import noise_families

    pairs = [text.partition("=") for text in options.options]
    for pair in pairs:
        if not all(pair):
            raise ValueError(f"--options takes values like vectors=glove.txt, not {''.join(pair)!r}.")
    preset_options = tuple((name, value) for name, _, value in pairs)
    preset = get_preset(options.preset, **dict(preset_options))
    methods = tuple(options.methods or PAPER_METHODS)
    for method in methods:
        get_method(method)
    if not preset.noises:
        raise ValueError(
            f"preset {options.preset!r} has the noise of its data and nothing to sweep over: train it with "
            f"GLCTrainer (glc_hf.experiments.presets.get_preset({options.preset!r}) has rows, network and settings)."
        )
    noises = options.noise or preset.noises
    strengths = tuple(options.strengths or STRENGTHS)
    _check_numbers(options, strengths)
    for noise in noises:
        # Any registered family works, except that only some datasets have groups of classes.
        possible = {*preset.noises, *noise_families()} - ({"hierarchical"} - {*preset.noises})
        if noise not in possible:
            raise ValueError(
                f"preset {options.preset!r} has no noise {noise!r}; it has {', '.join(sorted(possible))}."
            )
    if options.data_root is not None and not Path(options.data_root).is_dir():
        raise ValueError(f"--data-root {options.data_root}: there is no such folder.")
    reduced = preset.rows_of(options.data_root, options.limit)[2]
    shared = {name: getattr(options, name) for name in ("data_root", "limit", "epochs", "trusted_updates", "matrices")}
    jobs = [
        Curve(
            options.preset,
            noise,
            trusted,
            seed,
            (None,) if noise == WEAK else strengths,
            methods,
            options=preset_options,
            **shared,
        )
        for seed in options.seeds
        for noise in noises
        for trusted in (options.trusted or preset.trusted_with(noise))
    ]
    return jobs, reduced


def _check_numbers(options: argparse.Namespace, strengths: tuple[float, ...]) -> None:
    for strength in strengths:
        if not 0.0 <= strength <= 1.0:
            raise ValueError(f"--strengths: {strength} is not a strength; it must be in 0…1.")
    for trusted in options.trusted or ():
        if not 0.0 < trusted < 1.0:
            raise ValueError(f"--trusted: {trusted} is not a fraction between 0 and 1 (0.05 is 5 %).")
    for name in ("limit", "epochs", "trusted_updates", "workers"):
        value = getattr(options, name)
        if value is not None and value <= 0:
            raise ValueError(f"--{name.replace('_', '-')} must be greater than 0, got {value}.")
    for name in ("methods", "noise", "trusted", "strengths", "seeds"):
        values = getattr(options, name) or ()
        if len(set(values)) < len(values):
            raise ValueError(f"--{name} has the same value twice: {' '.join(map(str, values))}.")


def _show(left: list[Curve], events: Iterable[Progress]) -> None:
    """Show a progress bar on a terminal, and one line per method in a log."""
    from glc_hf.cli.terminal import is_rich_terminal

    if not is_rich_terminal():
        for event in events:
            if event.rows:  # written unwrapped, as soon as it is known
                print(_line(left[event.job], event.rows), flush=True)
        return
    from rich import progress

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(elapsed_when_finished=True),
    )
    done = [0.0] * len(left)
    total = sum(curve.size for curve in left)
    with progress.Progress(*columns, speed_estimate_period=600) as bar:
        task = bar.add_task(f"{left[0].preset}: {total} runs", total=float(total))
        for event in events:
            curve = left[event.job]
            done[event.job] = event.share * curve.size
            bar.update(task, completed=sum(done))
            if event.rows:
                bar.console.print(_line(curve, event.rows))


def _line(curve: Curve, rows: list[Row]) -> str:
    errors = " ".join(f"{row['error']:.2f}" for row in rows)
    return f"{curve}: {rows[0]['method']}: error {errors} %"


def table(argv: list[str]) -> int:
    """Print the tables of a results file, or write them to a file."""
    options = table_parser().parse_args(argv)

    from glc_hf.cli.options import method_names
    from glc_hf.experiments.curves import STRENGTHS
    from glc_hf.experiments.tables import FORMATS, make_tables, to_terminal

    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    tables = make_tables(options.results, options.preset, options.strengths or STRENGTHS, method_names())
    output = None if options.output is None else Path(options.output)
    by_suffix = {".md": "markdown", ".csv": "csv"}.get(output.suffix.lower() if output else "", "terminal")
    format_name = options.format or by_suffix
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(FORMATS[format_name](tables), encoding="utf-8")
        print(f"wrote {output} ({format_name})", file=sys.stderr)
    elif format_name == "terminal" and sys.stdout.isatty():
        print(to_terminal(tables, shutil.get_terminal_size().columns), end="")
    else:
        print(FORMATS[format_name](tables), end="")
    return 0


def table_parser() -> argparse.ArgumentParser:
    """Return the parser of `glc-hf table`."""
    parser = argparse.ArgumentParser(
        prog="glc-hf table",
        description="Make the paper's tables from the results file of a sweep: one row per noise and percent trusted, "
        "one column per method. Each value is the area under the error curve with the paper's figure in brackets, for "
        "example 4.3 (3.4). Incomplete curves are left out of the means.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("results", metavar="RESULTS.jsonl", help="File written by `glc-hf sweep`.")
    add("--preset", metavar="NAME", help="Only the tables of this preset, for example mnist.")
    add(
        "--strengths",
        metavar="S",
        type=float,
        nargs="+",
        help="Strengths of a complete curve (default: the paper's eleven, 0 0.1 … 1).",
    )
    add(
        "--format",
        choices=("markdown", "csv", "terminal"),
        help="Default: by the suffix of --output (.md, .csv), else terminal.",
    )
    add("--output", metavar="FILE", help="Write to this file instead of printing.")
    return parser


def plot(argv: list[str]) -> int:
    """Draw the plots of a results file, and print the name of each written file."""
    options = plot_parser().parse_args(argv)
    pairs = [text.partition("=") for text in options.matrices or ()]
    for pair in pairs:
        if not all(pair):
            raise ValueError(f"--matrices takes values like noise=flip strength=0.6, not {''.join(pair)!r}.")

    from glc_hf.cli.options import method_names
    from glc_hf.experiments.plots import plot_error_curves, plot_matrices

    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    written = plot_error_curves(options.results, options.output, options.preset, method_names())
    if not written:
        print("no error curves: labels of a weak classifier have no strengths; see `glc-hf table`.")
    if options.matrices is not None:
        selection = {} if options.preset is None else {"preset": options.preset}
        selection.update((name, value) for name, _, value in pairs)
        written += plot_matrices(options.results, options.output, selection)
    for path in written:
        print(path)
    return 0


def plot_parser() -> argparse.ArgumentParser:
    """Return the parser of `glc-hf plot`."""
    parser = argparse.ArgumentParser(
        prog="glc-hf plot",
        description="Plot the results of a sweep as PNG and SVG: error against strength of the noise, one figure per "
        "preset, one panel per noise and percent trusted.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("results", metavar="RESULTS.jsonl", help="File written by `glc-hf sweep`.")
    add("--output", metavar="DIR", required=True, help="Folder for the plots.")
    add("--preset", metavar="NAME", help="Only this preset, for example mnist.")
    add(
        "--matrices",
        metavar="NAME=VALUE",
        nargs="*",
        help="Also plot the true matrix beside the estimates of glc, confusion_matrix and forward, for the run with "
        "this preset, noise, trusted, strength and seed. Those with a single value in the file can be omitted. "
        "Example: --matrices noise=flip trusted=0.01 strength=0.6 seed=0",
    )
    return parser
