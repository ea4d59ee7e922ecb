# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`glc-hf plot`: error curves and matrices from the results file of a sweep."""

from __future__ import annotations

import argparse
import warnings


def main(argv: list[str]) -> int:
    """Draws, and prints the name of each file it wrote."""
    options = _parser().parse_args(argv)
    selection = None if options.matrices is None else _selection(options.matrices)

    from glc_hf.cli.options import method_names
    from glc_hf.experiments.plots import plot_error_curves

    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    written = plot_error_curves(options.results, options.output, options.preset, method_names())
    if not written:
        print("no error curves: labels of a weak classifier have no strengths; see `glc-hf table`.")
    if selection is not None:
        from glc_hf.experiments.plots import plot_matrices

        if options.preset is not None:
            selection = {"preset": options.preset, **selection}
        written += plot_matrices(options.results, options.output, selection)
    for path in written:
        print(path)
    return 0


def _selection(words: list[str]) -> dict[str, str]:
    pairs = [word.partition("=") for word in words]
    for word, (name, equals, value) in zip(words, pairs, strict=True):
        if not (name and equals and value):
            raise ValueError(f"--matrices takes words such as noise=flip strength=0.6, not {word!r}.")
    return {name: value for name, _, value in pairs}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="glc-hf plot",
        description="Draw the results of a sweep as PNG and SVG: error against strength of the noise, one picture a "
        "preset, one panel a noise and percent trusted.",
        allow_abbrev=False,
    )
    parser.add_argument("results", metavar="RESULTS.jsonl", help="The file that `glc-hf sweep` wrote.")
    parser.add_argument("--output", metavar="DIR", required=True, help="The folder for the pictures.")
    parser.add_argument("--preset", metavar="NAME", help="Only this preset, such as mnist.")
    parser.add_argument(
        "--matrices",
        metavar="NAME=VALUE",
        nargs="*",
        help="Also draw the true matrix beside the estimates of glc, confusion_matrix and forward. Says of which "
        "cell: preset, noise, trusted, strength, seed; those that leave no choice may be left out. "
        "Such as: --matrices noise=flip trusted=0.01 strength=0.6 seed=0",
    )
    return parser
