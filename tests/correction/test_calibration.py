# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar

from glc_hf.correction import calibration
from glc_hf.correction.calibration import (
    TemperatureAccumulator,
    apply_temperature,
    fit_temperature,
    match_base_rates,
    project_to_simplex,
)

from .problems import random_batch, random_matrix


# ---------------------------------------------------------------------------------------------- temperature
def calibrated_problem(rows: int, num_labels: int, temperature: float, seed: int):
    """Logits that are `temperature` times too confident for their labels."""
    logits, _, _ = random_batch(rows, num_labels, seed, scale=1.5)
    generator = torch.Generator().manual_seed(seed)
    labels = torch.multinomial(torch.softmax(logits, dim=1), 1, generator=generator).squeeze(1)
    return logits * temperature, labels


@pytest.mark.parametrize("num_labels", [2, 10, 50])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_temperature_is_the_minimum_of_a_numeric_search(num_labels, temperature, dtype):
    logits, labels = calibrated_problem(3000, num_labels, temperature, seed=num_labels)
    best = minimize_scalar(
        lambda log_t: F.cross_entropy(logits / 2.718281828**log_t, labels).item(), bounds=(-3, 3), method="bounded"
    )
    fitted = fit_temperature(logits.to(dtype), labels)
    assert fitted == pytest.approx(2.718281828**best.x, rel=0.01)
    assert fitted == pytest.approx(temperature, rel=0.15)  # the temperature that the labels were drawn with


def test_batches_shards_and_ignored_tokens_do_not_change_the_temperature():
    logits, labels = calibrated_problem(600, 7, 2.0, seed=0)
    labels[::5] = -100
    whole = fit_temperature(logits, labels)
    shards = [TemperatureAccumulator(), TemperatureAccumulator()]
    for number, ids in enumerate(torch.arange(600).split(36)):
        batch, batch_labels = logits[ids].clone(), labels[ids]
        batch[batch_labels == -100] = float("nan")
        if len(ids) == 36:
            batch, batch_labels = batch.reshape(4, 9, 7), batch_labels.reshape(4, 9)
        shards[number % 2].update(batch, batch_labels)
    totals = iter([sum(sums) for sums in zip(*(shard.sums for shard in shards), strict=True)])
    assert shards[0].all_reduce(lambda mine: next(totals)).compute() == pytest.approx(whole, rel=1e-9)
    assert fit_temperature(logits[labels != -100], labels[labels != -100]) == pytest.approx(whole, rel=1e-9)


def test_state_size_depends_neither_on_rows_nor_on_classes():
    small, large = TemperatureAccumulator(), TemperatureAccumulator()
    small.update(torch.zeros(1, 2), torch.zeros(1, dtype=torch.int64))
    large.update(torch.zeros(500, 300), torch.zeros(500, dtype=torch.int64))
    assert [s.shape for s in small.sums] == [s.shape for s in large.sums]


def test_temperature_at_the_end_of_the_range_warns():
    logits = torch.eye(4).repeat(5, 1)
    with pytest.warns(UserWarning, match="0.05"):
        assert fit_temperature(logits, torch.arange(4).repeat(5)) == 0.05
    with pytest.warns(UserWarning, match="20"):
        assert fit_temperature(10 * logits, (torch.arange(20) * 7 + 1) % 4) == 20.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_temperature(*calibrated_problem(100, 3, 1.0, seed=1))


def test_very_large_logits_give_finite_sums():
    logits = torch.tensor([[1e4, -1e4], [1e4, 0.0], [0.0, 1e4]])
    accumulator = TemperatureAccumulator()
    accumulator.update(logits, torch.tensor([0, 1, 1]))
    assert accumulator.sums[0].isfinite().all()


def test_temperature_on_probabilities_equals_temperature_on_logits():
    logits, _, _ = random_batch(20, 6, seed=4, scale=5.0)
    for temperature in (0.05, 0.7, 3.0):
        expected = torch.softmax(logits / temperature, dim=1)
        torch.testing.assert_close(apply_temperature(torch.softmax(logits, dim=1), temperature), expected)
    exact = torch.tensor([[1.0, 0.0]])
    assert torch.equal(apply_temperature(exact, 5.0), exact)


def test_temperature_errors_name_the_cause():
    with pytest.raises(ValueError, match="no row with a label"):
        fit_temperature(torch.zeros(2, 3), torch.tensor([-100, -100]))
    with pytest.raises(ValueError, match="row 1"):
        fit_temperature(torch.tensor([[0.0, 1.0], [0.0, float("inf")]]), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="label of row 1 is 5"):
        fit_temperature(torch.zeros(2, 3), torch.tensor([0, 5]))
    with pytest.raises(ValueError, match=r"labels of shape \(2,\)"):
        fit_temperature(torch.zeros(2, 3), torch.tensor([0]))
    for temperature in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="temperature"):
            apply_temperature(torch.ones(1, 1), temperature)


# ---------------------------------------------------------------------------------------------- base rates
def shares(num_labels: int, seed: int) -> torch.Tensor:
    return torch.softmax(torch.randn(num_labels, generator=torch.Generator().manual_seed(seed)).double(), dim=0)


@pytest.mark.parametrize("weight", [0.01, 0.2, 3.0])
def test_closed_form_before_projection_is_the_constrained_optimum(weight, monkeypatch):
    num_labels = 3
    first, b, b_tilde = random_matrix(num_labels, 0), shares(num_labels, 1), shares(num_labels, 2)
    monkeypatch.setattr(calibration, "project_to_simplex", lambda rows: rows)
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
def test_every_row_of_the_result_is_on_the_simplex(num_labels, seed, weight):
    matrix = match_base_rates(
        random_matrix(num_labels, seed, zeros=True), shares(num_labels, seed), shares(num_labels, seed + 1), weight
    )
    assert (matrix >= 0).all()
    torch.testing.assert_close(matrix.sum(dim=1), torch.ones(num_labels, dtype=torch.float64), rtol=0, atol=1e-12)


def test_entries_outside_the_simplex_are_projected_not_clipped():
    first = torch.tensor([[0.9, 0.1, 0.0], [0.0, 1.0, 0.0], [0.1, 0.1, 0.8]], dtype=torch.float64)
    b, b_tilde = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64), torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
    closed = first + torch.outer(b, b_tilde - b @ first) / (0.1 + b @ b)
    assert (closed < 0).any()
    matrix = match_base_rates(first, b, b_tilde, 0.1)
    torch.testing.assert_close(matrix, project_to_simplex(closed), rtol=0, atol=1e-12)
    clipped = closed.clamp(min=0)
    assert (matrix - clipped / clipped.sum(dim=1, keepdim=True)).abs().max() > 1e-3


def test_default_weight_halves_the_mismatch_for_any_number_of_classes():
    for num_labels in (2, 10, 200):
        first = 0.5 * torch.eye(num_labels).double() + 0.5 / num_labels
        b = torch.full((num_labels,), 1 / num_labels)
        b_tilde = b.double() * (1 + 0.1 * torch.linspace(-1, 1, num_labels).double())
        matrix = match_base_rates(first, b, b_tilde)
        before, after = b_tilde - b.double() @ first, b_tilde - b.double() @ matrix
        torch.testing.assert_close(after, before / 2, rtol=1e-6, atol=1e-9)


def test_consistent_base_rates_change_nothing():
    first, b = random_matrix(5, 3), shares(5, 4)
    torch.testing.assert_close(match_base_rates(first, b, b @ first, 0.1), first, rtol=0, atol=1e-14)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.floats(-3, 3), min_size=1, max_size=6))
def test_projection_is_the_nearest_distribution(row):
    projected = project_to_simplex(torch.tensor([row], dtype=torch.float64))[0].numpy()
    assert (projected >= 0).all()
    assert projected.sum() == pytest.approx(1, abs=1e-12)
    # p is the nearest point of a convex set iff (row - p)·(e - p) <= 0 for every vertex e.
    residual = np.array(row) - projected
    assert (residual - residual @ projected).max() <= 1e-9


def test_base_rates_accept_arrays_and_reject_counts_and_wrong_shapes():
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


def test_temperature_for_soft_labels_is_the_one_that_gives_them():
    logits = 3 * torch.randn(200, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    accumulator = TemperatureAccumulator()
    accumulator.update(logits, logits.argmax(dim=-1), (logits / 2.5).softmax(dim=-1))
    assert accumulator.compute() == pytest.approx(2.5, rel=0.02)
