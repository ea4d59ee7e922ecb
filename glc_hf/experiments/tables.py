# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The paper's tables from the results of a sweep, with the paper's figure beside each value."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from statistics import fmean, stdev

from glc_hf._compat import is_installed
from glc_hf.experiments.curves import (
    PAPER_METHODS,
    STRENGTHS,
    WEAK,
    ErrorCurve,
    Runs,
    Setting,
    area_under_error_curve,
    method_order,
    paper_preset,
    paper_presets,
    paper_value,
    printed_percents,
    read_runs,
)


# Strengths of a complete curve; `(None,)` for labels of a weak classifier.
Points = tuple[float | None, ...]


@dataclasses.dataclass
class Entry:
    """One value of a table, in percent."""

    value: float | None = None  # mean over seeds; `None` if no seed is complete
    # Standard deviation over two or more seeds; for a mean over rows of the means of each seed, if all rows have them.
    spread: float | None = None
    paper: float | None = None  # the paper's figure
    run: bool = True  # whether this table has any run of the method
    seeds: dict[int, float] = dataclasses.field(default_factory=dict)  # the value of each complete seed
    counts: dict[int, int] = dataclasses.field(default_factory=dict)  # number of runs of each seed
    expected: int = 1  # number of runs of a complete seed

    @property
    def missing(self) -> str | None:
        """What is missing, or `None`."""
        short = {seed: count for seed, count in self.counts.items() if count < self.expected}
        if not self.run or (self.counts and not short):
            return None
        counts = ", ".join(f"seed {seed}: {count}" for seed, count in short.items()) or "0"
        return f"{counts} of {self.expected} runs{'' if self.value is None else ', left out of the mean'}"


@dataclasses.dataclass
class Table:
    """A table of one preset and one metric."""

    preset: str
    reduced: str | None  # what was made smaller than in the paper
    metric: str  # `area` under the error curve, or `error`
    methods: list[str]  # the columns
    rows: list[tuple[Setting, list[Entry]]]  # one entry per method
    mean: list[Entry]  # over `mean_rows`
    # Rows in which every method of the paper that was run is complete; of these only the paper's, if there are any.
    mean_rows: list[Setting]
    notes: list[str]  # printed below the table


def make_tables(
    path: str | Path,
    preset: str | None = None,
    strengths: Sequence[float] = STRENGTHS,
    known_methods: Collection[str] | None = None,
) -> list[Table]:
    """
    Make the tables of a results file: for each preset one of areas under the error curve and, if there are labels of a
    weak classifier, one of errors.

    Args:
        path (`str` or `Path`): The results file of a sweep.
        preset (`str`, *optional*): Make only the tables of this preset.
        strengths (`Sequence[float]`, *optional*): Strengths of a complete curve, by default the paper's eleven,
            0, 0.1, …, 1.
        known_methods (`Collection[str]`, *optional*): Raise for any other method name in the file.
    """
    area_under_error_curve([0.0] * len(strengths), strengths)  # raises for bad strengths
    points = tuple(sorted(round(strength, 6) for strength in strengths))
    tables = []
    for runs in read_runs(path, preset, known_methods):
        curved = [setting for setting in runs.settings if setting.noise != WEAK]
        weak = [setting for setting in runs.settings if setting.noise == WEAK]
        if curved:
            tables.append(_table(runs, curved, "area", points))
        if weak:
            tables.append(_table(runs, weak, "error", (None,)))
    return tables


def _table(runs: Runs, settings: list[Setting], metric: str, points: Points) -> Table:
    def paper(setting: Setting, method: str) -> float | None:
        return paper_value(runs.preset, setting.noise, setting.trusted, method)

    run = [name for name in runs.methods if any(runs.curves(setting, name) for setting in settings)]
    in_paper = [name for name in PAPER_METHODS if any(paper(setting, name) is not None for setting in settings)]
    methods = sorted({*run, *in_paper}, key=method_order)
    rows = [
        (setting, [_entry(runs.curves(setting, name), points, paper(setting, name), name in run) for name in methods])
        for setting in settings
    ]
    # Methods outside the paper's tables don't decide which rows are complete: they are often run for a few rows only.
    deciding = [methods.index(name) for name in run if name in PAPER_METHODS] or [methods.index(name) for name in run]
    complete = [(setting, row) for setting, row in rows if all(row[column].value is not None for column in deciding)]
    complete = [(s, row) for s, row in complete if any(entry.paper is not None for entry in row)] or complete
    columns = zip(*(row for _, row in complete), strict=True)
    mean = [_mean(column) for column in columns] or [Entry(run=name in run) for name in methods]
    mean_rows = [setting for setting, _ in complete]
    table = Table(runs.preset, runs.reduced, metric, methods, rows, mean, mean_rows, [])
    table.notes = _notes(table, runs, points)
    return table


def _entry(curves: dict[int, ErrorCurve], points: Points, paper: float | None, run: bool) -> Entry:
    counts, seeds = {}, {}
    for seed, curve in curves.items():
        flat = None in curve  # one run counts for all strengths
        counts[seed] = len(points) if flat else sum(point in curve for point in points)
        if flat:
            seeds[seed] = curve[None]
        elif counts[seed] == len(points):
            seeds[seed] = area_under_error_curve([curve[point] for point in points], _known(points))
    values = list(seeds.values())
    return Entry(_mean_of(values), _spread_of(values), paper, run, seeds, counts, len(points))


def _mean(column: Sequence[Entry]) -> Entry:
    """Mean of a method's values and of the paper's figures over the same rows."""
    values, papers = [entry.value for entry in column], [entry.paper for entry in column]
    seeds = {}
    if all(entry.seeds.keys() == column[0].seeds.keys() for entry in column):
        seeds = {seed: fmean(entry.seeds[seed] for entry in column) for seed in column[0].seeds}
    return Entry(_mean_of(values), _spread_of(list(seeds.values())), _mean_of(papers), column[0].run, seeds)


def _known(points: Points) -> tuple[float, ...]:
    return tuple(point for point in points if point is not None)


def _mean_of(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def _spread_of(values: list[float]) -> float | None:
    return stdev(values) if len(values) > 1 else None


def _notes(table: Table, runs: Runs, points: Points) -> list[str]:
    notes = []
    if table.reduced is not None:
        notes.append(f"Reduced runs, not the paper's settings: {table.reduced}.")
    in_paper = [setting for setting, row in table.rows if any(entry.paper is not None for entry in row)]
    if in_paper:
        notes.append("In brackets: the figure of the paper.")
        printed = printed_percents(table.preset)
        fractions = dict.fromkeys(setting.trusted for setting in in_paper)
        changed = [fraction for fraction in fractions if round(printed[fraction] / 100, 6) != fraction]
        if changed:
            pairs = ", ".join(f"{100 * fraction:g} (printed as {printed[fraction]:g})" for fraction in changed)
            notes.append(f"Percent trusted is what was run; the paper's table prints other figures: {pairs}.")
    elif paper_preset(table.preset) not in paper_presets():
        notes.append(f"The paper has no figures for {table.preset}; it has them for {', '.join(paper_presets())}.")
    else:
        notes.append("The paper has no figures for these rows.")
    seeds = [len(entry.counts) for _, row in table.rows for entry in row if entry.spread is not None]
    if seeds:
        notes.append(f"± is the standard deviation over seeds (up to {max(seeds)}).")
    available: set[float] = set()
    if None not in points:
        for setting, _ in table.rows:
            for method in table.methods:
                for curve in runs.curves(setting, method).values():
                    available.update(point for point in curve if point is not None)
        if points != STRENGTHS:
            notes.append(f"Areas over strengths {_listed(_known(points))}, not the paper's eleven.")
        unused = sorted(available - set(points))
        if unused:
            notes.append(f"Runs at strengths {_listed(unused)} are not used.")
    if not table.mean_rows:
        notes.append("No mean: no row is complete.")
        if len(available) > 1 and available != set(points):
            notes.append(f"For areas over the available strengths: --strengths {_listed(sorted(available), ' ')}.")
    elif len(table.mean_rows) < len(table.rows):
        rows = ", ".join(f"{setting.noise or 'any'} {100 * setting.trusted:g}" for setting in table.mean_rows)
        notes.append(f"The mean is over the complete rows, and of these over the paper's if there are any: {rows}.")
    return notes


def _listed(strengths: Sequence[float], separator: str = ", ") -> str:
    return separator.join(f"{strength:g}" for strength in strengths)


def to_markdown(tables: list[Table]) -> str:
    """Markdown tables under headings, with the notes below each."""
    parts = []
    for table in tables:
        header, body, notes = _texts(table, best="**{}**")
        lines = [header, ["---", "---:", *("---:" for _ in table.methods)], *body]
        drawn = ["| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines]
        parts.append("\n".join([f"### {_title(table)}", "", *drawn, "", *(f"- {note}" for note in notes)]))
    return "\n\n".join(parts) + "\n"


def to_terminal(tables: list[Table], width: int | None = None) -> str:
    """Tables drawn with lines, for a terminal of this width; by default as wide as the tables. Without rich they have
    no lines and are never wrapped."""
    if not is_installed("rich"):
        return "\n".join(map(_plain, tables))
    from rich import box
    from rich.console import Console
    from rich.table import Table as Drawn

    output = io.StringIO()
    console = Console(file=output, width=width or 400, highlight=False, markup=False, emoji=False)
    for number, table in enumerate(tables):
        header, body, notes = _texts(table, best="{}")
        drawn = Drawn(box=box.SIMPLE_HEAD)
        for column, name in enumerate(header):
            drawn.add_column(name, justify="left" if column == 0 else "right")
        for row, texts in enumerate(body):
            drawn.add_row(*texts, end_section=row == len(body) - 2)
        if number:
            console.print()
        console.print(_title(table), soft_wrap=True)
        console.print(drawn)
        for note in notes:
            console.print(note, soft_wrap=width is None)
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines()) + "\n"


def _plain(table: Table) -> str:
    header, body, notes = _texts(table, best="{}")
    widths = [max(map(len, column)) for column in zip(header, *body, strict=True)]
    lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in (header, *body)]
    return "\n".join([_title(table), "", *lines, "", *notes]) + "\n"


_CSV_FIELDS = (
    "preset", "reduced", "metric", "noise", "trusted", "method", "value", "spread", "seeds", "complete_seeds", "paper",
)  # fmt: skip


def to_csv(tables: list[Table]) -> str:
    """One line per value, not rounded; means have the noise `mean` and no fraction."""
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(_CSV_FIELDS)
    for table in tables:
        rows = [(setting.noise or "any", setting.trusted, entries) for setting, entries in table.rows]
        for noise, trusted, entries in [*rows, ("mean", None, table.mean)]:
            for method, entry in zip(table.methods, entries, strict=True):
                complete = sum(count >= entry.expected for count in entry.counts.values())
                seeds = (None, None) if trusted is None else (len(entry.counts), complete)
                names = (table.preset, table.reduced, table.metric, noise, trusted, method)
                writer.writerow((*names, entry.value, entry.spread, *seeds, entry.paper))
    return output.getvalue()


FORMATS: dict[str, Callable[[list[Table]], str]] = {"markdown": to_markdown, "csv": to_csv, "terminal": to_terminal}


def _title(table: Table) -> str:
    metrics = {"area": "area under the error curve, percent", "error": "labels of a weak classifier, percent error"}
    return f"{table.preset}{'' if table.reduced is None else ' (reduced)'}: {metrics[table.metric]}"


def _texts(table: Table, best: str) -> tuple[list[str], list[list[str]], list[str]]:
    """Header, rows with the mean last, and notes with the footnotes last. `best` formats the lowest mean."""
    header = ["noise", "% trusted", *(method.replace("_", " ") for method in table.methods)]
    footnotes: dict[str, int] = {}
    body = [
        [setting.noise or "any", f"{100 * setting.trusted:g}", *(entry_text(entry, footnotes) for entry in entries)]
        for setting, entries in table.rows
    ]
    values = [entry.value for entry in table.mean if entry.value is not None]
    lowest = min(values) if len(values) > 1 else None
    means = [(best if lowest is not None and e.value == lowest else "{}").format(entry_text(e)) for e in table.mean]
    body.append(["mean", "", *means])
    return header, body, [*table.notes, *(f"[{number}] {text}" for text, number in footnotes.items())]


def entry_text(entry: Entry, footnotes: dict[str, int] | None = None) -> str:
    """Format an entry like `4.3 ± 0.2 (3.4)`, with the paper's figure in brackets. What is missing is added to the
    footnotes, if given; equal footnotes share a number."""
    parts = []
    if entry.value is not None:
        parts.append(f"{entry.value:.1f}")
        if entry.spread is not None:
            parts.append(f"± {entry.spread:.1f}")
    elif entry.run:
        parts.append("–")
    if parts and footnotes is not None and entry.missing is not None:
        parts[-1] += f" [{footnotes.setdefault(entry.missing, len(footnotes) + 1)}]"
    if entry.paper is not None:
        parts.append(f"({entry.paper:.1f})")
    return " ".join(parts)
