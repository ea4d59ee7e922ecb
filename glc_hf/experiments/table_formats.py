# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Tables of results as Markdown, as CSV and for a terminal."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable

from glc_hf.experiments.tables import Entry, Table


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
