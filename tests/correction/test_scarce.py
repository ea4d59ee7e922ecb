# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Rows of classes with hardly a trusted row."""

from __future__ import annotations

import pytest
import torch

from glc_hf.correction.missing import enough_rows, lean_scarce_rows


def matrix(*diagonal: float) -> torch.Tensor:
    """Every class goes wrong to the next one."""
    probs = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
    return probs + torch.roll(torch.diag(1 - probs.diagonal()), 1, dims=1)


def test_a_rare_class_leans_on_the_others_as_far_as_its_rows_are_missing():
    counts = torch.tensor([20.0, 30.0, 2.0, 25.0])
    probs = matrix(0.6, 0.8, 0.1, 0.7)
    leaned = lean_scarce_rows(probs, counts)
    even = torch.full((4,), 0.3 / 3, dtype=torch.float64)
    even[2] = 0.7  # the mean of 0.6, 0.8 and 0.7
    assert torch.allclose(leaned[2], 0.4 * probs[2] + 0.6 * even)
    assert torch.equal(leaned[[0, 1, 3]], probs[[0, 1, 3]])
    assert torch.allclose(leaned.sum(dim=1), torch.ones(4, dtype=torch.float64))


@pytest.mark.parametrize("counts", [[1, 1, 1, 1], [2, 4, 3, 2], [5, 100, 100, 100], [9, 7, 4, 3]])
def test_where_rows_are_few_for_all_alike_or_enough_nothing_changes(counts):
    probs = matrix(0.6, 0.8, 0.1, 0.7)
    assert torch.equal(lean_scarce_rows(probs, torch.tensor(counts)), probs)


def test_rows_of_classes_without_any_are_somebody_elses_matter():
    probs = matrix(0.6, 0.8, 0.1, 0.7)
    assert torch.equal(lean_scarce_rows(probs, torch.tensor([40, 40, 0, 40])), probs)


def test_enough_is_five_rows_or_a_quarter_of_the_median():
    assert enough_rows(torch.tensor([1, 100, 200])) == 5.0
    assert enough_rows(torch.tensor([1, 8, 200])) == 2.0
