# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`glc-hf review` and `glc-hf apply`: from a file of decisions to a corrected dataset, in every format."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Image, List, Value
from PIL import Image as PILImage

from glc_hf import CorruptionMatrix
from glc_hf.audit.findings import Findings
from glc_hf.audit.page import make_page
from glc_hf.cli.commands import review
from glc_hf.data import data_files

from .conftest import CLASSES, text_rows, write_csv


QUICK = ["--per_device_train_batch_size", "16", "--learning-rate", "5e-3", "--save-strategy", "no"]


def _rows(number: int = 6) -> list[dict[str, Any]]:
    return [{**row, "code": f"00{index}", "price": f"{index}.10"} for index, row in enumerate(text_rows(number))]


def _decisions(path: Path, *entries: dict[str, Any]) -> Path:
    path.write_text(json.dumps(list(entries)), encoding="utf-8")
    return path


def _write(folder: Path, suffix: str) -> Path:
    """The rows in a file of this format."""
    path = folder / f"data{suffix}"
    rows = _rows()
    if suffix in (".csv", ".tsv"):
        pd.DataFrame(rows).to_csv(path, index=False, sep="\t" if suffix == ".tsv" else ",")
    elif suffix == ".parquet":
        pd.DataFrame(rows).to_parquet(path)
    else:
        text = "".join(json.dumps(row) + "\n" for row in rows) if suffix == ".jsonl" else json.dumps(rows)
        path.write_text(text)
    return path


@pytest.mark.parametrize("source", [".csv", ".tsv", ".json", ".jsonl", ".parquet"])
@pytest.mark.parametrize("target", [".csv", ".jsonl", ".parquet"])
def test_every_format_is_read_and_written(glc_hf, tmp_path: Path, source: str, target: str) -> None:
    dataset, output = _write(tmp_path, source), tmp_path / "out" / f"cleaned{target}"
    before = dataset.read_bytes()
    decisions = _decisions(tmp_path / "d.json", {"row": 1, "label": "tool"}, {"row": 2, "label": "tool"})
    outcome = glc_hf("apply", decisions, "--dataset", dataset, "--output", output)
    assert outcome.code == 0, outcome.err
    assert "reviewed: 2 (1 changed, 0 skipped)\n" in outcome.out
    assert f"written to: {output}\n" in outcome.out
    assert dataset.read_bytes() == before
    given = data_files.load_splits(str(dataset))["train"]
    result = data_files.load_splits(str(output))["train"]
    assert result.column_names == [*given.column_names, "trusted", "label_source", "original_label"]
    assert result["original_label"][:] == given["label"][:]
    assert result["text"][:] == given["text"][:]
    if target != ".csv":
        assert result.select_columns(["code", "price"])[:] == given.select_columns(["code", "price"])[:]
    assert result["label"][:] == ["animal", "tool", "tool", "animal", "food", "tool"]
    assert result["trusted"][:] == [False, True, True, False, False, False]
    assert result["label_source"][:] == ["given", "reviewed", "reviewed", "given", "given", "given"]


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_from_csv_to_csv_other_values_stay_as_they_are_written(glc_hf, tmp_path: Path, suffix: str) -> None:
    dataset, output = _write(tmp_path, suffix), tmp_path / "cleaned.csv"
    assert glc_hf("apply", _decisions(tmp_path / "d.json", {"row": 1, "label": "tool"}), "--dataset", dataset,
                  "--output", output).code == 0  # fmt: skip
    before = pd.read_csv(dataset, dtype=str, sep="\t" if suffix == ".tsv" else ",")
    after = pd.read_csv(output, dtype=str)
    before.loc[1, "label"] = "tool"
    assert after[before.columns].equals(before)
    assert after.code[1] == "001"
    assert after.price[1] == "1.10"


def test_integer_labels_of_a_csv_with_gaps_stay_integers(glc_hf, tmp_path: Path) -> None:
    dataset, output = tmp_path / "data.csv", tmp_path / "cleaned.csv"
    dataset.write_text("text,label\na,0\nb,\nc,1\n")
    assert glc_hf("apply", _decisions(tmp_path / "d.json", {"row": 2, "label": 0}), "--dataset", dataset,
                  "--output", output).code == 0  # fmt: skip
    assert output.read_text() == (
        "text,label,trusted,label_source,original_label\na,0,false,given,0\nb,,false,given,\nc,0,true,reviewed,1\n"
    )


def test_an_unknown_label_column_is_asked_for_by_its_option(glc_hf, tmp_path: Path) -> None:
    dataset = tmp_path / "data.csv"
    dataset.write_text("text,verdict\na,0\nb,1\n")
    outcome = glc_hf("apply", _decisions(tmp_path / "d.json", {"row": 1, "label": 0}), "--dataset", dataset,
                     "--output", tmp_path / "cleaned.csv")  # fmt: skip
    assert outcome.code != 0
    assert "no column is known to hold the labels: name --label-column, or " in outcome.err
    assert "label_column" not in outcome.err


def test_a_csv_file_keeps_its_delimiter_and_its_flags(glc_hf, tmp_path: Path) -> None:
    dataset = tmp_path / "data.csv"
    dataset.write_bytes("text;topic;reviewed\ncaf\xe9, tea;x;yes\nb;y;no\nc;x;no\n".encode("cp1252"))
    decisions = _decisions(tmp_path / "d.json", {"row": 2, "label": "y"})
    argv = ["apply", decisions, "--dataset", dataset, "--encoding", "cp1252", "--label-column", "topic"]
    outcome = glc_hf(*argv, "--trusted-column", "reviewed", "--output", tmp_path / "cleaned.csv")
    assert outcome.code == 0, outcome.err
    assert (outcome.out + outcome.err).count("semicolon-separated") == 1
    assert "trusted: 2 (1 before)\n" in outcome.out
    assert "cleaned.csv --label-column topic --trusted-column reviewed --model NAME" in outcome.out
    assert (tmp_path / "cleaned.csv").read_text(encoding="utf-8") == (
        "text;topic;reviewed;label_source;original_label\ncafé, tea;x;true;given;\nb;y;false;given;y\n"
        "c;y;true;reviewed;x\n"
    )
    outcome = glc_hf(*argv, "--delimiter", "semicolon", "--output", tmp_path / "other.csv")
    assert "The dataset has no column 'trusted'. It was added" in outcome.out
    assert "trusted: 1 (0 before)\n" in outcome.out


def _hub_rows() -> Dataset:
    features = Features({"image": Image(), "label": ClassLabel(names=["x", "y"]), "id": Value("int8")})
    pictures = [PILImage.new("RGB", (4, 4), (n, n, n)) for n in range(3)]
    return Dataset.from_dict({"image": pictures, "label": [0, 1, 0], "id": [5, 6, 7]}, features=features)


@pytest.mark.parametrize("place", ["hub", "folder"])
def test_datasets_with_features_keep_them(glc_hf, tmp_path: Path, monkeypatch, place: str) -> None:
    rows, name = _hub_rows(), "someone/pictures"
    if place == "hub":
        monkeypatch.setattr(data_files, "load_dataset", lambda *_, **__: DatasetDict({"validation": rows}))
    else:
        name = tmp_path / "pictures"
        name.mkdir()
        rows.to_parquet(str(name / "validation.parquet"))
    output = tmp_path / "cleaned.parquet"
    argv = [
        "apply",
        _decisions(tmp_path / "d.json", {"row": 2, "label": "y"}),
        "--dataset",
        name,
        "--split",
        "validation",
    ]
    outcome = glc_hf(*argv, "--output", output)
    assert outcome.code == 0, outcome.err
    monkeypatch.undo()
    result = data_files.load_splits(str(output))["train"]
    assert {column: result.features[column] for column in rows.features} == dict(rows.features)
    assert result["label"][:] == [0, 1, 1]
    assert result[2]["image"].getpixel((0, 0)) == (2, 2, 2)
    if place == "folder":
        complaint = glc_hf(*argv, "--output", name / "cleaned.parquet").complaint
        assert "is in the folder of the dataset" in complaint


def test_nothing_is_written_for_decisions_that_do_not_fit(glc_hf, tmp_path: Path) -> None:
    dataset, output = write_csv(tmp_path / "data.csv", _rows()), tmp_path / "cleaned.csv"
    before = dataset.read_bytes()

    def complaint(*entries: dict[str, Any], text: str | None = None) -> str:
        path = _decisions(tmp_path / "d.json", *entries)
        if text is not None:
            path.write_text(text)
        outcome = glc_hf("apply", path, "--dataset", dataset, "--output", output)
        assert outcome.code == 2
        assert sorted(file.name for file in tmp_path.iterdir()) == ["d.json", "data.csv"]
        return outcome.complaint

    assert "row 6: the dataset has no such row, it has 6 rows" in complaint({"row": 6, "label": "tool"})
    assert "row 2: 'tol' is none of the classes" in complaint({"row": 1, "label": "tool"}, {"row": 2, "label": "tol"})
    other = {"row": 4, "label": "tool", "given_label": "animal"}
    assert "row 4: the given label was 'animal', but column 'label' has 'food'" in complaint(other)
    assert "cut short or damaged after row 4" in complaint(text='[{"row": 4, "label": "to')
    assert dataset.read_bytes() == before


def test_the_original_and_other_files_are_never_overwritten(glc_hf, tmp_path: Path) -> None:
    dataset = write_csv(tmp_path / "data.csv", _rows())
    decisions = _decisions(tmp_path / "d.json", {"row": 1, "label": "tool"})
    before = dataset.read_bytes()
    argv = ["apply", decisions, "--dataset", dataset, "--output"]
    assert "is the dataset itself, which is never overwritten" in glc_hf(*argv, dataset).complaint
    (tmp_path / "link.csv").symlink_to(dataset)
    assert "is the dataset itself" in glc_hf(*argv, tmp_path / "link.csv").complaint
    (tmp_path / "other.csv").write_text("mine")
    assert "exists and is not overwritten" in glc_hf(*argv, tmp_path / "other.csv").complaint
    assert "must end in .parquet, .csv" in glc_hf(*argv, tmp_path / "cleaned.txt").complaint
    assert (tmp_path / "other.csv").read_text() == "mine"
    assert dataset.read_bytes() == before
    assert "--auto-fix P --audit FILE" in glc_hf("apply", *argv[2:], tmp_path / "new.csv").complaint
    assert "give both or none" in glc_hf(*argv, tmp_path / "new.csv", "--auto-fix", "0.9").complaint


def test_review_opens_the_page_of_a_folder(glc_hf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(review.webbrowser, "open", lambda url: opened.append(url) or True)
    assert "write it with `glc-hf audit" in glc_hf("review", tmp_path).complaint
    page = tmp_path / "my model" / "audit" / "audit.html"
    page.parent.mkdir(parents=True)
    page.write_text("page")
    for folder in (page.parents[1], page.parent, page):
        outcome = glc_hf("review", folder)
        assert outcome.code == 0, outcome.err
        assert outcome.out.startswith(f"page: {page}\n")
    assert opened == [page.as_uri()] * 3
    assert glc_hf("review", page, "--no-open").out.startswith(f"page: {page}\n")
    assert len(opened) == 3
    monkeypatch.setattr(review.webbrowser, "open", lambda url: False)
    assert "open the page yourself" in glc_hf("review", page).out


def _page_data(page: Path) -> dict[str, Any]:
    text = page.read_text(encoding="utf-8")
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


def test_words_decided_on_are_corrected_and_trusted_one_by_one(glc_hf, tmp_path: Path) -> None:
    features = Features({"tokens": List(Value("string")), "tags": List(ClassLabel(names=list(CLASSES)))})
    rows = {"tokens": [["a", "cat"], ["saw"]], "tags": [[-100, 2], [1]]}
    Dataset.from_dict(rows, features=features).to_parquet(str(tmp_path / "words.parquet"))
    loaded = data_files.load_splits(str(tmp_path / "words.parquet"))["train"]
    matrix = CorruptionMatrix.uniform(3, 0.3, label_names=list(CLASSES))
    row, word, given, suggested = np.array([0, 1]), np.array([1, 0]), np.array([2, 1]), np.array([0, 2])
    findings = Findings(matrix, row, word, given, suggested, np.array([0.9, 0.8]))
    (tmp_path / "page.html").write_text(
        make_page(findings, loaded, ("tokens",), "token", "t", 9, label_column="tags"), encoding="utf-8"
    )
    content = _page_data(tmp_path / "page.html")
    entry = {"row": 0, "word": content["rows"]["position"][0], "decision": "suggested", "label": "animal"}
    entry.update(given_label="tool", check=content["rows"]["check"][0])
    head = {"format": "glc_hf decisions", "format_version": 1, "dataset": content["review"]["dataset"]}
    decisions = {**head, "label_names": list(CLASSES), "num_labels": 3, "num_decisions": 1, "decisions": [entry]}
    (tmp_path / "d.json").write_text(json.dumps(decisions))
    output = tmp_path / "cleaned.jsonl"
    outcome = glc_hf("apply", tmp_path / "d.json", "--dataset", tmp_path / "words.parquet", "--output", output)
    assert outcome.code == 0, outcome.err
    first, second = (json.loads(line) for line in output.read_text().splitlines())
    assert first == {
        "tokens": ["a", "cat"], "tags": [-100, 0], "trusted": [False, True], "label_source": ["given", "reviewed"],
        "original_label": [-100, 2],
    }  # fmt: skip
    assert second["tags"] == [1]


def test_round_trip_from_training_to_training(glc_hf, tmp_path: Path, tiny_bert: Path) -> None:
    """train → audit → decisions → apply → train, on a CSV with wrong labels, other columns and duplicates."""
    rows = []
    for index, row in enumerate(text_rows(240)):
        trusted = index % 4 == 0
        wrong = not trusted and (index // 4) % 3 == 0
        given = CLASSES[(CLASSES.index(row["label"]) + 1) % 3] if wrong else row["label"]
        flag, truth = "yes" if trusted else "no", CLASSES.index(row["label"])
        rows.append({"phrase": row["text"], "label": given, "checked": flag, "zip": f"0{index}", "truth": truth})
    dataset = write_csv(tmp_path / "train.csv", rows)
    train = ["train", "--model", tiny_bert, "--method", "glc", "--num-train-epochs", "9", *QUICK]
    train += ["--trusted-column", "checked"]  # `audit` and `apply` know it from the run
    assert glc_hf(*train, "--dataset", dataset, "--output-dir", tmp_path / "model").code == 0
    outcome = glc_hf("audit", tmp_path / "model", "--dataset", dataset)
    assert outcome.code == 0, outcome.err
    assert "next: glc-hf review" in outcome.out
    audit = tmp_path / "model" / "audit"

    # The file that the page saves, for the 20 most suspect rows: every label is set to the true one.
    content = _page_data(audit / "audit.html")
    names, shown = content["names"], content["rows"]
    assert set(names) == set(CLASSES)
    entries = []
    for row, given, check in list(zip(shown["row"], shown["given"], shown["check"], strict=True))[:20]:
        label = CLASSES[rows[row]["truth"]]
        decision = "keep" if label == names[given] else "class"
        entries.append({"row": row, "decision": decision, "label": label, "given_label": names[given], "check": check})
    head = {"format": "glc_hf decisions", "format_version": 1, "dataset": content["review"]["dataset"]}
    counts = {"label_names": names, "num_labels": 3, "num_decisions": len(entries)}
    decisions = tmp_path / "decisions.json"
    decisions.write_text(json.dumps({**head, **counts, "decisions": entries}))

    argv = ["apply", decisions, "--dataset", dataset, "--auto-fix", "0.9", "--audit", audit / "audit.csv", "--output"]
    outcome = glc_hf(*argv, tmp_path / "cleaned.parquet")
    assert outcome.code == 0, outcome.err
    before = pd.read_csv(dataset)
    cleaned = pd.read_parquet(tmp_path / "cleaned.parquet")
    assert len(cleaned) == len(before)
    assert cleaned[["phrase", "zip", "truth"]].equals(before[["phrase", "zip", "truth"]])
    reviewed = cleaned.label_source == "reviewed"
    assert sorted(cleaned.index[reviewed]) == sorted(entry["row"] for entry in entries)
    assert (cleaned.checked == ((before.checked == "yes") | reviewed)).all()
    assert "trusted" not in cleaned
    assert f"trusted: {cleaned.checked.sum()} (60 before)\n" in outcome.out
    assert "cleaned.parquet --trusted-column checked --model" in outcome.out
    truth = cleaned.truth.map(lambda label: CLASSES[label])
    assert (cleaned.label[reviewed] == truth[reviewed]).all()
    assert (cleaned.label != truth).sum() < (before.label != truth).sum() / 2
    assert (cleaned.label_source == "suggested").sum() > 0
    assert (cleaned.label == before.label)[cleaned.label_source == "given"].all()

    # The decisions belong to the audited rows, and to no others.
    write_csv(tmp_path / "other.csv", [*rows[:30], {**rows[30], "phrase": "another text"}, *rows[31:]])
    argv[3] = tmp_path / "other.csv"
    complaint = glc_hf(*argv, tmp_path / "never.parquet").complaint
    assert "other rows differ" in complaint or "row 30" in complaint
    assert not (tmp_path / "never.parquet").exists()

    again = glc_hf(*train, "--dataset", tmp_path / "cleaned.parquet", "--output-dir", tmp_path / "second")
    assert again.code == 0, again.err
    assert (tmp_path / "second" / "corruption_matrix.json").is_file()


def test_original_labels_of_checked_rows_are_counted(glc_hf, tmp_path: Path, tiny_bert: Path) -> None:
    """apply → train on both labels of the checked rows, which are words → audit. Rows that were trusted before have
    one label and are not counted."""
    rows, entries = [], []
    for index, row in enumerate(text_rows(90)):
        after = CLASSES[(CLASSES.index(row["label"]) + 1) % 3]
        trusted, checked, wrong = index < 15, 15 <= index < 45, index % 2 == 1
        rows.append({**row, "label": after if wrong and not trusted else row["label"], "trusted": str(trusted)})
        entries += [{"row": index, "label": row["label"]}] if checked else []
    dataset, cleaned = write_csv(tmp_path / "train.csv", rows), tmp_path / "cleaned.csv"
    decisions = _decisions(tmp_path / "d.json", *entries)
    assert glc_hf("apply", decisions, "--dataset", dataset, "--output", cleaned).code == 0
    table = pd.read_csv(cleaned)
    given = [row["label"] for row in rows]
    assert table.original_label[:15].isna().all()
    assert table.original_label[15:].tolist() == given[15:]
    assert (table.label[15:45] != given[15:45]).sum() == 15

    paired = ["--estimator", "paired", "--noisy-label-column", "original_label", "--smoothing", "0"]
    argv = ["--dataset", cleaned, "--model", tiny_bert, "--max_steps", "2", *QUICK, *paired]
    argv += ["--eval-dataset", write_csv(tmp_path / "test.csv", text_rows(12, seed=1))]
    outcome = glc_hf("train", *argv, "--method", "glc", "--output-dir", tmp_path / "model")
    assert outcome.code == 0, outcome.err
    matrix = CorruptionMatrix.from_pretrained(tmp_path / "model")
    assert matrix.probs[0] == pytest.approx([0.5, 0.5, 0.0])
    assert matrix.trusted_rows.sum() == 30
    outcome = glc_hf("audit", tmp_path / "model", "--dataset", cleaned)
    assert outcome.code == 0, outcome.err
    assert "counted on 30 trusted rows with their noisy labels" in outcome.out

    # A second round keeps the column.
    again = tmp_path / "again.csv"
    assert glc_hf("apply", _decisions(tmp_path / "d.json", {"row": 50, "label": "tool"}), "--dataset", cleaned,
                  "--output", again).code == 0  # fmt: skip
    assert pd.read_csv(again).original_label.equals(table.original_label)

    table["original_label"] = table.original_label.where(~table.trusted)
    table.to_csv(tmp_path / "none.csv", index=False)
    argv[1] = tmp_path / "none.csv"
    complaint = glc_hf("train", *argv, "--method", "glc", "--output-dir", tmp_path / "none").complaint
    assert "no trusted row has a label in column 'original_label'" in complaint
