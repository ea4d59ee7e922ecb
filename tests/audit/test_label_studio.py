# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Label Studio: tasks and configurations that its SDK accepts, and annotations that come back."""

from __future__ import annotations

import copy
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from glc_hf import apply_decisions, export_audit
from glc_hf.audit.annotation_tools import labeling_config

from .audits import ISSUES, NAMES, audited, dataset_of, pictures, read


def _tasks(folder: Path, audit: Dataset, **options: Any) -> tuple[list[dict[str, Any]], str]:
    """The tasks and the labeling configuration of an export."""
    tasks, configuration = export_audit(audit, folder / "tasks.json", "label-studio", **options)
    return json.loads(tasks.read_text(encoding="utf-8")), configuration.read_text(encoding="utf-8")


def annotated(tasks: list[dict[str, Any]], answers: dict[int, Any]) -> list[dict[str, Any]]:
    """An export of Label Studio, with the fields that it has; an answer is a class, `None` for skipped, or several."""
    exported = copy.deepcopy(tasks)
    for number, task in enumerate(exported, start=1):
        row, task["id"], task["annotations"] = task["data"]["row"], number, []
        task |= {"meta": {}, "drafts": [], "project": 3, "updated_at": "2026-01-01T00:00:00Z"}
        chosen = answers.get(row, [])
        for label in chosen if isinstance(chosen, list) else [chosen]:
            result = {**tasks[number - 1]["predictions"][0]["result"][0], "id": "a1", "origin": "manual"}
            result["value"] = {"choices": [label]}
            skipped = label is None
            task["annotations"].append(
                {"id": 9, "completed_by": 1, "was_cancelled": skipped, "result": [] if skipped else [result]}
            )
    return exported


AUDITS = {
    "text": lambda: (audited(), {}),
    "numbers": lambda: (audited(names=None), {}),
    "pair": lambda: (
        audited(text=["a"] * 7, text2=[None, *"bcdefg"]),
        {"input_columns": ["text", "text2"]},
    ),
    "image": lambda: (audited(image=pictures()), {"input_columns": "image"}),
}


@pytest.mark.parametrize("kind", AUDITS)
def test_the_sdk_accepts_configuration_tasks_and_predictions(tmp_path: Path, kind: str) -> None:
    interface = pytest.importorskip("label_studio_sdk.label_interface", reason="label-studio-sdk is not installed")
    audit, options = AUDITS[kind]()
    tasks, configuration = _tasks(tmp_path, audit, **options)
    interface = interface.LabelInterface(configuration)
    interface.validate()
    names = NAMES if kind != "numbers" else ["0", "1", "2"]
    # XML turns a line break in an attribute into a blank unless it is escaped.
    assert list(interface.get_control("label").labels) == names
    for task in tasks:
        assert interface.validate_task({"data": task["data"]})
        assert interface.validate_prediction(task["predictions"][0], return_errors=True) == []
    wrong = copy.deepcopy(tasks[0]["predictions"][0])
    wrong["result"][0]["value"]["choices"] = ["horse"]
    assert interface.validate_prediction(wrong, return_errors=True)


@pytest.mark.parametrize("form", ["JSON", "JSON_MIN", "CSV", "TSV"])
def test_exports_made_by_the_sdk_are_applied(tmp_path: Path, form: str) -> None:
    converter = pytest.importorskip("label_studio_sdk.converter", reason="label-studio-sdk is not installed")
    from label_studio_sdk.converter.converter import Format

    audit = audited()
    tasks, configuration = _tasks(tmp_path, audit)
    exported = annotated(tasks, {1: NAMES[0], 5: NAMES[2]})
    source = tmp_path / "in" / "export.json"
    source.parent.mkdir()
    source.write_text(json.dumps(exported), encoding="utf-8")
    out = tmp_path / "out"
    converter.Converter(configuration, str(tmp_path)).convert(str(source), str(out), Format[form], is_dir=False)
    [path] = [file for file in out.iterdir() if file.suffix in (".json", ".csv", ".tsv")]
    result = apply_decisions(dataset_of(audit), path)
    assert result["label"][:] == [0, 0, 2, 0, 1, 2, 0]
    assert result["trusted"][:] == [False, True, False, False, False, True, False]


def test_tasks_have_inputs_prediction_score_and_the_given_label(tmp_path: Path) -> None:
    audit = audited()
    tasks, configuration = _tasks(tmp_path, audit)
    assert [task["data"]["row"] for task in tasks] == ISSUES
    for task in tasks:
        row = audit[task["data"]["row"]]
        assert task["data"]["text"] == row["text"]
        assert task["data"]["given_label"] == NAMES[row["given_label"]]
        [prediction] = task["predictions"]
        assert prediction["score"] == row["p_wrong"]
        assert prediction["model_version"] == "glc_hf audit"
        assert prediction["result"] == [
            {
                "from_name": "label",
                "to_name": "text",
                "type": "choices",
                "value": {"choices": [NAMES[row["suggested_label"]]]},
            }
        ]
    view = ElementTree.fromstring(configuration)
    assert [choice.get("value") for choice in view.iter("Choice")] == NAMES
    choices = view.find("Choices")
    assert (choices.get("name"), choices.get("toName"), choices.get("choice")) == ("label", "text", "single")
    assert 'layout="select"' in labeling_config(["text"], [str(name) for name in range(21)])


def test_images_are_data_urls_of_limited_size(tmp_path: Path) -> None:
    tasks, configuration = _tasks(tmp_path, audited(image=pictures()), input_columns="image", rows=[6, 0])
    assert '<Image name="image" value="$image"/>' in configuration
    assert [task["data"]["row"] for task in tasks] == [6, 0]
    assert tasks[0]["data"]["image"].startswith("data:image/jpeg;base64,")
    assert tasks[1]["data"]["image"].startswith("data:image/png;base64,")
    # Nothing is suggested for these rows: the prediction is the given label, with the probability that it is right.
    assert [task["predictions"][0]["score"] for task in tasks] == [0.8, 0.9]


@pytest.mark.parametrize("kind", AUDITS)
def test_annotations_come_back_as_decisions(tmp_path: Path, kind: str) -> None:
    audit, options = AUDITS[kind]()
    names = NAMES if kind != "numbers" else ["0", "1", "2"]
    tasks, _ = _tasks(tmp_path, audit, **options)
    decisions = read(tmp_path / "export.json", annotated(tasks, {1: names[1], 5: names[1], 2: None}))
    assert [(e.row, e.decision, e.label) for e in decisions.entries] == [
        (1, "keep", names[1]),
        (5, "class", names[1]),
        (2, "skip", None),
    ]
    result = apply_decisions(dataset_of(audit), decisions)
    assert result["label"][:] == [0, 1, 2, 0, 1, 1, 0]
    assert result["label_source"][:] == ["given", "reviewed", "given", "given", "given", "reviewed", "given"]


def test_several_annotations_must_agree_or_one_must_be_the_ground_truth(tmp_path: Path) -> None:
    tasks, _ = _tasks(tmp_path, audited())
    agreed = annotated(tasks, {1: [NAMES[2], None, NAMES[2]]})
    assert [(e.row, e.label) for e in read(tmp_path / "a.json", agreed).entries] == [(1, NAMES[2])]
    differ = annotated(tasks, {5: [NAMES[0], NAMES[2]]})
    with pytest.raises(ValueError, match=r"a.json, task 2 \(row 5\): people chose different classes, 'cat.*truth"):
        read(tmp_path / "a.json", differ)
    # A skipped annotation may have a class, which does not count.
    skipped = copy.deepcopy(differ)
    skipped[1]["annotations"][0]["was_cancelled"] = True
    assert read(tmp_path / "a.json", skipped).entries[0].label == NAMES[2]
    differ[1]["annotations"][1]["ground_truth"] = True
    assert read(tmp_path / "a.json", differ).entries[0].label == NAMES[2]


def test_exports_that_do_not_fit_name_the_row(tmp_path: Path) -> None:
    audit = audited()
    tasks, _ = _tasks(tmp_path, audit)
    exported, path = annotated(tasks, {1: NAMES[0], 5: NAMES[0]}), tmp_path / "export.json"
    with pytest.raises(ValueError, match="nobody has answered any of its 3 items"):
        read(path, tasks)
    with pytest.raises(ValueError, match="export.json is cut short or damaged after row 5"):
        read(path, json.dumps(exported)[: json.dumps(exported).index('"row": 5') + 40])
    without_row = copy.deepcopy(exported)
    del without_row[1]["data"]["row"]
    with pytest.raises(ValueError, match="export.json, task 2: it has no row"):
        read(path, without_row)
    with pytest.raises(ValueError, match="export.json, task 2: it is not a task"):
        read(path, [exported[0], {"id": 2}])
    text = json.dumps(exported)
    mixed = json.loads(text)
    mixed[1]["data"]["glc_hf"] = mixed[1]["data"]["glc_hf"].replace('"rows": 7', '"rows": 8')
    with pytest.raises(ValueError, match=r"task 2 \(row 5\): it belongs to another dataset"):
        read(path, mixed)
    mixed[1]["data"]["glc_hf"] = "{"
    with pytest.raises(ValueError, match=r"task 2 \(row 5\): the field 'glc_hf' is damaged"):
        read(path, mixed)
    rows = dataset_of(audit)
    with pytest.raises(ValueError, match="row 5: 'horse' is none of the classes"):
        apply_decisions(rows, read(path, annotated(tasks, {1: NAMES[0], 5: "horse"})))
    with pytest.raises(ValueError, match="row 1: the row has other content"):
        apply_decisions(dataset_of(audited(text=[f"other {n}" for n in range(7)])), read(path, exported))
    with pytest.raises(ValueError, match="row 5: the dataset has no such row"):
        apply_decisions(rows.select(range(3)), read(path, exported))
    with pytest.raises(ValueError, match="the rows with decisions are the same, but other rows differ"):
        apply_decisions(rows.select(range(6)), read(path, exported))
