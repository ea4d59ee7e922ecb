# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Reasons not to rely on a corruption matrix, as sentences for logs, cards and audits."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from glc_hf.intervals import MATRIX_LEVEL, format_level
from glc_hf.matrix import CorruptionMatrix


# A class has few trusted rows if the interval of its noise rate is wider than this: about five rows or fewer.
_WIDE_INTERVAL = 0.6
_MAX_NAMED = 5


def same_row_for_every_class(matrix: CorruptionMatrix) -> bool:
    """Whether the noisy labels of all classes have almost the same distribution. Then they say nothing about the true
    labels, and an audit with this matrix is meaningless."""
    every_pair = matrix.num_labels * (matrix.num_labels - 1) // 2
    return len(matrix.indistinguishable_classes()) == every_pair > 0


def matrix_warnings(matrix: CorruptionMatrix) -> list[str]:
    """All reasons not to rely on a matrix; empty if there are none."""
    found = (singular_warning(matrix), missing_classes_warning(matrix), few_rows_warning(matrix))
    return [warning for warning in found if warning is not None]


def singular_warning(matrix: CorruptionMatrix) -> str | None:
    """Classes that can't be separated by their noisy labels."""
    if same_row_for_every_class(matrix):
        return (
            "the corruption matrix has the same row for every class: stage 1 has learned little more than the "
            "frequencies of the labels, or the labels carry no information about the classes. Train longer or "
            "with a higher learning rate. Until then neither the correction nor an audit is meaningful."
        )
    pairs = matrix.indistinguishable_classes()
    if not pairs:
        return None
    named = listed(f"{matrix.name_of(i)}/{matrix.name_of(j)}" for i, j in pairs)
    return (
        f"the corruption matrix is close to singular: the noisy labels of {named} have almost the same distribution, "
        "so only trusted rows can separate these classes. More trusted rows of these classes, or a longer training, "
        "may help."
    )


def missing_classes_warning(matrix: CorruptionMatrix) -> str | None:
    """Classes without trusted rows."""
    if matrix.trusted_rows is None or (matrix.trusted_rows > 0).all():
        return None
    missing = np.flatnonzero(matrix.trusted_rows == 0).tolist()
    return (
        f"no trusted row for {len(missing)} of {matrix.num_labels} classes: {listed(map(matrix.name_of, missing))}. "
        "Their rows of the corruption matrix are filled in, not estimated. Check a few rows of these classes."
    )


def few_rows_warning(matrix: CorruptionMatrix) -> str | None:
    """Classes whose noise rate is uncertain because they have few trusted rows, those with the fewest first."""
    if matrix.trusted_rows is None:
        return None
    low, high = matrix.noise_rate_interval()
    counts, uncertain = matrix.trusted_rows, np.flatnonzero((high - low > _WIDE_INTERVAL) & (matrix.trusted_rows > 0))
    if not len(uncertain):
        return None
    classes = uncertain[np.argsort(counts[uncertain], kind="stable")].tolist()
    first = classes[0]
    return (
        f"few trusted rows for {len(uncertain)} of {matrix.num_labels} classes: "
        f"{listed(f'{matrix.name_of(label)} ({counts[label]})' for label in classes)}. The estimated noise rate of "
        f"{matrix.name_of(first)} is {matrix.noise_rates[first]:.0%}, with a {format_level(MATRIX_LEVEL)} interval "
        f"from {low[first]:.0%} to {high[first]:.0%}. A few more checked rows of these classes make the estimate more "
        "reliable."
    )


def listed(names: Iterable[str]) -> str:
    """The first names, and how many more there are."""
    names = list(names)
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + more
