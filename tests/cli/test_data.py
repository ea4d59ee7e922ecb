# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Rows loaded from files: trusted, held-out and noisy rows, and errors for bad data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, DatasetDict

from glc_hf import CorruptionMatrix
from glc_hf.cli.data import Rows, count_changed_labels, load_rows
from glc_hf.cli.parsing import parse

from .conftest import text_rows, write_csv


def load(path: Path | str, *words: Any) -> Rows:
    """Load the rows of a run; the model is named but not loaded."""
    return load_rows(parse(["--dataset", str(path), "--model", "some/model", *map(str, words)]))


def flagged(number: int, every: int) -> list[dict[str, Any]]:
    """Rows with a flag, true for one row in `every`."""
    return [{**row, "trusted": position % every == 0} for position, row in enumerate(text_rows(number))]


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    """A CSV file of 120 rows without flags."""
    return write_csv(tmp_path / "clean.csv", text_rows(120))


def test_simulated_noise_does_not_change_trusted_and_held_out_rows(clean: Path) -> None:
    rows = load(clean, "--noise", "flip", "--noise-strength", "1", "--trusted-fraction", "0.25")
    assert (len(rows.train), len(rows.evaluation)) == (108, 12)
    trusted, labels, was = (np.array(rows.train[name][:]) for name in ("trusted", "label", "clean_label"))
    assert trusted.sum() == 27
    assert (labels[trusted] == was[trusted]).all()
    assert (labels[~trusted] != was[~trusted]).all()
    assert count_changed_labels(rows) == 81
    clean_labels = {row["text"]: row["label"] for row in text_rows(120)}
    names = rows.label_names
    assert all(clean_labels[row["text"]] == names[row["label"]] for row in rows.evaluation)


def test_the_seed_determines_the_drawn_rows(clean: Path) -> None:
    words = ("--noise", "uniform", "--trusted-count", "10")
    drawn = [load(clean, *words, "--seed", seed).train.to_dict() for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1]
    assert drawn[0]["trusted"] != drawn[2]["trusted"]


def test_trusted_rows_are_held_out_if_there_is_no_evaluation_split(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_csv(tmp_path / "real.csv", flagged(100, every=4))
    with caplog.at_level("INFO", logger="glc_hf"):
        rows = load(path)
    assert (len(rows.evaluation), len(rows.train)) == (5, 95)
    assert all(rows.evaluation["trusted"])
    assert sum(rows.train["trusted"]) == 20
    assert "clean_label" not in rows.train.column_names
    assert "5 of the 25 trusted rows are held out" in caplog.text


def test_trusted_eval_fraction_sets_the_share_and_holds_rows_out_once(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "real.csv", flagged(100, every=4))
    options = parse(["--dataset", str(path), "--model", "x/y", "--trusted-eval-fraction", "0.4"])
    rows = load_rows(options)
    assert (len(rows.evaluation), len(rows.train)) == (10, 90)
    assert options.config.trusted_eval_fraction == 0.0  # the Trainer must not hold out more


def test_too_few_trusted_rows_are_all_used_for_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = load(write_csv(tmp_path / "real.csv", flagged(12, every=4)))
    assert rows.evaluation is None
    assert sum(rows.train["trusted"]) == 3
    assert "no accuracy is reported" in caplog.text


@pytest.mark.parametrize("flags", [("yes", "no"), ("1", "0"), ("True", "False")])
def test_flags_in_csv_files_may_be_words_or_numbers(tmp_path: Path, flags: tuple[str, str]) -> None:
    rows = [{**row, "trusted": flags[0] if row["trusted"] else flags[1]} for row in flagged(20, every=2)]
    loaded = load(write_csv(tmp_path / "real.csv", rows))
    assert sum(loaded.train["trusted"]) + len(loaded.evaluation) == 10


def test_trusted_rows_may_come_from_a_second_file(tmp_path: Path) -> None:
    noisy = write_csv(tmp_path / "noisy.csv", text_rows(30, classes=("animal", "food")))
    good = tmp_path / "good.parquet"
    Dataset.from_list(text_rows(12)).to_parquet(good)
    rows = load(noisy, "--trusted-dataset", good)
    assert rows.label_names == ["animal", "food", "tool"]  # the noisy file has no tool
    assert (len(rows.train), sum(rows.train["trusted"]), len(rows.evaluation)) == (40, 10, 2)
    labels = {row["text"]: row["label"] for row in text_rows(30)}
    assert all(labels[row["text"]] == rows.label_names[row["label"]] for row in rows.train if row["text"] in labels)


@pytest.mark.parametrize("suffix", ["csv", "tsv", "json", "jsonl", "parquet"])
def test_each_file_format_is_read(tmp_path: Path, suffix: str) -> None:
    data, path = Dataset.from_list(flagged(20, every=2)), tmp_path / f"data.{suffix}"
    if suffix == "parquet":
        data.to_parquet(path)
    elif suffix in ("csv", "tsv"):
        data.to_csv(path, sep="\t" if suffix == "tsv" else ",")
    elif suffix == "json":
        path.write_text(json.dumps(data.to_list()), encoding="utf-8")
    else:
        data.to_json(path)
    rows = load(path)
    assert len(rows.train) + len(rows.evaluation) == 20
    assert rows.label_names == ["animal", "food", "tool"]


def test_the_test_split_of_a_folder_is_the_evaluation_split(tmp_path: Path) -> None:
    write_csv(tmp_path / "train.csv", text_rows(30))
    write_csv(tmp_path / "test.csv", text_rows(9, seed=1))
    rows = load(tmp_path, "--noise", "uniform")
    assert (len(rows.train), len(rows.evaluation)) == (30, 9)


def test_a_test_split_without_labels_is_skipped(tmp_path: Path) -> None:
    train, hidden = Dataset.from_list(text_rows(30)), Dataset.from_list(text_rows(9))
    train = train.class_encode_column("label")
    hidden = hidden.remove_columns("label").add_column("label", [-1] * 9, feature=train.features["label"])
    splits = DatasetDict({"train": train, "test": hidden, "validation": train.select(range(6))})
    splits.save_to_disk(tmp_path)
    assert len(load(tmp_path, "--noise", "uniform").evaluation) == 6


def test_max_train_samples_are_drawn_from_the_whole_split(tmp_path: Path) -> None:
    ordered = sorted(text_rows(90), key=lambda row: row["label"])
    rows = load(write_csv(tmp_path / "a.csv", ordered), "--noise", "uniform", "--max-train-samples", "30")
    assert len(rows.train) + len(rows.evaluation) == 30
    assert len(set(rows.train["clean_label"])) == 3


def test_hierarchical_noise_takes_groups_from_a_column_or_a_list(tmp_path: Path) -> None:
    group = {"animal": "alive", "food": "thing", "tool": "thing"}
    path = write_csv(tmp_path / "a.csv", [{**row, "kind": group[row["label"]]} for row in text_rows(60)])
    words = ("--noise", "hierarchical", "--noise-strength", "0.5", "--noise-groups")
    expected = [[1, 0, 0], [0, 0.5, 0.5], [0, 0.5, 0.5]]
    for groups in ("kind", "[[0], [1, 2]]", '["a", "b", "b"]'):
        assert load(path, *words, groups).true_matrix.probs.tolist() == expected


def test_noise_may_come_from_a_file(clean: Path, tmp_path: Path) -> None:
    matrix = CorruptionMatrix([[0, 1, 0], [0, 1, 0], [0, 0, 1]])
    matrix.save_pretrained(tmp_path)
    rows = load(clean, "--noise", tmp_path / "corruption_matrix.json")
    trusted, labels, was = (np.array(rows.train[name][:]) for name in ("trusted", "label", "clean_label"))
    assert set(labels[~trusted & (was == 0)]) == {1}


def test_noise_depends_on_the_index_column(tmp_path: Path) -> None:
    rows = [{**row, "number": 7 * position} for position, row in enumerate(text_rows(60))]
    words = ("--noise", "uniform", "--index-column", "number", "--eval-split", "train")
    one = load(write_csv(tmp_path / "a.csv", rows), *words).train
    other = load(write_csv(tmp_path / "b.csv", rows[::-1]), *words).train
    assert {row["number"]: (row["label"], row["trusted"]) for row in one} == {
        row["number"]: (row["label"], row["trusted"]) for row in other
    }


def test_token_labels_are_evaluated_on_trusted_tokens(tmp_path: Path) -> None:
    rows = [{"tokens": ["the", "cat", "was"], "tags": ["D", "N", "V"], "trusted": [True, False, True]}] * 10
    path = tmp_path / "a.parquet"
    Dataset.from_list(rows).to_parquet(path)
    loaded = load(path)
    assert loaded.evaluation["tags"][:] == [[0, -100, 2]] * 2
    assert loaded.train["tags"][:] == [[0, 1, 2]] * 8


def test_methods_that_need_no_trusted_rows_run_without_them(clean: Path) -> None:
    rows = load(clean, "--method", "no_correction")
    assert "trusted" not in rows.train.column_names
    assert (len(rows.train), len(rows.evaluation)) == (108, 12)


# ---------------------------------------------------------------------- bad data
FLAGGED = "flagged.csv"
CLEAN = "clean.csv"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--dataset", CLEAN], ["--trusted-column", "--trusted-dataset", "--noise", "text, label"]),
        (["--dataset", CLEAN, "--trusted-column", "gold"], ["'gold'", "text, label"]),
        (["--dataset", CLEAN, "--trusted-fraction", "0.1"], ["--noise", "noisy already"]),
        (["--dataset", FLAGGED, "--noise", "flip", "--trusted-count", "3"], ["leave them out"]),
        (["--dataset", FLAGGED, "--trusted-dataset", CLEAN], ["'trusted'", "--trusted-dataset"]),
        (["--dataset", CLEAN, "--noise", "flip", "--train-split", "dev"], ["'dev'", "train"]),
        (["--dataset", CLEAN, "--noise", "flip", "--eval-split", "dev"], ["'dev'", "train"]),
        (["--dataset", CLEAN, "--noise", "flip", "--text-column", "words"], ["'words'", "text, label"]),
        (["--dataset", CLEAN, "--noise", "flip", "--index-column", "id"], ["'id'", "text, label"]),
        (["--dataset", CLEAN, "--trusted-dataset", "other.csv"], ["the trusted dataset", "'text'", "sentence, label"]),
        (["--dataset", CLEAN, "--noise", "hierarchical", "--noise-groups", "kinds"], ["'kinds'", "text, label"]),
        (["--dataset", CLEAN, "--noise", "hierarchical", "--noise-groups", "[[0, 1]]"], ["2 classes", "have 3"]),
        (["--dataset", CLEAN, "--noise", "two.json"], ["two.json", "2 classes", "have 3"]),
        (["--dataset", CLEAN, "--noise", "broken.json"], ["--noise", "broken.json"]),
        (["--dataset", CLEAN, "--noise", "flip", "--task", "token", "--tokens-column", "text"], ["'label'", "token"]),
        (["--dataset", "badflag.csv"], ["'trusted'", "row 1", "'maybe'"]),
        (["--dataset", "float.csv", "--noise", "flip"], ["'label'", "row 0", "0.5"]),
        (
            ["--dataset", ".", "--noise", "flip", "--output-dir", "runs/model"],
            ["runs/model", "choose a folder outside"],
        ),
        (["--dataset", "notes.txt"], ["notes.txt", ".parquet"]),
        (["--dataset", "ragged.csv"], ["ragged.csv"]),
        (["--dataset", "./nothing.csv"], ["no file or folder", "nothing.csv"]),
        (["--dataset", "nobody/nothing"], ["'nobody/nothing'", "can't be reached", "--dataset ./data.csv"]),
        (["--dataset", CLEAN, "--trusted-dataset", "./gone.csv"], ["--trusted-dataset", "gone.csv"]),
        (["--dataset", FLAGGED, "--model", "nobody/nothing"], ["'nobody/nothing'", "--model ./my-model"]),
        (["--dataset", FLAGGED, "--model", "timm/resnet18"], ["timm", "images"]),
        (["--dataset", FLAGGED, "--corruption-matrix", "nobody/none"], ["nobody/none"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_data_raises_a_one_line_error_with_cause_and_fix(
    glc_hf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], expected: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / CLEAN, text_rows(30))
    write_csv(tmp_path / FLAGGED, flagged(30, every=3))
    write_csv(tmp_path / "other.csv", [{"sentence": row["text"], "label": row["label"]} for row in text_rows(6)])
    flags = zip(text_rows(2), ["yes", "maybe"], strict=True)
    write_csv(tmp_path / "badflag.csv", [{**row, "trusted": flag} for row, flag in flags])
    write_csv(tmp_path / "float.csv", [{"text": "a", "label": 0.5}, {"text": "b", "label": 1}])
    (tmp_path / "notes.txt").write_text("a", encoding="utf-8")
    (tmp_path / "ragged.csv").write_text('text,label\n"a,b\n', encoding="utf-8")
    CorruptionMatrix.identity(2).save_pretrained(tmp_path)
    (tmp_path / "corruption_matrix.json").rename(tmp_path / "two.json")
    (tmp_path / "broken.json").write_text('{"probs": [[0.5, 0.2], [0, 1]]}', encoding="utf-8")
    model = [] if "--model" in words else ["--model", "some/model"]
    outcome = glc_hf("train", *words, *model)
    assert outcome.code == 2, outcome.err
    for part in expected:
        assert part in outcome.complaint


def test_a_class_in_two_groups_is_refused(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", [{**row, "kind": position % 2} for position, row in enumerate(text_rows(12))])
    with pytest.raises(ValueError, match="class 0 has rows in 2 groups"):
        load(path, "--noise", "hierarchical", "--noise-groups", "kind")


def test_the_class_order_of_the_dataset_is_kept(tmp_path: Path) -> None:
    data = Dataset.from_list(flagged(20, every=2)).cast_column("label", ClassLabel(names=["tool", "food", "animal"]))
    data.to_parquet(tmp_path / "a.parquet")
    assert load(tmp_path / "a.parquet").label_names == ["tool", "food", "animal"]
