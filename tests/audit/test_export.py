# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Export of an audit: which rows, and what can't be exported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from glc_hf import apply_decisions, export_audit
from glc_hf.audit import annotation_tools
from glc_hf.audit.decisions import Decisions

from .audits import NAMES, audited, dataset_of
from .test_label_studio import annotated


TOOLS = ("label-studio", "argilla")
NAME = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(lambda name: name == name.strip())


def _answers(path: Path, tool: str, labels: dict[int, str]) -> Path:
    """An export of the tool with these labels."""
    if tool == "argilla":
        path = path / "records.json"
        records = json.loads(path.read_text())
        for record in records:
            label = labels[record["metadata"]["row"]]
            record |= {"status": "completed", "responses": {"label": [{"value": label, "user_id": "u"}]}}
        path.write_text(json.dumps(records))
    else:
        path.write_text(json.dumps(annotated(json.loads(path.read_text(encoding="utf-8")), labels)))
    return path


@pytest.mark.parametrize("tool", TOOLS)
@settings(max_examples=25, deadline=None)
@given(st.lists(NAME, min_size=3, max_size=3, unique=True), st.lists(st.integers(0, 2), min_size=7, max_size=7))
def test_any_names_and_answers_come_back(tmp_path_factory, tool: str, names: list[str], chosen: list[int]) -> None:
    audit, folder = audited(names), tmp_path_factory.mktemp("export")
    path = folder / "tasks.json"
    export_audit(audit, path, tool, rows=range(7), trusted_column="checked")
    decisions = Decisions.read(_answers(path, tool, {row: names[label] for row, label in enumerate(chosen)}))
    result = apply_decisions(dataset_of(audit), decisions)
    assert result["label"][:] == chosen
    assert all(result["checked"])


@pytest.mark.parametrize("tool", TOOLS)
def test_what_can_not_be_exported_is_named_and_nothing_is_written(tmp_path: Path, tool: str, monkeypatch) -> None:
    audit, path = audited(), tmp_path / "tasks.json"
    for message, options in {
        "no column 'sentence'": {"input_columns": "sentence"},
        "no column 'topic'": {"label_column": "topic"},
        "row 7 can't be exported": {"rows": [1, 7]},
    }.items():
        with pytest.raises(ValueError, match=message):
            export_audit(audit, path, tool, **options)
    with pytest.raises(ValueError, match="no column 'given_label'"):
        export_audit(dataset_of(audit), path, tool)
    tokens = Dataset.from_dict(
        {
            "tokens": [["a", "b"]],
            "label": [[0, 1]],
            "given_label": [[0, 1]],
            "suggested_label": [[1, 1]],
            "p_wrong": [[0.9, 0.1]],
            "is_label_issue": [[True, False]],
            "label_score": [[0.1, 0.9]],
        }
    )
    with pytest.raises(ValueError, match="labels per token can't be exported.*glc-hf review"):
        export_audit(tokens, path, tool, input_columns="tokens")
    with pytest.raises(ValueError, match="nothing to export"):
        export_audit(audit.select([0, 3]), path, tool)
    with pytest.raises(ValueError, match="exports are for label-studio and argilla"):
        export_audit(audit, path, "excel")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(annotation_tools.ReviewItems, "_contents", fail)
    with pytest.raises(OSError, match="disk full"):
        export_audit(audit, path, tool)
    assert list(tmp_path.iterdir()) == []


def test_existing_files_stay(tmp_path: Path) -> None:
    (tmp_path / "tasks.xml").write_text("mine")
    with pytest.raises(FileExistsError, match="tasks.xml exists"):
        export_audit(audited(), tmp_path / "tasks.json", "label-studio")
    with pytest.raises(ValueError, match="written to a .json file"):
        export_audit(audited(), tmp_path / "other.txt", "label-studio")
    assert [path.name for path in tmp_path.iterdir()] == ["tasks.xml"]


def test_labels_that_are_votes_so_far_come_back(tmp_path: Path) -> None:
    audit = audited().remove_columns("label")
    path = tmp_path / "tasks.json"
    export_audit(audit, path, "label-studio", label_column=None)
    decisions = Decisions.read(_answers(path, "label-studio", {1: NAMES[0], 5: NAMES[1], 2: NAMES[2]}))
    assert (decisions.label_column, decisions.label_names, decisions.num_labels) == (None, NAMES, 3)


def test_many_names_are_in_the_first_note_only(tmp_path: Path) -> None:
    names = [f"class {number}" for number in range(300)]
    export_audit(audited(names), tmp_path / "tasks.json", "label-studio")
    notes = [json.loads(task["data"]["glc_hf"]) for task in json.loads((tmp_path / "tasks.json").read_text())]
    assert ["label_names" in note for note in notes] == [True, False, False]
    decisions = Decisions.read(_answers(tmp_path / "tasks.json", "label-studio", dict.fromkeys(range(7), names[299])))
    assert decisions.label_names == names
