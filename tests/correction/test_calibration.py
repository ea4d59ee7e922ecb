# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import minimize_scalar

from glc_hf.correction.calibration import TemperatureAccumulator, apply_temperature, fit_temperature

from .problems import random_batch


def calibrated_problem(rows: int, num_labels: int, temperature: float, seed: int):
    """Logits that are `temperature` times too confident for their labels."""
    logits, _, _ = random_batch(rows, num_labels, seed, scale=1.5)
    generator = torch.Generator().manual_seed(seed)
    labels = torch.multinomial(torch.softmax(logits, dim=1), 1, generator=generator).squeeze(1)
    return logits * temperature, labels


@pytest.mark.parametrize("num_labels", [2, 10, 50])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_finds_the_minimum_that_a_search_finds(num_labels, temperature, dtype):
    logits, labels = calibrated_problem(3000, num_labels, temperature, seed=num_labels)
    best = minimize_scalar(
        lambda log_t: F.cross_entropy(logits / 2.718281828**log_t, labels).item(), bounds=(-3, 3), method="bounded"
    )
    found = fit_temperature(logits.to(dtype), labels)
    assert found == pytest.approx(2.718281828**best.x, rel=0.01)
    assert found == pytest.approx(temperature, rel=0.15)  # and the search finds what the labels were drawn with


def test_batches_shards_and_ignored_tokens_do_not_change_it():
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
    assert shards[0].merge(shards[1]).compute() == pytest.approx(whole, rel=1e-9)
    assert fit_temperature(logits[labels != -100], labels[labels != -100]) == pytest.approx(whole, rel=1e-9)


def test_what_is_kept_depends_neither_on_rows_nor_on_classes():
    small, large = TemperatureAccumulator(), TemperatureAccumulator()
    small.update(torch.zeros(1, 2), torch.zeros(1, dtype=torch.int64))
    large.update(torch.zeros(500, 300), torch.zeros(500, dtype=torch.int64))
    assert [s.shape for s in small.sums] == [s.shape for s in large.sums]


def test_the_ends_of_the_range_come_with_a_warning():
    logits = torch.eye(4).repeat(5, 1)
    with pytest.warns(UserWarning, match="0.05"):
        assert fit_temperature(logits, torch.arange(4).repeat(5)) == 0.05
    with pytest.warns(UserWarning, match="20"):
        assert fit_temperature(10 * logits, (torch.arange(20) * 7 + 1) % 4) == 20.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_temperature(*calibrated_problem(100, 3, 1.0, seed=1))


def test_very_large_logits_stay_finite():
    logits = torch.tensor([[1e4, -1e4], [1e4, 0.0], [0.0, 1e4]])
    accumulator = TemperatureAccumulator()
    accumulator.update(logits, torch.tensor([0, 1, 1]))
    assert accumulator.sums[0].isfinite().all()


def test_a_temperature_on_probabilities_is_that_on_logits():
    logits, _, _ = random_batch(20, 6, seed=4, scale=5.0)
    for temperature in (0.05, 0.7, 3.0):
        expected = torch.softmax(logits / temperature, dim=1)
        torch.testing.assert_close(apply_temperature(torch.softmax(logits, dim=1), temperature), expected)
    exact = torch.tensor([[1.0, 0.0]])
    assert torch.equal(apply_temperature(exact, 5.0), exact)


def test_errors_name_what_is_wrong():
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
