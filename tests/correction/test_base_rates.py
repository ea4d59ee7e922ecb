# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from glc_hf.correction import calibration as base_rates
from glc_hf.correction.calibration import match_base_rates, project_to_simplex

from .problems import random_matrix


def shares(num_labels: int, seed: int) -> torch.Tensor:
    return torch.softmax(torch.randn(num_labels, generator=torch.Generator().manual_seed(seed)).double(), dim=0)


@pytest.mark.parametrize("weight", [0.01, 0.2, 3.0])
def test_before_the_projection_it_is_the_constrained_optimum(weight, monkeypatch):
    num_labels = 3
    first, b, b_tilde = random_matrix(num_labels, 0), shares(num_labels, 1), shares(num_labels, 2)
    monkeypatch.setattr(base_rates, "project_to_simplex", lambda rows: rows)
    closed = match_base_rates(first, b, b_tilde, weight).numpy()

    def objective(flat):
        matrix = flat.reshape(num_labels, num_labels)
        mismatch = b.numpy() @ matrix - b_tilde.numpy()
        return mismatch @ mismatch + weight * np.sum((matrix - first.numpy()) ** 2)

    rows_sum_to_one = {"type": "eq", "fun": lambda flat: flat.reshape(num_labels, num_labels).sum(axis=1) - 1}
    start = np.full(num_labels**2, 1 / num_labels)
    best = minimize(objective, start, constraints=rows_sum_to_one, method="SLSQP", options={"ftol": 1e-15})
    np.testing.assert_allclose(closed.ravel(), best.x, atol=1e-5)
    np.testing.assert_allclose(closed.sum(axis=1), 1, atol=1e-12)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 12), st.integers(0, 10_000), st.sampled_from([None, 1e-6, 0.3]))
def test_afterwards_every_row_is_on_the_simplex(num_labels, seed, weight):
    matrix = match_base_rates(
        random_matrix(num_labels, seed, zeros=True), shares(num_labels, seed), shares(num_labels, seed + 1), weight
    )
    assert (matrix >= 0).all()
    torch.testing.assert_close(matrix.sum(dim=1), torch.ones(num_labels, dtype=torch.float64), rtol=0, atol=1e-12)


def test_entries_that_leave_the_simplex_are_projected_not_clipped():
    first = torch.tensor([[0.9, 0.1, 0.0], [0.0, 1.0, 0.0], [0.1, 0.1, 0.8]], dtype=torch.float64)
    b, b_tilde = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64), torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
    closed = first + torch.outer(b, b_tilde - b @ first) / (0.1 + b @ b)
    assert (closed < 0).any()
    matrix = match_base_rates(first, b, b_tilde, 0.1)
    torch.testing.assert_close(matrix, project_to_simplex(closed), rtol=0, atol=1e-12)
    clipped = closed.clamp(min=0)
    assert (matrix - clipped / clipped.sum(dim=1, keepdim=True)).abs().max() > 1e-3


def test_the_default_weight_halves_the_mismatch_for_any_number_of_classes():
    for num_labels in (2, 10, 200):
        (
            first,
            b,
        ) = 0.5 * torch.eye(num_labels).double() + 0.5 / num_labels, torch.full((num_labels,), 1 / num_labels)
        b_tilde = b.double() * (1 + 0.1 * torch.linspace(-1, 1, num_labels).double())
        matrix = match_base_rates(first, b, b_tilde)
        before, after = b_tilde - b.double() @ first, b_tilde - b.double() @ matrix
        torch.testing.assert_close(after, before / 2, rtol=1e-6, atol=1e-9)


def test_agreeing_base_rates_change_nothing():
    first, b = random_matrix(5, 3), shares(5, 4)
    torch.testing.assert_close(match_base_rates(first, b, b @ first, 0.1), first, rtol=0, atol=1e-14)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.floats(-3, 3), min_size=1, max_size=6))
def test_the_projection_is_the_nearest_distribution(row):
    projected = project_to_simplex(torch.tensor([row], dtype=torch.float64))[0].numpy()
    assert (projected >= 0).all()
    assert projected.sum() == pytest.approx(1, abs=1e-12)
    # p is the nearest point of the convex set iff no vertex e lies on the far side: (row - p)·(e - p) <= 0.
    away = np.array(row) - projected
    assert (away - away @ projected).max() <= 1e-9


def test_numpy_input_counts_and_wrong_shapes():
    first = random_matrix(3, 0).numpy()
    first.flags.writeable = False
    rates = np.array([0.2, 0.3, 0.5])
    assert torch.equal(match_base_rates(first, rates, rates[::-1]), match_base_rates(first, list(rates), rates[::-1]))
    with pytest.raises(ValueError, match=r"noisy base rates .* counts / counts\.sum\(\)"):
        match_base_rates(first, rates, np.array([20, 30, 50]))
    with pytest.raises(ValueError, match="true base rates"):
        match_base_rates(first, np.array([1.5, -0.5, 0.0]), rates)
    with pytest.raises(ValueError, match=r"\(2,\); there are 3 classes"):
        match_base_rates(first, rates[:2], rates)
    for weight in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="positive"):
            match_base_rates(first, rates, rates, weight)
