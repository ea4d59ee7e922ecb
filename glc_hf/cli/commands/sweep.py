# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`glc-hf sweep`: the experiments of the paper, cell by cell, into a results file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn


if TYPE_CHECKING:
    from glc_hf.experiments.jobs import Curve
    from glc_hf.experiments.sweeps import Progress


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see `glc-hf sweep --help`)")


def parser() -> argparse.ArgumentParser:
    """The options, made without importing anything heavy."""
    made = _Parser(
        prog="glc-hf sweep",
        description="Train the cells of an experiment of the paper: every method at every strength of the noise. Each "
        "finished cell is one line of the results file, and is not run again.",
        allow_abbrev=False,
    )
    add = made.add_argument
    add("--preset", required=True, metavar="NAME", help="mnist, svhn, cifar10, cifar100, imdb, sst, twitter, …")
    add("--methods", nargs="+", metavar="NAME", help="default: the seven of the paper's tables")
    add("--noise", nargs="+", metavar="KIND", help="uniform, flip, hierarchical, weak; default: the preset's")
    add("--trusted", nargs="+", type=float, metavar="FRACTION", help="default: the preset's three fractions")
    add("--strengths", nargs="+", type=float, metavar="STRENGTH", help="default: 0, 0.1, … 1")
    add("--seeds", nargs="+", type=int, default=[0], metavar="SEED", help="values, not a count; default: 0")
    add("--output", required=True, metavar="FILE.jsonl", help="results file: made, or added to")
    add("--data-root", metavar="DIR", help="folder that holds the data in folders named as on the Hub")
    add("--limit", type=int, metavar="ROWS", help="at most so many rows; the results say that they are reduced")
    add("--epochs", type=float, metavar="N", help="in place of the preset's; the results say so")
    add(
        "--trusted-updates",
        type=int,
        metavar="N",
        help="networks trained on trusted rows alone get at least so many updates, in place of the paper's 2,000; the "
        "results say so",
    )
    add(
        "--options",
        nargs="+",
        metavar="NAME=VALUE",
        help="what a preset leaves open: vectors=FILE (twitter), architecture=NAME (svhn, cifar10, cifar100)",
    )
    add("--matrices", action="store_true", help="write the estimated matrices too (`glc-hf plot --matrices`)")
    add("--workers", type=int, metavar="N", help="processes of one thread each; default: one a core")
    add(
        "--ray",
        nargs="?",
        const="local",
        metavar="ADDRESS",
        help="run on Ray: a cluster's address, auto, or (with no address) a new one on this machine",
    )
    return made


def when_interrupted(argv: list[str]) -> str:
    """What to say after Ctrl-C."""
    return "What was finished is in the results file; the same command goes on from there."


def main(argv: list[str]) -> int:
    """Runs the command."""
    options = parser().parse_args(argv)
    from glc_hf.experiments.sweeps import plan, run_sweep

    wanted, reduced = curves(options)
    left = plan(wanted, options.output, reduced)
    cells = sum(len(curve.methods) * len(curve.strengths) for curve in left)
    total = sum(len(curve.methods) * len(curve.strengths) for curve in wanted)
    print(f"{total - cells} of {total} cells are in {options.output}; {cells} to go.", flush=True)
    if left:
        _show(left, run_sweep(left, options.output, options.workers, options.ray))
    return 0


def curves(options: argparse.Namespace) -> tuple[list[Curve], str | None]:
    """What was asked for, checked, and what the data of it lack."""
    from glc_hf.experiments.jobs import Curve
    from glc_hf.experiments.presets import get_preset
    from glc_hf.experiments.sweeps import PAPER_METHODS, PAPER_STRENGTHS
    from glc_hf.methods import get_method

    preset_options = _named_values(options.options or ())
    preset = get_preset(options.preset, **dict(preset_options))
    methods = tuple(options.methods or PAPER_METHODS)
    for method in methods:
        get_method(method)
    strengths = tuple(options.strengths or PAPER_STRENGTHS)
    noises = options.noise or preset.noises
    if not preset.noises:
        raise ValueError(
            f"preset {options.preset!r} has the noise of its data, and nothing to sweep over: train it with "
            f"GLCTrainer (glc_hf.experiments.presets.get_preset({options.preset!r}) has rows, network and settings)."
        )
    _check_numbers(options, strengths)
    for noise in noises:
        if noise not in preset.noises:
            raise ValueError(f"preset {options.preset!r} has no noise {noise!r}; it has {', '.join(preset.noises)}.")
    if options.data_root is not None and not Path(options.data_root).is_dir():
        raise ValueError(f"--data-root {options.data_root}: there is no such folder.")
    reduced = preset.rows_of(options.data_root, options.limit)[2]
    made = [
        Curve(
            preset=options.preset,
            noise=noise,
            trusted=trusted,
            seed=seed,
            strengths=(None,) if noise == "weak" else strengths,
            methods=methods,
            data_root=options.data_root,
            limit=options.limit,
            epochs=options.epochs,
            trusted_updates=options.trusted_updates,
            options=preset_options,
            matrices=options.matrices,
        )
        for seed in options.seeds
        for noise in noises
        for trusted in (options.trusted or preset.trusted_with(noise))
    ]
    return made, reduced


def _named_values(words: Sequence[str]) -> tuple[tuple[str, str], ...]:
    pairs = [word.partition("=") for word in words]
    for word, (name, equals, value) in zip(words, pairs, strict=True):
        if not (name and equals and value):
            raise ValueError(f"--options takes words such as vectors=glove.txt, not {word!r}.")
    return tuple((name, value) for name, _, value in pairs)


def _check_numbers(options: argparse.Namespace, strengths: tuple[float, ...]) -> None:
    for strength in strengths:
        if not 0.0 <= strength <= 1.0:
            raise ValueError(f"--strengths: {strength} is not a strength; it lies in 0…1.")
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
            raise ValueError(f"--{name.replace('_', '-')} names one value twice: {' '.join(map(str, values))}.")


def _show(left: list[Curve], events: object) -> None:
    """A bar with the time left on a terminal, a line a method in a log."""
    if sys.stdout.isatty():
        _show_bar(left, events)
        return
    for event in events:
        if event.rows:
            print(_line(left[event.place], event), flush=True)


def _show_bar(left: list[Curve], events: object) -> None:
    from rich import progress

    weights = [len(curve.methods) * len(curve.strengths) for curve in left]
    shares = [0.0] * len(left)
    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(elapsed_when_finished=True),
    )
    with progress.Progress(*columns, speed_estimate_period=600) as bar:
        task = bar.add_task(f"{left[0].preset}: {sum(weights)} cells", total=float(sum(weights)))
        for event in events:
            shares[event.place] = event.share
            bar.update(task, completed=sum(share * weight for share, weight in zip(shares, weights, strict=True)))
            if event.rows:
                bar.console.print(_line(left[event.place], event))


def _line(curve: Curve, event: Progress) -> str:
    errors = " ".join(f"{row['error']:.2f}" for row in event.rows)
    return f"{curve}: {event.rows[0]['method']}: error {errors} %"
