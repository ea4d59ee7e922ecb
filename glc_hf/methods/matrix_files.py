# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Files with the matrices of a method."""

from __future__ import annotations

import json
from pathlib import Path

from glc_hf.matrix import MATRIX_FILE, CorruptionMatrix
from glc_hf.methods.base import ONE_SOURCE


_SOURCES_FOLDER = "sources"


def save_matrices(matrices: dict[str, CorruptionMatrix], folder: str | Path) -> None:
    """Write the matrix of a single source as `corruption_matrix.json`, and those of further sources into `sources/`,
    one numbered folder per source, with their names in `sources/names.json`."""
    others = {source: matrix for source, matrix in matrices.items() if source != ONE_SOURCE}
    if ONE_SOURCE in matrices:
        matrices[ONE_SOURCE].save_pretrained(folder)
    for number, matrix in enumerate(others.values()):
        matrix.save_pretrained(Path(folder) / _SOURCES_FOLDER / str(number))
    names = Path(folder) / _SOURCES_FOLDER / "names.json"
    if others:
        names.write_text(json.dumps(list(others), ensure_ascii=False), encoding="utf-8")
    else:
        names.unlink(missing_ok=True)  # of an earlier run in the same folder


def load_matrices(folder: str | Path) -> dict[str, CorruptionMatrix]:
    """Read what [`save_matrices`] wrote; empty if there is nothing."""
    sources = Path(folder) / _SOURCES_FOLDER
    matrices = {}
    if (Path(folder) / MATRIX_FILE).is_file():
        matrices[ONE_SOURCE] = CorruptionMatrix.from_pretrained(folder)
    if (sources / "names.json").is_file():
        for number, source in enumerate(json.loads((sources / "names.json").read_text(encoding="utf-8"))):
            matrices[source] = CorruptionMatrix.from_pretrained(sources / str(number))
    return matrices
