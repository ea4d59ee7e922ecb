# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Puts the tables of the committed results into the README, between their markers.

python benchmarks/render_readme.py
"""

from __future__ import annotations

import re
import sys
from pathlib import Path


sys.path.insert(0, str(Path(__file__).parent))

import audit
import cost_table
import digits
import trec
import trusted_rows


README = Path(__file__).parents[1] / "README.md"


def render(text: str) -> str:
    """The README's text with its tables made anew."""
    tables = {
        "digits": digits.summary(),
        "trec": trec.summary(),
        "audit": audit.summary(),
        "trusted_rows": trusted_rows.summary(),
        "bench": cost_table.summary(),
    }
    for name, table in tables.items():
        text, found = re.subn(
            rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)",
            lambda match, table=table: match[1] + table + "\n" + match[2],
            text,
            flags=re.S,
        )
        if found != 1:
            raise SystemExit(f"the README has {found} places for the table {name!r}")
    return text


if __name__ == "__main__":
    README.write_text(render(README.read_text(encoding="utf-8")), encoding="utf-8")
