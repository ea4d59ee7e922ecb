# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Pictures of a sweep's results: error curves, and a true corruption matrix beside its estimates."""

from __future__ import annotations

import re
import statistics
import textwrap
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glc_hf.experiments.curves import WEAK, Curve, Runs, Setting, read_runs
from glc_hf.experiments.results import numbered_results
from glc_hf.matrix import CorruptionMatrix, draw_matrix, panel_size, to_float64


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Colours that people with any colour vision tell apart (Okabe and Ito's), each with a marker and a line of its own, so
# that the curves also differ in print.
_STYLES = {
    "trusted_only": ("#000000", "", (0, (1, 1.5))),
    "no_correction": ("#E69F00", "s", "--"),
    "forward": ("#56B4E9", "v", "-."),
    "forward_gold": ("#0072B2", "^", "-."),
    "distillation": ("#CC79A7", "D", "--"),
    "confusion_matrix": ("#009E73", "P", "-"),
    "glc": ("#D55E00", "o", "-"),
    "true_matrix": ("#7F7F7F", "x", ":"),
    "reweight": ("#332288", "<", ":"),
    "finetune_on_trusted": ("#882255", ">", ":"),
}
_OTHER_STYLE = ("#7F7F7F", "*", ":")
_PANEL = (3.4, 2.9)  # inches


def plot_error_curves(
    path: str | Path,
    output: str | Path,
    preset: str | None = None,
    known_methods: Collection[str] | None = None,
) -> list[Path]:
    """
    Draws percent error against strength, one picture a preset, one panel a noise and fraction of trusted rows.

    A line is the mean over seeds, the band around it goes from the lowest to the highest seed. Labels of a weak
    classifier have no strengths and so no panel.

    Args:
        path (`str` or `Path`): The results file of a sweep.
        output (`str` or `Path`): The folder for the pictures, each as PNG and SVG.
        preset (`str`, *optional*): Only this preset.
        known_methods (`Collection[str]`, *optional*): Any other method's name in the file is an error.

    Returns:
        `list[Path]`: What was written; nothing where no noise in the file has strengths.
    """
    written = []
    numbers: dict[str, int] = {}
    for runs in read_runs(path, preset, known_methods):
        panels = [setting for setting in runs.settings if setting.noise != WEAK]
        if panels:
            name = f"error-curves-{runs.preset}" + ("-reduced" if runs.reduced is not None else "")
            numbers[name] = numbers.get(name, 0) + 1
            number = f"-{numbers[name]}" if numbers[name] > 1 else ""
            written += save(error_curves_figure(runs, panels), output, name + number)
    return written


def error_curves_figure(runs: Runs, panels: list[Setting]) -> Figure:
    """The picture of one preset: noises down, fractions across."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    noises = list(dict.fromkeys(setting.noise for setting in panels))
    fractions = sorted({setting.trusted for setting in panels})
    methods = [name for name in runs.methods if any(runs.curves(setting, name) for setting in panels)]
    width = max(_PANEL[0] * len(fractions), 4.8)
    title = _title(runs, width)
    legend_lines = -(-len(methods) // max(2, int(width / 1.6)))
    columns = -(-len(methods) // legend_lines)
    lines = title.count("\n") + legend_lines
    figure = Figure(figsize=(width, _PANEL[1] * len(noises) + 0.24 * lines + 0.5), layout="constrained")
    grid = figure.subplots(len(noises), len(fractions), sharex=True, sharey=True, squeeze=False)
    for row, noise in enumerate(noises):
        for column, trusted in enumerate(fractions):
            axes = grid[row][column]
            if Setting(noise, trusted) not in panels:
                axes.set_axis_off()
                continue
            for method in methods:
                _draw_curve(axes, runs.curves(Setting(noise, trusted), method), method)
            axes.set_title(f"{noise or 'any'} noise, {100 * trusted:g} % trusted", fontsize=10)
            axes.set_xlim(-0.02, 1.02)
            axes.set_ylim(0, 100)
            axes.grid(alpha=0.25, linewidth=0.6)
            axes.tick_params(labelbottom=True, labelleft=True)
            axes.set_xlabel("strength of the noise")
            axes.set_ylabel("test error (%)")
    handles = [Line2D([], [], label=method.replace("_", " "), **_style(method)) for method in methods]
    figure.legend(handles=handles, loc="outside lower center", ncols=columns)
    figure.suptitle(title, fontsize=11)
    return figure


def _title(runs: Runs, width: float) -> str:
    lines = [runs.preset]
    if runs.reduced is not None:
        lines += textwrap.wrap(f"reduced runs: {runs.reduced}", int(width * 11))
    return "\n".join(lines)


def save(figure: Figure, folder: str | Path, name: str) -> list[Path]:
    """Writes PNG and SVG. The same figure gives the same bytes: no date, no random names inside the SVG."""
    import matplotlib

    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^\w.+-]+", "_", name)
    written = []
    with matplotlib.rc_context({"svg.hashsalt": "glc_hf"}):
        for suffix, metadata in ((".png", {}), (".svg", {"Date": None})):
            written.append(folder / (name + suffix))
            figure.savefig(written[-1], dpi=150, metadata=metadata)
    return written


def _draw_curve(axes: Axes, curves: Mapping[int, Curve], method: str) -> None:
    """The seeds' mean and range at each strength; flat curves go all the way."""
    errors: dict[float, list[float]] = {}
    for curve in curves.values():
        flat = curve.get(None)
        for strength, error in curve.items() if flat is None else ((0.0, flat), (1.0, flat)):
            errors.setdefault(strength, []).append(error)
    if not errors:
        return
    strengths = sorted(errors)
    style = _style(method)
    axes.plot(strengths, [statistics.fmean(errors[strength]) for strength in strengths], **style)
    if len(curves) > 1:
        low, high = ([pick(errors[strength]) for strength in strengths] for pick in (min, max))
        axes.fill_between(strengths, low, high, color=style["color"], alpha=0.18, linewidth=0)


def _style(method: str) -> dict[str, Any]:
    colour, marker, line = _STYLES.get(method, _OTHER_STYLE)
    above = 3 if method == "glc" else 2
    return {
        "color": colour,
        "marker": marker,
        "linestyle": line,
        "markersize": 4.5,
        "linewidth": 2.0 if above == 3 else 1.4,
        "zorder": above,
    }


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
    side = min(panel_size(panels[0][1]), 6.5)
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
