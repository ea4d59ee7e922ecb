# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Pictures of a sweep's results: error curves, and a true corruption matrix beside its estimates."""

from __future__ import annotations

import re
import statistics
import textwrap
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glc_hf.experiments.curves import WEAK, Curve, Runs, Setting, read_runs


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
