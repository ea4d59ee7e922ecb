# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Plots of a sweep's results: error curves, and a true corruption matrix beside its estimates."""

from __future__ import annotations

import re
import statistics
import textwrap
import warnings
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glc_hf.experiments.curves import WEAK, ErrorCurve, Runs, Setting, read_runs
from glc_hf.experiments.results import numbered_results
from glc_hf.heat_map import draw_matrix, new_figure, panel_size
from glc_hf.matrix import CorruptionMatrix, to_float64


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Okabe and Ito's colors, which are safe for color-blind readers, each with its own marker and line for print.
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
    "auto": ("#117733", "*", "-"),
}
_OTHER_STYLE = ("#7F7F7F", "h", ":")
_PANEL = (3.4, 2.9)  # inches


def plot_error_curves(
    path: str | Path, output: str | Path, preset: str | None = None, known_methods: Collection[str] | None = None
) -> list[Path]:
    """
    Plot percent error against strength, one figure per preset, one panel per noise and fraction of trusted rows.

    A line is the mean over seeds; the band around it spans the lowest to the highest seed. Labels of a weak classifier
    have no strength and no panel.

    Args:
        path (`str` or `Path`): The results file of a sweep.
        output (`str` or `Path`): The folder for the figures, each as PNG and SVG.
        preset (`str`, *optional*): Plot only this preset.
        known_methods (`Collection[str]`, *optional*): Raise for any other method name in the file.

    Returns:
        `list[Path]`: The written files; empty if no noise in the file has strengths.
    """
    written = []
    counts: Counter[str] = Counter()
    for runs in read_runs(path, preset, known_methods):
        panels = [setting for setting in runs.settings if setting.noise != WEAK]
        if panels:
            name = f"error-curves-{runs.preset}" + ("-reduced" if runs.reduced is not None else "")
            counts[name] += 1
            suffix = f"-{counts[name]}" if counts[name] > 1 else ""
            written += save(error_curves_figure(runs, panels), output, name + suffix)
    return written


def error_curves_figure(runs: Runs, panels: list[Setting]) -> Figure:
    """Figure of one preset: one row per noise, one column per fraction."""
    noises = list(dict.fromkeys(setting.noise for setting in panels))
    fractions = sorted({setting.trusted for setting in panels})
    methods = [name for name in runs.methods if any(runs.curves(setting, name) for setting in panels)]
    width = max(_PANEL[0] * len(fractions), 4.8)
    reduced = [] if runs.reduced is None else textwrap.wrap(f"reduced runs: {runs.reduced}", int(width * 11))
    legend_lines = -(-len(methods) // max(2, int(width / 1.6)))
    height = _PANEL[1] * len(noises) + 0.24 * (len(reduced) + legend_lines) + 0.5
    figure = new_figure(width, height)
    from matplotlib.lines import Line2D

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
    figure.legend(handles=handles, loc="outside lower center", ncols=-(-len(methods) // legend_lines))
    figure.suptitle("\n".join([runs.preset, *reduced]), fontsize=11)
    return figure


def save(figure: Figure, folder: str | Path, name: str) -> list[Path]:
    """Write PNG and SVG. Equal figures give equal bytes: the SVG has no date and no random ids."""
    import matplotlib

    layout: Any = figure.get_layout_engine()  # a `ConstrainedLayoutEngine`
    layout.set(w_pad=0.08, h_pad=0.08)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^\w.+-]+", "_", name)
    written = []
    with matplotlib.rc_context({"svg.hashsalt": "glc_hf"}):
        for suffix, metadata in ((".png", {}), (".svg", {"Date": None})):
            written.append(folder / (name + suffix))
            figure.savefig(written[-1], dpi=150, metadata=metadata)
    return written


def _draw_curve(axes: Axes, curves: Mapping[int, ErrorCurve], method: str) -> None:
    """Mean and range over seeds at each strength; a flat curve spans all strengths."""
    errors: dict[float, list[float]] = {}
    for curve in curves.values():
        flat = curve.get(None)
        for strength, error in curve.items() if flat is None else ((0.0, flat), (1.0, flat)):
            if strength is not None:
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
    color, marker, line = _STYLES.get(method, _OTHER_STYLE)
    width, zorder = (2.0, 3) if method == "glc" else (1.4, 2)
    return dict(color=color, marker=marker, linestyle=line, markersize=4.5, linewidth=width, zorder=zorder)


SELECTORS = ("preset", "noise", "trusted", "strength", "seed")
_ROUNDING = 0.01
_ESTIMATES = {"glc": "GLC", "confusion_matrix": "confusion matrix", "forward": "forward"}


def plot_matrices(path: str | Path, output: str | Path, selection: Mapping[str, str]) -> list[Path]:
    """
    Plot the true matrix and the available estimates of `glc`, `confusion_matrix` and `forward`.

    Args:
        path (`str` or `Path`): The results file of a sweep, with the fields `matrix` and `true_matrix`.
        output (`str` or `Path`): The folder for the figure, as PNG and SVG.
        selection (`Mapping[str, str]`): Selects the run by `preset`, `noise`, `trusted`, `strength` and `seed`. Those
            with a single value in the file can be omitted.

    Returns:
        `list[Path]`: The written files.
    """
    run, rows = _select(path, selection)
    true, estimates = _matrices(path, rows)
    parts = [f"{run['preset']}, {run['noise']} noise", f"{100 * run['trusted']:g} % trusted", f"seed {run['seed']}"]
    names = ["matrices", run["preset"], run["noise"], f"trusted{run['trusted']:g}"]
    if run["strength"] is not None:
        parts.insert(1, f"strength {run['strength']:g}")
        names.append(f"strength{run['strength']:g}")
    if run["reduced"] is not None:
        parts.append(f"reduced: {run['reduced']}")
        names.append("reduced")
    title = ", ".join(parts)
    missing = [method for method in _ESTIMATES if method not in estimates] + ["the true matrix"] * (true is None)
    if missing:
        warnings.warn(f"{path} has no matrix of {title} for {', '.join(missing)}: left out.", stacklevel=2)
    return save(matrices_figure(true, estimates, title), output, "-".join([*names, f"seed{run['seed']}"]))


def matrices_figure(true: CorruptionMatrix | None, estimates: dict[str, CorruptionMatrix], title: str) -> Figure:
    """Panels side by side, two per row: the true matrix, and the estimates by the name of their method, with their
    distance to the true matrix."""
    panels = [("true", true)] if true is not None else []
    for method, matrix in estimates.items():
        distance = f"\ndistance to the true matrix: {matrix.distance(true):.3f}" if true is not None else ""
        panels.append((_ESTIMATES[method] + distance, matrix))
    columns = min(len(panels), 2)
    rows = -(-len(panels) // columns)
    side = min(panel_size(panels[0][1]), 6.5)
    figure = new_figure(side * columns + 1.2, (side + 0.3) * rows + 0.5)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    for axes, (name, matrix) in zip(grid.flat, panels, strict=False):
        image = draw_matrix(axes, matrix, name)
    figure.colorbar(image, ax=grid, shrink=0.6, label="p(noisy label | true label)")
    figure.suptitle(title, wrap=True)
    return figure


def _select(path: str | Path, selection: Mapping[str, str]) -> tuple[dict[str, Any], list[tuple[int, dict[str, Any]]]]:
    """Return the selected run and its numbered lines."""
    unknown = [name for name in selection if name not in SELECTORS]
    if unknown:
        raise ValueError(f"matrices are selected by {', '.join(SELECTORS)}, not by {unknown[0]!r}.")
    rows = [
        (number, row) for number, row in numbered_results(path) if row["method"] in _ESTIMATES and row.get("matrix")
    ]
    if not rows:
        raise ValueError(f"{path} has no matrices of {', '.join(_ESTIMATES)}: no line has the field `matrix`.")

    def choices(name: str) -> str:
        return ", ".join(dict.fromkeys("null" if row[name] is None else str(row[name]) for _, row in rows))

    for name, text in selection.items():
        selected = [(number, row) for number, row in rows if _equals(row[name], text)]
        if not selected:
            raise ValueError(f"{path} has no matrices with {name}={text} here; {name} is {choices(name)}.")
        rows = selected
    for name in SELECTORS:
        if len({row[name] for _, row in rows}) > 1:
            raise ValueError(f"{path} has several matrices; {name} is {choices(name)}. Choose one with {name}=…")
    reduced = {row.get("reduced") for _, row in rows}
    if len(reduced) > 1:
        listed = ", ".join("not reduced" if text is None else text for text in sorted(reduced, key=str))
        raise ValueError(
            f"{path} has this run several times, reduced in different ways: {listed}. Use one file for each."
        )
    return {name: rows[0][1][name] for name in SELECTORS} | {"reduced": reduced.pop()}, rows


def _equals(value: Any, text: str) -> bool:
    if isinstance(value, (int, float)):
        try:
            return round(float(text), 6) == round(value, 6)
        except ValueError:
            return False
    return text == ("null" if value is None else value)


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
    """Results files hold rounded numbers, so rows sum only roughly to one."""
    probs = to_float64(stored)
    sums = probs.sum(axis=-1, keepdims=True)
    rounded = np.abs(sums - 1.0) < _ROUNDING
    return CorruptionMatrix(probs / np.where(rounded, sums, 1.0), row.get("label_names"))
