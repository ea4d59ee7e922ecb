# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Data that would take all memory, or end in a traceback: one line that names the file, the row and the fix."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset
from safetensors import SafetensorError

from glc_hf import CorruptionMatrix
from glc_hf.hub.facts import read_facts, write_facts
from glc_hf.hub.model_card import write_card
from glc_hf.labels.columns import number_of_classes
from glc_hf.methods.matrix_files import load_matrices, save_matrices
from glc_hf.training import resume
from tests.cli.conftest import CLASSES, text_rows, write_csv


def _rows(number: int = 24, **changes: Any) -> list[dict[str, Any]]:
    """Rows with classes as numbers; `changes` are functions of the row's number."""
    return [
        {
            "text": row["text"],
            "label": CLASSES.index(row["label"]),
            "trusted": "yes" if index % 4 == 0 else "no",
            **{name: value(index) for name, value in changes.items()},
        }
        for index, row in enumerate(text_rows(number))
    ]


def test_label_that_would_mean_billions_of_classes_names_its_row(train, glc_hf, tmp_path: Path) -> None:
    data = write_csv(tmp_path / "big.csv", _rows(label=lambda i: 2_000_000_000 if i == 17 else i % 3))
    message = "label 2000000000 in column 'label' of the training split (row 17) would mean 2,000,000,001 classes"
    assert message in train(data=data).complaint
    checked = glc_hf("check", data)
    assert checked.code == 1
    assert message in checked.out
    votes = write_csv(tmp_path / "votes.csv", _rows(rule=lambda i: 3_000_000_000 if i == 5 else i % 3))
    complaint = train("--source-columns", "rule", data=votes).complaint
    assert "label 3000000000 in column 'rule', row 5, would mean 3,000,000,001 classes" in complaint


def test_many_classes_are_plausible_if_they_occur() -> None:
    def classes(values: list) -> int:
        return number_of_classes([Dataset.from_dict({"label": values})], "label", None)

    assert classes([0, 999]) == 1000
    assert classes(list(range(0, 20_000, 10))) == 19_991
    with pytest.raises(ValueError, match="label 1000 in column 'label', row 1, would mean 1,001 classes"):
        classes([0, 1000])
    with pytest.raises(ValueError, match="label 5000 in column 'label', row 2, "):
        classes([[0, 1], [2], [-100, 5000]])


def test_card_of_thousands_of_classes_takes_seconds(trained: Path) -> None:
    number, model = 2001, trained / "model"  # 10,000 classes take 0.8 GB
    CorruptionMatrix.flip(number, 0.4).save_pretrained(model)
    write_facts(model, {**read_facts(model), "num_labels": number, "label_names": None, "rows": None})
    start = time.perf_counter()
    text = write_card(model).read_text()
    assert time.perf_counter() - start < 5
    assert not (model / "corruption_matrix.png").exists()
    assert "corruption_matrix.png" not in text
    assert "40.0% of the labels are wrong" in text


def test_largest_confusions_are_those_of_a_full_sort() -> None:
    counts = np.random.default_rng(0).integers(0, 4, size=(7, 7)) + np.eye(7)  # with ties
    matrix = CorruptionMatrix(counts / counts.sum(axis=1, keepdims=True))
    pairs = sorted(
        (-matrix.probs[i, j], i, j) for i in range(7) for j in range(7) if i != j and matrix.probs[i, j] > 0
    )
    for number in (1, 5, 30, 60):
        expected = [(str(i), str(j)) for _, i, j in pairs[:number]]
        assert [(entry["true"], entry["noisy"]) for entry in matrix.largest_confusions(number)] == expected


def test_million_columns_are_refused(train, tmp_path: Path) -> None:
    number = 1_000_000
    data = tmp_path / "wide.csv"
    data.write_text(",".join(f"c{index}" for index in range(number)) + "\n" + ",".join("1" * number) + "\n")
    assert f"{data} has 1,000,000 columns if it is comma-separated" in train(data=data).complaint


@pytest.mark.parametrize("name", ["empty.csv", "empty.jsonl", "empty.parquet"])
def test_empty_file_is_named(train, tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert f"--dataset {tmp_path / name} is empty" in train(data=tmp_path / name).complaint


def test_file_without_rows_is_named(train, tmp_path: Path) -> None:
    (tmp_path / "header.csv").write_text("text,label,trusted\n")
    assert f"--dataset {tmp_path / 'header.csv'} has no rows" in train(data=tmp_path / "header.csv").complaint


@pytest.mark.parametrize("value", ["animal", 0])
def test_one_class_is_an_error_about_the_labels(train, glc_hf, tmp_path: Path, value: Any) -> None:
    data = write_csv(tmp_path / "one.csv", _rows(label=lambda _: value))
    complaint = train(data=data).complaint
    assert f"all labels in column 'label' are '{value}'. Training needs at least two classes" in complaint
    assert glc_hf("check", data).code == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label": lambda i: {"name": i % 3}}, "column 'label' holds nested fields"),
        ({"label": lambda i: [[i % 3]]}, "column 'label' holds lists of lists"),
        ({"trusted": lambda i: {"flag": True}}, "column 'trusted' holds nested fields"),
        ({"text": lambda i: {"body": "a"}}, "column 'text' holds nested fields, which are not read"),
    ],
)
def test_nested_columns_are_named(train, tmp_path: Path, changes: dict, message: str) -> None:
    data = tmp_path / "nested.jsonl"
    data.write_text("\n".join(json.dumps(row) for row in _rows(**changes)))
    assert message in train(data=data).complaint


def test_negative_labels_name_their_own_column_and_row(train, tmp_path: Path) -> None:
    def data(**changes: Any) -> Path:
        return write_csv(tmp_path / f"{'-'.join(changes)}.csv", _rows(**changes))

    wrong = train(data=data(label=lambda i: -5 if i == 17 else i % 3)).complaint
    assert "in column 'label' of the training split that is not a class, such as -5 (row 17)" in wrong
    vote = train("--source-columns", "rule", data=data(rule=lambda i: -7 if i == 17 else i % 3)).complaint
    assert "label -7 in column 'rule', row 17, is not a class" in vote
    paired = ["--noisy-label-column", "noisy", "--estimator", "paired"]
    noisy = train(*paired, data=data(noisy=lambda i: -7 if i == 17 else i % 3)).complaint
    assert "label -7 in column 'noisy', row 17, is not a class" in noisy


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"probs": "x"}', b"\xff", b'{"probs": [[1, 0], [0]]}'])
def test_damaged_matrix_is_named(train, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "matrix.json"
    file.write_bytes(content)
    outcome = train("--corruption-matrix", file)
    assert outcome.code == 2
    assert str(file) in outcome.complaint


def test_damaged_tensor_files_of_matrices_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glc_hf.methods.matrix_files._MAX_NUMBERS_IN_JSON", 1)
    save_matrices({"rule": CorruptionMatrix.flip(3, 0.2), "other": CorruptionMatrix.identity(3)}, tmp_path)
    file = tmp_path / "corruption_matrices.safetensors"
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(ValueError, match=rf"{file} is damaged"):
        load_matrices(tmp_path)


@pytest.mark.parametrize(
    "error",
    [OSError(28, "No space left on device"), SafetensorError("I/O error: No space left on device (os error 28)")],
)
def test_full_disk_is_one_line_with_the_command_to_resume(
    train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise error

    monkeypatch.setattr(resume, "save_file", fail)
    outcome = train("--save_strategy", "steps")
    assert outcome.code == 1
    assert "the disk is full" in outcome.complaint
    assert f"--output-dir {tmp_path / 'out'}" in outcome.complaint
