# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Argilla: a dataset folder as `rg.Dataset.from_disk` reads it, and records with the responses of people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from glc_hf.audit.exchange.review_items import (
    AGENT,
    GIVEN,
    IMAGE,
    P_WRONG,
    QUESTION,
    ROW,
    SUGGESTED,
    TEXT_PAIR,
    ReviewItem,
    ReviewItems,
)
from glc_hf.audit.exchange.tool_answers import ToolAnswer


# Where `rg.Dataset.to_disk` and `from_disk` have the parts of a dataset.
RECORDS_FILE, SETTINGS_FILE, DATASET_FILE = "records.json", ".argilla/settings.json", ".argilla/dataset.json"
_METADATA = {ROW: "integer", P_WRONG: "float", GIVEN: "terms", SUGGESTED: "terms"}
_GUIDELINES = (
    "Choose the correct label. The suggestion is the label that an audit holds to be the most probable one; "
    "given_label is the label in the dataset. Discard records that you can't decide on."
)
_FIX = "Discard the wrong responses, and export again"


def write_argilla(items: ReviewItems, folder: Path) -> list[Path]:
    """
    Write a folder with `records.json`, `.argilla/settings.json` and `.argilla/dataset.json`, for
    `rg.Dataset.from_disk(folder)`. Returns the paths of the three files.
    """
    paths = [folder / name for name in (RECORDS_FILE, SETTINGS_FILE, DATASET_FILE)]
    paths[1].parent.mkdir(parents=True, exist_ok=True)
    # ASCII only: the SDK reads files in the encoding of the system.
    with paths[0].open("w", encoding="ascii") as file:
        file.write("[")
        for number, item in enumerate(items):
            file.write(",\n" if number else "\n")
            json.dump(_record(item), file)
        file.write("\n]\n")
    paths[1].write_text(json.dumps(_settings(items.fields, items.names), indent=2), encoding="ascii")
    dataset = {"name": folder.name, "guidelines": _GUIDELINES, "allow_extra_metadata": True}
    paths[2].write_text(json.dumps(dataset, indent=2), encoding="ascii")
    return paths


def _record(item: ReviewItem) -> dict[str, Any]:
    suggestion = {"value": item.suggested, "score": round(item.score, 6), "agent": AGENT}
    return {
        "id": str(item.row),
        "fields": item.inputs,
        "metadata": item.facts(),
        "suggestions": {QUESTION: suggestion},
        "responses": {},
        "vectors": {},
        "status": "pending",
    }


def _settings(fields: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    question = {
        "name": QUESTION,
        "title": "Correct label",
        "required": True,
        "settings": {
            "type": "label_selection",
            "options": [{"value": name, "text": name} for name in names],
            "visible_options": None,
        },
    }
    return {
        "guidelines": _GUIDELINES,
        "allow_extra_metadata": True,
        "distribution": {"strategy": "overlap", "min_submitted": 1},
        "questions": [question],
        "fields": [_field(name) for name in fields],
        "vectors": [],
        "metadata": [
            {"name": name, "title": name, "settings": {"type": kind}, "visible_for_annotators": True}
            for name, kind in _METADATA.items()
        ],
    }


def _field(name: str) -> dict[str, Any]:
    settings = {"type": "image"} if name == IMAGE else {"type": "text", "use_markdown": False}
    return {"name": name, "title": name, "required": name != TEXT_PAIR, "settings": settings}


# ---------------------------------------------------------------------- exports
def is_argilla(entry: Mapping[str, Any]) -> bool:
    """Whether an entry of a file is a record, nested (`to_disk`, `records.to_json`) or flat (`to_list(flatten=True)`,
    `to_datasets`)."""
    nested = isinstance(entry.get("fields"), Mapping) and "responses" in entry
    return nested or f"{QUESTION}.suggestion" in entry or f"{QUESTION}.responses" in entry


def argilla_answers(records: Sequence[Any], origin: str) -> Iterator[ToolAnswer]:
    """
    Yield what people have answered. Responses that were submitted count. Nested records don't say which ones these
    are, so the responses of completed records count.
    """
    for number, record in enumerate(records, start=1):
        place = f"record {record.get('id', number) if isinstance(record, Mapping) else number}"
        if not isinstance(record, Mapping) or not is_argilla(record):
            raise ValueError(f"{origin}, {place}: it is not a record of Argilla; it has no fields and responses.")
        if "responses" in record:
            facts = record.get("metadata") or {}
            responses = [
                (entry.get("value"), entry.get("status")) for entry in (record["responses"] or {}).get(QUESTION) or ()
            ]
        else:
            facts, values = record, record.get(f"{QUESTION}.responses") or ()
            statuses = record.get(f"{QUESTION}.responses.status") or [None] * len(values)
            responses = list(zip(values, statuses, strict=True))
        is_complete = record.get("status", "completed") == "completed"
        labels = [
            value
            for value, status in responses
            if value is not None and (is_complete if status is None else status == "submitted")
        ]
        yield ToolAnswer(place, facts, labels, bool(responses) and not labels, _FIX)
