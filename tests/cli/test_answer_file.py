# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Votes of several sources on the command line: columns, lists, and answers from a second file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from glc_hf.cli.data import Rows, load_rows
from glc_hf.cli.model import prepare
from glc_hf.cli.parsing import TrainOptions, parse
from glc_hf.labels.vote_columns import read_votes

from .conftest import text_rows, write_csv


CLASSES = ["animal", "food", "tool"]


def load(path: Path, *words: Any) -> tuple[Rows, TrainOptions]:
    options = parse(["--dataset", str(path), "--model", "some/model", *map(str, words)])
    return load_rows(options), options


def rows_with_votes(number: int = 30) -> list[dict[str, Any]]:
    """Rows of which every fourth is trusted, and two rules that vote on some of them."""
    return [
        {
            **row,
            "item": f"t{position}",
            "trusted": position % 4 == 0,
            "rule_a": row["label"] if position % 2 else "",
            "rule_b": "animal",
        }
        for position, row in enumerate(text_rows(number))
    ]


def answers(number: int = 30) -> list[dict[str, Any]]:
    rows = rows_with_votes(number)
    return [
        {"item": row["item"], "worker": worker, "answer": row[rule]}
        for row in rows
        for worker, rule in (("ann", "rule_a"), ("bob", "rule_b"))
        if row[rule]
    ][::-1]


def test_source_columns_are_kept_and_are_neither_label_nor_input(tmp_path: Path) -> None:
    lines = [{"note": row.pop("text"), **row} for row in rows_with_votes()]
    for line in lines:
        del line["item"]  # then the notes are the only text that is not a vote
    path = write_csv(tmp_path / "a.csv", lines)
    rows, options = load(path, "--source-columns", "rule_a", "rule_b", "--eval-split", "train")
    assert options.config.source_columns == ["rule_a", "rule_b"]
    assert (rows.columns.inputs, rows.columns.label) == (("note",), "label")
    votes = read_votes(rows.train, options.config.source_columns, label_names=rows.label_names)
    assert len(votes) == 30
    assert [len(votes.labels[votes.sources == source]) for source in (0, 1)] == [15, 30]


def test_answers_of_a_second_file_become_votes(tmp_path: Path) -> None:
    path = write_csv(
        tmp_path / "a.csv", [{k: row[k] for k in ("text", "label", "item", "trusted")} for row in rows_with_votes()]
    )
    second = write_csv(tmp_path / "answers.csv", answers())
    rows, options = load(path, "--answers", second, "--eval-split", "train")
    assert (options.config.votes_column, options.config.source_names) == ("votes", ["ann", "bob"])
    expected = [[row["rule_a"] or None, row["rule_b"]] for row in rows_with_votes()]
    assert rows.train["votes"][:] == expected
    renamed = [{"item": line["item"], "by": line["worker"], "tag": line["answer"]} for line in answers()]
    (tmp_path / "answers.jsonl").write_text("\n".join(map(json.dumps, renamed)), encoding="utf-8")
    words = ("--answers", tmp_path / "answers.jsonl", "--answer-columns", "item", "by", "tag")
    rows, _ = load(path, *words, "--eval-split", "train")
    assert rows.train["votes"][:] == expected


def test_trusted_rows_of_a_second_file_need_no_votes(tmp_path: Path) -> None:
    noisy = [{k: v for k, v in row.items() if k != "trusted"} for row in rows_with_votes()]
    path = write_csv(tmp_path / "a.csv", noisy)
    gold = write_csv(tmp_path / "gold.csv", text_rows(9))
    second = write_csv(tmp_path / "answers.csv", answers())
    for words in (("--source-columns", "rule_a", "rule_b"), ("--answers", second)):
        rows, options = load(path, "--trusted-dataset", gold, "--eval-split", "train", *words)
        config = options.config
        votes = read_votes(rows.train, config.source_columns, config.votes_column, label_names=rows.label_names)
        assert len(votes) == 39
        assert len(votes.labels) == 45


def test_untrusted_rows_with_votes_need_no_label(tmp_path: Path) -> None:
    rows = rows_with_votes()
    for row in rows:
        row["label"] = row["label"] if row["trusted"] else ""
    lines = ["text,label,trusted,rule_b", *(f"{r['text']},{r['label']},{r['trusted']},{r['rule_b']}" for r in rows)]
    (tmp_path / "train.csv").write_text("\n".join(lines), encoding="utf-8")
    write_csv(tmp_path / "test.csv", [{**row, "trusted": True, "rule_b": "x"} for row in text_rows(6)])
    loaded, _ = load(tmp_path, "--source-columns", "rule_b")
    expected = [CLASSES.index(row["label"]) if row["trusted"] else -1 for row in rows]
    assert loaded.train["label"][:] == expected
    with pytest.raises(ValueError, match=r"22 rows have no label in column 'label' .*\(rows 1, "):
        load(tmp_path)


def test_votes_on_words_go_to_the_first_tokens(tmp_path: Path, tiny_bert: Path) -> None:
    lines = [
        {"tokens": ["cats", "was"], "tags": [0, 1], "trusted": True, "rule": [1, None], "other": None},
        {"tokens": ["the", "dog"], "tags": [0, 1], "trusted": False, "rule": [0, 1], "other": [None, 1]},
    ] * 5
    Dataset.from_list(lines).to_parquet(tmp_path / "a.parquet")
    options = parse(
        ["--dataset", str(tmp_path / "a.parquet"), "--model", str(tiny_bert), "--eval-split", "train"]
        + ["--source-columns", "rule", "other"]
    )
    train = prepare(load_rows(options), options).train
    votes = read_votes(train, ["rule", "other"], num_labels=2, label_column="labels")
    first, second = (train[row]["labels"] for row in (0, 1))
    assert len(votes) == 5 * (len(first) + len(second))
    assert train[0]["rule"][first.index(0)] == 1
    assert train[0]["other"] is None
    assert train[1]["other"][second.index(1)] == 1
    with pytest.raises(ValueError, match="--votes-column has one vote .* use --source-columns"):
        load_rows(options._replace(config=parse(["--votes-column", "rule"]).config))


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--source-columns", "rule_a", "--votes-column", "v"], ["source_columns and votes_column exclude"]),
        (["--source-columns", "rule_a", "rule_a"], ["source_columns has 'rule_a' twice"]),
        (["--source-columns", "rule_a", "trusted"], ["'trusted' is the trusted_column"]),
        (["--source-columns", "label", "--label-column", "label"], ["'label' is the label_column"]),
        (["--source-names", "x"], ["source_names", "votes_column"]),
        (["--source-columns", "rule_a", "--source-names", "x", "y"], ["2 names", "1 source_columns"]),
        (["--source-columns", "rule_c"], ["no column 'rule_c'", "rule_a, rule_b"]),
        (["--answers", "answers.csv", "--votes-column", "v"], ["--answers and --votes-column"]),
        (["--answers", "answers.csv", "--answer-columns", "item", "by"], ["three columns", "item by"]),
        (["--answer-columns", "item", "by", "tag"], ["name the file with --answers"]),
        (["--answers", "answers.csv", "--answer-columns", "item", "by", "answer"], ["'by'", "item, worker, answer"]),
        (["--answers", "./gone.csv"], ["--answers", "gone.csv"]),
        (["--answers", "twice.csv"], ["--answers twice.csv", "'ann' gives two answers", "line 0", "line 2"]),
        (["--answers", "other.csv"], ["--answers other.csv", "no row of the dataset has answers"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_options_of_sources_print_one_line_that_names_them(
    glc_hf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], parts: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "data.csv", rows_with_votes())
    lines = [{"item": item, "worker": "ann", "answer": answer} for item, answer in (("t1", "food"), ("t2", "tool"))]
    write_csv(tmp_path / "answers.csv", lines)
    write_csv(tmp_path / "twice.csv", [*lines, {**lines[0], "answer": "tool"}])
    write_csv(tmp_path / "other.csv", [{**line, "item": "x"} for line in lines[:1]])
    outcome = glc_hf("train", "--dataset", "data.csv", "--model", "some/model", *words)
    assert outcome.code == 2, outcome.err
    for part in parts:
        assert part in outcome.complaint


def soft_rows(number: int = 30) -> list[dict[str, Any]]:
    """Rows with soft labels, of which every fourth is trusted; only trusted rows have a label."""
    return [
        {
            "text": row["text"],
            "label": row["label"] if position % 4 == 0 else None,
            "trusted": position % 4 == 0,
            "target": [0.1 if name != row["label"] else 0.8 for name in CLASSES],
        }
        for position, row in enumerate(text_rows(number))
    ]


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    return path


def test_soft_labels_are_kept_and_are_not_the_label(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", soft_rows())
    rows, options = load(path, "--soft-label-column", "target")  # without an evaluation split: trusted rows
    assert options.config.soft_label_column == "target"
    assert (rows.columns.label, rows.label_names, len(rows.evaluation)) == ("label", CLASSES, 2)
    assert rows.train["target"][0] == [0.8, 0.1, 0.1]
    gold = write_jsonl(tmp_path / "gold.jsonl", text_rows(9))
    lines = [{key: row[key] for key in ("text", "label", "target")} for row in soft_rows()]
    second = write_jsonl(tmp_path / "b.jsonl", lines)
    rows, _ = load(second, "--soft-label-column", "target", "--trusted-dataset", gold)
    assert sum(soft is None for soft in rows.train["target"]) == sum(rows.train["trusted"]) == 7


def test_number_of_soft_labels_is_the_number_of_classes(tmp_path: Path) -> None:
    lines = [{**row, "label": position % 2 if row["trusted"] else None} for position, row in enumerate(soft_rows())]
    rows, _ = load(write_jsonl(tmp_path / "a.jsonl", lines), "--soft-label-column", "target")
    assert rows.num_labels == 3


def test_bad_soft_labels_are_found_before_a_model_is_loaded(tmp_path: Path) -> None:
    lines = soft_rows()
    lines[3]["target"] = [0.2, 0.2, 0.2]
    with pytest.raises(ValueError, match=r"column 'target' has \[0.2, 0.2, 0.2\] in row 3"):
        load(write_jsonl(tmp_path / "a.jsonl", lines), "--soft-label-column", "target")
    lines[3]["target"] = [0.5, 0.5]
    with pytest.raises(ValueError, match="row 3 has 2 probabilities in column 'target', but there are 3 classes"):
        load(write_jsonl(tmp_path / "b.jsonl", lines), "--soft-label-column", "target")
    words = [{"tokens": ["a"], "tags": [0], "trusted": True, "p": [1.0, 0.0]}] * 9
    Dataset.from_list(words).to_parquet(tmp_path / "c.parquet")
    with pytest.raises(ValueError, match="--soft-label-column has one list of probabilities per row"):
        load(tmp_path / "c.parquet", "--soft-label-column", "p")


def test_soft_labels_train(glc_hf: Any, tmp_path: Path, tiny_bert: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", soft_rows(40))
    words = ("--model", tiny_bert, "--output-dir", tmp_path / "out", "--max-steps", 2, "--method", "glc", "--use-cpu")
    outcome = glc_hf("train", "--dataset", path, "--soft-label-column", "target", *words)
    assert outcome.code == 0, outcome.err
    assert (tmp_path / "out" / "corruption_matrix.json").exists()
