# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Writes the tables of the committed results into the README and docs/results.md, between their markers.

    python benchmarks/render_readme.py
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path


sys.path.insert(0, str(Path(__file__).parent))

import architectures
import audit
import cifar_finetune
import cost_table
import digits
import error_curve
import feature_heads
import lora_llm
import paper_tables
import real_noise
import relabelling
import review
import scale
import sources
import trec
import trusted_rows
import wrong_totals


ROOT = Path(__file__).parents[1]
TABLES: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {"trec": trec.summary, "real_noise": real_noise.means},
    "docs/benchmarks.md": {
        "digits": digits.summary,
        "real_noise": real_noise.summary,
        "sources": sources.summary,
        "audit": audit.summary,
        "review": review.summary,
        "wrong_totals": wrong_totals.summary,
        "relabelling": relabelling.summary,
        "trusted_rows": trusted_rows.summary,
        "lora_llm": lora_llm.summary,
        "architectures": architectures.summary,
        "error_curve": error_curve.summary,
        "bench": cost_table.summary,
    },
    "docs/scale.md": {"scale": scale.summary, "projection": scale.projection},
    "docs/results.md": {
        "paper_means": paper_tables.means,
        "feature_heads": feature_heads.summary,
        "cifar_finetune": cifar_finetune.summary,
        "feature_means": lambda: paper_tables.means(paper_tables.FEATURES),
        **{name: lambda name=name: paper_tables.whole(name) for name in (*paper_tables.WHOLE, *paper_tables.FEATURES)},
        **{f"{name}_reduced": lambda name=name: paper_tables.reduced(name) for name in paper_tables.REDUCED},
    },
}


def render(page: str, text: str) -> str:
    """Return the text of a page with its tables replaced."""
    for name, table in TABLES[page].items():
        text, replaced = re.subn(
            rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)",
            lambda match, table=table: match[1] + table() + "\n" + match[2],
            text,
            flags=re.S,
        )
        if replaced != 1:
            raise SystemExit(f"{page} has {replaced} pairs of markers for the table {name!r}, expected 1")
    return text


if __name__ == "__main__":
    for page in TABLES:
        path = ROOT / page
        path.write_text(render(page, path.read_text(encoding="utf-8")), encoding="utf-8")
