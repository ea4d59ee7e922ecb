# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Label Studio: tasks with predictions, the labeling configuration, and exported annotations."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

from glc_hf.audit.exchange.review_items import AGENT, GIVEN, IMAGE, NOTE, QUESTION, ReviewItem, ReviewItems
from glc_hf.audit.exchange.tool_answers import ToolAnswer


# More classes than these are shown as a list that opens.
_MAX_VISIBLE = 20
_FIX = "Mark one of the annotations as ground truth, or delete the others, and export again"


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


# ---------------------------------------------------------------------- exports
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
        yield ToolAnswer(place, task["data"], labels, bool(annotations) and not labels, _FIX)


def label_studio_lines(lines: Sequence[Mapping[str, Any]], origin: str) -> Iterator[ToolAnswer]:
    """Yield what people have answered, from the lines of an export as JSON-MIN, CSV or TSV."""
    by_item: dict[Any, list[Mapping[str, Any]]] = {}
    for number, line in enumerate(lines, start=1):
        by_item.setdefault(line.get("id", f"line {number}"), []).append(line)
    for item, own in by_item.items():
        labels = [line[QUESTION] for line in own if line.get(QUESTION) not in (None, "")]
        yield ToolAnswer(f"task {item}", own[0], labels, not labels, _FIX)


def _choices(annotation: Mapping[str, Any]) -> list[Any]:
    return [
        label
        for result in annotation.get("result") or ()
        if result.get("from_name") == QUESTION
        for label in result.get("value", {}).get("choices", ())
    ]
