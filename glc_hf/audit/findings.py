# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""An audit label by label, whether rows hold one label or a list: what files, page and summary are made from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from datasets import Dataset

from glc_hf.audit.rows import GIVEN, P_WRONG, SUGGESTED
from glc_hf.corruption.column_checks import IGNORED_LABEL
from glc_hf.corruption.matrix import CorruptionMatrix


# A label counts as suspect when it is more probably wrong than right.
SUSPECT = 0.5


@dataclass
class Findings:
    """
    One entry a label; those without a verdict (-100, words cut off) are left out.

    Attributes:
        matrix: The corruption matrix, with the names of the classes.
        row: The row that holds the label, counted from 0.
        word: Its place in the row where rows hold lists, else `None`.
        given, suggested: Classes.
        p_wrong: The probability that `given` is wrong.
        num_rows: Rows in all.
    """

    matrix: CorruptionMatrix
    row: np.ndarray
    word: np.ndarray | None
    given: np.ndarray
    suggested: np.ndarray
    p_wrong: np.ndarray
    num_rows: int

    @classmethod
    def of(cls, audited: Dataset, matrix: CorruptionMatrix) -> Findings:
        """From a dataset with the columns of an audit."""
        columns = audited.select_columns([GIVEN, SUGGESTED, P_WRONG]).with_format("arrow")[:]
        given, suggested, p_wrong = (columns.column(name).to_pylist() for name in (GIVEN, SUGGESTED, P_WRONG))
        if not given or not isinstance(given[0], list):
            every = np.arange(len(given))
            p_wrong = np.asarray(p_wrong, dtype=np.float64)
            return cls(matrix, every, None, np.asarray(given), np.asarray(suggested), p_wrong, len(given))
        flat = [
            (row, word, *entry)
            for row, entries in enumerate(zip(given, suggested, p_wrong, strict=True))
            for word, entry in enumerate(zip(*entries, strict=True))
            if entry[0] != IGNORED_LABEL and entry[2] is not None
        ]
        rows, words, labels, better, wrong = (
            map(np.asarray, zip(*flat, strict=True)) if flat else [np.empty(0, int)] * 5
        )
        return cls(matrix, rows, words, labels, better, wrong.astype(np.float64), len(given))

    def __len__(self) -> int:
        return len(self.given)

    @property
    def suspect(self) -> np.ndarray:
        """Whether each label is more probably wrong than right."""
        return self.p_wrong > SUSPECT

    def most_suspect(self, number: int) -> np.ndarray:
        """Places of the labels that are most probably wrong, in that order."""
        return np.argsort(-self.p_wrong, kind="stable")[:number]

    def corrections(self, number: int = 3) -> list[tuple[str, str, int]]:
        """The commonest (given, suggested, how often) among suspect labels."""
        size = self.matrix.num_labels
        pairs = np.bincount(self.given[self.suspect] * size + self.suggested[self.suspect], minlength=size * size)
        largest = [int(place) for place in np.argsort(-pairs, kind="stable")[:number] if pairs[place]]
        return [
            (self.matrix.name_of(place // size), self.matrix.name_of(place % size), int(pairs[place]))
            for place in largest
        ]
