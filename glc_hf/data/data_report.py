# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The result of a check of a dataset: problems, classes and votes, as Python objects, as text and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from datasets import Dataset

from glc_hf.data.label_values import read_given_labels
from glc_hf.intervals import format_count
from glc_hf.labels.columns import Columns
from glc_hf.labels.reading import read_soft_labels


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
        notes: Other facts, such as the delimiter of a file.
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


# ---------------------------------------------------------------------- votes
@dataclass
class GivenVotes:
    """
    The votes on the rows of a dataset.

    Attributes:
        columns: Columns of votes, without that of soft labels.
        soft_column: Column of soft labels, if there is one.
        row_counts: Per class, the number of untrusted rows with a vote for it, which for soft labels is the most
            probable class.
        num_votes: Number of votes, those of soft labels included.
        num_sources: Number of sources.
        num_rows: Number of rows.
        without: Rows without any vote.
        problem: Why the soft labels can't be read, if so.
    """

    columns: list[str]
    soft_column: str | None
    row_counts: dict[str, int]
    num_votes: int
    num_sources: int
    num_rows: int
    without: np.ndarray
    problem: str | None

    def __str__(self) -> str:
        """What there is, such as `57 votes of 2 sources on 30 rows`."""
        kinds = "soft labels" if not self.columns else "votes" if self.num_votes != 1 else "vote"
        sources = f" of {self.num_sources} sources" if self.columns else ""
        return f"{self.num_votes:,} {kinds}{sources} on {format_count(self.num_rows - len(self.without))}"

    @property
    def where(self) -> str:
        """The columns, such as `votes in a and b`."""
        parts = [f"votes in {' and '.join(self.columns)}"] if self.columns else []
        return ", ".join([*parts, *([] if self.soft_column is None else [f"soft labels in {self.soft_column}"])])


def read_given_votes(
    dataset: Dataset, columns: Sequence[str], soft_column: str | None, trusted: np.ndarray
) -> GivenVotes:
    """
    Read votes of any kind without raising an error.

    Args:
        dataset (`Dataset`): The training rows.
        columns (`Sequence[str]`): Columns of votes, one per source, or one of lists; may include `soft_column`.
        soft_column (`str`, *optional*): Column of soft labels.
        trusted (`np.ndarray`): The trusted rows.
    """
    columns = [name for name in columns if name != soft_column and name in dataset.column_names]
    has_vote, counts = np.zeros(len(dataset), dtype=bool), dict[str, int]()
    num_votes, num_sources, problem = 0, len(columns), None
    for name in columns:
        given = read_given_labels(dataset, name)
        num_votes += int((given.codes >= 0).sum())
        has_vote[given.rows_where(given.codes >= 0)] = True
        for code, label in enumerate(given.names):
            counts[label] = counts.get(label, 0) + len(np.setdiff1d(given.rows_with(code), trusted))
        if given.offsets is not None and len(columns) == 1:
            num_sources = int(np.diff(given.offsets).max(initial=0))
    if soft_column is not None and soft_column in dataset.column_names:
        num_sources += 1
        try:
            targets = read_soft_labels(dataset, soft_column)
        except ValueError as error:
            problem, has_vote = str(error), np.ones(len(dataset), dtype=bool)
        else:
            given_rows = targets.any(axis=1)
            has_vote |= given_rows
            num_votes += int(given_rows.sum())
            if not columns:  # a class number has no name here
                rows = np.setdiff1d(np.flatnonzero(given_rows), trusted)
                found = np.bincount(targets[rows].argmax(axis=1), minlength=targets.shape[1])
                counts = {str(label): int(number) for label, number in enumerate(found)}
    without = np.flatnonzero(~has_vote)
    return GivenVotes(columns, soft_column, counts, num_votes, num_sources, len(dataset), without, problem)
