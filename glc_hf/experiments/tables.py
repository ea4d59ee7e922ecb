# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The paper's tables, made from a sweep's results, each figure beside the paper's."""

from __future__ import annotations

import csv
import dataclasses
import io
import statistics
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from glc_hf.experiments.curves import (
    PAPER_METHODS,
    STRENGTHS,
    WEAK,
    Curve,
    Runs,
    Setting,
    area_under_error_curve,
    method_order,
    paper_presets,
    paper_value,
    printed_percents,
    read_runs,
)


@dataclasses.dataclass
class Entry:
    """
    One figure.

    Attributes:
        value (`float` or `None`): In percent, the mean over seeds; `None` where no seed's curve is complete.
        spread (`float` or `None`): The standard deviation over seeds, where there are two or more. Of a mean over
            rows, that of each seed's own mean, where all rows have the same seeds.
        paper (`float` or `None`): The paper's figure.
        run (`bool`): Whether the method was run at all in this table.
        seeds (`dict[int, float]`): The figure of each seed that is complete.
        cells (`dict[int, int]`): How many cells each seed has.
        expected (`int`): How many cells a complete seed has.
    """

    value: float | None = None
    spread: float | None = None
    paper: float | None = None
    run: bool = True
    seeds: dict[int, float] = dataclasses.field(default_factory=dict)
    cells: dict[int, int] = dataclasses.field(default_factory=dict)
    expected: int = 1

    @property
    def lack(self) -> str | None:
        """What is missing, or `None`."""
        short = {seed: cells for seed, cells in self.cells.items() if cells < self.expected}
        if not self.run or (self.cells and not short):
            return None
        counts = ", ".join(f"seed {seed}: {cells}" for seed, cells in short.items()) or "0"
        left = "" if self.value is None else ", left out of the mean"
        return f"{counts} of {self.expected} cells{left}"


@dataclasses.dataclass
class Table:
    """
    A table of one preset and one measure.

    Attributes:
        preset (`str`): Whose runs these are.
        reduced (`str` or `None`): What was made smaller than in the paper.
        metric (`str`): `area` under the error curve, or `error`; both in percent.
        methods (`list[str]`): The columns.
        rows (`list[tuple[Setting, list[Entry]]]`): Noise and fraction, and a figure for each method.
        mean (`list[Entry]`): Over `mean_rows`.
        mean_rows (`list[Setting]`): Those in which every method of the paper that was run is complete, and of these
            those that the paper has too, if there are any.
        notes (`list[str]`): What a reader has to know.
    """

    preset: str
    reduced: str | None
    metric: str
    methods: list[str]
    rows: list[tuple[Setting, list[Entry]]]
    mean: list[Entry]
    mean_rows: list[Setting]
    notes: list[str]


def make_tables(
    path: str | Path,
    preset: str | None = None,
    strengths: Sequence[float] = STRENGTHS,
    known_methods: Collection[str] | None = None,
) -> list[Table]:
    """
    The tables of a results file: for each preset one of areas under the error curve and, where there are labels of a
    weak classifier, one of errors.

    Args:
        path (`str` or `Path`): The results file of a sweep.
        preset (`str`, *optional*): Only the tables of this preset.
        strengths (`Sequence[float]`, *optional*): Where a complete curve has its points; by default the paper's
            eleven, 0, 0.1, …, 1.
        known_methods (`Collection[str]`, *optional*): Any other method's name in the file is an error.
    """
    area_under_error_curve([0.0] * len(strengths), strengths)  # says what is wrong with them
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


def _table(runs: Runs, settings: list[Setting], metric: str, points: tuple[float | None, ...]) -> Table:
    run = [name for name in runs.methods if any(runs.curves(setting, name) for setting in settings)]
    in_paper = [name for name in PAPER_METHODS if any(_paper(runs, setting, name) is not None for setting in settings)]
    methods = sorted({*run, *in_paper}, key=method_order)
    rows = []
    for setting in settings:
        entries = []
        for method in methods:
            entry = _entry(runs.curves(setting, method), points)
            entry.run = method in run
            entry.paper = _paper(runs, setting, method)
            entries.append(entry)
        rows.append((setting, entries))
    mean_rows = _rows_for_the_mean(rows, methods, run)
    mean = [
        _mean(column) for column in zip(*(entries for setting, entries in rows if setting in mean_rows), strict=True)
    ]
    if not mean:
        mean = [Entry(run=method in run) for method in methods]
    table = Table(runs.preset, runs.reduced, metric, methods, rows, mean, mean_rows, [])
    table.notes = _notes(table, runs, points)
    return table


def _paper(runs: Runs, setting: Setting, method: str) -> float | None:
    return paper_value(runs.preset, setting.noise, setting.trusted, method)


def _entry(curves: dict[int, Curve], points: tuple[float | None, ...]) -> Entry:
    cells, seeds = {}, {}
    for seed, curve in curves.items():
        if None in curve:  # flat: one cell stands for all
            cells[seed] = len(points)
            seeds[seed] = curve[None]
            continue
        cells[seed] = sum(point in curve for point in points)
        if cells[seed] == len(points):
            seeds[seed] = area_under_error_curve([curve[point] for point in points], points)
    values = list(seeds.values())
    return Entry(_mean_of(values), _spread_of(values), seeds=seeds, cells=cells, expected=len(points))


def _rows_for_the_mean(rows: list[tuple[Setting, list[Entry]]], methods: list[str], run: list[str]) -> list[Setting]:
    """Methods that the paper's tables don't have do not decide, so that one of them, run here and there, does no harm
    to the mean of the others."""
    deciding = [name for name in run if name in PAPER_METHODS] or run
    places = [methods.index(name) for name in deciding]
    complete = [(setting, row) for setting, row in rows if all(row[place].value is not None for place in places)]
    in_paper = [setting for setting, row in complete if any(entry.paper is not None for entry in row)]
    return in_paper or [setting for setting, _ in complete]


def _mean(column: Iterable[Entry]) -> Entry:
    """Of a method's figures and of the paper's, over the same rows."""
    column = list(column)
    values = [entry.value for entry in column]
    papers = [entry.paper for entry in column]
    seeds = {}
    if all(entry.seeds.keys() == column[0].seeds.keys() for entry in column):
        seeds = {seed: statistics.fmean(entry.seeds[seed] for entry in column) for seed in column[0].seeds}
    return Entry(
        value=None if None in values else _mean_of(values),
        spread=_spread_of(list(seeds.values())),
        seeds=seeds,
        paper=None if None in papers else _mean_of(papers),
        run=column[0].run,
    )


def _mean_of(values: list[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _spread_of(values: list[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None


def _notes(table: Table, runs: Runs, points: tuple[float | None, ...]) -> list[str]:
    notes = []
    if table.reduced is not None:
        notes.append(f"Reduced runs, not the paper's settings: {table.reduced}.")
    entries = [entry for _, entries in table.rows for entry in entries]
    if any(entry.paper is not None for entry in entries):
        notes.append("In brackets: the figure of the paper.")
        changed = {
            setting.trusted: printed_percents(table.preset)[setting.trusted]
            for setting, row in table.rows
            if any(entry.paper is not None for entry in row)
            and round(printed_percents(table.preset)[setting.trusted] / 100, 6) != setting.trusted
        }
        if changed:
            pairs = ", ".join(f"{100 * run:g} (printed as {printed:g})" for run, printed in changed.items())
            notes.append(f"Percent trusted is what was run; the paper's table prints other figures: {pairs}.")
    elif table.preset not in paper_presets():
        notes.append(f"The paper has no figures for {table.preset}; it has them for {', '.join(paper_presets())}.")
    else:
        notes.append("The paper has no figures for these rows.")
    seeds = {len(entry.cells) for entry in entries if entry.spread is not None}
    if seeds:
        notes.append(f"± is the standard deviation over seeds (up to {max(seeds)}).")
    if None not in points and points != STRENGTHS:
        notes.append(f"Areas over strengths {', '.join(f'{point:g}' for point in points)}, not the paper's eleven.")
    unused = _unused_strengths(table, runs, points)
    if unused:
        notes.append(f"Cells at strengths {', '.join(f'{strength:g}' for strength in unused)} are there but not used.")
    if not table.mean_rows:
        notes.append("No mean: no row is complete.")
        found = sorted(_strengths(table, runs))
        if None not in points and len(found) > 1 and set(found) != set(points):
            notes.append(
                f"For areas over the strengths that are there: --strengths {' '.join(f'{s:g}' for s in found)}."
            )
    elif len(table.mean_rows) < len(table.rows):
        rows = ", ".join(f"{setting.noise or 'any'} {100 * setting.trusted:g}" for setting in table.mean_rows)
        notes.append(f"The mean is over the rows that are complete, and in the paper if any is: {rows}.")
    return notes


def _unused_strengths(table: Table, runs: Runs, points: tuple[float | None, ...]) -> list[float]:
    if None in points:
        return []
    return sorted(_strengths(table, runs) - set(points))


def _strengths(table: Table, runs: Runs) -> set[float]:
    found = {
        strength
        for setting, _ in table.rows
        for method in table.methods
        for curve in runs.curves(setting, method).values()
        for strength in curve
    }
    return found - {None}


_MEASURES = {"area": "area under the error curve, percent", "error": "labels of a weak classifier, percent error"}
_CSV_FIELDS = (
    "preset",
    "reduced",
    "metric",
    "noise",
    "trusted",
    "method",
    "value",
    "spread",
    "seeds",
    "complete_seeds",
    "paper",
)


def to_markdown(tables: list[Table]) -> str:
    """Tables under headings, notes below each."""
    parts = []
    for table in tables:
        header, body, notes = _texts(table, best="**{}**")
        lines = [f"### {_title(table)}", "", _markdown_row(header)]
        lines.append(_markdown_row(["---", "---:", *("---:" for _ in table.methods)]))
        lines += [_markdown_row(row) for row in body]
        parts.append("\n".join([*lines, "", *(f"- {note}" for note in notes)]))
    return "\n\n".join(parts) + "\n"


def to_terminal(tables: list[Table], width: int | None = None) -> str:
    """
    Tables drawn with lines.

    Args:
        tables (`list[Table]`): Of `make_tables`.
        width (`int`, *optional*): Columns of the terminal. Left out: as wide as the tables are.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table as Drawn

    output = io.StringIO()
    console = Console(file=output, width=width or 400, highlight=False, markup=False, emoji=False)
    for place, table in enumerate(tables):
        header, body, notes = _texts(table, best="{}")
        drawn = Drawn(box=box.SIMPLE_HEAD)
        for number, name in enumerate(header):
            drawn.add_column(name, justify="left" if number == 0 else "right")
        for number, row in enumerate(body):
            drawn.add_row(*row, end_section=number == len(body) - 2)
        if place:
            console.print()
        console.print(_title(table), soft_wrap=True)
        console.print(drawn)
        for note in notes:
            console.print(note, soft_wrap=width is None)
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines()) + "\n"


def to_csv(tables: list[Table]) -> str:
    """One line a figure; the means have the noise `mean` and no fraction. Figures are not rounded."""
    output = io.StringIO()
    writer = csv.DictWriter(output, _CSV_FIELDS, lineterminator="\n")
    writer.writeheader()
    for table in tables:
        rows = [(setting.noise or "any", setting.trusted, entries) for setting, entries in table.rows]
        for noise, trusted, entries in [*rows, ("mean", None, table.mean)]:
            for method, entry in zip(table.methods, entries, strict=True):
                complete = sum(cells >= entry.expected for cells in entry.cells.values())
                is_mean = trusted is None  # over rows: cells are counted in these
                writer.writerow(
                    {
                        "preset": table.preset,
                        "reduced": table.reduced,
                        "metric": table.metric,
                        "noise": noise,
                        "trusted": trusted,
                        "method": method,
                        "value": entry.value,
                        "spread": entry.spread,
                        "seeds": None if is_mean else len(entry.cells),
                        "complete_seeds": None if is_mean else complete,
                        "paper": entry.paper,
                    }
                )
    return output.getvalue()


FORMATS: dict[str, Callable[[list[Table]], str]] = {
    "markdown": to_markdown,
    "csv": to_csv,
    "terminal": to_terminal,
}


def _title(table: Table) -> str:
    reduced = " (reduced)" if table.reduced is not None else ""
    return f"{table.preset}{reduced}: {_MEASURES[table.metric]}"


def _texts(table: Table, best: str) -> tuple[list[str], list[list[str]], list[str]]:
    """Header, rows with the mean last, and notes with the footnotes last. `best` is put around the lowest mean."""
    header = ["noise", "% trusted", *(method.replace("_", " ") for method in table.methods)]
    footnotes: dict[str, int] = {}
    body = [
        [setting.noise or "any", f"{100 * setting.trusted:g}", *(entry_text(entry, footnotes) for entry in entries)]
        for setting, entries in table.rows
    ]
    values = [entry.value for entry in table.mean if entry.value is not None]
    lowest = min(values) if len(values) > 1 else None
    means = [
        best.format(entry_text(entry)) if lowest is not None and entry.value == lowest else entry_text(entry)
        for entry in table.mean
    ]
    body.append(["mean", "", *means])
    return header, body, [*table.notes, *(f"[{number}] {text}" for text, number in footnotes.items())]


def entry_text(entry: Entry, footnotes: dict[str, int] | None = None) -> str:
    """A figure such as `4.3 ± 0.2 (3.4)`, the paper's in brackets. What is missing goes to the footnotes if given;
    equal ones share a number."""
    parts = []
    if entry.value is not None:
        parts.append(f"{entry.value:.1f}")
        if entry.spread is not None:
            parts.append(f"± {entry.spread:.1f}")
    elif entry.run:
        parts.append("–")
    if parts and footnotes is not None and entry.lack is not None:
        parts[-1] += f" [{footnotes.setdefault(entry.lack, len(footnotes) + 1)}]"
    if entry.paper is not None:
        parts.append(f"({entry.paper:.1f})")
    return " ".join(parts)


def _markdown_row(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
