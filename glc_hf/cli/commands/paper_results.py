# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`glc-hf table` and `glc-hf plot`: the paper's tables and error curves from the results file of a sweep."""

from __future__ import annotations

import argparse
import shutil
import sys
import warnings
from pathlib import Path


def table(argv: list[str]) -> int:
    """Print the tables, or write them to a file."""
    options = table_parser().parse_args(argv)

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


def table_parser() -> argparse.ArgumentParser:
    """Return the parser of `glc-hf table`."""
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


def plot(argv: list[str]) -> int:
    """Draw the plots and print the name of each written file."""
    options = plot_parser().parse_args(argv)
    pairs = [text.partition("=") for text in options.matrices or ()]
    for pair in pairs:
        if not all(pair):
            raise ValueError(f"--matrices takes values like noise=flip strength=0.6, not {''.join(pair)!r}.")

    from glc_hf.cli.options import method_names
    from glc_hf.experiments.plots import plot_error_curves, plot_matrices

    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    written = plot_error_curves(options.results, options.output, options.preset, method_names())
    if not written:
        print("no error curves: labels of a weak classifier have no strengths; see `glc-hf table`.")
    if options.matrices is not None:
        selection = {} if options.preset is None else {"preset": options.preset}
        selection.update((name, value) for name, _, value in pairs)
        written += plot_matrices(options.results, options.output, selection)
    for path in written:
        print(path)
    return 0


def plot_parser() -> argparse.ArgumentParser:
    """Return the parser of `glc-hf plot`."""
    parser = argparse.ArgumentParser(
        prog="glc-hf plot",
        description="Plot the results of a sweep as PNG and SVG: error against strength of the noise, one figure per "
        "preset, one panel per noise and percent trusted.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("results", metavar="RESULTS.jsonl", help="File written by `glc-hf sweep`.")
    add("--output", metavar="DIR", required=True, help="Folder for the plots.")
    add("--preset", metavar="NAME", help="Only this preset, for example mnist.")
    add(
        "--matrices",
        metavar="NAME=VALUE",
        nargs="*",
        help="Also plot the true matrix beside the estimates of glc, confusion_matrix and forward, for the run with "
        "this preset, noise, trusted, strength and seed. Those with a single value in the file can be omitted. "
        "Example: --matrices noise=flip trusted=0.01 strength=0.6 seed=0",
    )
    return parser
