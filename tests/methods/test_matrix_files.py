# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Files of the matrices of several sources: one file for all, and the layout of earlier versions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from glc_hf import CorruptionMatrix
from glc_hf.correction.sources import SourceModel, fit_sources
from glc_hf.labels.label_batch import Votes
from glc_hf.methods import matrix_files
from glc_hf.methods.matrix_files import SOURCES_FILE, load_matrices, load_sources, save_matrices


CLASSES = ["cat", "dog", "<b>cow</b>"]


def fitted(names: tuple[str, ...] = ("a/b", "ümläut", "label")) -> tuple[SourceModel, Votes]:
    rng = np.random.default_rng(0)
    true = rng.integers(0, 3, 200)
    dense = np.where(rng.random((200, len(names))) < 0.7, true[:, None], rng.integers(-1, 3, (200, len(names))))
    votes = Votes.from_dense(dense, names)
    return fit_sources(votes, 3, np.arange(50), true[:50]), votes


@pytest.mark.parametrize("in_json", [True, False])
def test_model_of_all_sources_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_json: bool) -> None:
    if not in_json:
        monkeypatch.setattr(matrix_files, "_MAX_NUMBERS_IN_JSON", 10)
    model, votes = fitted()
    matrices = model.matrices(CLASSES)
    save_matrices(matrices, tmp_path, model)
    files = {"corruption_matrices.json"} | (set() if in_json else {"corruption_matrices.safetensors"})
    assert {path.name for path in tmp_path.rglob("*")} == files
    loaded = load_matrices(tmp_path)
    assert list(loaded) == list(matrices)
    assert loaded == matrices
    assert all((loaded[name].trusted_rows == matrices[name].trusted_rows).all() for name in matrices)
    again = load_sources(tmp_path)
    assert again.names == model.names
    np.testing.assert_allclose(again.posterior(votes), model.posterior(votes), rtol=1e-9)
    assert (again.trusted_votes == model.trusted_votes).all()


def test_folders_of_earlier_versions_are_read(tmp_path: Path) -> None:
    matrices = fitted(("one", "two"))[0].matrices(CLASSES)
    for number, matrix in enumerate(matrices.values()):
        matrix.save_pretrained(tmp_path / "sources" / str(number))
    (tmp_path / "sources" / "names.json").write_text(json.dumps(list(matrices)), encoding="utf-8")
    assert load_matrices(tmp_path) == matrices
    assert load_sources(tmp_path) is None
    fewer = {"two": matrices["two"]}
    save_matrices(fewer, tmp_path)
    assert load_matrices(tmp_path) == fewer


def test_matrices_of_an_earlier_run_in_the_folder_are_gone(tmp_path: Path) -> None:
    model, _ = fitted(("one", "two"))
    single = {"label": CorruptionMatrix.uniform(3, 0.3)}
    save_matrices(single, tmp_path)
    save_matrices(model.matrices(), tmp_path, model)
    assert list(load_matrices(tmp_path)) == ["one", "two"]
    save_matrices(single, tmp_path)
    assert load_matrices(tmp_path) == single
    assert load_sources(tmp_path) is None
    save_matrices({**single, "second": CorruptionMatrix.uniform(3, 0.2)}, tmp_path)
    assert list(load_matrices(tmp_path)) == ["label", "second"]
    assert (tmp_path / SOURCES_FILE).is_file()


def test_tensor_file_is_looked_for_in_the_same_folder_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix_files, "_MAX_NUMBERS_IN_JSON", 0)
    model, _ = fitted()
    save_matrices(model.matrices(), tmp_path / "model", model)
    file = tmp_path / "model" / SOURCES_FILE
    content = json.loads(file.read_text(encoding="utf-8"))
    (tmp_path / "model" / "corruption_matrices.safetensors").rename(tmp_path / "other.safetensors")
    file.write_text(json.dumps({**content, "probs_file": "../other.safetensors"}), encoding="utf-8")
    with pytest.raises(FileNotFoundError):
        load_matrices(tmp_path / "model")


def test_mean_matrix_is_that_of_a_vote_of_any_source() -> None:
    given_vote = np.stack([np.eye(2), np.array([[0.0, 1.0], [1.0, 0.0]])])
    coverage = np.array([[0.9, 0.6], [0.1, 0.6]])
    rest = {"weights": np.ones(2), "temperature": 1.0, "class_rates": np.full(2, 0.5)}
    counts = {"trusted_votes": np.zeros((2, 2), dtype=np.int64), "held_out": np.empty((0, 2))}
    model = SourceModel(("right", "wrong"), given_vote, coverage, **rest, **counts)
    np.testing.assert_allclose(model.mean_matrix().probs, [[0.9, 0.1], [0.5, 0.5]])
    only = model.of_sources(["wrong"])
    assert only.names == ("wrong",)
    np.testing.assert_allclose(only.mean_matrix().probs, [[0.0, 1.0], [1.0, 0.0]])
