# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from glc_hf.correction.likelihood import IMPOSSIBLE_LABEL_LOSS
from glc_hf.correction.loss import corrected_cross_entropy
from glc_hf.matrix import CorruptionMatrix

from .problems import random_batch, random_matrix, textbook


PROBLEMS = st.tuples(st.integers(1, 20), st.integers(1, 12), st.integers(0, 10_000), st.booleans())
REDUCTIONS = ("mean", "sum", "none")


def loss_and_gradient(logits, *args, **kwargs):
    leaf = logits.clone().requires_grad_()
    loss = corrected_cross_entropy(leaf, *args, **kwargs)
    (gradient,) = torch.autograd.grad(loss.sum(), leaf)
    return loss.detach(), gradient


# ---------------------------------------------------------------------------------------------- the formula
@settings(deadline=None, max_examples=80)
@given(PROBLEMS)
def test_equals_the_textbook_formula_and_its_gradient(problem):
    rows, num_labels, seed, zeros = problem
    matrix = random_matrix(num_labels, seed, zeros)
    logits, labels, trusted = random_batch(rows, num_labels, seed)
    possible = (matrix[:, labels] > 0).any(dim=0) | trusted
    logits, labels, trusted = logits[possible], labels[possible], trusted[possible]
    if len(labels) == 0:
        return
    leaf = logits.clone().requires_grad_()
    expected = textbook(leaf, labels, matrix, trusted)
    for reduction in REDUCTIONS:
        reduced = {"mean": expected.mean(), "sum": expected.sum(), "none": expected}[reduction]
        (expected_gradient,) = torch.autograd.grad(reduced.sum(), leaf, retain_graph=True)
        loss, gradient = loss_and_gradient(logits, labels, matrix, trusted, reduction=reduction)
        torch.testing.assert_close(loss, reduced.detach(), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(gradient, expected_gradient, rtol=1e-9, atol=1e-9)


def test_corruption_matrix_and_tensor_give_the_same_loss():
    matrix = CorruptionMatrix.flip(6, 0.4, seed=3)
    logits, labels, _ = random_batch(30, 6, seed=0)
    from_object = corrected_cross_entropy(logits, labels, matrix, reduction="none")
    from_tensor = corrected_cross_entropy(logits, labels, torch.tensor(matrix.probs), reduction="none")
    assert torch.equal(from_object, from_tensor)


@settings(deadline=None, max_examples=30)
@given(PROBLEMS)
def test_permuting_classes_changes_nothing(problem):
    rows, num_labels, seed, zeros = problem
    matrix = random_matrix(num_labels, seed, zeros)
    logits, labels, trusted = random_batch(rows, num_labels, seed)
    order = torch.randperm(num_labels, generator=torch.Generator().manual_seed(seed))
    new_label = torch.argsort(order)
    loss, gradient = loss_and_gradient(logits, labels, matrix, trusted, reduction="none")
    permuted, permuted_gradient = loss_and_gradient(
        logits[:, order], new_label[labels], matrix[order][:, order], trusted, reduction="none"
    )
    torch.testing.assert_close(permuted, loss, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(permuted_gradient, gradient[:, order], rtol=1e-10, atol=1e-10)


def test_zero_entries_of_the_matrix_are_exact():
    matrix = torch.tensor([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    logits = torch.tensor([[0.0, 60.0, 0.0]])  # only class 0, of probability e^-60, gives label 0
    loss = corrected_cross_entropy(logits, torch.tensor([0]), matrix)
    assert loss.item() == pytest.approx(60 + math.log(2), rel=1e-6)


# ---------------------------------------------------------------------------------------------- plain cross-entropy
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("case", ["identity", "identity tensor", "identity and some trusted", "all trusted"])
def test_without_noise_the_loss_is_bit_equal_to_cross_entropy(case, reduction, dtype):
    logits, labels, trusted = random_batch(40, 7, seed=5)
    logits = logits.to(dtype)
    labels[::6] = -100
    matrix, flag = {
        "identity": (CorruptionMatrix.identity(7), None),
        "identity tensor": (torch.eye(7), None),
        "identity and some trusted": (CorruptionMatrix.identity(7), trusted),
        "all trusted": (CorruptionMatrix.uniform(7, 0.5), labels != -100),
    }[case]
    leaf = logits.clone().requires_grad_()
    expected = F.cross_entropy(leaf, labels, reduction=reduction)
    (expected_gradient,) = torch.autograd.grad(expected.sum(), leaf)
    loss, gradient = loss_and_gradient(logits, labels, matrix, flag, reduction=reduction)
    assert torch.equal(loss, expected)
    assert torch.equal(gradient, expected_gradient)


def test_matrix_close_to_the_identity_is_not_treated_as_identity():
    matrix = torch.eye(3, dtype=torch.float64)
    matrix[0, 1] = 4e-6  # within the tolerance of the row sums
    logits = torch.tensor([[5.0, -20.0, 0.0]], dtype=torch.float64)
    loss = corrected_cross_entropy(logits, torch.tensor([1]), matrix)
    torch.testing.assert_close(loss, textbook(logits, torch.tensor([1]), matrix)[0])
    assert abs(loss - F.cross_entropy(logits, torch.tensor([1]))) > 1


# ---------------------------------------------------------------------------------------------- extreme numbers
def in_high_precision(logits, label, weights):
    """The loss in float64, with a separate max-shift in both sums, so that neither underflows."""
    logits = logits.double().numpy()
    possible = weights > 0
    top, top_possible = logits.max(), (logits[possible] + np.log(weights[possible])).max()
    normalizer = top + math.log(np.exp(logits - top).sum())
    return (
        normalizer - top_possible - math.log(np.exp(logits[possible] + np.log(weights[possible]) - top_possible).sum())
    )


@settings(deadline=None, max_examples=60)
@given(
    st.integers(2, 8),
    st.integers(0, 10_000),
    st.sampled_from([1.0, 30.0, 1e2, 1e3, 1e4]),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_finite_logits_give_an_exact_loss_and_a_finite_gradient(num_labels, seed, scale, dtype):
    matrix = random_matrix(num_labels, seed, zeros=True)
    logits, labels, trusted = random_batch(16, num_labels, seed, scale)
    logits = logits.clamp(-1e4, 1e4).to(dtype)
    loss, gradient = loss_and_gradient(logits, labels, matrix, trusted, reduction="none")
    assert loss.dtype == dtype
    assert loss.isfinite().all()
    assert gradient.isfinite().all()
    assert (gradient.abs() <= 1 + 1e-5).all()
    torch.testing.assert_close(gradient.sum(dim=1), torch.zeros(16, dtype=dtype), rtol=0, atol=1e-5)
    for item, label in enumerate(labels.tolist()):
        weights = np.eye(num_labels)[label] if trusted[item] else matrix[:, label].numpy()
        if weights.any():
            expected = in_high_precision(logits[item], label, weights)
            tolerance = 4e-6 if dtype == torch.float32 else 1e-12
            assert loss[item].item() == pytest.approx(expected, rel=tolerance, abs=tolerance)


def test_logits_that_differ_by_more_than_the_dtype_range_give_a_finite_loss():
    logits = torch.tensor([[3.4e38, -3.4e38, 0.0]])  # only class 1 gives label 1: the exact loss is 6.8e38
    loss, gradient = loss_and_gradient(logits, torch.tensor([1]), torch.eye(3)[[0, 1, 0]])
    assert loss == torch.finfo(torch.float32).max
    assert torch.equal(gradient, torch.tensor([[1.0, -1.0, 0.0]]))


def test_probabilities_too_small_for_float32_still_count():
    matrix = torch.tensor([[1.0, 1e-60], [1.0, 2e-60]], dtype=torch.float64)
    loss = corrected_cross_entropy(torch.tensor([[0.0, 0.0]]), torch.tensor([1]), matrix)
    assert loss.item() == pytest.approx(-math.log(1.5e-60), rel=1e-6)


def test_nan_logits_give_a_nan_loss_for_their_own_item_only():
    logits = torch.tensor([[1.0, 2.0], [float("nan"), 1.0]])
    loss = corrected_cross_entropy(logits, torch.tensor([0, 1]), CorruptionMatrix.uniform(2, 0.4), reduction="none")
    assert loss.isnan().tolist() == [False, True]


# ---------------------------------------------------------------------------------------------- impossible labels
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_impossible_label_has_a_constant_loss_and_no_gradient(dtype):
    matrix = torch.tensor([[0.5, 0.5, 0.0], [0.3, 0.7, 0.0], [1.0, 0.0, 0.0]])
    labels = torch.tensor([2, 2, 0])
    logits = torch.tensor([[1.0, 2.0, 3.0], [-50.0, 0.0, 1e4], [0.0, 0.0, 0.0]], dtype=dtype)
    loss, gradient = loss_and_gradient(logits, labels, matrix, reduction="none")
    assert loss[:2].tolist() == pytest.approx([IMPOSSIBLE_LABEL_LOSS] * 2)
    assert loss[2] < 1
    assert (gradient[:2] == 0).all()
    assert (gradient[2] != 0).any()
    trusted_loss = corrected_cross_entropy(logits, labels, matrix, torch.ones(3, dtype=torch.bool), reduction="none")
    assert torch.equal(trusted_loss, F.cross_entropy(logits, labels, reduction="none"))


# ---------------------------------------------------------------------------------------------- masks and shapes
def test_ignored_items_have_no_loss_no_gradient_and_no_weight_in_the_mean():
    matrix = CorruptionMatrix.uniform(5, 0.5)
    logits, labels, trusted = random_batch(12, 5, seed=2)
    ignored = torch.zeros(12, dtype=torch.bool)
    ignored[[0, 3, 11]] = True
    masked = labels.masked_fill(ignored, -100)
    logits[0] = float("nan")
    kept, kept_gradient = loss_and_gradient(logits[~ignored], labels[~ignored], matrix, trusted[~ignored])
    loss, gradient = loss_and_gradient(logits, masked, matrix, trusted)
    torch.testing.assert_close(loss, kept)
    torch.testing.assert_close(gradient[~ignored], kept_gradient)
    assert (gradient[ignored] == 0).all()
    assert (corrected_cross_entropy(logits, masked, matrix, reduction="none")[ignored] == 0).all()


def test_ignore_index_can_be_one_of_the_classes():
    matrix = CorruptionMatrix.uniform(4, 0.5)
    logits, labels, _ = random_batch(20, 4, seed=4)
    loss = corrected_cross_entropy(logits, labels, matrix, ignore_index=2)
    expected = corrected_cross_entropy(logits[labels != 2], labels[labels != 2], matrix)
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("matrix", [CorruptionMatrix.uniform(4, 0.5), CorruptionMatrix.identity(4)])
@pytest.mark.parametrize("rows", [0, 3])
def test_mean_of_no_items_is_zero_with_zero_gradient(rows, matrix):
    labels = torch.full((rows,), -100)
    for trusted in (None, torch.ones(rows, dtype=torch.bool)):
        loss, gradient = loss_and_gradient(torch.randn(rows, 4), labels, matrix, trusted)
        assert loss.item() == 0
        assert (gradient == 0).all()


def test_flags_can_be_per_token_or_per_row():
    matrix = CorruptionMatrix.flip(5, 0.3)
    logits, labels, _ = random_batch(24, 5, seed=8)
    labels[5] = labels[23] = -100
    row_flags = torch.tensor([True, False, False, True])
    token_flags = row_flags.repeat_interleave(6)
    flat, flat_gradient = loss_and_gradient(logits, labels, matrix, token_flags, reduction="none")
    for flag in (row_flags, token_flags.reshape(4, 6)):
        loss, gradient = loss_and_gradient(
            logits.reshape(4, 6, 5), labels.reshape(4, 6), matrix, flag, reduction="none"
        )
        assert torch.equal(loss, flat.reshape(4, 6))
        assert torch.equal(gradient, flat_gradient.reshape(4, 6, 5))
    three_dims = corrected_cross_entropy(
        logits.reshape(2, 2, 6, 5), labels.reshape(2, 2, 6), matrix, row_flags.reshape(2, 2), reduction="none"
    )
    assert torch.equal(three_dims, flat.reshape(2, 2, 6))


def test_single_item_without_batch_dimension():
    matrix = CorruptionMatrix.uniform(3, 0.5)
    logits = torch.tensor([1.0, 0.0, -1.0])
    loss = corrected_cross_entropy(logits, torch.tensor(2), matrix, reduction="none")
    assert loss.shape == ()
    assert torch.equal(loss, corrected_cross_entropy(logits[None], torch.tensor([2]), matrix))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.uint8])
def test_labels_can_have_any_integer_dtype(dtype):
    matrix = CorruptionMatrix.uniform(5, 0.5)
    logits, labels, trusted = random_batch(10, 5, seed=1)
    for m in (matrix, CorruptionMatrix.identity(5)):
        expected = corrected_cross_entropy(logits, labels, m, trusted)
        assert torch.equal(corrected_cross_entropy(logits, labels.to(dtype), m, trusted), expected)


# ---------------------------------------------------------------------------------------------- precision and memory
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("identity", [False, True])
def test_half_precision_logits_are_computed_in_float32(dtype, identity):
    matrix = CorruptionMatrix.identity(50) if identity else CorruptionMatrix.uniform(50, 0.3)
    logits, labels, trusted = random_batch(64, 50, seed=6)
    half = logits.to(dtype)
    loss, gradient = loss_and_gradient(half, labels, matrix, trusted)
    expected, expected_gradient = loss_and_gradient(half.float(), labels, matrix, trusted)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, expected)
    assert gradient.dtype == dtype
    torch.testing.assert_close(gradient, expected_gradient.to(dtype))


def test_autocast_does_not_lower_the_precision():
    matrix = CorruptionMatrix.flip(20, 0.4)
    logits, labels, trusted = random_batch(32, 20, seed=7)
    features, weight = torch.randn(32, 8), torch.randn(20, 8, requires_grad=True)
    expected = corrected_cross_entropy(logits.float(), labels, matrix, trusted)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = corrected_cross_entropy(logits.float(), labels, matrix, trusted)
        from_half = corrected_cross_entropy(features @ weight.T, labels, matrix, trusted)
    assert torch.equal(loss, expected)
    assert from_half.dtype == torch.float32
    from_half.backward()
    assert weight.grad.isfinite().all()


def test_memory_is_a_few_times_the_logits():
    """B×K×K would take 1 GB here; the logits take half a megabyte."""
    rows, num_labels = 64, 2000
    matrix = torch.full((num_labels, num_labels), 1 / num_labels)
    logits = torch.randn(rows, num_labels, requires_grad=True)
    labels, trusted = torch.arange(rows), torch.arange(rows) % 3 == 0
    extremes = logits.detach() * 1e4
    corrected_cross_entropy(logits, labels, matrix, trusted)  # prepares the matrix
    for x in (logits, extremes.requires_grad_()):
        with torch.profiler.profile(profile_memory=True) as profile:
            corrected_cross_entropy(x, labels, matrix, trusted).backward()
        largest = max(event.self_cpu_memory_usage for event in profile.events())
        total = sum(max(event.self_cpu_memory_usage, 0) for event in profile.events())
        assert 0 < largest <= 2 * logits.nbytes
        assert total <= 25 * logits.nbytes  # the sum of all allocations, not only the peak


# ---------------------------------------------------------------------------------------------- errors
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([[0, 1], [7, 0]], r"labels\[1, 0\] is 7"),
        ([[0, -1], [0, 0]], r"labels\[0, 1\] is -1"),
        ([[-100, 4], [-100, 0]], r"labels\[0, 1\] is 4"),
    ],
)
def test_labels_out_of_range_raise_and_name_the_position(labels, message):
    with pytest.raises(ValueError, match=message):
        corrected_cross_entropy(torch.zeros(2, 2, 4), torch.tensor(labels), CorruptionMatrix.uniform(4, 0.5))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"labels": torch.zeros(3)}, TypeError, "integers"),
        ({"labels": torch.zeros(4, dtype=torch.int64)}, ValueError, r"labels of shape \(3,\)"),
        ({"logits": torch.zeros(3, 4, dtype=torch.int64)}, TypeError, "floating"),
        ({"trusted": torch.tensor([0, 1, 1])}, TypeError, r"trusted\.bool\(\)"),
        ({"trusted": torch.tensor([True, False])}, ValueError, r"trusted has shape \(2,\)"),
        ({"reduction": "average"}, ValueError, "'average'"),
        ({"matrix": np.eye(4)}, TypeError, "CorruptionMatrix"),
    ],
)
def test_invalid_arguments_raise_clear_errors(change, error, message):
    good = {
        "logits": torch.zeros(3, 4),
        "labels": torch.zeros(3, dtype=torch.int64),
        "matrix": CorruptionMatrix.uniform(4, 0.5),
    }
    with pytest.raises(error, match=message):
        corrected_cross_entropy(**{**good, **change})
