# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
The table of costs, from the result files that exist.

A file has rows, as returned by [`timing.measured`], under `"measured"`. To add a benchmark, add its file to `FILES`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from result_files import RESULTS


FILES = [
    "corrected_loss.json",
    "training_step.json",
    "source_costs.json",
    "estimation.json",
    "import_time.json",
    "robust_run.json",
]


def summary(folder: Path = RESULTS) -> str:
    """The rows of all files as one Markdown table: median and quartiles (of fewer than four values the extremes)."""
    rows = [
        "| benchmark | baseline | ratio | spread | turns | target |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for path in (folder / name for name in FILES):
        if path.exists():
            rows += [_row(line) for line in json.loads(path.read_text(encoding="utf-8"))["measured"]]
    return "\n".join(rows)


def _row(line: dict[str, Any]) -> str:
    ratio, unit = line["ratio"], line.get("unit", "×")
    columns = (
        line["benchmark"],
        line["against"],
        f"**{ratio['median']:.2f}**{unit}",
        f"{ratio['low']:.2f}–{ratio['high']:.2f}",
        f"{ratio['count']:,}",
        f"≤ {line['at_most']:g}{unit}",
    )
    return "| " + " | ".join(columns) + " |"
