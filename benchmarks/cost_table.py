# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
The table of costs, from the result files that exist.

A file holds measured lines, as [`timing.measured`] makes them, under `"measured"`. Another benchmark joins the table
by its name in `FILES`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from timing import RESULTS


FILES = ["corrected_loss.json", "training_step.json", "estimation.json", "import_time.json", "robust_run.json"]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The measured lines of a result file; none where there is no such file."""
    return json.loads(path.read_text(encoding="utf-8"))["measured"] if path.exists() else []


def summary(folder: Path = RESULTS) -> str:
    """The lines of all files as one Markdown table: median and quartiles (of fewer than four turns the extremes)."""
    rows = [
        "| what | against | ratio | spread | turns | meant to be at most |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name in FILES:
        rows += [_row(line) for line in read_lines(folder / name)]
    return "\n".join(rows)


def _row(line: dict[str, Any]) -> str:
    ratio, unit = line["ratio"], line.get("unit", "×")
    cells = (
        line["benchmark"],
        line["against"],
        f"**{ratio['median']:.2f}**{unit}",
        f"{ratio['low']:.2f}–{ratio['high']:.2f}",
        f"{ratio['count']:,}",
        f"{line['at_most']:g}{unit}",
    )
    return "| " + " | ".join(cells) + " |"
