# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glc_hf import CorruptionMatrix
from glc_hf.correction.refinement import (
    most_likely_matrix,
    rare_class_threshold,
    shrink_rare_classes,
)


# ---------------------------------------------------------------------------------------------- maximum likelihood
def _problem(seed: int, rows: int, classes: int, sharpness: float = 4.0) -> tuple[torch.Tensor, ...]:
    """Calibrated predictions, labels drawn from them and a random matrix, that matrix, and a poor estimate of it."""
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
def test_no_other_matrix_has_a_higher_objective(seed: int, classes: int, count: int) -> None:
    probs, labels, _, estimate = _problem(seed, 200, classes)
    counts = torch.full((classes,), float(count))
    refined = most_likely_matrix(probs, labels, estimate, counts, iterations=5000, tolerance=1e-10)
    torch.testing.assert_close(refined.sum(dim=1), torch.ones(classes, dtype=torch.float64))
    prior = estimate * counts.unsqueeze(1)
    best = _objective(refined, probs, labels, prior)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(20):
        other = torch.rand(classes, classes, generator=generator, dtype=torch.float64)
        other = 0.99 * refined + 0.01 * other / other.sum(dim=1, keepdim=True)
        assert _objective(other, probs, labels, prior) <= best + 1e-6


def test_many_labels_improve_a_poor_estimate() -> None:
    probs, labels, matrix, estimate = _problem(1, 5000, 4)
    refined = most_likely_matrix(probs, labels, estimate, torch.full((4,), 10.0))
    before, after = (CorruptionMatrix(matrix).distance(CorruptionMatrix(one)) for one in (estimate, refined))
    assert after < before / 3


def test_certain_predictions_give_counts() -> None:
    true = torch.tensor([0, 0, 0, 1, 1])
    labels = torch.tensor([0, 1, 1, 1, 0])
    probs = torch.nn.functional.one_hot(true, 2).double()
    estimate = torch.full((2, 2), 0.5, dtype=torch.float64)
    refined = most_likely_matrix(probs, labels, estimate, torch.tensor([3.0, 2.0]))
    # Counts [1, 2] and [1, 1], plus 3 and 2 observations of the estimate.
    torch.testing.assert_close(refined, torch.tensor([[2.5 / 6, 3.5 / 6], [0.5, 0.5]], dtype=torch.float64))


def test_class_without_evidence_keeps_its_row() -> None:
    probs = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    estimate = torch.tensor([[0.9, 0.1], [0.3, 0.7]], dtype=torch.float64)
    refined = most_likely_matrix(probs, torch.tensor([0, 0]), estimate, torch.tensor([4.0, 0.0]))
    torch.testing.assert_close(refined[1], estimate[1])
    assert refined[0, 0] > 0.9


@pytest.mark.parametrize("processes", [2, 3])
def test_processes_that_share_the_rows_get_the_same_matrix(processes: int) -> None:
    probs, labels, _, estimate = _problem(3, 101, 3)
    counts = torch.tensor([4.0, 5.0, 6.0])
    alone = most_likely_matrix(probs, labels, estimate, counts)
    shares = list(zip(probs.tensor_split(processes), labels.tensor_split(processes), strict=True))

    # Computes the sums of the other processes from the matrix that all of them share.
    def sum_of_others(matrix: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(estimate)
        for part, given_labels in shares[1:]:
            joint = part * matrix.t()[given_labels]
            total.index_add_(0, given_labels, joint / joint.sum(dim=1, keepdim=True))
        return total

    state = {"matrix": estimate}

    def reduce(mine: torch.Tensor) -> torch.Tensor:
        total = mine + sum_of_others(state["matrix"])
        observed = total.t() + estimate * counts.unsqueeze(1)
        state["matrix"] = observed / observed.sum(dim=1, keepdim=True)
        return total

    together = most_likely_matrix(*shares[0], estimate, counts, reduce=reduce)
    torch.testing.assert_close(together, alone)


# ---------------------------------------------------------------------------------------------- rare classes
def matrix_with(*diagonal: float) -> torch.Tensor:
    """Wrong labels of each class go to the next class."""
    probs = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
    return probs + torch.roll(torch.diag(1 - probs.diagonal()), 1, dims=1)


def test_rare_class_is_shrunk_in_proportion_to_its_missing_rows():
    counts = torch.tensor([20.0, 30.0, 2.0, 25.0])
    probs = matrix_with(0.6, 0.8, 0.1, 0.7)
    shrunk = shrink_rare_classes(probs, counts)
    even = torch.full((4,), 0.3 / 3, dtype=torch.float64)
    even[2] = 0.7  # the mean of 0.6, 0.8 and 0.7
    assert torch.allclose(shrunk[2], 0.4 * probs[2] + 0.6 * even)
    assert torch.equal(shrunk[[0, 1, 3]], probs[[0, 1, 3]])
    assert torch.allclose(shrunk.sum(dim=1), torch.ones(4, dtype=torch.float64))


@pytest.mark.parametrize("counts", [[1, 1, 1, 1], [2, 4, 3, 2], [5, 100, 100, 100], [9, 7, 4, 3]])
def test_nothing_changes_if_all_classes_have_few_or_enough_rows(counts):
    probs = matrix_with(0.6, 0.8, 0.1, 0.7)
    assert torch.equal(shrink_rare_classes(probs, torch.tensor(counts)), probs)


def test_rows_of_classes_without_trusted_rows_are_kept():
    probs = matrix_with(0.6, 0.8, 0.1, 0.7)
    assert torch.equal(shrink_rare_classes(probs, torch.tensor([40, 40, 0, 40])), probs)


def test_few_rows_by_chance_do_not_make_a_class_rare():
    probs = matrix_with(0.6, 0.8, 0.1, 0.7, 0.5, 0.6, 0.7, 0.6, 0.8, 0.7)
    counts = torch.tensor([7, 6, 1, 8, 7, 9, 5, 7, 10, 6])  # the chance of this is 1 in 14
    assert torch.equal(shrink_rare_classes(probs, counts), probs)
    counts = 3 * counts - (counts == 1).long()  # 2 rows, about 20 in the other classes
    assert not torch.equal(shrink_rare_classes(probs, counts), probs)


@pytest.mark.parametrize(
    ("counts", "threshold"),
    [([1, 100, 200], 5), ([1, 8, 200], 3), ([1] + [8] * 9, 2), ([1] + [7] * 9, 1), ([1] * 50, 0), ([0, 3, 9], 0)],
)
def test_threshold_is_five_rows_or_what_chance_explains(counts, threshold):
    # 3·P(Poisson(8) ≤ 2) = 0.041, 3·P(≤ 3) = 0.13; 10·P(Poisson(8) ≤ 1) = 0.030; 10·P(Poisson(7) ≤ 1) = 0.073
    assert rare_class_threshold(torch.tensor(counts)) == threshold


def test_certain_soft_labels_give_the_matrix_of_hard_labels():
    generator = torch.Generator().manual_seed(0)
    probs = torch.rand(40, 3, generator=generator, dtype=torch.float64).softmax(dim=-1)
    labels = torch.randint(3, (40,), generator=generator)
    estimate, counts = (
        torch.full((3, 3), 1 / 3, dtype=torch.float64) + 0.2 * torch.eye(3),
        torch.tensor([4.0, 2.0, 0.0]),
    )
    estimate /= estimate.sum(dim=1, keepdim=True)
    soft = torch.nn.functional.one_hot(labels, 3).double()
    torch.testing.assert_close(
        most_likely_matrix(probs, soft, estimate, counts), most_likely_matrix(probs, labels, estimate, counts)
    )


def test_soft_labels_count_as_their_shares_of_hard_labels():
    """A row with the probabilities 1/4 and 3/4 is one quarter of four rows, one of them with the first label."""
    generator = torch.Generator().manual_seed(1)
    probs = torch.rand(30, 2, generator=generator, dtype=torch.float64).softmax(dim=-1)
    estimate = torch.tensor([[0.7, 0.3], [0.4, 0.6]], dtype=torch.float64)
    soft = torch.tensor([[0.25, 0.75]], dtype=torch.float64).expand(30, 2)
    repeated = probs.repeat_interleave(4, dim=0)
    labels = torch.tensor([0, 1, 1, 1]).repeat(30)
    torch.testing.assert_close(
        most_likely_matrix(probs, soft, estimate, torch.tensor([2.0, 3.0])),
        most_likely_matrix(repeated, labels, estimate, torch.tensor([8.0, 12.0])),
    )


def test_soft_labels_that_are_impossible_for_every_class_leave_the_matrix_finite():
    probs = torch.tensor([[1.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    estimate = torch.eye(2, dtype=torch.float64)
    refined = most_likely_matrix(probs, torch.tensor([[0.5, 0.5], [0.0, 1.0]]), estimate, torch.tensor([1.0, 1.0]))
    torch.testing.assert_close(refined, estimate)
