# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`glc-hf table`: the paper's tables from the results file of a sweep."""

from __future__ import annotations

import argparse
import shutil
import sys
import warnings
from pathlib import Path


_FORMAT_OF = {".md": "markdown", ".csv": "csv"}


def main(argv: list[str]) -> int:
    """Prints the tables, or writes them to a file."""
    options = _parser().parse_args(argv)

    from glc_hf.cli.options import method_names
    from glc_hf.experiments.curves import STRENGTHS
    from glc_hf.experiments.tables import FORMATS, make_tables, to_terminal

    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    tables = make_tables(options.results, options.preset, options.strengths or STRENGTHS, method_names())
    if options.output is None:
        kind = options.format or "terminal"
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        print(to_terminal(tables, width) if kind == "terminal" else FORMATS[kind](tables), end="")
        return 0
    output = Path(options.output)
    kind = options.format or _FORMAT_OF.get(output.suffix.lower(), "terminal")
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(FORMATS[kind](tables), encoding="utf-8")
    print(f"wrote {output} ({kind})", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="glc-hf table",
        description="Make the paper's tables from the results file of a sweep: rows are noise and percent trusted, "
        "columns are methods, and each figure is the area under the error curve beside the paper's, such as "
        "4.3 (3.4). Curves that are not complete are not averaged.",
        allow_abbrev=False,
    )
    parser.add_argument("results", metavar="RESULTS.jsonl", help="The file that `glc-hf sweep` wrote.")
    parser.add_argument("--preset", metavar="NAME", help="Only the tables of this preset, such as mnist.")
    parser.add_argument(
        "--strengths",
        metavar="S",
        type=float,
        nargs="+",
        help="The strengths that a complete curve has (default: the paper's eleven, 0 0.1 … 1).",
    )
    parser.add_argument(
        "--format",
        choices=("markdown", "csv", "terminal"),
        help="Default: by the ending of --output (.md, .csv), else terminal.",
    )
    parser.add_argument("--output", metavar="FILE", help="Write to this file instead of printing.")
    return parser
