# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The most likely matrix: what it maximises, and that it comes closer than few trusted rows do."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glc_hf import CorruptionMatrix
from glc_hf.correction.refinement import most_likely_matrix


def _problem(seed: int, rows: int, classes: int, sharpness: float = 4.0) -> tuple[torch.Tensor, ...]:
    """Calibrated g, labels drawn by it and a random matrix, and a poor first estimate."""
    generator = torch.Generator().manual_seed(seed)
    probs = (sharpness * torch.randn(rows, classes, generator=generator, dtype=torch.float64)).softmax(dim=-1)
    true = torch.multinomial(probs, 1, generator=generator).squeeze(1)
    matrix = torch.rand(classes, classes, generator=generator, dtype=torch.float64) ** 3 + 1e-3
    matrix /= matrix.sum(dim=1, keepdim=True)
    labels = torch.multinomial(matrix[true], 1, generator=generator).squeeze(1)
    estimate = 0.6 * matrix + 0.4 / classes
    return probs, labels, matrix, estimate


def _objective(matrix: torch.Tensor, probs: torch.Tensor, labels: torch.Tensor, prior: torch.Tensor) -> torch.Tensor:
    return (probs * matrix.t()[labels]).sum(dim=1).log().sum() + (prior * matrix.log()).sum()


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), classes=st.integers(2, 5), count=st.integers(1, 30))
def test_no_other_matrix_explains_the_labels_better(seed: int, classes: int, count: int) -> None:
    probs, labels, _, estimate = _problem(seed, 200, classes)
    counts = torch.full((classes,), float(count))
    found = most_likely_matrix(probs, labels, estimate, counts, iterations=5000, tolerance=1e-10)
    torch.testing.assert_close(found.sum(dim=1), torch.ones(classes, dtype=torch.float64))
    prior = estimate * counts.unsqueeze(1)
    best = _objective(found, probs, labels, prior)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(20):
        other = torch.rand(classes, classes, generator=generator, dtype=torch.float64)
        other = 0.99 * found + 0.01 * other / other.sum(dim=1, keepdim=True)
        assert _objective(other, probs, labels, prior) <= best + 1e-6


def test_many_labels_beat_a_poor_estimate() -> None:
    probs, labels, matrix, estimate = _problem(1, 5000, 4)
    found = most_likely_matrix(probs, labels, estimate, torch.full((4,), 10.0))
    before, after = (CorruptionMatrix(matrix).distance(CorruptionMatrix(one)) for one in (estimate, found))
    assert after < before / 3


def test_with_certain_classes_it_counts() -> None:
    true = torch.tensor([0, 0, 0, 1, 1])
    labels = torch.tensor([0, 1, 1, 1, 0])
    probs = torch.nn.functional.one_hot(true, 2).double()
    estimate = torch.full((2, 2), 0.5, dtype=torch.float64)
    found = most_likely_matrix(probs, labels, estimate, torch.tensor([3.0, 2.0]))
    # Counts [1, 2] and [1, 1], with 3 and 2 observations of the estimate on top.
    torch.testing.assert_close(found, torch.tensor([[2.5 / 6, 3.5 / 6], [0.5, 0.5]], dtype=torch.float64))


def test_a_class_that_nothing_speaks_of_keeps_its_row() -> None:
    probs = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    estimate = torch.tensor([[0.9, 0.1], [0.3, 0.7]], dtype=torch.float64)
    found = most_likely_matrix(probs, torch.tensor([0, 0]), estimate, torch.tensor([4.0, 0.0]))
    torch.testing.assert_close(found[1], estimate[1])
    assert found[0, 0] > 0.9


@pytest.mark.parametrize("processes", [2, 3])
def test_processes_that_share_the_rows_find_the_same(processes: int) -> None:
    probs, labels, _, estimate = _problem(3, 101, 3)
    counts = torch.tensor([4.0, 5.0, 6.0])
    alone = most_likely_matrix(probs, labels, estimate, counts)
    shares = list(zip(probs.tensor_split(processes), labels.tensor_split(processes), strict=True))

    # In lockstep: the others' sums are known from the matrix that all of them have.
    def others(matrix: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(estimate)
        for part, given_labels in shares[1:]:
            joint = part * matrix.t()[given_labels]
            total.index_add_(0, given_labels, joint / joint.sum(dim=1, keepdim=True))
        return total

    state = {"matrix": estimate}

    def reduce(mine: torch.Tensor) -> torch.Tensor:
        total = mine + others(state["matrix"])
        observed = total.t() + estimate * counts.unsqueeze(1)
        state["matrix"] = observed / observed.sum(dim=1, keepdim=True)
        return total

    together = most_likely_matrix(*shares[0], estimate, counts, reduce=reduce)
    torch.testing.assert_close(together, alone)
