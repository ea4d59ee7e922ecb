# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""All kinds of differentiation give the same derivatives of the corrected loss."""

from __future__ import annotations

import pytest
import torch
import torch._dynamo.testing

from glc_hf.correction import loss as loss_module
from glc_hf.correction.likelihood import item_losses, transposed
from glc_hf.correction.loss import corrected_cross_entropy
from glc_hf.matrix import CorruptionMatrix

from .problems import random_batch, random_matrix


MATRIX = CorruptionMatrix(
    [[0.6, 0.4, 0.0, 0.0], [0.2, 0.5, 0.3, 0.0], [0.0, 0.0, 1.0, 0.0], [0.3, 0.3, 0.4, 0.0]]
)  # no class gives label 3: its column is zero


@pytest.fixture
def problem():
    logits, labels, trusted = random_batch(9, 4, seed=0, scale=2.0)
    labels[:4] = torch.tensor([0, 1, 3, -100])
    trusted[:4] = False
    return logits, labels, trusted


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_first_and_second_derivatives_match_finite_differences(problem, reduction):
    logits, labels, trusted = problem

    def loss(x):
        return corrected_cross_entropy(x, labels, MATRIX, trusted, reduction=reduction)

    leaf = logits.requires_grad_()
    assert torch.autograd.gradcheck(loss, leaf, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(loss, leaf)


def test_derivatives_match_finite_differences_for_token_shapes():
    logits, labels, _ = random_batch(6, 4, seed=1)
    labels[labels == 3] = 0

    def loss(x):
        return corrected_cross_entropy(x, labels.reshape(2, 3), MATRIX, torch.tensor([True, False]))

    leaf = logits.reshape(2, 3, 4).requires_grad_()
    assert torch.autograd.gradcheck(loss, leaf)
    assert torch.autograd.gradgradcheck(loss, leaf)


def test_derivatives_match_finite_differences_in_log_space():
    # Only class 1, 800 nats away, gives label 1: its probability is zero even in float64.
    matrix = torch.eye(3, dtype=torch.float64)[[0, 1, 0]]
    logits = torch.tensor([[800.0, 0.0, 799.0]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: corrected_cross_entropy(x, torch.tensor([1]), matrix), logits)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_torch_func_agrees_with_backward(problem, reduction):
    logits, labels, trusted = problem

    def loss(x):
        return corrected_cross_entropy(x, labels, MATRIX, trusted, reduction=reduction)

    leaf = logits.clone().requires_grad_()
    value = loss(leaf)
    (gradient,) = torch.autograd.grad(value, leaf)
    direction = torch.randn_like(logits)
    by_func, value_by_func = torch.func.grad_and_value(loss)(logits)
    by_jvp, slope = torch.func.jvp(loss, (logits,), (direction,))
    torch.testing.assert_close(by_func, gradient)
    torch.testing.assert_close(value_by_func, value.detach())
    torch.testing.assert_close(by_jvp, value.detach())
    torch.testing.assert_close(slope, (gradient * direction).sum())


def test_forward_mode_agrees_with_backward(problem):
    logits, labels, trusted = problem
    leaf = logits.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(corrected_cross_entropy(leaf, labels, MATRIX, trusted), leaf)
    direction = torch.randn_like(logits)
    for x in (logits, leaf):
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, direction)
            loss = corrected_cross_entropy(dual, labels, MATRIX, trusted)
            slope = torch.autograd.forward_ad.unpack_dual(loss).tangent
        torch.testing.assert_close(slope, (gradient * direction).sum())


def test_vmap_gives_per_item_gradients(problem):
    logits, labels, trusted = problem

    def loss(x, label, flag):
        return corrected_cross_entropy(x, label, MATRIX, flag)

    leaf = logits.clone().requires_grad_()
    (expected,) = torch.autograd.grad(corrected_cross_entropy(leaf, labels, MATRIX, trusted, reduction="sum"), leaf)
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(loss))(logits, labels, trusted), expected)


def test_vmap_over_the_flag_only(problem):
    logits, labels, trusted = problem
    flags = torch.stack([trusted, ~trusted])
    by_vmap = torch.func.vmap(lambda flag: corrected_cross_entropy(logits, labels, MATRIX, flag))(flags)
    one_by_one = torch.stack([corrected_cross_entropy(logits, labels, MATRIX, flag) for flag in flags])
    torch.testing.assert_close(by_vmap, one_by_one)


def test_matrix_first_used_inside_a_transform_works_afterwards(problem):
    logits, labels, _ = problem
    matrix = random_matrix(4, seed=3)
    inside = torch.func.grad(lambda x: corrected_cross_entropy(x, labels, matrix))(logits)
    leaf = logits.clone().requires_grad_()
    (after,) = torch.autograd.grad(corrected_cross_entropy(leaf, labels, matrix), leaf)
    torch.testing.assert_close(after, inside)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_torch_compile_gives_the_same_loss_and_gradient(problem, backend):
    _, labels, trusted = problem
    features = torch.randn(9, 6, dtype=torch.float64)
    weight = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)

    def step(x):
        return 2 * corrected_cross_entropy(torch.tanh(x) @ weight.T, labels, MATRIX, trusted)

    torch._dynamo.reset()
    expected = step(features)
    (expected_gradient,) = torch.autograd.grad(expected, weight)
    loss = torch.compile(step, backend=backend)(features)
    (gradient,) = torch.autograd.grad(loss, weight)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradient, expected_gradient)


def test_torch_compile_breaks_the_graph_once_and_does_not_recompile():
    counter = torch._dynamo.testing.CompileCounter()
    torch._dynamo.reset()
    step = torch.compile(
        lambda x, labels, matrix, flag: 2 * corrected_cross_entropy(torch.tanh(x), labels, matrix, flag),
        backend=counter,
    )
    for seed in range(3):
        logits, labels, trusted = random_batch(9, 4, seed)
        step(logits, labels, CorruptionMatrix.uniform(4, 0.2 + 0.1 * seed), trusted)
        assert counter.frame_count == 2  # before and after the loss


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_gradient_with_create_graph_is_the_same(problem, reduction):
    logits, labels, trusted = problem
    leaf = logits.clone().requires_grad_()
    loss = corrected_cross_entropy(leaf, labels, MATRIX, trusted, reduction=reduction).sum()
    (gradient,) = torch.autograd.grad(loss, leaf, retain_graph=True)
    (differentiable,) = torch.autograd.grad(loss, leaf, create_graph=True)
    assert differentiable.requires_grad
    torch.testing.assert_close(differentiable.detach(), gradient)


def test_backward_can_run_twice(problem):
    logits, labels, trusted = problem
    leaf = logits.clone().requires_grad_()
    loss = corrected_cross_entropy(leaf, labels, MATRIX, trusted)
    loss.backward(retain_graph=True)
    once = leaf.grad.clone()
    loss.backward()
    assert torch.equal(leaf.grad, 2 * once)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_backward_changes_no_gradient_that_it_has_returned(problem, reduction):
    logits, labels, trusted = problem
    leaf = logits.clone().requires_grad_()
    loss = corrected_cross_entropy(leaf, labels, MATRIX, trusted, reduction=reduction).sum()
    (first,) = torch.autograd.grad(loss, leaf, torch.tensor(3.0), retain_graph=True)
    kept = first.clone()
    (second,) = torch.autograd.grad(loss, leaf, retain_graph=True)
    (third,) = torch.autograd.grad(loss, leaf)
    assert torch.equal(first, kept)
    torch.testing.assert_close(first, 3 * second)
    assert torch.equal(second, third)


def test_loss_first_used_in_inference_mode_can_be_differentiated_twice_afterwards(problem):
    logits, labels, trusted = problem
    loss_module._inverse.cache_clear()
    with torch.inference_mode():
        without = corrected_cross_entropy(logits, labels, MATRIX, trusted)
    leaf = logits.clone().requires_grad_()
    loss = corrected_cross_entropy(leaf, labels, MATRIX, trusted)
    assert torch.equal(loss.detach(), without)
    (gradient,) = torch.autograd.grad(loss.square(), leaf, create_graph=True)
    gradient.square().sum().backward()
    assert leaf.grad.isfinite().all()


def test_gradient_is_computed_only_if_needed(problem, monkeypatch):
    logits, labels, trusted = problem
    requested = []

    def spy(x, labels, trusted, matrix, with_gradient, weight):
        requested.append(with_gradient)
        return item_losses(x, labels, trusted, matrix, with_gradient, weight)

    monkeypatch.setattr(loss_module, "item_losses", spy)
    leaf = logits.clone().requires_grad_()
    with torch.no_grad():
        without = corrected_cross_entropy(leaf, labels, MATRIX, trusted)
    plain = corrected_cross_entropy(logits, labels, MATRIX, trusted)
    corrected_cross_entropy(leaf, labels, MATRIX, trusted)
    assert requested == [False, False, True]
    assert not without.requires_grad
    assert torch.equal(without, plain)


def test_log_space_on_other_devices_gives_the_same_numbers(problem):
    logits, labels, trusted = problem
    labels = labels.clamp(min=0)
    matrix = transposed(MATRIX, 4, torch.float64, logits.device)
    losses, gradient = item_losses(logits, labels, trusted, matrix, with_gradient=True)

    class OtherDevice(torch.Tensor):
        @property
        def device(self):
            return torch.device("meta")

    on_other_device = logits.as_subclass(OtherDevice)
    other_losses, other_gradient = item_losses(on_other_device, labels, trusted, matrix, with_gradient=True)
    torch.testing.assert_close(other_losses.as_subclass(torch.Tensor), losses)
    torch.testing.assert_close(other_gradient.as_subclass(torch.Tensor), gradient)
