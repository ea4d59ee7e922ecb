# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Rows of classes with hardly a trusted row."""

from __future__ import annotations

import pytest
import torch

from glc_hf.correction.refinement import enough_rows, lean_scarce_rows


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


def test_few_rows_by_luck_are_no_sign_of_a_rare_class():
    probs = matrix(0.6, 0.8, 0.1, 0.7, 0.5, 0.6, 0.7, 0.6, 0.8, 0.7)
    counts = torch.tensor([7, 6, 1, 8, 7, 9, 5, 7, 10, 6])  # of ten classes with about seven, one with one: one in 14
    assert torch.equal(lean_scarce_rows(probs, counts), probs)
    counts = 3 * counts - (counts == 1).long()  # two where others have twenty
    assert not torch.equal(lean_scarce_rows(probs, counts), probs)


@pytest.mark.parametrize(
    ("counts", "enough"),
    [([1, 100, 200], 5), ([1, 8, 200], 3), ([1] + [8] * 9, 2), ([1] + [7] * 9, 1), ([1] * 50, 0), ([0, 3, 9], 0)],
)
def test_enough_is_five_rows_or_what_luck_explains(counts, enough):
    # 3·P(Poisson(8) ≤ 2) = 0.041, 3·P(≤ 3) = 0.13; 10·P(Poisson(8) ≤ 1) = 0.030; 10·P(Poisson(7) ≤ 1) = 0.073
    assert enough_rows(torch.tensor(counts)) == enough
