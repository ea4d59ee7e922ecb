# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`glc-hf check`, the short check before `glc-hf train`, and a messy file that trains."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from glc_hf.cli.commands.check import parser
from glc_hf.cli.data import Rows, load_rows
from glc_hf.cli.options import DataArguments
from glc_hf.cli.parsing import parse

from .conftest import CLASSES, results_in, text_rows, write_csv


QUICK = ["--max_steps", "3", "--save_strategy", "no", "--per_device_train_batch_size", "8", "--method", "glc"]
SPELLINGS = {"animal": ["animal", "Animal", " ANIMAL"], "food": ["food", "food ", "Food"], "tool": ["tool", "Tool"]}


def messy_rows(number: int) -> list[dict[str, Any]]:
    """Rows with several spellings of each class; every 20th has no label, every 25th no flag, one has no text."""
    rows = []
    for index in range(number):
        label = CLASSES[index % len(CLASSES)]
        # Most rows have the first spelling.
        spelling = SPELLINGS[label][index // 15 % len(SPELLINGS[label])] if index % 5 == 0 else label
        text = f"the {'cat' if label == 'animal' else 'soup' if label == 'food' else 'saw'} was here {index}"
        rows.append(
            {
                "id": index,
                "text": text if index != 11 else "",
                "label": "" if index % 20 == 7 else spelling,
                "trusted": "" if index % 25 == 8 else ("yes" if index % 4 == 0 else "no"),
            }
        )
    rows[31]["text"] = 'a "quoted"; text\nof two lines, with a café'
    rows[50]["text"] = rows[49]["text"]
    return rows


def write_messy(path: Path, number: int = 200, encoding: str = "utf-8-sig", delimiter: str = ";") -> Path:
    rows = messy_rows(number)
    with path.open("w", encoding=encoding, newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


def load(path: Path, *words: Any) -> Rows:
    return load_rows(parse(["--dataset", str(path), "--model", "some/model", *map(str, words)]))


def flagged(number: int) -> list[dict[str, Any]]:
    """Clean rows with different texts, one in four trusted."""
    rows = enumerate(text_rows(number))
    return [{**row, "text": f"{row['text']} {index}", "trusted": index % 4 == 0} for index, row in rows]


# ---------------------------------------------------------------------- the command
def test_a_messy_file_is_reported_with_rows_and_fixes(glc_hf, tmp_path: Path) -> None:
    path, report = write_messy(tmp_path / "messy.csv"), tmp_path / "report.json"
    outcome = glc_hf("check", path, "--json", report)
    assert outcome.code == 1, outcome.err
    assert "messy.csv is semicolon-separated, UTF-8 with a byte order mark" in outcome.out
    assert (
        "error: 10 rows have no label in column 'label' of the training split (rows 7, 27, 47, 67, 87, …"
        in outcome.out
    )
    assert "error: 8 rows have no flag in column 'trusted'" in outcome.out
    assert "8 class names are 3 classes" in outcome.out
    assert "Merge them with --normalize-labels." in outcome.out
    assert "2 errors that would stop training, 4 warnings" in outcome.out
    content = json.loads(report.read_text(encoding="utf-8"))
    assert content["rows"] == 200
    found = {entry["kind"]: entry for entry in content["findings"]}
    assert set(found) == {
        "missing_labels", "missing_flags", "label_spellings", "empty_texts", "duplicates",
        "duplicates_with_different_labels",
    }  # fmt: skip
    assert found["missing_labels"]["count"] == 10
    assert found["empty_texts"]["rows"] == [11]
    assert found["duplicates"]["rows"] == [50]
    assert found["duplicates_with_different_labels"]["rows"] == [49, 50]


def test_the_fixes_leave_warnings_only(glc_hf, tmp_path: Path) -> None:
    path = write_messy(tmp_path / "messy.csv")
    outcome = glc_hf("check", path, "--normalize-labels", "--on-missing", "skip")
    assert outcome.code == 0, outcome.err
    assert "error:" not in outcome.out
    assert "--normalize-labels: 8 spellings of labels are 3 classes." in outcome.out
    _, *lines = outcome.out.split("\nclass ", 1)[1].splitlines()[:4]
    assert sorted(line.split()[0] for line in lines) == ["animal", "food", "tool"]


def test_a_clean_file_has_no_problems(glc_hf, tmp_path: Path) -> None:
    outcome = glc_hf("check", write_csv(tmp_path / "a.csv", flagged(24)))
    assert outcome.code == 0
    assert outcome.out.endswith("no problems found\n")
    assert outcome.err == ""


def test_what_training_would_need_is_an_error(glc_hf, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", [{"text": f"t{number}", "label": number % 2} for number in range(8)])
    gold = write_csv(tmp_path / "gold.csv", [{"text": f"g{number}", "label": number % 2} for number in range(4)])
    assert "no row is trusted" in (outcome := glc_hf("check", path)).out
    assert outcome.code == 1
    for words in (["--noise", "flip"], ["--method", "no_correction"], ["--trusted-dataset", gold]):
        assert glc_hf("check", path, *words).code == 0, words


def test_bad_input_is_one_line(glc_hf, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", flagged(8))
    outcome = glc_hf("check", path, "--delimiter", "comma!")
    assert outcome.code == 2
    assert "--delimiter must be one character" in outcome.complaint
    assert "there is no such encoding" in glc_hf("check", path, "--encoding", "utf-9").complaint
    assert "no file or folder" in glc_hf("check", "./gone.csv").complaint


def test_votes_in_a_second_file_are_checked(glc_hf, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", [{"item": f"t{number}", **row} for number, row in enumerate(flagged(40))])
    labels = [row["label"] for row in flagged(40)]
    votes = [{"item": f"t{number}", "who": "ann", "said": label} for number, label in enumerate(labels) if number % 4]
    columns = ["--answer-columns", "item", "who", "said"]
    answers = write_csv(tmp_path / "answers.csv", votes)
    outcome = glc_hf("check", path, "--answers", answers, *columns)
    assert outcome.code == 0, outcome.out
    assert "answers.csv is comma-separated, UTF-8" in outcome.out
    votes[5]["item"] = "t99"
    answers = write_csv(tmp_path / "answers.csv", votes)
    outcome = glc_hf("check", path, "--answers", answers, *columns)
    assert outcome.code == 0
    assert "1 item with answers is not in the dataset" in outcome.err
    assert "no column 'worker'" in glc_hf("check", path, "--answers", answers).complaint
    outcome = glc_hf("check", path, "--answers", answers, "--source-columns", "label")
    assert "--answers and --source-columns both define the votes" in outcome.complaint


def test_every_option_that_selects_rows_is_one_of_train(glc_hf) -> None:
    known = set(vars(parser().parse_args(["a.csv"])))
    assert known >= {"eval_dataset", "normalize_labels", "on_missing", "delimiter", "encoding"}
    own = {"label_column", "trusted_column", "source_columns", "votes_column", "soft_label_column", "method", "noise"}
    assert known - set(DataArguments.__dataclass_fields__) - own == {"task", "json", "debug"}


# ---------------------------------------------------------------------- before training
def test_a_messy_file_trains_after_the_fixes(glc_hf, tmp_path: Path, tiny_bert: Path) -> None:
    path, output = write_messy(tmp_path / "messy.csv"), tmp_path / "model"
    words = ["train", "--dataset", path, "--model", tiny_bert, "--output-dir", output, *QUICK]
    outcome = glc_hf(*words)
    assert outcome.code == 2
    assert "10 rows have no label in column 'label'" in outcome.complaint
    assert "--on-missing skip" in outcome.complaint
    assert not output.exists()
    outcome = glc_hf(*words, "--normalize-labels", "--on-missing", "skip")
    assert outcome.code == 0, outcome.err
    results = results_in(output)
    kept = [row for row in messy_rows(200) if row["label"] and row["trusted"]]
    assert results["train_rows"] + results["eval_rows"] == len(kept) == 182
    assert results["arguments"]["normalize_labels"] is True
    config = json.loads((output / "config.json").read_text(encoding="utf-8"))
    assert sorted(config["id2label"].values()) == ["animal", "food", "tool"]
    assert "--normalize-labels: 8 spellings of labels are 3 classes." in outcome.err
    assert "warning: 1 row has an empty text in the training split (row 11)" in outcome.err
    assert "messy.csv: semicolon-separated, UTF-8 with a byte order mark" in outcome.err
    # Audit, apply and train again: every row stays, with what it was not asked to change.
    outcome = glc_hf("audit", output, "--dataset", path, "--folds", 0, "--force")  # a short training
    assert outcome.code == 0, outcome.err
    audited = Dataset.from_parquet(str(output / "audit" / "audit.parquet"))
    given = [row["label"] for row in messy_rows(200)]
    assert [label is None for label in audited["given_label"]] == [not label for label in given]
    assert set(audited["given_label"]) == {"animal", "food", "tool", None}
    assert audited["is_label_issue"][7] is False
    decisions, cleaned = tmp_path / "decisions.csv", tmp_path / "cleaned.csv"
    decisions.write_text("row,label\n7,tool\n10,food\n", encoding="utf-8")  # row 7 has no label
    outcome = glc_hf("apply", decisions, "--dataset", path, "--output", cleaned)
    assert outcome.code == 0, outcome.err
    rows = list(csv.DictReader(cleaned.open(encoding="utf-8", newline=""), delimiter=";"))
    assert [row["text"] for row in rows] == [row["text"] for row in messy_rows(200)]
    assert [row["label"] for row in rows if row["label_source"] == "given"] == [
        label for number, label in enumerate(given) if number not in (7, 10)
    ]
    assert [(row["label"], row["label_source"]) for row in (rows[7], rows[10])] == [
        ("tool", "reviewed"),
        ("food", "reviewed"),
    ]
    again = ["train", "--dataset", cleaned, "--model", tiny_bert, "--output-dir", tmp_path / "again", *QUICK]
    outcome = glc_hf(*again, "--normalize-labels", "--on-missing", "skip")
    assert outcome.code == 0, outcome.err
    results = results_in(tmp_path / "again")
    assert results["train_rows"] + results["eval_rows"] == len(kept) + 1


@pytest.mark.parametrize(("encoding", "delimiter"), [("utf-16", "\t"), ("cp1252", "|"), ("utf-8", ",")])
def test_the_same_rows_are_read_from_other_files(
    tmp_path: Path, encoding: str, delimiter: str, recwarn: pytest.WarningsRecorder
) -> None:
    path = write_messy(tmp_path / "messy.csv", encoding=encoding, delimiter=delimiter)
    rows = load(path, "--normalize-labels", "--on-missing", "skip")
    assert rows.label_names == ["animal", "food", "tool"]
    texts = {*rows.train["text"], *rows.evaluation["text"]}
    assert 'a "quoted"; text\nof two lines, with a café' in texts
    assert any("not UTF-8" in str(warning.message) for warning in recwarn) == (encoding == "cp1252")


def test_nothing_is_printed_for_clean_data(glc_hf, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_csv(tmp_path / "a.csv", flagged(48))
    evaluation = write_csv(tmp_path / "test.csv", [{**row, "text": f"new {row['text']}"} for row in flagged(24)])
    with caplog.at_level("INFO", logger="glc_hf"):
        load(path, "--eval-dataset", evaluation)
    assert caplog.messages == []


def test_problems_are_printed_in_a_few_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_csv(tmp_path / "a.csv", flagged(48))
    evaluation = write_csv(tmp_path / "test.csv", flagged(24))
    with caplog.at_level("INFO", logger="glc_hf"):
        load(path, "--eval-dataset", evaluation)
    (message,) = caplog.messages
    assert message.startswith("warning: 24 rows of the evaluation split (100%) have a text that is also trained on")


def test_images_that_cannot_be_read_stop_a_run_before_the_model_is_loaded(tmp_path: Path) -> None:
    from datasets import Features, Image, Value

    images = [{"bytes": b"broken", "path": None}] * 4
    features = Features(image=Image(), label=Value("int64"), trusted=Value("bool"))
    data = Dataset.from_dict(
        {"image": images, "label": [0, 1, 0, 1], "trusted": [True, True, False, False]}, features=features
    )
    data.to_parquet(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"4 images of column 'image' .* can't be read \(rows 0, 1, 2, 3\)"):
        load(tmp_path / "a.parquet")


# ---------------------------------------------------------------------- an evaluation file
def test_the_evaluation_file_is_used_and_cleaned_like_the_training_file(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", flagged(48))
    evaluation = [{"label": row["label"].upper(), "text": f"new {row['text']}"} for row in flagged(24)]
    evaluation[3]["label"] = ""
    other = tmp_path / "eval.csv"
    other.write_text("label;text\n" + "".join(f"{row['label']};{row['text']}\n" for row in evaluation))
    rows = load(path, "--eval-dataset", other, "--normalize-labels", "--on-missing", "skip")
    assert (len(rows.train), len(rows.evaluation)) == (48, 23)
    assert rows.label_names == list(CLASSES)
    with pytest.raises(ValueError, match="1 row has no label in column 'label' of the evaluation split .*row 3"):
        load(path, "--eval-dataset", other, "--normalize-labels")


def test_an_evaluation_file_without_the_columns_is_an_error(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", flagged(12))
    other = write_csv(tmp_path / "eval.csv", [{"sentence": "a", "label": "food"}])
    with pytest.raises(ValueError, match=r"--eval-dataset .* has no column 'text'.*sentence, label"):
        load(path, "--eval-dataset", other)


def test_votes_are_spelled_like_labels(tmp_path: Path) -> None:
    rows = [{**row, "rule": f" {row['label'].upper()}"} for row in flagged(24)]
    loaded = load(write_csv(tmp_path / "a.csv", rows), "--source-columns", "rule", "--normalize-labels")
    assert set(loaded.train["rule"]) == set(CLASSES)


def test_nothing_left_is_an_error(tmp_path: Path) -> None:
    rows = [{**row, "trusted": "yes" if index < 12 else "no"} for index, row in enumerate(flagged(24))]
    for row in rows:
        row["label"] = ""
    rows[0]["label"], rows[1]["label"] = "food", "tool"
    evaluation = write_csv(tmp_path / "eval.csv", [{"text": "a", "label": ""}])
    path = write_csv(tmp_path / "a.csv", rows)
    with pytest.raises(ValueError, match="every row of the evaluation split lacks a label"):
        load(path, "--eval-dataset", evaluation, "--on-missing", "skip")
