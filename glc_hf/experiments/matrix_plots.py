# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The picture of a true corruption matrix beside what each method estimated, from the matrices in a results file."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glc_hf.corruption.matrix import CorruptionMatrix
from glc_hf.corruption.matrix_checks import to_float64
from glc_hf.corruption.plot import draw_matrix, side_of
from glc_hf.experiments.plots import save
from glc_hf.experiments.results import numbered_results


if TYPE_CHECKING:
    from matplotlib.figure import Figure

SELECTORS = ("preset", "noise", "trusted", "strength", "seed")
_ROUNDING = 0.01
_ESTIMATES = {"glc": "GLC", "confusion_matrix": "confusion matrix", "forward": "forward"}


def plot_matrices(path: str | Path, output: str | Path, selection: Mapping[str, str]) -> list[Path]:
    """
    Draws the true matrix and the estimates of `glc`, `confusion_matrix` and `forward`, those that are there.

    Args:
        path (`str` or `Path`): The results file of a sweep, whose lines have `matrix` and `true_matrix`.
        output (`str` or `Path`): The folder for the picture, as PNG and SVG.
        selection (`Mapping[str, str]`): Which cell: `preset`, `noise`, `trusted`, `strength` and `seed`. Those that
            leave no choice may be left out.

    Returns:
        `list[Path]`: What was written.
    """
    cell, rows = _select(path, selection)
    true, estimates = _matrices(path, rows)
    missing = [method for method in _ESTIMATES if method not in estimates] + (
        ["the true matrix"] if true is None else []
    )
    if missing:
        warnings.warn(f"{path} has no matrix of {_describe(cell)} for {', '.join(missing)}: left out.", stacklevel=2)
    figure = matrices_figure(true, estimates, _describe(cell))
    parts = [cell["preset"], cell["noise"], f"trusted{cell['trusted']:g}"]
    if cell["strength"] is not None:
        parts.append(f"strength{cell['strength']:g}")
    if cell["reduced"] is not None:
        parts.append("reduced")
    return save(figure, output, "-".join(["matrices", *parts, f"seed{cell['seed']}"]))


def matrices_figure(true: CorruptionMatrix | None, estimates: dict[str, CorruptionMatrix], title: str) -> Figure:
    """
    Panels side by side, two in a row; under an estimate's name, its distance to the true matrix.

    Args:
        true ([`CorruptionMatrix`] or `None`): Drawn first.
        estimates (`dict[str, CorruptionMatrix]`): By the method's name.
        title (`str`): Above all.
    """
    from matplotlib.figure import Figure

    panels = [("true", true)] if true is not None else []
    for method, matrix in estimates.items():
        distance = f"\ndistance to the true matrix: {matrix.distance(true):.3f}" if true is not None else ""
        panels.append((_ESTIMATES[method] + distance, matrix))
    columns = min(len(panels), 2)
    rows = -(-len(panels) // columns)
    side = min(side_of(panels[0][1]), 6.5)
    figure = Figure(figsize=(side * columns + 1.2, (side + 0.3) * rows + 0.5), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    for axes, (name, matrix) in zip(grid.flat, panels, strict=False):
        image = draw_matrix(axes, matrix, name)
    figure.colorbar(image, ax=grid, shrink=0.6, label="p(noisy label | true label)")
    figure.suptitle(title, wrap=True)
    return figure


def _select(path: str | Path, selection: Mapping[str, str]) -> tuple[dict[str, Any], list[tuple[int, dict[str, Any]]]]:
    """The cell that is meant, and its lines."""
    unknown = [name for name in selection if name not in SELECTORS]
    if unknown:
        raise ValueError(f"matrices are chosen by {', '.join(SELECTORS)}, not by {unknown[0]!r}.")
    rows = [
        (number, row) for number, row in numbered_results(path) if row["method"] in _ESTIMATES and row.get("matrix")
    ]
    if not rows:
        raise ValueError(
            f"{path} has no matrices of {', '.join(_ESTIMATES)}: a line that has one has the field `matrix`."
        )
    for name, wanted in selection.items():
        found = [(number, row) for number, row in rows if _same(row[name], wanted)]
        if not found:
            raise ValueError(f"{path} has no matrices with {name}={wanted} here; {name} is {_choices(rows, name)}.")
        rows = found
    for name in SELECTORS:
        if len({row[name] for _, row in rows}) > 1:
            raise ValueError(
                f"{path} has several matrices to choose from; {name} is {_choices(rows, name)}. Choose one with "
                f"{name}=…"
            )
    reduced = {row.get("reduced") for _, row in rows}
    if len(reduced) > 1:
        ways = ", ".join("not reduced" if way is None else way for way in sorted(reduced, key=str))
        raise ValueError(
            f"{path} has this cell several times, reduced in different ways: {ways}. Use a file for each."
        )
    return {name: rows[0][1][name] for name in SELECTORS} | {"reduced": reduced.pop()}, rows


def _same(value: Any, wanted: str) -> bool:
    if isinstance(value, (int, float)):
        try:
            return round(float(wanted), 6) == round(value, 6)
        except ValueError:
            return False
    return wanted == ("null" if value is None else value)


def _choices(rows: list[tuple[int, dict[str, Any]]], name: str) -> str:
    return ", ".join(dict.fromkeys("null" if row[name] is None else str(row[name]) for _, row in rows))


def _matrices(
    path: str | Path, rows: list[tuple[int, dict[str, Any]]]
) -> tuple[CorruptionMatrix | None, dict[str, CorruptionMatrix]]:
    true, estimates = None, {}
    for number, row in rows:
        try:
            estimates[row["method"]] = _matrix(row["matrix"], row)
            if true is None and row.get("true_matrix") is not None:
                true = _matrix(row["true_matrix"], row)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
    return true, {method: estimates[method] for method in _ESTIMATES if method in estimates}


def _matrix(stored: list[list[float]], row: dict[str, Any]) -> CorruptionMatrix:
    """Results files hold rounded numbers, whose rows sum to one no more than roughly."""
    probs = to_float64(stored)
    sums = probs.sum(axis=-1, keepdims=True)
    rounded = np.abs(sums - 1.0) < _ROUNDING
    return CorruptionMatrix(probs / np.where(rounded, sums, 1.0), row.get("label_names"))


def _describe(cell: Mapping[str, Any]) -> str:
    parts = [f"{cell['preset']}, {cell['noise']} noise"]
    if cell["strength"] is not None:
        parts.append(f"strength {cell['strength']:g}")
    parts += [f"{100 * cell['trusted']:g} % trusted", f"seed {cell['seed']}"]
    if cell["reduced"] is not None:
        parts.append(f"reduced: {cell['reduced']}")
    return ", ".join(parts)
