# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The corrected loss with probabilities instead of labels."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from glc_hf.correction.likelihood import IMPOSSIBLE_LABEL_LOSS
from glc_hf.correction.loss import corrected_cross_entropy
from glc_hf.labels.label_batch import label_batch
from glc_hf.matrix import CorruptionMatrix

from .problems import random_batch, random_matrix


PROBLEMS = st.tuples(st.integers(1, 12), st.integers(1, 9), st.integers(0, 10_000), st.booleans())


def random_targets(rows, num_labels, seed):
    generator = torch.Generator().manual_seed(seed + 7)
    targets = torch.rand(rows, num_labels, generator=generator, dtype=torch.float64).square()
    targets[torch.rand(rows, num_labels, generator=generator) < 0.3] = 0
    return targets / targets.sum(dim=-1, keepdim=True).clamp(min=1e-9)


def loss_and_gradient(logits, *args, **kwargs):
    leaf = logits.clone().requires_grad_()
    loss = corrected_cross_entropy(leaf, *args, **kwargs)
    (gradient,) = torch.autograd.grad(loss.sum(), leaf)
    return loss.detach(), gradient


@settings(deadline=None, max_examples=60)
@given(PROBLEMS, st.sampled_from([1.0, 30.0, 1e3]), st.sampled_from([torch.float32, torch.float64]))
def test_one_hot_targets_give_the_loss_of_the_label(problem, scale, dtype):
    rows, num_labels, seed, zeros = problem
    matrix = random_matrix(num_labels, seed, zeros)
    logits, labels, trusted = random_batch(rows, num_labels, seed, scale)
    logits = logits.to(dtype)
    for reduction in ("mean", "sum", "none"):
        expected = loss_and_gradient(logits, labels, matrix, trusted, reduction=reduction)
        soft = loss_and_gradient(logits, F.one_hot(labels, num_labels).float(), matrix, trusted, reduction=reduction)
        for found, wanted in zip(soft, expected, strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)


@settings(deadline=None, max_examples=60)
@given(PROBLEMS, st.sampled_from([1.0, 100.0]))
def test_the_loss_is_the_mean_of_the_losses_of_all_labels(problem, scale):
    rows, num_labels, seed, zeros = problem
    matrix = random_matrix(num_labels, seed, zeros)
    logits, _, trusted = random_batch(rows, num_labels, seed, scale)
    targets = random_targets(rows, num_labels, seed)
    loss, gradient = loss_and_gradient(logits, targets, matrix, trusted, reduction="none")
    expected, expected_gradient = torch.zeros_like(loss), torch.zeros_like(gradient)
    for label in range(num_labels):
        of_label = loss_and_gradient(logits, torch.full((rows,), label), matrix, trusted, reduction="none")
        expected += targets[:, label] * of_label[0]
        expected_gradient += targets[:, label, None] * of_label[1]
    torch.testing.assert_close(loss, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-9, atol=1e-9)


def test_derivatives_match_finite_differences():
    matrix = CorruptionMatrix([[0.6, 0.4, 0.0], [0.2, 0.8, 0.0], [0.3, 0.7, 0.0]])  # no class gives label 2
    logits, _, trusted = random_batch(8, 3, seed=0)
    targets = random_targets(8, 3, seed=0)
    targets[0] = 0
    leaf = logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: corrected_cross_entropy(x, targets, matrix, trusted), leaf)
    shifted = (logits.detach() * 400).requires_grad_()
    flip = torch.eye(3, dtype=torch.float64)[[0, 1, 0]]
    assert torch.autograd.gradcheck(lambda x: corrected_cross_entropy(x, targets, flip, trusted), shifted)


def test_second_derivatives_raise():
    leaf = torch.randn(2, 3, requires_grad=True)
    loss = corrected_cross_entropy(leaf, torch.full((2, 3), 1 / 3), CorruptionMatrix.uniform(3, 0.5))
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(loss, leaf, create_graph=True)
    with pytest.raises(RuntimeError):
        torch.func.grad(
            lambda x: corrected_cross_entropy(x, torch.full((2, 3), 1 / 3), CorruptionMatrix.uniform(3, 0.5))
        )(leaf.detach())


@pytest.mark.parametrize("matrix", [CorruptionMatrix.identity(4), CorruptionMatrix.uniform(4, 0.5)])
def test_trusted_items_and_the_identity_have_the_plain_soft_cross_entropy(matrix):
    logits, _, _ = random_batch(10, 4, seed=0)
    targets, trusted = random_targets(10, 4, seed=0), torch.ones(10, dtype=torch.bool)
    expected = label_batch(targets).cross_entropy(logits.double())
    loss = corrected_cross_entropy(logits, targets, matrix, trusted, reduction="none")
    torch.testing.assert_close(loss, expected.double(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("matrix", [CorruptionMatrix.identity(3), CorruptionMatrix.uniform(3, 0.5)])
def test_rows_of_zeros_have_no_loss_no_gradient_and_no_weight_in_the_mean(matrix):
    logits = torch.randn(4, 3)
    targets = torch.tensor([[0.2, 0.8, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    logits[1] = torch.nan
    loss, gradient = loss_and_gradient(logits, targets, matrix)
    kept, kept_gradient = loss_and_gradient(logits[[0, 2]], targets[[0, 2]], matrix)
    torch.testing.assert_close(loss, kept)
    torch.testing.assert_close(gradient[[0, 2]], kept_gradient)
    assert (gradient[[1, 3]] == 0).all()
    assert corrected_cross_entropy(logits[1:2], targets[1:2], matrix) == 0


def test_impossible_labels_have_a_constant_share_of_the_loss():
    matrix = torch.tensor([[0.5, 0.5, 0.0], [0.3, 0.7, 0.0], [1.0, 0.0, 0.0]])
    logits = torch.tensor([[1.0, 2.0, 3.0]])
    loss, gradient = loss_and_gradient(logits, torch.tensor([[0.0, 0.25, 0.75]]), matrix)
    label, label_gradient = loss_and_gradient(logits, torch.tensor([1]), matrix)
    torch.testing.assert_close(loss, 0.25 * label + 0.75 * IMPOSSIBLE_LABEL_LOSS)
    torch.testing.assert_close(gradient, 0.25 * label_gradient)


def test_zero_entries_and_extreme_logits_are_exact():
    matrix = torch.tensor([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    logits = torch.tensor([[0.0, 600.0, 0.0]])  # only class 0, of probability e^-600, gives label 0
    loss = corrected_cross_entropy(logits, torch.tensor([[0.5, 0.5, 0.0]]), matrix)
    assert loss.item() == pytest.approx(0.5 * (600 + math.log(2)), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32_also_under_autocast(dtype):
    matrix = CorruptionMatrix.uniform(20, 0.3)
    logits, _, trusted = random_batch(16, 20, seed=6)
    targets = random_targets(16, 20, seed=6).float()
    half = logits.to(dtype)
    expected, expected_gradient = loss_and_gradient(half.float(), targets, matrix, trusted)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, gradient = loss_and_gradient(half, targets, matrix, trusted)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, expected)
    torch.testing.assert_close(gradient, expected_gradient.to(dtype))


def test_flags_can_be_per_token_or_per_row():
    matrix = CorruptionMatrix.flip(5, 0.3)
    logits, _, _ = random_batch(24, 5, seed=8)
    targets = random_targets(24, 5, seed=8)
    rows = torch.tensor([True, False, False, True])
    tokens = rows.repeat_interleave(6)
    flat = corrected_cross_entropy(logits, targets, matrix, tokens, reduction="none")
    for flag in (rows, tokens.reshape(4, 6)):
        loss = corrected_cross_entropy(
            logits.reshape(4, 6, 5), targets.reshape(4, 6, 5), matrix, flag, reduction="none"
        )
        assert torch.equal(loss, flat.reshape(4, 6))


def test_memory_is_a_few_times_the_logits():
    """B×K×K would take 1 GB here; the logits take half a megabyte."""
    rows, num_labels = 64, 2000
    matrix = torch.full((num_labels, num_labels), 1 / num_labels)
    logits = torch.randn(rows, num_labels, requires_grad=True)
    targets = torch.full((rows, num_labels), 1 / num_labels)
    targets[:, 3:] = 0
    sparse = torch.eye(num_labels)  # almost every entry is far below the range of float32
    sparse[0, :2] = 0.5
    trusted = torch.arange(rows) % 3 == 0
    for x, used in ((logits, matrix), ((logits.detach() * 1e4).requires_grad_(), sparse)):
        corrected_cross_entropy(x, targets, used, trusted)  # prepares the matrix
        with torch.profiler.profile(profile_memory=True) as profile:
            corrected_cross_entropy(x, targets, used, trusted).backward()
        largest = max(event.self_cpu_memory_usage for event in profile.events())
        assert 0 < largest <= 2 * logits.nbytes


@pytest.mark.parametrize("bad", [-0.1, math.nan, math.inf])
def test_targets_that_are_no_probabilities_raise_and_name_the_item(bad):
    targets = torch.full((3, 2), 0.5)
    targets[1, 0] = bad
    with pytest.raises(ValueError, match="the soft target of item 1"):
        corrected_cross_entropy(torch.zeros(3, 2), targets, CorruptionMatrix.uniform(2, 0.5))


def test_floats_of_another_shape_raise():
    with pytest.raises(TypeError, match=r"floats of the shape of the logits, \(3, 2\)"):
        corrected_cross_entropy(torch.zeros(3, 2), torch.zeros(3, 4), CorruptionMatrix.uniform(2, 0.5))
