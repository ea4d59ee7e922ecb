# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""What a look at a dataset found, as Python objects, as text and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from glc_hf.data.vote_check import GivenVotes
from glc_hf.labels.columns import Columns


ERROR, WARNING = "error", "warning"
_SHOWN_ROWS = 5
# Problems that stop a run before rows are encoded, and those that loading or training reports in its own words.
_STOP_FIRST = (
    "missing_labels", "wrong_labels", "implausible_label", "one_class", "missing_flags", "wrong_flags",
    "no_untrusted_rows", "unreadable_images",
)  # fmt: skip
_SAID_ELSEWHERE = ("missing_words", "unknown_eval_labels", "votes_without_trusted_rows")
_MAX_LINES = 6


@dataclass
class Finding:
    """
    A problem in the data.

    Attributes:
        kind: A short name, such as `"missing_labels"`.
        severity: `"error"` if it would stop training, else `"warning"`.
        part: `"the training split"`, `"the evaluation split"` or `"the trusted dataset"`.
        count: How many rows, or classes, have it.
        rows: The first of these rows, counted from 0; empty if it is about classes.
        message: What is wrong.
        fix: What to do.
    """

    kind: str
    severity: str
    part: str
    count: int
    rows: list[int]
    message: str
    fix: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.message} {self.fix}"


class ClassCount(NamedTuple):
    """A class, and the number of its labels: all and trusted ones to train on, and those to evaluate on."""

    name: str
    train: int
    trusted: int
    evaluation: int


@dataclass
class DataReport:
    """
    What [`~glc_hf.data.dataset_check.check_dataset`] found.

    Attributes:
        rows: Number of training rows, those of a trusted dataset included.
        eval_rows: Number of evaluation rows.
        trusted_rows: Number of trusted rows; for flags per token, of rows with a trusted token.
        columns: Roles of the columns.
        classes: The classes with their numbers of labels.
        findings: The problems, errors first.
        notes: Facts that are no problem, such as the delimiter of a file.
        votes: Votes of several sources and soft labels, if there are any.
        has_labels: Whether training rows have labels, besides votes.
    """

    rows: int
    eval_rows: int
    trusted_rows: int
    columns: Columns
    classes: list[ClassCount]
    findings: list[Finding]
    notes: list[str] = field(default_factory=list)
    votes: GivenVotes | None = None
    has_labels: bool = True

    @property
    def errors(self) -> list[Finding]:
        """The findings that would stop training."""
        return [finding for finding in self.findings if finding.severity == ERROR]

    @property
    def warnings(self) -> list[Finding]:
        """The findings that would not stop training."""
        return [finding for finding in self.findings if finding.severity == WARNING]

    def summary(self) -> list[tuple[str, str]]:
        """Return the size and the columns as pairs of a name and a text."""
        rows = f"{self.rows:,} ({self.trusted_rows:,} trusted)"
        lines = [("training rows", rows)]
        if self.eval_rows:
            lines.append(("evaluation rows", f"{self.eval_rows:,}"))
        inputs = " and ".join(self.columns.inputs)
        labels = [f"labels in {self.columns.label}"] if self.has_labels or self.votes is None else []
        if self.votes is not None:
            labels.append(self.votes.where)
        lines.append(("columns", ", ".join([f"{self.columns.task} in {inputs}", *labels])))
        if self.votes is not None and self.votes.problem is None:
            lines.append(("votes", str(self.votes)))
        lines.append(("classes", f"{len(self.classes):,}"))
        return lines + [("note", note) for note in self.notes]

    def raise_for_rows(self) -> None:
        """Raise a `ValueError` for missing or wrong labels and flags, unreadable images, and no untrusted rows."""
        for finding in self.errors:
            if finding.kind in _STOP_FIRST:
                raise ValueError(f"{finding.message} {finding.fix}")

    def short_lines(self, command: str) -> list[str]:
        """Return a few lines about the warnings, as `glc-hf train` prints them; none if there is nothing to say.

        Args:
            command (`str`): The command that shows all of them, with the options of the run.
        """
        shown = [str(finding) for finding in self.warnings if finding.kind not in _SAID_ELSEWHERE]
        rest = len(shown) - _MAX_LINES
        if rest <= 1:  # a line about one more problem is not shorter than the problem
            return shown
        return [*shown[:_MAX_LINES], f"{rest} more problems: run `{command}` with the same options to see them."]

    def to_dict(self) -> dict[str, Any]:
        """Return the content of the report as JSON has it."""
        return {
            "rows": self.rows,
            "eval_rows": self.eval_rows,
            "trusted_rows": self.trusted_rows,
            "columns": {**self.columns._asdict(), "inputs": list(self.columns.inputs)},
            "classes": [entry._asdict() for entry in self.classes],
            "errors": len(self.errors),
            "warnings": len(self.warnings),
            "findings": [dataclasses.asdict(finding) for finding in self.findings],
            "votes": None if self.votes is None else self.votes.num_votes,
            "notes": self.notes,
        }

    def __str__(self) -> str:
        lines = [f"{name}: {text}" for name, text in self.summary()]
        return "\n".join([*lines, *map(str, self.findings)])


def some_rows(rows: Sequence[int] | np.ndarray) -> str:
    """Return the first rows for a message: `row 3`, or `rows 3, 8, 9, …`."""
    shown = ", ".join(str(row) for row in rows[:_SHOWN_ROWS])
    return f"row{'s' if len(rows) > 1 else ''} {shown}{', …' if len(rows) > _SHOWN_ROWS else ''}"


def first_rows(rows: Sequence[int] | np.ndarray) -> list[int]:
    """Return the rows that a finding lists."""
    return [int(row) for row in rows[: 2 * _SHOWN_ROWS]]


def some_names(names: Sequence[str]) -> str:
    """Return the first names for a message."""
    shown = [name if name == name.strip() and name else repr(name) for name in names[:_SHOWN_ROWS]]
    return ", ".join(shown) + (", …" if len(names) > _SHOWN_ROWS else "")
