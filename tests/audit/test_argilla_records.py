# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Argilla: folders that its SDK imports, and responses that come back."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from glc_hf import apply_decisions, export_audit
from glc_hf.audit.decisions import Decisions

from .argilla_server import ArgillaServer
from .audits import ISSUES, NAMES, audited, dataset_of, pictures, read


@pytest.fixture
def server() -> Iterator[ArgillaServer]:
    server = ArgillaServer()
    yield server
    server.shutdown()
    server.server_close()


AUDITS = {
    "text": lambda: (audited(), {}),
    "numbers": lambda: (audited(names=None), {}),
    "pair": lambda: (audited(text=["a"] * 7, text2=[None, *"bcdefg"]), {"input_columns": ["text", "text2"]}),
    "image": lambda: (audited(image=pictures()), {"input_columns": "image"}),
}


def _import(server: ArgillaServer, folder: Path) -> Any:
    """Import a folder with the SDK."""
    rg = pytest.importorskip("argilla", reason="argilla is not installed")
    client = rg.Argilla(api_url=server.url, api_key="any")
    return rg.Dataset.from_disk(str(folder), workspace="default", client=client)


@pytest.mark.parametrize("kind", AUDITS)
def test_the_sdk_imports_the_folder_and_its_exports_are_applied(
    server: ArgillaServer, tmp_path: Path, kind: str
) -> None:
    audit, options = AUDITS[kind]()
    names = NAMES if kind != "numbers" else ["0", "1", "2"]
    export_audit(audit, tmp_path / "audit", "argilla", **options)
    dataset = _import(server, tmp_path / "audit")
    assert dataset.settings.questions["label"].labels == names
    records = list(dataset.records)
    assert [record.id for record in records] == [str(row) for row in ISSUES]
    for record in records:
        row = audit[int(record.id)]
        suggestion = record.suggestions["label"]
        assert suggestion.value == names[row["suggested_label"]]
        assert (suggestion.score, suggestion.agent) == (row["p_wrong"], "glc_hf audit")
        assert record.metadata["given_label"] == names[row["given_label"]]
        if kind == "image":
            assert record.fields["image"].size == (8, 8)
        else:
            assert record.fields["text"] == row["text"]
    server.answer(1, (names[0], "submitted"))
    server.answer(5, (names[2], "submitted"), (None, "discarded"))
    server.answer(2, (names[0], "draft"))
    (tmp_path / "exported").mkdir()
    dataset.to_disk(str(tmp_path / "exported"))
    dataset.records.to_json(tmp_path / "nested.json")
    flat = tmp_path / "flat.json"
    flat.write_text(json.dumps(dataset.records.to_list(flatten=True)))
    paths = [tmp_path / "exported", tmp_path / "nested.json", flat]
    if kind != "image":
        paths.append(tmp_path / "flat.jsonl")
        dataset.records.to_datasets().to_json(paths[-1])
    for path in paths:
        decisions = Decisions.read(path)
        assert [(e.row, e.decision, e.label) for e in decisions.entries] == [
            (1, "class", names[0]),
            (5, "keep", names[2]),
            (2, "skip", None),
        ], path
        result = apply_decisions(dataset_of(audit), decisions)
        assert result["label"][:] == [0, 0, 2, 0, 1, 2, 0]
        assert result["trusted"][:] == [False, True, False, False, False, True, False]


def test_the_sdk_refuses_a_record_that_does_not_fit(server: ArgillaServer, tmp_path: Path) -> None:
    """The test above would notice files that are not as the SDK wants them."""
    pytest.importorskip("argilla", reason="argilla is not installed")
    export_audit(audited(), tmp_path / "audit", "argilla")
    path = tmp_path / "audit" / "records.json"
    path.write_text(path.read_text().replace('"suggestions": {"label"', '"suggestions": {"topic"'))
    with pytest.raises(Exception, match="question with name=topic does not exist"):
        _import(server, tmp_path / "audit")


def test_files_have_the_parts_of_a_dataset_folder(tmp_path: Path) -> None:
    audit = audited()
    paths = export_audit(audit, tmp_path / "audit", "argilla")
    assert [path.relative_to(tmp_path / "audit").as_posix() for path in paths] == [
        "records.json",
        ".argilla/settings.json",
        ".argilla/dataset.json",
    ]
    records, settings, dataset = (json.loads(path.read_text(encoding="ascii")) for path in paths)
    assert dataset["name"] == "audit"
    [question] = settings["questions"]
    assert (question["name"], question["settings"]["type"]) == ("label", "label_selection")
    assert [option["value"] for option in question["settings"]["options"]] == NAMES
    assert [field["name"] for field in settings["fields"]] == ["text"]
    assert [(p["name"], p["settings"]["type"]) for p in settings["metadata"]] == [
        ("row", "integer"),
        ("p_wrong", "float"),
        ("given_label", "terms"),
        ("suggested_label", "terms"),
    ]
    assert [record["metadata"]["row"] for record in records] == ISSUES
    row = audit[ISSUES[0]]
    assert records[0]["fields"] == {"text": row["text"]}
    assert records[0]["suggestions"] == {
        "label": {"value": NAMES[2], "score": row["p_wrong"], "agent": "glc_hf audit"}
    }
    assert (records[0]["responses"], records[0]["status"]) == ({}, "pending")


def _answered(folder: Path, answers: dict[int, list[Any]], status: str = "completed") -> list[dict[str, Any]]:
    """Nested records as `to_disk` writes them."""
    records = json.loads(export_audit(audited(), folder, "argilla")[0].read_text())
    for record in records:
        values = answers.get(record["metadata"]["row"], [])
        record["responses"] = {"label": [{"value": value, "user_id": "u"} for value in values]} if values else {}
        record["status"] = status if values else "pending"
    return records


def test_responses_of_completed_records_come_back_as_decisions(tmp_path: Path) -> None:
    records = _answered(tmp_path / "a", {1: [NAMES[2], None, NAMES[2]], 5: [NAMES[2]]})
    decisions = read(tmp_path / "records.json", records)
    assert [(e.row, e.decision, e.label) for e in decisions.entries] == [
        (1, "suggested", NAMES[2]),
        (5, "keep", NAMES[2]),
    ]
    # Nobody has submitted these: drafts, or discarded.
    drafts = read(tmp_path / "drafts.json", _answered(tmp_path / "b", {1: [NAMES[2]]}, "pending"))
    assert [(e.row, e.decision, e.label) for e in drafts.entries] == [(1, "skip", None)]


def test_exports_that_do_not_fit_name_the_row(tmp_path: Path) -> None:
    path, audit = tmp_path / "export.json", audited()
    with pytest.raises(ValueError, match=r"record 5 \(row 5\): people chose different classes, .*Discard"):
        read(path, _answered(tmp_path / "a", {5: [NAMES[0], NAMES[2]]}))
    with pytest.raises(ValueError, match="nobody has answered any of its 3 items"):
        read(path, _answered(tmp_path / "b", {}))
    records = _answered(tmp_path / "c", {1: [NAMES[0]], 5: ["horse"]})
    with pytest.raises(ValueError, match="cut short or damaged after row 1"):
        read(path, json.dumps(records)[: json.dumps(records).index('"row": 1') + 30])
    with pytest.raises(ValueError, match="row 5: 'horse' is none of the classes"):
        apply_decisions(dataset_of(audit), read(path, records))
    without_row = copy.deepcopy(records)
    del without_row[0]["metadata"]["row"]
    with pytest.raises(ValueError, match="export.json, record 1: it has no row"):
        read(path, without_row)
    with pytest.raises(ValueError, match="export.json, record 2: it is not a record of Argilla"):
        read(path, [records[0], "x"])
    with pytest.raises(ValueError, match="row 1: the row has other content"):
        apply_decisions(dataset_of(audited(text=["x"] * 7)), read(path, records[:1]))
