# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
The paper's tables, from the committed results of sweeps, for the README and docs/results.md.

    python benchmarks/paper_tables.py
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from result_files import RESULTS

from glc_hf.experiments.curves import PAPER_METHODS, STRENGTHS, WEAK, Runs, read_runs
from glc_hf.experiments.presets import get_preset
from glc_hf.experiments.results import read_results
from glc_hf.experiments.tables import Table, entry_text, make_tables, to_markdown


WHOLE = ("mnist", "sst", "twitter")
FEATURES = ("cifar10-features", "cifar100-features")
REDUCED = ("imdb", "cifar10", "cifar100")
NOT_MEASURED = "Not measured yet."


def means(names: Sequence[str] = WHOLE) -> str:
    """One row per dataset: means over its complete settings with the paper's in brackets, and the number of runs."""
    lines = [
        "| dataset | rows | seeds | " + " | ".join(name.replace("_", " ") for name in PAPER_METHODS) + " |",
        "| --- | --- | --- |" + " ---: |" * len(PAPER_METHODS),
    ]
    for name in names:
        path = RESULTS / f"{name}.jsonl"
        if not path.exists():
            continue
        table = make_tables(path)[0]
        figures = dict(zip(table.methods, table.mean, strict=True))
        lowest = min((entry.value for entry in table.mean if entry.value is not None), default=None)
        texts = []
        for method in PAPER_METHODS:
            text = entry_text(figures[method])
            texts.append(f"**{text}**" if lowest is not None and figures[method].value == lowest else text)
        rows = f"{len(table.mean_rows)} of {rows_of_paper(name)}"
        lines.append(f"| {name} | {rows} | {seeds_of(table)} | " + " | ".join(texts) + " |")
    return "\n".join(lines) if len(lines) > 2 else NOT_MEASURED


def rows_of_paper(preset: str) -> int:
    """Number of rows of the paper's table of a dataset."""
    dataset = get_preset(preset)
    return sum(len(dataset.trusted_with(noise)) for noise in dataset.noises if noise != WEAK)


def seeds_of(table: Table) -> str:
    """Number of seeds per method in the rows of the mean, such as `3 (glc, confusion matrix), 1 (others)`; without
    methods that have not been run for all of these rows."""
    numbers: dict[int, list[str]] = {}
    for column, method in enumerate(table.methods):
        entries = [row[column] for setting, row in table.rows if setting in table.mean_rows]
        if entries and all(entry.seeds for entry in entries):
            numbers.setdefault(min(len(entry.seeds) for entry in entries), []).append(method.replace("_", " "))
    if len(numbers) <= 1:
        return ", ".join(map(str, numbers))
    most = max(numbers, key=lambda number: len(numbers[number]))
    parts = [f"{number} ({'others' if number == most else ', '.join(methods)})" for number, methods in numbers.items()]
    return ", ".join(sorted(parts, reverse=True))


def whole(name: str) -> str:
    """The full table of a dataset, and the number of its runs; then the table of weak labels, if there are any."""
    path = RESULTS / f"{name}.jsonl"
    if not path.exists():
        return NOT_MEASURED
    rows = [row for row in read_results(path) if row["noise"] != WEAK and row["method"] in PAPER_METHODS]
    runs = {(row["noise"], row["trusted"], row["method"], row["strength"], row["seed"]) for row in rows}
    expected = rows_of_paper(name) * len(PAPER_METHODS) * len(STRENGTHS)
    seeds: dict[int, int] = {}
    for *_, seed in sorted(runs, key=lambda run: run[-1]):
        seeds[seed] = seeds.get(seed, 0) + 1
    counts = ", ".join(f"{number:,} with seed {seed}" for seed, number in seeds.items())
    table, *others = make_tables(path)
    missing = rows_of_paper(name) - len(table.rows)
    absent = f" {missing} of its {rows_of_paper(name)} rows are missing." if missing else ""
    count = f"- Runs: {counts}. The full table of seven methods takes {expected} runs per seed.{absent}"
    weak = [f"Labels of a weak classifier, percent error:\n\n{_without_heading(to_markdown([one]))}" for one in others]
    return "\n\n".join([f"{_without_heading(to_markdown([table]))}{count}", *weak]).rstrip()


def reduced(name: str) -> str:
    """The tables of reduced runs: areas over the available strengths, and all errors."""
    path = RESULTS / f"{name}-reduced.jsonl"
    if not path.exists():
        return NOT_MEASURED
    parts = []
    for runs in read_runs(path):
        strengths = _strengths(runs)
        tables = make_tables(path, strengths=strengths) if len(strengths) > 1 else make_tables(path)
        for table in tables:
            if table.reduced != runs.reduced or (table.metric == "area" and len(strengths) < 2):
                continue
            title = "Area under the error curve" if table.metric == "area" else "Error with weak labels"
            parts.append(f"{title}, percent (reduced):\n\n{_without_heading(to_markdown([table])).rstrip()}")
        if strengths:
            parts.append(f"Error per strength, percent (reduced):\n\n{_errors(runs)}")
    return "\n\n".join(parts)


def _strengths(runs: Runs) -> list[float]:
    """All strengths with a run."""
    curved = [setting for setting in runs.settings if setting.noise != WEAK]
    strengths = {
        strength
        for setting in curved
        for method in runs.methods
        for curve in runs.curves(setting, method).values()
        for strength in curve
    }
    return sorted(strengths - {None})


def _errors(runs: Runs) -> str:
    methods = [name for name in runs.methods if any(runs.curves(setting, name) for setting in runs.settings)]
    lines = [
        "| noise | % trusted | strength | " + " | ".join(name.replace("_", " ") for name in methods) + " |",
        "| --- | ---: | ---: |" + " ---: |" * len(methods),
    ]
    for setting in runs.settings:
        if setting.noise == WEAK:
            continue
        for strength in _strengths(runs):
            errors = [_error(runs.curves(setting, method), strength) for method in methods]
            if any(errors):
                start = f"| {setting.noise} | {100 * setting.trusted:g} | {strength:g} | "
                lines.append(start + " | ".join(errors) + " |")
    return "\n".join(lines)


def _error(curves: dict[int, Any], strength: float) -> str:
    """The error of each seed at a strength; reduced runs usually have one seed."""
    errors = [curve.get(strength, curve.get(None)) for curve in curves.values()]
    return ", ".join(f"{error:.1f}" for error in errors if error is not None)


def _without_heading(markdown: str) -> str:
    return markdown.split("\n", 2)[2]


if __name__ == "__main__":
    print("\n\n".join([means(), *map(whole, sys.argv[1:] or (*WHOLE, *FEATURES)), *map(reduced, REDUCED)]))
