# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`glc-hf plot`: error curves and matrices from the results file of a sweep."""

from __future__ import annotations

import argparse
import warnings


def main(argv: list[str]) -> int:
    """Draw the plots and print the name of each written file."""
    options = _parser().parse_args(argv)
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


def _parser() -> argparse.ArgumentParser:
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
