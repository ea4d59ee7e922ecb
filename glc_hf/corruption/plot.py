# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The picture of a corruption matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

    from glc_hf.corruption.matrix import CorruptionMatrix

_MAX_CLASSES_WITH_NUMBERS = 12
_MAX_CLASSES_WITH_NAMES = 40
_SHOWN_AS_ZERO = 0.005


def plot_matrix(matrix: CorruptionMatrix, title: str | None = None) -> Figure:
    """A heat map: true classes down, noisy labels across; where they fit, numbers in the cells that are not 0."""
    # Figure, not pyplot: no global state, no display needed, nothing to close.
    from matplotlib.figure import Figure

    side = side_of(matrix)
    figure = Figure(figsize=(side + 1.2, side), layout="constrained")
    axes = figure.add_subplot()
    image = draw_matrix(axes, matrix, title or "p(noisy label | true label)")
    figure.colorbar(image, ax=axes, shrink=0.8)
    return figure


def side_of(matrix: CorruptionMatrix) -> float:
    """The inches that the picture of a matrix needs each way."""
    return min(3.0 + 0.42 * matrix.num_labels, 11.0)


def draw_matrix(axes: Axes, matrix: CorruptionMatrix, title: str) -> AxesImage:
    """Draws the heat map of [`plot_matrix`] into a panel of a figure; its colours go from 0 to 1."""
    size = matrix.num_labels
    image = axes.imshow(matrix.probs, cmap="Blues", vmin=0.0, vmax=1.0)
    axes.set_xlabel("noisy label")
    axes.set_ylabel("true label")
    axes.set_title(title)
    if size <= _MAX_CLASSES_WITH_NAMES:
        names = [matrix.name_of(label) for label in range(size)]
        if max(map(len, names)) <= 2:
            axes.set_xticks(range(size), names)
        else:
            axes.set_xticks(range(size), names, rotation=45, ha="right", rotation_mode="anchor")
        axes.set_yticks(range(size), names)
    if size <= _MAX_CLASSES_WITH_NUMBERS:
        for i, j in ((i, j) for i in range(size) for j in range(size)):
            value = matrix.probs[i, j]
            if value < _SHOWN_AS_ZERO:
                continue
            colour = "white" if value > 0.5 else "black"
            axes.text(j, i, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=8)
    return image
