# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Answers of people in another tool, as entries of a decisions file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from glc_hf.audit.exchange.review_items import GIVEN, NOTE, ROW, SUGGESTED


_ANOTHER_AUDIT = "Export the answers of one audit only"


class ToolAnswer(NamedTuple):
    """
    What a tool's export says about one item.

    Attributes:
        place: The item in the export, for messages, such as `"task 7"`.
        facts: What was exported for the item; see [`~audit.exchange.review_items.ReviewItem.facts`].
        labels: The classes that people chose, one per answer that counts.
        is_skipped: Whether somebody has skipped the item.
        fix: What to do if the labels differ.
    """

    place: str
    facts: Mapping[str, Any]
    labels: Sequence[Any]
    is_skipped: bool
    fix: str


def read_answers(answers: Iterable[ToolAnswer], origin: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """
    Return the entries of a decisions file, and what is known about the dataset. Items without an answer are left out.

    Args:
        answers (`Iterable[ToolAnswer]`): One per item.
        origin (`str`): Name of the file, for messages.
    """
    entries: list[dict[str, Any]] = []
    known: dict[str, Any] = {}
    answers = list(answers)
    for answer in answers:
        row = answer.facts.get(ROW)
        if row is None or row == "":
            raise ValueError(
                f"{origin}, {answer.place}: it has no row, so it is not of an audit. Remove it from the export."
            )
        place = f"{origin}, {answer.place} (row {row})"
        note = _read_note(answer.facts.get(NOTE), place)
        check = note.pop("check", None)
        for name, value in note.items():
            if known.setdefault(name, value) != value:
                raise ValueError(f"{place}: it belongs to another dataset than those before it. {_ANOTHER_AUDIT}.")
        labels = list(dict.fromkeys(answer.labels))
        if len(labels) > 1:
            shown = ", ".join(map(repr, labels))
            raise ValueError(f"{place}: people chose different classes, {shown}. {answer.fix}.")
        given, suggested = answer.facts.get(GIVEN), answer.facts.get(SUGGESTED)
        if labels:
            same = {str(suggested): "suggested", str(given): "keep"}
            kind, label = same.get(str(labels[0]), "class"), labels[0]
        elif answer.is_skipped:
            kind, label = "skip", None
        else:
            continue
        entries.append({ROW: row, "decision": kind, "label": label, GIVEN: given, "check": check})
    if answers and not entries:
        raise ValueError(
            f"{origin}: nobody has answered any of its {len(answers):,} items. Export them when they are annotated."
        )
    return entries, known


def _read_note(note: Any, place: str) -> dict[str, Any]:
    if note is None or note == "":  # the column was left out of the export
        return {}
    try:
        content = json.loads(note) if isinstance(note, str) else note
    except json.JSONDecodeError as error:
        raise ValueError(f"{place}: the field {NOTE!r} is damaged ({error}).") from error
    if not isinstance(content, dict):
        raise ValueError(f"{place}: the field {NOTE!r} is damaged: {note!r}.")
    return dict(content)
