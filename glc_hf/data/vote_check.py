# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Votes of several sources and soft labels as they are given, for a look at the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from datasets import Dataset

from glc_hf.data.label_values import read_given_labels
from glc_hf.intervals import format_count
from glc_hf.labels.reading import read_soft_labels


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
