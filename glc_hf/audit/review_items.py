# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Labels of an audit that people check in another tool, and their answers, as entries of a decisions file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from datasets import Dataset

from glc_hf.audit.dataset_file import dataset_facts, row_checks
from glc_hf.audit.findings import GIVEN, P_WRONG, SUGGESTED, Findings
from glc_hf.audit.page import thumbnail, with_images


# Fields of an item in the files of any tool, besides columns of the audit. A tool must return NOTE as it is.
ROW, REASON, NOTE = "row", "reason", "glc_hf"
# The question that people answer.
QUESTION = "label"
AGENT = "glc_hf audit"
TEXT, TEXT_PAIR, IMAGE = "text", "text_pair", "image"
# The notes of all items contain the names of the classes, if there are not more than these.
_MAX_NAMES = 200
_IMAGE_SIZE = 512
_ANOTHER_AUDIT = "Export the answers of one audit only"


class ReviewItem(NamedTuple):
    """
    One label to check.

    Attributes:
        row: Row of the dataset, starting at 0.
        inputs: What a person looks at: `text`, `text` and `text_pair`, or `image` (a data URL).
        given, suggested: Names of the classes; their numbers if there are no names.
        p_wrong: Probability that the given label is wrong.
        score: `p_wrong` if another label is suggested, else 1 − `p_wrong`.
        reason: Why the row is suggested to be checked next, if it is.
        note: JSON text about the row and its dataset, for [`read_answers`].
    """

    row: int
    inputs: dict[str, str]
    given: str
    suggested: str
    p_wrong: float
    score: float
    reason: str | None
    note: str

    def facts(self) -> dict[str, Any]:
        """What the tool shows next to the inputs, and must return."""
        facts = {ROW: self.row, GIVEN: self.given, SUGGESTED: self.suggested, P_WRONG: round(self.p_wrong, 6)}
        return facts | ({} if self.reason is None else {REASON: self.reason}) | {NOTE: self.note}


@dataclass
class ReviewItems:
    """
    Labels to check, in the order in which they should be checked.

    Attributes:
        findings: The audit.
        rows: The audited rows.
        inputs: Columns of `rows` with texts or images.
        task: `"text"` or `"image"`.
        label_column: Column of `rows` with the labels as they are in the dataset, if there is one.
        from_votes: Whether the given labels follow from votes of several sources.
        positions: Places of the labels in `findings`; by default of all label issues, the most suspicious ones first.
        reasons: Why rows are suggested to be checked next, by row.
        trusted_column: Column of the flags in the dataset.
    """

    findings: Findings
    rows: Dataset
    inputs: tuple[str, ...]
    task: str
    label_column: str | None = None
    from_votes: bool = False
    positions: np.ndarray = None  # type: ignore[assignment]  # __post_init__ sets it
    reasons: dict[int, str] | None = None
    trusted_column: str = "trusted"

    def __post_init__(self) -> None:
        check_exportable(self.task)
        if self.positions is None:
            self.positions = self.findings.ranked(self.findings.num_issues)

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def names(self) -> list[str]:
        """Names of the classes; their numbers if they have no names."""
        matrix = self.findings.matrix
        return [matrix.name_of(label) for label in range(matrix.num_labels)]

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the inputs of an item."""
        return (IMAGE,) if self.task == IMAGE else (TEXT, TEXT_PAIR)[: len(self.inputs)]

    def __iter__(self) -> Iterator[ReviewItem]:
        findings, place = self.findings, self.positions
        checks = row_checks(self.rows, [*self.inputs, *([] if self.label_column is None else [self.label_column])])
        facts = dataset_facts(checks, self.inputs, self.label_column, self.from_votes, self.trusted_column)
        facts["num_labels"] = findings.matrix.num_labels
        names, label_names = self.names, findings.matrix.label_names
        chosen = self.rows.with_format(None).select(findings.row[place]).select_columns(list(self.inputs))
        if self.task == IMAGE:
            chosen = with_images(chosen, self.inputs[0])
        columns = (findings.row, findings.given, findings.suggested, findings.p_wrong, findings.score)
        for number, (row, given, suggested, p_wrong, score) in enumerate(
            zip(*(column[place].tolist() for column in columns), strict=True)
        ):
            note = {"check": checks[row], **facts}
            if label_names is not None and (number == 0 or len(label_names) <= _MAX_NAMES):
                note["label_names"] = label_names
            yield ReviewItem(
                row,
                self._contents(chosen[number]),
                names[given],
                names[suggested],
                p_wrong,
                score if given == suggested else p_wrong,
                (self.reasons or {}).get(row),
                json.dumps(note, ensure_ascii=False),
            )

    def _contents(self, row: dict[str, Any]) -> dict[str, str]:
        if self.task == IMAGE:
            return {IMAGE: thumbnail(row[self.inputs[0]], _IMAGE_SIZE)}
        values = (row[column] for column in self.inputs)
        return {name: "" if text is None else str(text) for name, text in zip(self.fields, values, strict=True)}


def check_exportable(task: str) -> None:
    """Raise if labels of a task (`"text"`, `"image"`, `"token"`) can't be exported."""
    if task not in (TEXT, IMAGE):
        raise ValueError(
            "labels per token can't be exported to other tools: review them on the page of the audit (`glc-hf "
            "review`). Exports are for classification of texts and images."
        )


def issues_and(findings: Findings, rows: Sequence[int], most_issues: int) -> np.ndarray:
    """Return the places of these rows in the findings, in this order, and of the most suspicious label issues."""
    place_of = {row: place for place, row in enumerate(findings.row.tolist())}
    first = [place_of[row] for row in rows if row in place_of]
    issues = findings.ranked(min(findings.num_issues, most_issues)).tolist()
    return np.array(list(dict.fromkeys([*first, *issues])), dtype=np.int64)


class ToolAnswer(NamedTuple):
    """
    What a tool's export says about one item.

    Attributes:
        place: The item in the export, for messages, such as `"task 7"`.
        facts: What was exported for the item; see [`ReviewItem.facts`].
        labels: The classes that people chose, one per answer that counts.
        is_skipped: Whether a person has skipped the item.
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
