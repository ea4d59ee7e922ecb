# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
The figures in docs/: drawn from the committed results like those of `glc-hf plot`, and compressed.

    python benchmarks/pictures.py
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import scale
from result_files import RESULTS

from glc_hf.experiments.plots import plot_error_curves, plot_matrices


DOCS = Path(__file__).parents[1] / "docs"
CURVES = ("mnist", "sst", "twitter")
COLORS = 128


# Okabe and Ito's colors, which are safe for color-blind readers.
LINES = ["#0072B2", "#56B4E9", "#D55E00", "#E69F00", "#009E73", "#CC79A7", "#882255", "#332288", "#7F7F7F"]


def plot_scale(output: Path) -> Path:
    """Time and memory by rows, and time by classes, of the work in `scale.py`, all axes logarithmic."""
    from matplotlib.figure import Figure

    results = json.loads(scale.RESULTS.read_text(encoding="utf-8"))["results"]
    figure = Figure(figsize=(11, 4.3), layout="constrained")
    panels = figure.subplots(1, 3)
    kinds = [("rows", "seconds"), ("rows", "peak_mib"), ("classes", "seconds")]
    titles = ["processor seconds by rows", "peak memory by rows, MiB", "processor seconds by classes"]
    for axes, (size, cost), title in zip(panels, kinds, titles, strict=True):
        for name, color, marker in zip(scale.WORK, LINES, "osv^DPX<>", strict=True):
            found = scale.series(results, name, size)
            if found:
                costs = [max(one[cost], 0.1 if cost == "peak_mib" else 1e-4) for one in found]
                label = name.replace("`", "")
                axes.plot([one[size] for one in found], costs, color=color, marker=marker, ms=4, lw=1.4, label=label)
        axes.set(xscale="log", yscale="log", xlabel=size, title=title)
        axes.title.set_size(10)
        axes.grid(alpha=0.3)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    path = output / "scale.png"
    figure.savefig(path, dpi=130)
    return path


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        figures = []
        for name in CURVES:
            if (RESULTS / f"{name}.jsonl").exists():
                figures += plot_error_curves(RESULTS / f"{name}.jsonl", folder)
        if (RESULTS / "matrices.jsonl").exists():
            figures += plot_matrices(RESULTS / "matrices.jsonl", folder, {})
        if scale.RESULTS.exists():
            figures.append(plot_scale(Path(folder)))
        for path in figures:
            if path.suffix == ".png":
                target = DOCS / ("matrices.png" if path.name.startswith("matrices") else path.name)
                _save_small(path, target)
                print(f"{target.relative_to(DOCS.parent)}: {target.stat().st_size:,} bytes")


def _save_small(source: Path, target: Path) -> None:
    """Save with a palette of few colors: a third of the bytes, without a visible difference."""
    from PIL import Image

    with Image.open(source) as image:
        image.convert("RGB").quantize(COLORS, dither=Image.Dither.NONE).save(target, optimize=True)


if __name__ == "__main__":
    main()
