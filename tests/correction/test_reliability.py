# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Reasons not to rely on a matrix."""

from __future__ import annotations

import numpy as np
import pytest

from glc_hf import CorruptionMatrix
from glc_hf.correction.reliability import (
    few_rows_warning,
    matrix_warnings,
    missing_classes_warning,
    same_row_for_every_class,
    singular_warning,
)


NAMES = ["ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM", "TIME"]


def estimate(counts: list[int], strength: float = 0.5) -> CorruptionMatrix:
    number = len(counts)
    return CorruptionMatrix(CorruptionMatrix.hierarchical([0] * number, strength), NAMES[:number], counts)


def test_reliable_matrix_has_no_warnings():
    assert matrix_warnings(estimate([60, 80, 100])) == []
    assert matrix_warnings(CorruptionMatrix.flip(3, 0.5)) == []


def test_few_rows_warning_names_classes_counts_and_the_interval_of_the_first():
    matrix = estimate([40, 5, 60, 3])
    low, high = matrix.noise_rate_interval()
    warning = few_rows_warning(matrix)
    assert "few trusted rows for 2 of 4 classes: HUM (3), DESC (5). " in warning
    interval = f"a 95% interval from {low[3]:.0%} to {high[3]:.0%}"
    assert f"The estimated noise rate of HUM is 50%, with {interval}" in warning
    assert "A few more checked rows of these classes" in warning
    assert matrix_warnings(matrix) == [warning]


def test_at_most_five_classes_are_named():
    warning = few_rows_warning(estimate([1, 2, 3, 1, 2, 3, 1]))
    assert "7 of 7 classes: ABBR (1), HUM (1), TIME (1), DESC (2), LOC (2) and 2 more. " in warning


@pytest.mark.parametrize(("counts", "strength", "warned"), [(5, 0.5, True), (12, 0.5, False), (3, 0.0, False)])
def test_rows_are_few_if_the_interval_of_the_noise_rate_is_wider_than_0_6(counts, strength, warned):
    matrix = estimate([counts] * 3, strength)
    low, high = matrix.noise_rate_interval()
    assert (high[0] - low[0] > 0.6) is np.bool_(warned)
    assert (few_rows_warning(matrix) is not None) is warned


def test_class_without_trusted_rows_has_its_own_warning_only():
    matrix = estimate([40, 0, 60])
    assert few_rows_warning(matrix) is None
    assert missing_classes_warning(matrix).startswith("no trusted row for 1 of 3 classes: DESC. ")
    assert matrix_warnings(matrix) == [missing_classes_warning(matrix)]


@pytest.mark.parametrize("num_labels", [2, 3, 7])
def test_same_row_for_every_class_is_found_for_any_number_of_classes(num_labels):
    same = CorruptionMatrix(np.full((num_labels, num_labels), 1 / num_labels))
    assert same_row_for_every_class(same)
    assert "same row for every class" in singular_warning(same)
    assert not same_row_for_every_class(CorruptionMatrix.uniform(num_labels, 0.5))
    assert not same_row_for_every_class(CorruptionMatrix.identity(1))


def test_some_equal_rows_are_named_and_are_not_all_classes():
    matrix = CorruptionMatrix([[0.5, 0.5, 0], [0.48, 0.52, 0], [0, 0, 1]], ["cat", "dog", "fish"])
    assert not same_row_for_every_class(matrix)
    warning = singular_warning(matrix)
    assert "the noisy labels of cat/dog have almost the same distribution" in warning
    assert "fish" not in warning
    assert matrix_warnings(matrix) == [warning]
