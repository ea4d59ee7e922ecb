# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Other annotation tools: labels to check as files that they import, and decisions from their exports."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import pyarrow.compute as pc
from datasets import Dataset, Image

from glc_hf.audit.findings import COLUMNS, GIVEN, P_WRONG, SUGGESTED, Findings
from glc_hf.audit.review_items import (
    AGENT,
    IMAGE,
    NOTE,
    QUESTION,
    ROW,
    TEXT_PAIR,
    ReviewItem,
    ReviewItems,
    ToolAnswer,
    check_exportable,
    issues_and,
)
from glc_hf.labels.reading import class_names
from glc_hf.labels.storage import column_in_order, flat_values, is_list_type
from glc_hf.matrix import CorruptionMatrix


# More classes than these are shown as a list that opens.
_MAX_VISIBLE = 20
_LABEL_STUDIO_FIX = "Mark one of the annotations as ground truth, or delete the others, and export again"
# Where `rg.Dataset.to_disk` and `from_disk` have the parts of a dataset.
RECORDS_FILE, SETTINGS_FILE, DATASET_FILE = "records.json", ".argilla/settings.json", ".argilla/dataset.json"
_METADATA = {ROW: "integer", P_WRONG: "float", GIVEN: "terms", SUGGESTED: "terms"}
_GUIDELINES = (
    "Choose the correct label. The suggestion is the label that is the most probable one according to an audit; "
    "given_label is the label in the dataset. Discard records that you can't decide on."
)
_ARGILLA_FIX = "Discard the wrong responses, and export again"


def export_audit(
    audited: Dataset,
    path: str | Path,
    tool: str,
    input_columns: str | Sequence[str] = "text",
    label_column: str | None = "label",
    rows: Sequence[int] | None = None,
    trusted_column: str = "trusted",
) -> list[Path]:
    """
    Write labels of an audit to files that another tool imports. People check them there, and
    [`~glc_hf.apply_decisions`] takes the tool's export.

    Args:
        audited (`Dataset`): The result of [`GLCTrainer.audit`], with one label per row.
        path (`str`): A new file for `"label-studio"`; the labeling configuration is written beside it, with the suffix
            `.xml`. A new folder for `"argilla"`, which `rg.Dataset.from_disk` reads.
        tool (`str`): `"label-studio"` or `"argilla"`.
        input_columns (`str` or `Sequence[str]`, *optional*, defaults to `"text"`): The column of the texts or images,
            or the two columns of pairs of texts.
        label_column (`str`, *optional*, defaults to `"label"`): Column of the labels. `None` if there is none.
        rows (`Sequence[int]`, *optional*): The rows to export, in this order, for example
            `trainer.suggest(dataset, 100)["row"]`. By default all label issues, the most suspicious ones first.
        trusted_column (`str`, *optional*, defaults to `"trusted"`): Column of the flags, in which
            [`~glc_hf.apply_decisions`] marks the checked rows.

    Returns:
        `list[Path]`: The files written.
    """
    if tool not in TOOLS:
        raise ValueError(f"tool={tool!r}: exports are for {' and '.join(TOOLS)}.")
    inputs = (input_columns,) if isinstance(input_columns, str) else tuple(input_columns)
    for name in (*COLUMNS, *inputs, *(() if label_column is None else (label_column,))):
        if name not in audited.column_names:
            raise ValueError(
                f"there is no column {name!r}; the columns are {', '.join(audited.column_names)}. Export the result "
                "of `trainer.audit`, and name its columns with input_columns and label_column."
            )
    is_list = is_list_type(column_in_order(audited, GIVEN).type)
    task = "token" if is_list else "image" if isinstance(audited.features[inputs[0]], Image) else "text"
    check_exportable(task)
    findings = Findings.of(audited, classes_of(audited))
    items = ReviewItems(findings, audited, inputs, task, label_column, trusted_column=trusted_column)
    if rows is not None:
        for row in rows:
            if row not in findings.row:
                raise ValueError(f"row {row} can't be exported: there is no such row, or it has no label.")
        items.positions = issues_and(findings, rows, 0)
    path = Path(path).expanduser()
    for existing in (path, path.with_suffix(".xml")):
        if existing.exists():
            raise FileExistsError(f"{existing} exists and is not overwritten: name another one, or move it away.")
    return write_export(items, path, tool)


def write_export(items: ReviewItems, path: Path, tool: str) -> list[Path]:
    """Write the files of a tool, completely or not at all. Files of an earlier export are replaced."""
    if tool == "label-studio" and path.suffix.lower() != ".json":
        raise ValueError(f"{path}: the tasks of Label Studio are written to a .json file.")
    if not len(items):
        raise ValueError("there is nothing to export: no label of the audit is an issue.")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        files = TOOLS[tool][0](items, Path(folder) / path.name)
        paths = [path.parent / file.relative_to(folder) for file in files]
        for file, target in zip(files, paths, strict=True):
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(file, target)
    return paths


def classes_of(audited: Dataset) -> CorruptionMatrix:
    """A matrix with the names of the classes. Nothing else of it is used."""
    names = class_names(audited.features[GIVEN])
    if names is not None:
        return CorruptionMatrix.identity(len(names)).with_names(names)
    highest = [pc.max(flat_values(column_in_order(audited, name))[0]).as_py() for name in (GIVEN, SUGGESTED)]
    return CorruptionMatrix.identity(max(*(number or 0 for number in highest), 1) + 1)


# ---------------------------------------------------------------------- Label Studio
def write_label_studio(items: ReviewItems, path: Path) -> list[Path]:
    """
    Write `path`, a JSON list of tasks with predictions, and beside it the labeling configuration, with the suffix
    `.xml`. Returns both paths.
    """
    with path.open("w", encoding="utf-8") as file:
        file.write("[")
        for number, item in enumerate(items):
            file.write(",\n" if number else "\n")
            json.dump(_task(item, items.fields[0]), file, ensure_ascii=False)
        file.write("\n]\n")
    configuration = path.with_suffix(".xml")
    configuration.write_text(labeling_config(items.fields, items.names), encoding="utf-8")
    return [path, configuration]


def labeling_config(fields: Sequence[str], names: Sequence[str]) -> str:
    """
    Return the labeling configuration: the inputs, the given label, and one class to choose.

    Args:
        fields (`Sequence[str]`): Names of the inputs, `text` and `text_pair` or `image`.
        names (`Sequence[str]`): Names of the classes.
    """
    inputs = [f'  <{"Image" if name == IMAGE else "Text"} name="{name}" value="${name}"/>' for name in fields]
    layout = ' layout="select"' if len(names) > _MAX_VISIBLE else ' showInLine="true"'
    lines = [
        "<View>",
        *inputs,
        '  <Header value="Given label"/>',
        f'  <Text name="{GIVEN}" value="${GIVEN}"/>',
        '  <Header value="Correct label"/>',
        f'  <Choices name="{QUESTION}" toName="{fields[0]}" choice="single" required="true"{layout}>',
        *(f"    <Choice value={quoteattr(name)}/>" for name in names),
        "  </Choices>",
        "</View>",
    ]
    return "\n".join(lines) + "\n"


def _task(item: ReviewItem, to_name: str) -> dict[str, Any]:
    result = {"from_name": QUESTION, "to_name": to_name, "type": "choices", "value": {"choices": [item.suggested]}}
    prediction = {"model_version": AGENT, "score": round(item.score, 6), "result": [result]}
    return {"data": {**item.inputs, **item.facts()}, "predictions": [prediction]}


def is_label_studio(entry: Mapping[str, Any]) -> bool:
    """Whether an entry of a file is a task, with its annotations (export as JSON) or without."""
    return isinstance(entry.get("data"), Mapping) and ("annotations" in entry or "predictions" in entry)


def is_label_studio_line(entry: Mapping[str, Any]) -> bool:
    """Whether an entry of a file is a line of an export as JSON-MIN, CSV or TSV, which has one per annotation."""
    return NOTE in entry and "annotation_id" in entry


def label_studio_answers(tasks: Sequence[Any], origin: str) -> Iterator[ToolAnswer]:
    """Yield what people have answered, from an export as JSON."""
    for number, task in enumerate(tasks, start=1):
        place = f"task {task.get('id', number) if isinstance(task, Mapping) else number}"
        if not isinstance(task, Mapping) or not is_label_studio(task):
            raise ValueError(f"{origin}, {place}: it is not a task of Label Studio; it has no data.")
        annotations = task.get("annotations") or []
        counted = [entry for entry in annotations if not entry.get("was_cancelled")]
        truth = [entry for entry in counted if entry.get("ground_truth")]
        labels = [label for entry in truth or counted for label in _choices(entry)]
        yield ToolAnswer(place, task["data"], labels, bool(annotations) and not labels, _LABEL_STUDIO_FIX)


def label_studio_lines(lines: Sequence[Mapping[str, Any]], origin: str) -> Iterator[ToolAnswer]:
    """Yield what people have answered, from the lines of an export as JSON-MIN, CSV or TSV."""
    by_item: dict[Any, list[Mapping[str, Any]]] = {}
    for number, line in enumerate(lines, start=1):
        by_item.setdefault(line.get("id", f"line {number}"), []).append(line)
    for item, own in by_item.items():
        labels = [line[QUESTION] for line in own if line.get(QUESTION) not in (None, "")]
        yield ToolAnswer(f"task {item}", own[0], labels, not labels, _LABEL_STUDIO_FIX)


def _choices(annotation: Mapping[str, Any]) -> list[Any]:
    return [
        label
        for result in annotation.get("result") or ()
        if result.get("from_name") == QUESTION
        for label in result.get("value", {}).get("choices", ())
    ]


# ---------------------------------------------------------------------- Argilla
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
        yield ToolAnswer(place, facts, labels, bool(responses) and not labels, _ARGILLA_FIX)


# Tool: what writes the files, and the name in the folder of an audit.
TOOLS: dict[str, tuple[Callable[[ReviewItems, Path], list[Path]], str]] = {
    "label-studio": (write_label_studio, "label_studio.json"),
    "argilla": (write_argilla, "argilla"),
}
