# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Files with the matrices of a method, and with what the votes of its sources say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from glc_hf.correction.sources import SourceModel
from glc_hf.matrix import MATRIX_FILE, MATRIX_TENSOR_FILE, MAX_CLASSES_IN_JSON, CorruptionMatrix
from glc_hf.methods.base import ONE_SOURCE
from glc_hf.run_files import read_json, read_probs


SOURCES_FILE = "corruption_matrices.json"
SOURCES_TENSOR_FILE = "corruption_matrices.safetensors"
_FORMAT_VERSION = 1
# With more probabilities than a single matrix may have in a JSON file, those of all sources go into a tensor file.
_MAX_NUMBERS_IN_JSON = MAX_CLASSES_IN_JSON**2
# The fields of a `SourceModel` that are not in its matrices. Those about single trusted items are not stored.
_VOTE_FIELDS = ("coverage", "weights", "temperature", "class_rates")
# Earlier versions wrote one numbered folder per source.
_OLD_FOLDER, _OLD_NAMES = "sources", "names.json"


def save_matrices(
    matrices: dict[str, CorruptionMatrix], folder: str | Path, sources: SourceModel | None = None
) -> None:
    """
    Write the matrix of a single source as `corruption_matrix.json`, and those of further sources together as
    `corruption_matrices.json`. Beyond four million probabilities they are in a safetensors file beside it. Files of
    an earlier run are removed, also if there is no matrix now.

    Args:
        matrices (`dict[str, CorruptionMatrix]`): The matrix of each source, all with the same classes.
        folder (`str`): The folder to write to.
        sources ([`SourceModel`], *optional*): What the votes of the sources say. [`load_sources`] reads it back.
    """
    folder = Path(folder)
    others = {source: matrix for source, matrix in matrices.items() if source != ONE_SOURCE}
    if sources is not None:  # a source may have the name of the single one
        others = {name: matrices[name] for name in sources.names}
    written: list[str] = []
    if sources is None and ONE_SOURCE in matrices:
        written += matrices[ONE_SOURCE].save_pretrained(folder)
    if others:
        folder.mkdir(parents=True, exist_ok=True)
        written += _write(others, folder, sources)
    # Files of an earlier run in the same folder are not about this model.
    known = (MATRIX_FILE, MATRIX_TENSOR_FILE, SOURCES_FILE, SOURCES_TENSOR_FILE, f"{_OLD_FOLDER}/{_OLD_NAMES}")
    for path in (folder / name for name in known):
        if str(path) not in written:
            path.unlink(missing_ok=True)


def _write(matrices: dict[str, CorruptionMatrix], folder: Path, sources: SourceModel | None) -> list[str]:
    """Write the matrices of several sources and return the paths."""
    first = next(iter(matrices.values()))
    entries: list[dict[str, Any]] = [
        {"name": name, "trusted_rows": None if matrix.trusted_rows is None else matrix.trusted_rows.tolist()}
        for name, matrix in matrices.items()
    ]
    content: dict[str, Any] = {
        "format_version": _FORMAT_VERSION,
        "meaning": "probs[i][j] = p(vote of the source = j | true label = i, the source votes)",
        "num_labels": first.num_labels,
        "label_names": first.label_names,
        "sources": entries,
    }
    if sources is not None:
        content["votes"] = {field: np.asarray(getattr(sources, field)).tolist() for field in _VOTE_FIELDS}
    if len(matrices) * first.num_labels**2 <= _MAX_NUMBERS_IN_JSON:
        for entry, matrix in zip(entries, matrices.values(), strict=True):
            entry["probs"] = matrix.probs.tolist()
    else:
        content["probs_file"] = SOURCES_TENSOR_FILE
        probs = np.ascontiguousarray(
            [matrix.probs for matrix in matrices.values()]
        )  # the format stores memory as it is
        save_file({"probs": probs}, folder / SOURCES_TENSOR_FILE)
    (folder / SOURCES_FILE).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    names = [SOURCES_FILE, *([SOURCES_TENSOR_FILE] if "probs_file" in content else [])]
    return [str(folder / name) for name in names]


def load_matrices(folder: str | Path) -> dict[str, CorruptionMatrix]:
    """Read what [`save_matrices`] wrote, or an earlier version of it; empty if there is nothing."""
    folder = Path(folder)
    matrices = {}
    if (folder / MATRIX_FILE).is_file():
        matrices[ONE_SOURCE] = CorruptionMatrix.from_pretrained(folder)
    if (folder / SOURCES_FILE).is_file():
        content = read_json(folder / SOURCES_FILE, _FORMAT_VERSION)
        names, entries = content["label_names"], content["sources"]
        for entry, probs in zip(entries, _probs(content, folder), strict=True):
            matrices[entry["name"]] = CorruptionMatrix(probs, names, entry["trusted_rows"])
    elif (folder / _OLD_FOLDER / _OLD_NAMES).is_file():
        sources = folder / _OLD_FOLDER
        for number, source in enumerate(json.loads((sources / _OLD_NAMES).read_text(encoding="utf-8"))):
            matrices[source] = CorruptionMatrix.from_pretrained(sources / str(number))
    return matrices


def load_sources(folder: str | Path) -> SourceModel | None:
    """Read the [`SourceModel`] that [`save_matrices`] wrote; `None` if there is none. It has no `held_out`."""
    file = Path(folder) / SOURCES_FILE
    content = read_json(file, _FORMAT_VERSION) if file.is_file() else {}
    if "votes" not in content:
        return None
    entries = content["sources"]
    return SourceModel.from_dict(
        {
            **content["votes"],
            "names": [entry["name"] for entry in entries],
            "given_vote": np.ascontiguousarray(np.asarray(_probs(content, Path(folder))).swapaxes(1, 2)),
            "trusted_votes": [entry["trusted_rows"] for entry in entries],
            "held_out": np.empty((0, content["num_labels"])),
        }
    )


def _probs(content: dict[str, Any], folder: Path) -> Any:
    if "probs_file" not in content:
        return [entry["probs"] for entry in content["sources"]]
    # Path(...).name: a downloaded JSON must not name a file outside its folder.
    return read_probs(folder / Path(str(content["probs_file"])).name)
