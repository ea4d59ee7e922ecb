# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
The paper's tables from the committed results of sweeps, for the README and docs/results.md.

    python benchmarks/paper_tables.py
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from glc_hf.experiments.curves import PAPER_METHODS, STRENGTHS, WEAK, Runs, read_runs
from glc_hf.experiments.presets import get_preset
from glc_hf.experiments.results import read_results
from glc_hf.experiments.tables import Table, entry_text, make_tables, to_markdown


RESULTS = Path(__file__).parent / "results"
WHOLE = ("mnist", "sst", "twitter")
REDUCED = ("imdb", "cifar10", "cifar100")
NOTHING = "Not measured yet."


def means() -> str:
    """One line a dataset: the means over its complete rows, the paper's in brackets, and how much of it there is."""
    lines = [
        "| dataset | rows | seeds | " + " | ".join(name.replace("_", " ") for name in PAPER_METHODS) + " |",
        "| --- | --- | --- |" + " ---: |" * len(PAPER_METHODS),
    ]
    for name in WHOLE:
        path = RESULTS / f"{name}.jsonl"
        if not path.exists():
            continue
        (table,) = make_tables(path)
        figures = dict(zip(table.methods, table.mean, strict=True))
        lowest = min((entry.value for entry in table.mean if entry.value is not None), default=None)
        texts = []
        for method in PAPER_METHODS:
            text = entry_text(figures[method])
            texts.append(f"**{text}**" if lowest is not None and figures[method].value == lowest else text)
        rows = f"{len(table.mean_rows)} of {rows_of_paper(name)}"
        lines.append(f"| {name} | {rows} | {seeds_of(table)} | " + " | ".join(texts) + " |")
    return "\n".join(lines) if len(lines) > 2 else NOTHING


def rows_of_paper(preset: str) -> int:
    """How many rows the paper's table of a dataset has."""
    made = get_preset(preset)
    return sum(len(made.trusted_with(noise)) for noise in made.noises if noise != WEAK)


def seeds_of(table: Table) -> str:
    """How many seeds each method has in the rows of the mean, such as `3 (glc, confusion matrix), 1 (others)`."""
    numbers: dict[int, list[str]] = {}
    for place, method in enumerate(table.methods):
        entries = [row[place] for setting, row in table.rows if setting in table.mean_rows]
        if entries:
            numbers.setdefault(min(len(entry.seeds) for entry in entries), []).append(method.replace("_", " "))
    if len(numbers) <= 1:
        return ", ".join(map(str, numbers))
    most = max(numbers, key=lambda number: len(numbers[number]))
    parts = [f"{number} ({'others' if number == most else ', '.join(methods)})" for number, methods in numbers.items()]
    return ", ".join(sorted(parts, reverse=True))


def whole(name: str) -> str:
    """Every row of a dataset's table, and how many of its cells are there."""
    path = RESULTS / f"{name}.jsonl"
    if not path.exists():
        return NOTHING
    cells = {(row["noise"], row["trusted"], row["method"], row["strength"], row["seed"]) for row in read_results(path)}
    expected = rows_of_paper(name) * len(PAPER_METHODS) * len(STRENGTHS)
    seeds: dict[int, int] = {}
    for *_, seed in sorted(cells, key=lambda cell: cell[-1]):
        seeds[seed] = seeds.get(seed, 0) + 1
    counts = ", ".join(f"seed {seed}: {number:,} cells" for seed, number in seeds.items())
    (table,) = make_tables(path)
    missing = rows_of_paper(name) - len(table.rows)
    absent = f" {missing} of its {rows_of_paper(name)} rows are not there yet." if missing else ""
    count = f"- Cells: {counts}; {expected} make the whole table of seven methods at one seed.{absent}"
    return f"{_without_heading(to_markdown([table]))}{count}"


def reduced(name: str) -> str:
    """The tables of reduced runs: areas over the strengths there are, and every error."""
    path = RESULTS / f"{name}-reduced.jsonl"
    if not path.exists():
        return NOTHING
    parts = []
    for runs in read_runs(path):
        strengths = _strengths(runs)
        made = make_tables(path, strengths=strengths) if len(strengths) > 1 else make_tables(path)
        for table in made:
            if table.reduced != runs.reduced or (table.metric == "area" and len(strengths) < 2):
                continue
            kind = "Area under the error curve" if table.metric == "area" else "Labels of a weak classifier, error"
            parts.append(f"{kind}, percent (reduced):\n\n{_without_heading(to_markdown([table])).rstrip()}")
        if strengths:
            parts.append(f"Error at each strength, percent (reduced):\n\n{_errors(runs)}")
    return "\n\n".join(parts)


def _strengths(runs: Runs) -> list[float]:
    """Those that some method was run at in some row."""
    curved = [setting for setting in runs.settings if setting.noise != WEAK]
    found = {
        strength
        for setting in curved
        for method in runs.methods
        for curve in runs.curves(setting, method).values()
        for strength in curve
    }
    return sorted(found - {None})


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
                place = f"| {setting.noise} | {100 * setting.trusted:g} | {strength:g} | "
                lines.append(place + " | ".join(errors) + " |")
    return "\n".join(lines)


def _error(curves: dict[int, Any], strength: float) -> str:
    """Of the one seed of reduced runs; several stand side by side."""
    found = [curve.get(strength, curve.get(None)) for curve in curves.values()]
    return ", ".join(f"{error:.1f}" for error in found if error is not None)


def _without_heading(markdown: str) -> str:
    return markdown.split("\n", 2)[2]


if __name__ == "__main__":
    print("\n\n".join([means(), *map(whole, sys.argv[1:] or WHOLE), *map(reduced, REDUCED)]))
