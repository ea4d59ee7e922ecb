# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Rows with votes and no column of labels on the command line, and classes that occur as votes only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from datasets import Dataset, DatasetDict

from glc_hf.cli.data import Rows, load_rows
from glc_hf.cli.parsing import TrainOptions, parse
from glc_hf.labels.vote_columns import read_votes

from .conftest import CLASSES, results_in, text_rows, write_csv


QUICK = ["--method", "glc", "--learning-rate", "5e-3", "--save-strategy", "no", "--num-train-epochs", "4"]
SOURCES = ["--source-columns", "llm", "rule"]


def load(path: Path, *words: Any) -> tuple[Rows, TrainOptions]:
    options = parse(["--dataset", str(path), "--model", "some/model", *map(str, words)])
    return load_rows(options), options


def voted(number: int = 60) -> list[dict[str, Any]]:
    """Rows without labels: an LLM that is right in four of five rows, and a rule for one class."""
    rng = np.random.default_rng(0)
    return [
        {
            "text": row["text"],
            "llm": row["label"] if rng.random() < 0.8 else str(rng.choice(CLASSES)),
            "rule": "tool" if "saw" in row["text"] else "",
        }
        for row in text_rows(number)
    ]


def test_labels_may_be_in_the_trusted_file_only(tmp_path: Path) -> None:
    path, gold = write_csv(tmp_path / "a.csv", voted()), write_csv(tmp_path / "gold.csv", text_rows(30))
    for words in ([], ["--label-column", "label"]):
        rows, _ = load(path, "--trusted-dataset", gold, *SOURCES, *words)
        assert rows.columns.label == "label"
        assert rows.label_names == list(CLASSES)
        flags, labels = np.array(rows.train["trusted"]), np.array(rows.train["label"])
        assert (labels[~flags] == -1).all()
        assert (labels[flags] >= 0).all()
        assert flags.sum() + len(rows.evaluation) == 30


def test_labels_may_be_in_the_evaluation_split_only(tmp_path: Path) -> None:
    splits = {"train": Dataset.from_list(voted()), "test": Dataset.from_list(text_rows(9))}
    DatasetDict(splits).save_to_disk(tmp_path)
    rows, _ = load(tmp_path, *SOURCES)
    assert rows.columns.label == "label"
    assert len(rows.evaluation) == 9
    assert rows.train["label"][:] == [-1] * 60


def test_labels_may_be_in_the_evaluation_file_only(tmp_path: Path) -> None:
    evaluation = [{"text": f"new {row['text']}", "category": row["label"]} for row in text_rows(9)]
    other = write_csv(tmp_path / "eval.csv", evaluation)
    rows, _ = load(write_csv(tmp_path / "a.csv", voted()), "--eval-dataset", other, *SOURCES)
    assert rows.columns.label == "category"
    assert (len(rows.evaluation), rows.label_names) == (9, list(CLASSES))
    assert rows.train["category"][:] == [-1] * 60


def test_classes_of_votes_are_known(tmp_path: Path) -> None:
    labeled = [{**row, "label": "food", "trusted": True} for row in voted(30) if row["llm"] == "food"]
    path = write_csv(tmp_path / "a.csv", [*labeled, *({**row, "label": "", "trusted": False} for row in voted(30))])
    with pytest.warns(UserWarning, match="a source of votes has labels that column 'label' does not have"):
        rows, _ = load(path, *SOURCES)
    assert (rows.num_labels, rows.label_names) == (3, list(CLASSES))
    votes = read_votes(rows.train, ["llm", "rule"], label_names=rows.label_names)
    assert set(votes.labels.tolist()) == {0, 1, 2}


def test_numbers_that_occur_as_votes_only_are_classes(tmp_path: Path) -> None:
    rows = [{"text": row["text"], "a": CLASSES.index(row["label"]), "b": 4} for row in text_rows(30)]
    loaded, _ = load(write_csv(tmp_path / "a.csv", rows), "--source-columns", "a", "b")
    assert (loaded.num_labels, loaded.label_names) == (5, None)


def test_check_takes_votes_without_labels(glc_hf, tmp_path: Path) -> None:
    rows = [{**row, "text": f"{row['text']} {position}"} for position, row in enumerate(voted())]
    path, report = write_csv(tmp_path / "a.csv", rows), tmp_path / "report.json"
    outcome = glc_hf("check", path, *SOURCES)
    assert outcome.code == 0, outcome.err
    assert "0 errors that would stop training, 1 warning" in outcome.out
    assert "the accuracy of the sources is estimated from their agreement" in outcome.out
    # Classes that neither the trusted rows nor the votes on them have are no problem either.
    gold = write_csv(tmp_path / "gold.csv", [{"text": f"gold {index}", "label": "food"} for index in range(5)])
    other = write_csv(tmp_path / "eval.csv", [{**row, "text": f"new {i}"} for i, row in enumerate(text_rows(9))])
    words = ["--trusted-dataset", gold, "--eval-dataset", other]
    outcome = glc_hf("check", path, *SOURCES, *words, "--json", report)
    assert outcome.code == 0, outcome.err
    content = json.loads(report.read_text())
    assert (content["rows"], content["trusted_rows"], content["findings"]) == (65, 5, [])


def test_rows_with_votes_but_without_a_flag_are_reported_or_left_out(glc_hf, tmp_path: Path) -> None:
    rows = [{**row, "trusted": "" if position == 7 else "no"} for position, row in enumerate(voted())]
    path = write_csv(tmp_path / "a.csv", rows)
    outcome = glc_hf("check", path, *SOURCES)
    assert outcome.code == 1, outcome.err
    assert "1 row has no flag in column 'trusted'" in outcome.out
    assert len(load(path, *SOURCES, "--on-missing", "skip")[0].train) == 59
    with pytest.raises(ValueError, match="1 row has no flag in column 'trusted' of the training split .*row 7"):
        load(path, *SOURCES)


def test_spellings_of_votes_are_merged_without_labels(tmp_path: Path) -> None:
    rows = [{**row, "rule": row["rule"].upper()} for row in voted()]
    path = write_csv(tmp_path / "a.csv", rows)
    assert load(path, *SOURCES)[0].num_labels == 4
    loaded, _ = load(path, *SOURCES, "--normalize-labels")
    assert loaded.label_names == list(CLASSES)
    assert set(loaded.train["rule"]) == {"tool", None}


def test_words_may_have_no_labels(tmp_path: Path) -> None:
    lines = [{"tokens": ["cats", "was"], "rule": [1, 0]}, {"tokens": ["the"], "rule": None}] * 5
    Dataset.from_list(lines).to_parquet(tmp_path / "a.parquet")
    rows, _ = load(tmp_path / "a.parquet", "--source-columns", "rule")
    assert rows.columns.task == "token"
    assert rows.train["label"][:2] == [[-1, -1], [-1]]
    assert rows.num_labels == 2


def test_soft_labels_need_no_label_column(tmp_path: Path) -> None:
    lines = [{"text": row["text"], "probs": [0.2, 0.5, 0.3]} for row in text_rows(30)]
    Dataset.from_list(lines).to_parquet(tmp_path / "a.parquet")
    words = ["--soft-label-column", "probs", "--method", "no_correction"]
    rows, _ = load(tmp_path / "a.parquet", *words)
    assert (rows.num_labels, rows.evaluation) == (3, None)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ([*SOURCES, "--label-column", "gone"], ["no column 'gone' (--label-column)"]),
        ([*SOURCES, "--trusted-column", "gone"], ["no row is known to be trusted", "'gone'"]),
        (["--source-columns", "llm", "--trusted-column", "flag"], ["no column is known to hold the labels"]),
    ],
)
def test_mistakes_print_one_line(glc_hf, tmp_path: Path, words: list[str], parts: list[str]) -> None:
    rows = [{**row, "flag": position < 5} for position, row in enumerate(voted())]
    path = write_csv(tmp_path / "a.csv", rows)
    outcome = glc_hf("train", "--dataset", path, "--model", "some/model", "--text-column", "text", *words)
    assert outcome.code == 2, outcome.err
    for part in parts:
        assert part in outcome.complaint


def test_votes_alone_are_trained_on_and_audited(glc_hf, tmp_path: Path, tiny_bert: Path) -> None:
    path, model = write_csv(tmp_path / "a.csv", voted(120)), tmp_path / "model"
    outcome = glc_hf("train", "--dataset", path, "--model", tiny_bert, "--output-dir", model, *SOURCES, *QUICK)
    assert outcome.code == 0, outcome.err
    assert "No label is trusted: the accuracy of the sources is estimated from their agreement." in outcome.err
    results = results_in(model)
    assert results["accuracy_after_correction"] is None
    assert [source["name"] for source in results["sources"]]
    outcome = glc_hf("audit", model, "--dataset", path)
    assert outcome.code == 0, outcome.err
    table = pd.read_csv(model / "audit" / "audit.csv")
    truth = np.array([row["label"] for row in text_rows(120)])
    assert "label" not in table.columns
    assert (table.suggested_label == truth).mean() >= (table.llm == truth).mean() > 0.8


def test_sources_that_never_saw_the_trusted_file_are_judged_by_agreement(
    glc_hf, tmp_path: Path, tiny_bert: Path
) -> None:
    path, gold = write_csv(tmp_path / "a.csv", voted(120)), write_csv(tmp_path / "gold.csv", text_rows(30))
    words = ["--dataset", path, "--trusted-dataset", gold, "--model", tiny_bert, "--output-dir", tmp_path / "model"]
    outcome = glc_hf("train", *words, *SOURCES, *QUICK)
    assert outcome.code == 0, outcome.err
    assert outcome.err.count("No source votes on any of the 24 trusted labels") == 1
    results = results_in(tmp_path / "model")
    assert results["trusted"] == 24
    llm = next(source for source in results["sources"] if source["name"] == "llm")
    assert llm["trusted_votes"] == 0
    assert llm["estimated_accuracy"] > 0.6
