# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
The figures in docs/: drawn from the committed results like those of `glc-hf plot`, and compressed.

    python benchmarks/pictures.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from result_files import RESULTS

from glc_hf.experiments.plots import plot_error_curves, plot_matrices


DOCS = Path(__file__).parents[1] / "docs"
CURVES = ("mnist", "sst", "twitter")
COLORS = 128


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        figures = []
        for name in CURVES:
            if (RESULTS / f"{name}.jsonl").exists():
                figures += plot_error_curves(RESULTS / f"{name}.jsonl", folder)
        if (RESULTS / "matrices.jsonl").exists():
            figures += plot_matrices(RESULTS / "matrices.jsonl", folder, {})
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
