# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Heat maps of corruption matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from glc_hf._compat import is_installed
from glc_hf.intervals import MATRIX_LEVEL, format_level


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage


_MAX_CLASSES_WITH_NUMBERS = 12
_MAX_CLASSES_WITH_NAMES = 40
_SHOWN_AS_ZERO = 0.005
_VALUE_SIZE, _INTERVAL_SIZE = 8.0, 6.5  # points


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return is_installed("matplotlib")


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches. It does not use pyplot: no global state, no display needed, nothing
    to close."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plots need the package matplotlib: pip install 'glc_hf[plots]'") from error
    return Figure(figsize=(width, height), layout="constrained")


def panel_size(matrix: Any) -> float:
    """Width and height, in inches, that the heat map of a matrix needs."""
    return min(3.0 + 0.42 * matrix.num_labels, 11.0)


def draw_matrix(axes: Axes, matrix: Any, title: str) -> AxesImage:
    """
    Draw a heat map on a color scale from 0 to 1, with class names and non-zero values where they fit. An estimate from
    trusted rows has their number beside the names, and an interval below each value.

    Args:
        axes (`matplotlib.axes.Axes`): Where to draw.
        matrix ([`CorruptionMatrix`]): The matrix. Not imported here: `matrix` imports this module.
        title (`str`): Title of the axes.
    """
    size, counts = matrix.num_labels, matrix.trusted_rows
    image = axes.imshow(matrix.probs, cmap="Blues", vmin=0.0, vmax=1.0)
    axes.set_xlabel("noisy label")
    axes.set_ylabel("true label" if counts is None else "true label (trusted rows)")
    axes.set_title(title)
    if size <= _MAX_CLASSES_WITH_NAMES:
        names = [matrix.name_of(label) for label in range(size)]
        rotated: dict[str, Any] = {}
        if max(map(len, names)) > 2:
            rotated = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
        axes.set_xticks(range(size), names, **rotated)
        if counts is not None:
            names = [f"{name} ({count:,})" for name, count in zip(names, counts, strict=True)]
        axes.set_yticks(range(size), names)
    if size <= _MAX_CLASSES_WITH_NUMBERS:
        _write_numbers(axes, matrix)
    return image


def _write_numbers(axes: Axes, matrix: Any) -> None:
    estimated = matrix.trusted_rows is not None
    low, high = matrix.interval(MATRIX_LEVEL) if estimated else (matrix.probs, matrix.probs)
    for (i, j), value in np.ndenumerate(matrix.probs):
        if value < _SHOWN_AS_ZERO:
            continue
        style: dict[str, Any] = {"ha": "center", "color": "white" if value > 0.5 else "black"}
        axes.text(j, i, f"{value:.2f}", va="bottom" if estimated else "center", fontsize=_VALUE_SIZE, **style)
        if estimated:
            text = f"{_short(low[i, j])}–{_short(high[i, j])}"
            axes.text(j, i + 0.06, text, va="top", fontsize=_INTERVAL_SIZE, **style)
    if estimated:
        axes.set_xlabel(f"noisy label\nsmall numbers: {format_level(MATRIX_LEVEL)} interval")


def _short(share: float) -> str:
    """A share with two digits and without the zero before the point: `.12`, `0`, `1`."""
    text = f"{share:.2f}"
    return {"0.00": "0", "1.00": "1"}.get(text, text[1:])
