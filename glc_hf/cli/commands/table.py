# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`glc-hf table`: the paper's tables from the results file of a sweep."""

from __future__ import annotations

import argparse
import shutil
import sys
import warnings
from pathlib import Path


def main(argv: list[str]) -> int:
    """Print the tables, or write them to a file."""
    options = _parser().parse_args(argv)

    from glc_hf.cli.options import method_names
    from glc_hf.experiments.curves import STRENGTHS
    from glc_hf.experiments.tables import FORMATS, make_tables, to_terminal

    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    tables = make_tables(options.results, options.preset, options.strengths or STRENGTHS, method_names())
    output = None if options.output is None else Path(options.output)
    by_suffix = {".md": "markdown", ".csv": "csv"}.get(output.suffix.lower() if output else "", "terminal")
    format_name = options.format or by_suffix
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(FORMATS[format_name](tables), encoding="utf-8")
        print(f"wrote {output} ({format_name})", file=sys.stderr)
    elif format_name == "terminal" and sys.stdout.isatty():
        print(to_terminal(tables, shutil.get_terminal_size().columns), end="")
    else:
        print(FORMATS[format_name](tables), end="")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="glc-hf table",
        description="Make the paper's tables from the results file of a sweep: one row per noise and percent trusted, "
        "one column per method. Each value is the area under the error curve with the paper's figure in brackets, for "
        "example 4.3 (3.4). Incomplete curves are left out of the means.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("results", metavar="RESULTS.jsonl", help="File written by `glc-hf sweep`.")
    add("--preset", metavar="NAME", help="Only the tables of this preset, for example mnist.")
    add(
        "--strengths",
        metavar="S",
        type=float,
        nargs="+",
        help="Strengths of a complete curve (default: the paper's eleven, 0 0.1 … 1).",
    )
    add(
        "--format",
        choices=("markdown", "csv", "terminal"),
        help="Default: by the suffix of --output (.md, .csv), else terminal.",
    )
    add("--output", metavar="FILE", help="Write to this file instead of printing.")
    return parser
