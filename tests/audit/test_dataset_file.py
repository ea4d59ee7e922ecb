# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Datasets written to files: the values come back, and nothing is overwritten or left half-written."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest
from datasets import ClassLabel, Dataset, Features, Image, List, Value, load_dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as PILImage

from glc_hf.audit import dataset_file
from glc_hf.audit.dataset_file import write_dataset
from glc_hf.cli.data import load_splits


TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc"), include_characters="\n\t\"',;"), min_size=1).filter(
    lambda text: text.strip() == text
)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".json", ".jsonl", ".parquet"])
@settings(max_examples=15, deadline=None)
@given(texts=st.lists(TEXTS, min_size=1, max_size=4))
def test_any_text_comes_back(tmp_path_factory, suffix: str, texts: list[str]) -> None:
    rows = {"text": [f"a{text}" for text in texts], "n": list(range(len(texts))), "ok": [True] * len(texts)}
    path = write_dataset(Dataset.from_dict(rows), tmp_path_factory.mktemp("out") / f"rows{suffix}")
    assert load_splits(str(path))["train"][:] == rows
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".parquet"])
def test_lists_floats_and_missing_values_come_back(tmp_path: Path, suffix: str) -> None:
    rows = {
        "tags": [["a", "b"], [], None],
        "x": [0.1 + 0.2, 1e-17, None],
        "at": [{"y": 1}, {"y": None}, {"y": 3}],
        "n": [2**53 + 1, None, 3],
        "day": [datetime.datetime(2026, 1, 2, 3, 4, 5)] * 3,
    }
    path = write_dataset(Dataset.from_dict(rows), tmp_path / f"rows{suffix}")
    if suffix == ".json":  # `datasets` reads fewer digits of floats in a list than are written
        assert json.loads(path.read_text())[0]["x"] == rows["x"][0]
        rows["x"][0] = 0.3
    assert load_splits(str(path))["train"][:] == rows


def test_parquet_keeps_the_features_and_the_images(tmp_path: Path) -> None:
    PILImage.new("RGB", (4, 4), (9, 8, 7)).save(tmp_path / "a.png")
    features = Features(
        {"image": Image(), "label": ClassLabel(names=["x", "y"]), "tags": List(ClassLabel(names=["t"]))}
    )
    rows = {"image": [str(tmp_path / "a.png")] * 2, "label": [1, 0], "tags": [[0], [-100]]}
    path = write_dataset(Dataset.from_dict(rows, features=features), tmp_path / "new folder" / "rows.parquet")
    (tmp_path / "a.png").unlink()  # the bytes are in the file
    loaded = load_dataset("parquet", data_files=str(path), split="train")
    assert loaded.features == features
    assert loaded[1]["image"].getpixel((0, 0)) == (9, 8, 7)
    assert loaded["tags"][:] == [[0], [-100]]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_text_formats_hold_the_names_of_classes(tmp_path: Path, suffix: str) -> None:
    features = Features({"label": ClassLabel(names=["x", "y"]), "n": Value("int64")})
    dataset = Dataset.from_dict({"label": [1, None, 0], "n": [1, None, 3]}, features=features)
    path = write_dataset(dataset, tmp_path / f"rows{suffix}")
    assert load_splits(str(path))["train"]["label"][:] == ["y", None, "x"]
    if suffix == ".csv":
        assert path.read_text() == "label,n\ny,1\n,\nx,3\n"


def test_labels_without_a_name_stay_numbers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    features = Features({"tags": List(ClassLabel(names=["x", "y"]))})
    path = write_dataset(Dataset.from_dict({"tags": [[1, -100]]}, features=features), tmp_path / "rows.jsonl")
    assert path.read_text() == '{"tags": [1, -100]}\n'
    assert "'tags' has labels without a name" in caplog.text


def _image_rows() -> Dataset:
    return Dataset.from_dict({"image": [PILImage.new("RGB", (4, 4))]})


@pytest.mark.parametrize(
    ("dataset", "name", "message"),
    [
        (
            Dataset.from_dict({"tags": [["a"]]}),
            "rows.csv",
            "column 'tags' holds lists or dicts.* write .jsonl or .parquet",
        ),
        (_image_rows(), "rows.jsonl", "column 'image' holds Image, which needs a .parquet file"),
        (_image_rows(), "rows.xlsx", "must end in .parquet, .csv"),
    ],
)
def test_columns_that_a_format_can_not_hold_are_named(tmp_path: Path, dataset: Any, name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        write_dataset(dataset, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_existing_files_stay_and_failures_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = Dataset.from_dict({"n": [1, 2]})
    (tmp_path / "old.csv").write_text("mine")
    with pytest.raises(FileExistsError, match="is not overwritten"):
        write_dataset(dataset, tmp_path / "old.csv")
    assert (tmp_path / "old.csv").read_text() == "mine"

    def fail(row: dict[str, Any], file: Any) -> None:
        file.write("half")
        raise OSError("no space left")

    monkeypatch.setattr(dataset_file, "_write_json", fail)
    with pytest.raises(OSError, match="no space left"):
        write_dataset(dataset, tmp_path / "new.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["old.csv"]
