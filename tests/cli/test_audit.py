# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`glc-hf audit`: from a trained folder and a file to a table of wrong labels."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from datasets import ClassLabel, Dataset, Features, List, Value, load_dataset
from safetensors.torch import load_file, save_file

from glc_hf import CorruptionMatrix
from glc_hf.audit.findings import COLUMNS
from glc_hf.cli.report import DIGITS
from glc_hf.correction.reliability import matrix_warnings
from tests.training.tiny import quick_pool

from .conftest import CLASSES, WORDS, text_rows, write_csv


QUICK = ["--per_device_train_batch_size", "16", "--learning-rate", "5e-3", "--save-strategy", "no"]


def _noisy(number: int) -> list[dict]:
    """Rows of which every fourth is trusted; every third of the others has the label of the next class."""
    rows = []
    for index, row in enumerate(text_rows(number)):
        trusted = index % 4 == 0
        wrong = not trusted and (index // 4) % 3 == 0
        given = CLASSES[(CLASSES.index(row["label"]) + 1) % 3] if wrong else row["label"]
        rows.append(
            {"text": row["text"], "label": given, "trusted": "yes" if trusted else "no", "truth": row["label"]}
        )
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_bert: Path) -> Path:
    from glc_hf.cli.main import main

    path = tmp_path_factory.mktemp("audit")
    write_csv(path / "train.csv", _noisy(240))
    argv = ["train", "--dataset", path / "train.csv", "--model", tiny_bert, "--output-dir", path / "model"]
    assert main([str(word) for word in [*argv, "--method", "glc", "--num-train-epochs", "9", *QUICK]]) == 0
    return path


def test_audit_finds_the_wrong_labels_of_a_csv(glc_hf, folder: Path) -> None:
    outcome = glc_hf("audit", folder / "model", "--dataset", folder / "train.csv")
    assert outcome.code == 0, outcome.err
    table = pd.read_csv(folder / "model" / "audit" / "audit.csv")
    given = pd.read_csv(folder / "train.csv")
    assert list(table.columns) == ["row", *given.columns, *COLUMNS]
    assert table[list(given.columns)].equals(given)
    assert (table.given_label == table.label).all()
    untrusted = table[table.trusted == "no"]
    wrong = untrusted.label != untrusted.truth
    assert (table.p_wrong[table.trusted == "yes"] == 0).all()
    assert untrusted.p_wrong[wrong].min() > untrusted.p_wrong[~wrong].max()
    assert (untrusted.suggested_label == untrusted.truth).all()
    parquet = pd.read_parquet(folder / "model" / "audit" / "audit.parquet")
    assert parquet.suggested_label.tolist() == table.suggested_label.tolist()
    assert (folder / "model" / "audit" / "audit.html").read_text().startswith("<!DOCTYPE html>")
    assert f"label issues: {wrong.sum()}\n" in outcome.out
    assert "rows: 240 (60 trusted)\n" in outcome.out
    assert "\x1b" not in outcome.out + outcome.err
    assert "%|" not in outcome.err


def test_columns_and_flags_are_those_of_the_run(glc_hf, tmp_path: Path, tiny_bert: Path) -> None:
    names = {"text": "review", "label": "stars", "trusted": "checked"}
    rows = [{names.get(name, name): value for name, value in row.items()} for row in _noisy(120)]
    rows = [{"text": "nothing", "label": "nothing", **row} for row in rows]  # usual names, other columns
    train = write_csv(tmp_path / "train.csv", rows)
    columns = ["--text-column", "review", "--label-column", "stars", "--trusted-column", "checked"]
    argv = ["train", "--dataset", train, "--model", tiny_bert, "--output-dir", tmp_path / "model", *columns]
    assert glc_hf(*argv, "--method", "glc", "--num-train-epochs", "1", *QUICK).code == 0
    outcome = glc_hf("audit", tmp_path / "model", "--dataset", train)
    assert outcome.code == 0, outcome.err
    assert "rows: 120 (30 trusted)\n" in outcome.out
    table = pd.read_csv(tmp_path / "model" / "audit" / "audit.csv")
    assert (table.given_label == table.stars).all()
    assert (table.p_wrong[table.checked == "yes"] == 0).all()
    # Rows with the usual names are read by these, and the command line comes first.
    usual = write_csv(tmp_path / "usual.csv", [{**row, "old": row["label"]} for row in _noisy(120)])
    outcome = glc_hf("audit", tmp_path / "model", "--dataset", usual)
    assert outcome.code == 0, outcome.err
    assert "rows: 120 (30 trusted)\n" in outcome.out
    assert "no column 'gone'" in glc_hf("audit", tmp_path / "model", "--dataset", usual, "--text-column", "gone").err
    outcome = glc_hf("audit", tmp_path / "model", "--dataset", train, "--trusted-column", "none")
    assert "rows: 120 (0 trusted)\n" in outcome.out


def test_wrong_labels_are_counted_on_trusted_rows_that_have_their_noisy_label(
    glc_hf, folder: Path, tmp_path: Path
) -> None:
    table = pd.read_csv(folder / "train.csv")
    trusted = table.trusted == "yes"
    table["before"] = table.label.where(trusted)  # empty in untrusted rows
    wrong = table.index[trusted][:12]
    table.loc[wrong, "before"] = table.label[wrong].map(dict(zip(CLASSES, (*CLASSES[1:], CLASSES[0]), strict=True)))
    table.to_csv(tmp_path / "before.csv", index=False)
    argv = ["audit", folder / "model", "--dataset", tmp_path / "before.csv", "--output-dir", tmp_path / "out"]
    counted = glc_hf(*argv, "--noisy-label-column", "before")
    assert counted.code == 0, counted.err
    line = "wrong labels: 36 (90% interval 20 to 56, counted on 60 trusted rows with their noisy labels)"
    assert line in counted.out
    assert "estimated from 48 trusted rows, whose noisy labels are not known" in glc_hf(*argv).out
    assert "there is no column 'gone'" in glc_hf(*argv, "--noisy-label-column", "gone").complaint


def test_exports_to_other_tools_come_back_with_apply(glc_hf, folder: Path, tmp_path: Path) -> None:
    argv = ["audit", folder / "model", "--dataset", folder / "train.csv", "--output-dir", tmp_path / "out"]
    outcome = glc_hf(*argv, "--page-rows", "5", "--suggest", "3", "--export", "label-studio", "argilla")
    assert outcome.code == 0, outcome.err
    table, suggested = (pd.read_csv(tmp_path / "out" / name) for name in ("audit.csv", "suggest.csv"))
    tasks = json.loads((tmp_path / "out" / "label_studio.json").read_text(encoding="utf-8"))
    rows = [task["data"]["row"] for task in tasks]
    assert rows[:3] == suggested.row.tolist()
    assert [task["data"]["reason"] for task in tasks[:3]] == suggested.reason.tolist()
    assert table.is_label_issue[rows[3:]].all()
    assert f"exported for label-studio and argilla: {len(rows)} rows\n" in outcome.out
    assert "<Choices" in (tmp_path / "out" / "label_studio.xml").read_text()
    records = json.loads((tmp_path / "out" / "argilla" / "records.json").read_text())
    assert [record["metadata"]["row"] for record in records] == rows
    # A person answers what is true.
    for task, record in zip(tasks, records, strict=True):
        truth = table.truth[task["data"]["row"]]
        [result] = task["predictions"][0]["result"]
        task["annotations"] = [{"id": 1, "result": [{**result, "value": {"choices": [truth]}}]}]
        record |= {"status": "completed", "responses": {"label": [{"value": truth, "user_id": "u"}]}}
    for name, content in {"ls.json": tasks, "records.json": records}.items():
        (tmp_path / name).write_text(json.dumps(content))
        cleaned = tmp_path / f"cleaned-{name}.csv"
        applied = glc_hf("apply", tmp_path / name, "--dataset", folder / "train.csv", "--output", cleaned)
        assert applied.code == 0, applied.err
        result = pd.read_csv(cleaned)
        assert (result.label[rows] == result.truth[rows]).all()
        assert result.trusted[rows].all()
        assert (result.label_source == "reviewed").sum() == len(rows)
    # Rows of another file: nothing is written.
    other = write_csv(tmp_path / "other.csv", text_rows(len(table), seed=9))
    refused = glc_hf("apply", tmp_path / "ls.json", "--dataset", other, "--output", tmp_path / "no.csv")
    assert refused.code == 2
    assert "ls.json, row" in refused.complaint
    assert not (tmp_path / "no.csv").exists()


def test_folds_and_suggested_rows(glc_hf, folder: Path, tmp_path: Path) -> None:
    argv = ["audit", folder / "model", "--dataset", folder / "train.csv", "--output-dir", tmp_path / "out"]
    with quick_pool(tmp_path / "cache"):
        outcome = glc_hf(*argv, "--folds", "3", "--suggest", "7")
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith("The predictions are cross-fitted in 3 folds: each comes from linear models")
    assert "suggested to check next: 7 rows\n" in outcome.out
    assert str(tmp_path / "out" / "suggest.csv") in outcome.out
    table = pd.read_csv(tmp_path / "out" / "audit.csv")
    untrusted = table[table.trusted == "no"]
    assert (untrusted.suggested_label == untrusted.truth).mean() > 0.9
    chosen = pd.read_csv(tmp_path / "out" / "suggest.csv")
    assert list(chosen.columns) == ["row", "text", "given_label", "suggested_label", "reason"]
    assert len(set(chosen.row)) == 7
    assert set(chosen.row) <= set(untrusted.row)
    for name in ("text", "given_label", "suggested_label"):
        assert chosen[name].tolist() == table[name].iloc[chosen.row].tolist()
    page = (tmp_path / "out" / "audit.html").read_text(encoding="utf-8")
    assert "cross-fitted in 3 folds" in page
    assert all(json.dumps(reason)[1:-1] in page for reason in chosen.reason)  # they are marked on the page
    assert "suggested to check next" not in glc_hf(*argv).out


def test_classes_are_those_of_the_model_for_any_file(glc_hf, folder: Path, tmp_path: Path) -> None:
    rows = [{"text": f"the {word} was here", "label": "tool"} for word in [*WORDS["tool"], *WORDS["food"]]]
    path = write_csv(tmp_path / "some.csv", rows)  # a single class, which is not class 0 of the model
    outcome = glc_hf(
        "audit", folder / "model", "--dataset", path, "--output-dir", tmp_path / "out", "--page-rows", "3"
    )
    assert outcome.code == 0, outcome.err
    table = pd.read_csv(tmp_path / "out" / "audit.csv")
    assert table.suggested_label.tolist()[:4] == ["tool"] * 4
    assert (table.p_wrong[:4] < 0.5).all()
    assert table.p_wrong[4:].min() > table.p_wrong[:4].max()
    assert "3 of 8 rows are on this page" in (tmp_path / "out" / "audit.html").read_text()


def test_columns_of_any_type_are_kept(glc_hf, folder: Path, tmp_path: Path) -> None:
    rows = [
        {"text": "the saw was here", "label": "tool", "row": index, "tags": tags, "box": [[1, 2], [3]], "at": {"x": 1}}
        for index, tags in enumerate((["new"], None, []))
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    outcome = glc_hf("audit", folder / "model", "--dataset", path, "--output-dir", tmp_path / "out")
    assert outcome.code == 0, outcome.err
    table = pd.read_csv(tmp_path / "out" / "audit.csv", keep_default_na=False)
    assert list(table.columns) == ["audit_row", "text", "label", "row", "tags", "box", "at", *COLUMNS]
    assert table.tags.tolist() == ['["new"]', "", "[]"]
    assert [json.loads(box) for box in table.box] == [[[1, 2], [3]]] * 3
    assert [json.loads(value) for value in table["at"]] == [{"x": 1}] * 3


def test_token_labels_are_audited_per_word_and_truncated_words_have_no_p_wrong(
    glc_hf, tmp_path: Path, tiny_bert: Path
) -> None:
    rows = []
    for number in range(120):
        row = text_rows(3, seed=number)
        words = [entry["text"].split()[1] for entry in row]
        tags = [CLASSES.index(entry["label"]) for entry in row]
        if number % 3 and number % 2:
            tags[1] = 2
        rows.append({"tokens": [*words, "here"], "tags": [*tags, -100], "trusted": number % 3 == 0})
    rows[0] = {"tokens": ["cat"] * 40, "tags": [0] * 40, "trusted": True}  # more than the maximum length of the model
    features = Features(
        {"tokens": List(Value("string")), "tags": List(ClassLabel(names=list(CLASSES))), "trusted": Value("bool")}
    )
    data = tmp_path / "data"
    data.mkdir()
    Dataset.from_list(rows, features=features).to_parquet(str(data / "train.parquet"))
    argv = ["train", "--dataset", data, "--model", tiny_bert, "--output-dir", tmp_path / "model"]
    assert glc_hf(*argv, "--num-train-epochs", "6", *QUICK).code == 0
    outcome = glc_hf("audit", tmp_path / "model", "--dataset", data)
    assert outcome.code == 0, outcome.err
    audited = load_dataset("parquet", data_files=str(tmp_path / "model" / "audit" / "audit.parquet"), split="train")
    assert audited[0]["p_wrong"][:14] == [0.0] * 14
    assert audited[0]["p_wrong"][14:] == [None] * 26
    for number, row in enumerate(audited.select(range(1, 120)), start=1):
        assert row["given_label"] == [CLASSES[tag] if tag >= 0 else None for tag in row["tags"]]
        assert row["p_wrong"][3] is None
        if number % 3 and number % 2:
            assert (row["given_label"][1], row["suggested_label"][1]) == ("tool", "food")
            assert row["p_wrong"][1] > 0.5
    lists = pd.read_csv(tmp_path / "model" / "audit" / "audit.csv")
    assert json.loads(lists.suggested_label[1])[0] == "animal"
    assert json.loads(lists.p_wrong[0])[14:] == [None] * 26
    assert "NaN" not in lists.p_wrong[0]
    refused = glc_hf("audit", tmp_path / "model", "--dataset", data, "--export", "argilla", "--output-dir", tmp_path)
    assert "labels per token can't be exported" in refused.complaint
    assert not (tmp_path / "audit.csv").exists()


def _copy_with(folder: Path, copy: Path, matrix: CorruptionMatrix | None = None, **facts: Any) -> Path:
    """A copy of a model with other facts, or another matrix."""
    shutil.copytree(folder / "model", copy)
    shutil.rmtree(copy / "audit", ignore_errors=True)
    if matrix is not None:
        matrix.save_pretrained(copy)
    content = {**json.loads((copy / "glc_summary.json").read_text()), **facts}
    (copy / "glc_summary.json").write_text(json.dumps(content))
    return copy


def _page_warnings(model: Path) -> list[str]:
    page = (model / "audit" / "audit.html").read_text(encoding="utf-8")
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])["warnings"]


def test_warnings_of_the_run_come_before_the_numbers_and_on_the_page(glc_hf, folder: Path, tmp_path: Path) -> None:
    warnings = ["few trusted rows for 1 of 3 classes: tool (2).", "no trusted row for 1 of 3 classes: food."]
    model = _copy_with(folder, tmp_path / "model", warnings=warnings)
    outcome = glc_hf("audit", model, "--dataset", folder / "train.csv")
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith(f"warning: {warnings[0]}\nwarning: {warnings[1]}\nrows: 240 ")
    assert _page_warnings(model) == warnings


def test_audit_of_a_reliable_run_has_no_warnings(glc_hf, folder: Path, tmp_path: Path) -> None:
    model = _copy_with(folder, tmp_path / "model")
    outcome = glc_hf("audit", model, "--dataset", folder / "train.csv")
    assert outcome.code == 0, outcome.err
    assert "warning" not in outcome.out
    assert _page_warnings(model) == []


def test_audit_says_what_to_do_if_the_network_is_too_unsure_to_find_issues(
    glc_hf, folder: Path, tmp_path: Path
) -> None:
    advice = "The network finds fewer label issues than there are wrong labels (at least "
    unsure = _copy_with(folder, tmp_path / "unsure")
    weights = load_file(unsure / "model.safetensors")
    heads = {name: torch.zeros_like(value) for name, value in weights.items() if name.startswith("classifier.")}
    assert heads
    save_file({**weights, **heads}, unsure / "model.safetensors", metadata={"format": "pt"})
    rows = ["--dataset", folder / "train.csv"]
    outcome = glc_hf("audit", unsure, *rows)
    assert "label issues: 0\n" in outcome.out
    assert advice in outcome.out
    assert advice not in glc_hf("audit", folder / "model", *rows, "--output-dir", tmp_path / "out").out


def test_folder_without_stored_warnings_gets_those_of_its_matrix(glc_hf, folder: Path, tmp_path: Path) -> None:
    known = CorruptionMatrix.from_pretrained(folder / "model")
    model = _copy_with(folder, tmp_path / "model", CorruptionMatrix(known, trusted_rows=[20, 20, 0]))
    facts = json.loads((model / "glc_summary.json").read_text())
    del facts["warnings"]
    (model / "glc_summary.json").write_text(json.dumps(facts))
    outcome = glc_hf("audit", model, "--dataset", folder / "train.csv")
    assert outcome.out.startswith("warning: no trusted row for 1 of 3 classes: tool.")


def test_same_row_for_every_class_stops_the_audit_unless_forced(glc_hf, folder: Path, tmp_path: Path) -> None:
    same = CorruptionMatrix([[0.4, 0.3, 0.3]] * 3, list(CLASSES), [20, 20, 20])
    model = _copy_with(folder, tmp_path / "model", same, warnings=matrix_warnings(same))
    before = sorted(path.name for path in model.rglob("*"))
    argv = ["audit", model, "--dataset", folder / "train.csv"]
    outcome = glc_hf(*argv)
    assert outcome.code == 2
    assert "can't be trusted: its corruption matrix has the same row for every class" in outcome.complaint
    assert "--force" in outcome.complaint
    assert outcome.out == ""
    assert sorted(path.name for path in model.rglob("*")) == before
    assert glc_hf(*argv, "--output-dir", tmp_path / "out").code == 2
    assert not (tmp_path / "out").exists()
    forced = glc_hf(*argv, "--force")
    assert forced.code == 0, forced.err
    assert forced.out.startswith("warning: the corruption matrix has the same row for every class")
    assert (model / "audit" / "audit.csv").is_file()


def test_missing_folder_facts_rows_and_classes_are_named(glc_hf, folder: Path, tmp_path: Path) -> None:
    assert "there is no folder" in glc_hf("audit", tmp_path / "nowhere", "--dataset", "x.csv").complaint
    assert "there is no glc_summary.json" in glc_hf("audit", tmp_path, "--dataset", "x.csv").complaint
    complaint = glc_hf("audit", folder / "model").complaint
    assert "name the rows to audit: --dataset" in complaint
    assert "The model was trained on train.csv." in complaint
    compared = tmp_path / "compared"
    shutil.copytree(folder / "model", compared / "glc")
    (compared / "comparison.json").touch()
    assert f"one of its models, {compared / 'glc'}" in glc_hf("audit", compared, "--dataset", "x.csv").complaint
    weak = tmp_path / "weak"
    shutil.copytree(folder / "model", weak)
    facts = json.loads((weak / "glc_summary.json").read_text())
    facts["dataset"], facts["arguments"]["noise"] = {"name": DIGITS}, "weak"
    (weak / "glc_summary.json").write_text(json.dumps(facts))
    assert "from a weak classifier and were not saved" in glc_hf("audit", weak).complaint
    strange = write_csv(tmp_path / "strange.csv", [{"text": "the cat was here", "label": "plant"}])
    complaint = glc_hf("audit", folder / "model", "--dataset", strange).complaint
    assert "'plant' is none of the classes animal, food, tool" in complaint
