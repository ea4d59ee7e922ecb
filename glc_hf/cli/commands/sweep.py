# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`glc-hf sweep`: the experiments of the paper, written to a results file."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn


if TYPE_CHECKING:
    from glc_hf.experiments.jobs import Curve, Row
    from glc_hf.experiments.sweeps import Progress


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see `glc-hf sweep --help`)")


def parser() -> argparse.ArgumentParser:
    """Return the parser, without importing anything heavy."""
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


def main(argv: list[str]) -> int:
    """Run the command."""
    options = parser().parse_args(argv)
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
