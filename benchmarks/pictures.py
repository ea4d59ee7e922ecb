# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
The pictures of docs/, drawn from the committed results as `glc-hf plot` draws them, and made small.

    python benchmarks/pictures.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from glc_hf.experiments.plots import plot_error_curves, plot_matrices


RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parents[1] / "docs"
CURVES = ("mnist", "sst", "twitter")
COLOURS = 128


def main() -> None:
    """Draws what there are results for."""
    with tempfile.TemporaryDirectory() as folder:
        drawn = []
        for name in CURVES:
            if (RESULTS / f"{name}.jsonl").exists():
                drawn += plot_error_curves(RESULTS / f"{name}.jsonl", folder)
        if (RESULTS / "matrices.jsonl").exists():
            drawn += plot_matrices(RESULTS / "matrices.jsonl", folder, {})
        for path in drawn:
            if path.suffix == ".png":
                target = DOCS / ("matrices.png" if path.name.startswith("matrices") else path.name)
                _save_small(path, target)
                print(f"{target.relative_to(DOCS.parent)}: {target.stat().st_size:,} bytes")


def _save_small(source: Path, target: Path) -> None:
    """Few colours: a third of the bytes, and no difference to see."""
    from PIL import Image

    with Image.open(source) as picture:
        picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(target, optimize=True)


if __name__ == "__main__":
    main()
