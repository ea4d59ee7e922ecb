# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Votes of several sources from `glc-hf train` to `glc-hf audit`: the table of sources, the files, the verdicts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from datasets import Dataset

from glc_hf.correction.sources import SourceTable
from glc_hf.methods.matrix_files import load_matrices, load_sources

from .conftest import CLASSES, text_rows, write_csv


QUICK = ["--method", "glc", "--learning-rate", "5e-3", "--save-strategy", "no", "--num-train-epochs", "8"]
SOURCES = ["anna", "rule_<b>", "broken|"]


def voted(number: int = 240) -> list[dict[str, Any]]:
    """Rows of which every fourth is trusted; only those have a label."""
    rng = np.random.default_rng(0)
    rows = []
    for index, row in enumerate(text_rows(number)):
        true = CLASSES.index(row["label"])
        votes = [true if rng.random() < right else (true + int(rng.integers(1, 3))) % 3 for right in (0.85, 0.7, 0.05)]
        given = [CLASSES[vote] if rng.random() < 0.9 else "" for vote in votes]
        trusted = index % 4 == 0
        rows.append(
            {
                "text": row["text"],
                "label": row["label"] if trusted else "",
                "trusted": trusted,
                **dict(zip(SOURCES, given, strict=True)),
                "truth": row["label"],
                "item": f"t{index}",
            }
        )
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_bert: Path) -> Path:
    from glc_hf.cli.main import main

    path = tmp_path_factory.mktemp("votes")
    write_csv(path / "train.csv", voted())
    argv = ["train", "--dataset", path / "train.csv", "--model", tiny_bert, "--output-dir", path / "model", *QUICK]
    assert main([str(word) for word in [*argv, "--text-column", "text", "--source-columns", *SOURCES]]) == 0
    return path


def test_table_of_sources_is_printed_and_in_all_files(glc_hf, folder: Path, tiny_bert: Path) -> None:
    argv = [
        "--dataset",
        folder / "train.csv",
        "--model",
        tiny_bert,
        "--output-dir",
        folder / "again",
        *QUICK[:-1],
        "1",
    ]
    outcome = glc_hf("train", *argv, "--text-column", "text", "--source-columns", *SOURCES)
    assert outcome.code == 0, outcome.err
    results = json.loads((folder / "again" / "results.json").read_text(encoding="utf-8"))
    table = SourceTable.from_list(results["sources"])
    assert [row.name for row in table] == SOURCES
    assert [row.name for row in table.hurting] == ["broken|"]
    for line in str(table).splitlines()[: 1 + len(SOURCES)]:
        assert line in outcome.out
    assert f"warning: {table.hurting[0].sentence}" in outcome.out
    card = (folder / "again" / "README.md").read_text(encoding="utf-8")
    section = card[card.index("## Sources of labels") : card.index("## Evaluation")]
    assert "| rule\\_\\<b\\> |" in section
    assert "- broken\\| hurts: " in section
    assert "are in `corruption_matrices.json`" in section
    assert "![p(vote | true label) of the worst sources](corruption_matrices.png)" in section
    assert (folder / "again" / "corruption_matrices.png").is_file()
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {8}
    assert "follow from the votes of 3 sources." in card


def test_model_folder_has_one_file_of_matrices(folder: Path) -> None:
    assert list(load_matrices(folder / "model")) == SOURCES
    assert load_sources(folder / "model").names == tuple(SOURCES)
    assert not (folder / "model" / "sources").exists()


def test_audit_judges_the_labels_that_follow_from_the_votes(glc_hf, folder: Path) -> None:
    outcome = glc_hf("audit", folder / "model", "--dataset", folder / "train.csv", "--text-column", "text")
    assert outcome.code == 0, outcome.err
    table = pd.read_csv(folder / "model" / "audit" / "audit.csv")
    assert len(table) == 240
    trusted, judged = table[table.trusted], table[~table.trusted & table.given_label.notna()]
    assert (trusted.given_label == trusted.truth).all()
    assert (trusted.p_wrong == 0).all()
    wrong = judged.given_label != judged.truth
    assert 0 < wrong.sum() < 0.3 * len(judged)
    assert judged.p_wrong[wrong].mean() > judged.p_wrong[~wrong].mean() + 0.5
    assert (judged.suggested_label == judged.truth).mean() > (judged.given_label == judged.truth).mean() + 0.02
    page = (folder / "model" / "audit" / "audit.html").read_text(encoding="utf-8")
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])
    assert [line[0] for line in data["sources"]["lines"]] == SOURCES
    assert data["sources"]["hurting"][0].startswith("broken| hurts: ")
    assert "votes of each source" in data["explanation"]
    assert "rule_<b>" not in page


def test_audit_reads_votes_of_other_rows_from_answers(glc_hf, folder: Path, tmp_path: Path) -> None:
    rows = voted()[:60]
    answers = [
        {"item": row["item"], "worker": source, "answer": row[source]}
        for row in rows
        for source in SOURCES[:2]
        if row[source]
    ]
    answers += [{"item": row["item"], "worker": "new", "answer": "food"} for row in rows[:5]]
    path = write_csv(
        tmp_path / "rows.csv", [{k: row[k] for k in ("text", "label", "trusted", "item")} for row in rows]
    )
    second = write_csv(tmp_path / "answers.csv", answers)
    words = ["audit", folder / "model", "--dataset", path, "--text-column", "text", "--output-dir", tmp_path / "out"]
    outcome = glc_hf(*words, "--answers", second)
    assert outcome.code == 0, outcome.err
    assert "The votes of 'new' are not used" in outcome.err
    first = pd.read_csv(tmp_path / "out" / "audit.csv")
    assert "votes" not in first.columns
    write_csv(path, rows)
    outcome = glc_hf(*words, "--source-columns", *SOURCES[:2])
    assert outcome.code == 0, outcome.err
    second = pd.read_csv(tmp_path / "out" / "audit.csv")
    np.testing.assert_allclose(first.p_wrong, second.p_wrong, rtol=1e-6)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--answers", "a.csv", "--votes-column", "v"], "--answers and --votes-column both say where the votes are"),
        (["--source-columns", "gone"], "no column 'gone' of votes; its columns are text, label"),
        (["--source-columns", "truth"], "none of the sources of these rows ('truth') is known"),
    ],
)
def test_bad_options_of_votes_print_one_line(glc_hf, folder: Path, words: list[str], part: str) -> None:
    outcome = glc_hf("audit", folder / "model", "--dataset", folder / "train.csv", "--text-column", "text", *words)
    assert outcome.code == 2
    assert part in outcome.complaint


def test_words_with_votes_get_a_verdict_per_word(glc_hf, tmp_path: Path, tiny_bert: Path) -> None:
    lines = [
        {"tokens": ["cats", "was"], "tags": [0, 1], "trusted": True, "rule": [0, None]},
        {"tokens": ["the", "dog"], "tags": [None, None], "trusted": False, "rule": [1, None]},
    ] * 20
    Dataset.from_list(lines).to_parquet(tmp_path / "a.parquet")
    argv = ["--dataset", tmp_path / "a.parquet", "--model", tiny_bert, "--output-dir", tmp_path / "model"]
    outcome = glc_hf("train", *argv, "--source-columns", "rule", *QUICK[:-1], "1")
    assert outcome.code == 0, outcome.err
    outcome = glc_hf("audit", tmp_path / "model", "--dataset", tmp_path / "a.parquet")
    assert outcome.code == 0, outcome.err
    table = pd.read_parquet(tmp_path / "model" / "audit" / "audit.parquet")
    assert table.given_label[0].tolist() == [0, 1]
    assert table.given_label[1].tolist() == [1, -100]
    assert table.p_wrong[0].tolist() == [0.0, 0.0]
    assert table.p_wrong[1][0] > 0
    assert np.isnan(table.p_wrong[1][1])
