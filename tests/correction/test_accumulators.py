# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from glc_hf.correction.accumulators import ConfusionAccumulator, GoldAccumulator

from .problems import random_batch, random_probabilities


ACCUMULATORS = [GoldAccumulator, ConfusionAccumulator]


def brute_force(accumulator_class, probs, labels, smoothing=0.01):
    """The definition, class by class."""
    num_labels = probs.shape[1]
    matrix = torch.zeros(num_labels, num_labels, dtype=torch.float64)
    for k in range(num_labels):
        of_class = probs[labels == k]
        if len(of_class) == 0:
            continue
        if accumulator_class is GoldAccumulator:
            matrix[k] = of_class.mean(dim=0)
        else:
            choices = of_class.argmax(dim=1).tolist()
            shares = torch.tensor([choices.count(j) / len(choices) for j in range(num_labels)], dtype=torch.float64)
            matrix[k] = (1 - smoothing) * shares + smoothing / num_labels
    return matrix


def accumulate(accumulator_class, probs, labels, batch_size, **kwargs):
    accumulator = accumulator_class(probs.shape[1], **kwargs)
    for start in range(0, len(probs), batch_size):
        accumulator.update(probs[start : start + batch_size], labels[start : start + batch_size])
    return accumulator


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(ACCUMULATORS), st.integers(1, 60), st.integers(1, 8), st.integers(0, 1000), st.integers(1, 70))
def test_equals_the_definition_for_any_batch_size(accumulator_class, rows, num_labels, seed, batch_size):
    probs, labels = random_probabilities(rows, num_labels, seed)
    matrix, counts = accumulate(accumulator_class, probs, labels, batch_size).compute()
    torch.testing.assert_close(matrix, brute_force(accumulator_class, probs, labels), rtol=0, atol=1e-12)
    assert counts.tolist() == [int((labels == k).sum()) for k in range(num_labels)]


@pytest.mark.parametrize("accumulator_class", ACCUMULATORS)
def test_a_batch_makes_no_tensor_as_large_as_the_matrix(accumulator_class):
    class NewTensors(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor) and result.data_ptr() != accumulator.sums[0].data_ptr():
                sizes.append(result.numel())
            return result

    sizes, accumulator = [], accumulator_class(100)
    probs, labels = random_probabilities(5, 100, seed=0)
    with NewTensors():
        accumulator.update(probs, labels)
    assert accumulator.sums[0].sum() == pytest.approx(5)
    assert max(sizes) == probs.numel()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
@pytest.mark.parametrize("accumulator_class", ACCUMULATORS)
def test_shards_summed_over_processes_equal_the_whole(accumulator_class, dtype, tolerance):
    probs, labels = random_probabilities(101, 6, seed=0)
    whole, counts = accumulate(accumulator_class, probs, labels, 20).compute()
    shards = [accumulate(accumulator_class, probs[i::3], labels[i::3], 7) for i in range(3)]
    totals = iter([sum(sums) for sums in zip(*(shard.sums for shard in shards), strict=True)])
    reduced, reduced_counts = shards[1].all_reduce(lambda mine: next(totals).to(dtype).double()).compute()
    torch.testing.assert_close(reduced, whole, rtol=0, atol=tolerance)
    assert torch.equal(reduced_counts, counts)


@pytest.mark.parametrize("accumulator_class", ACCUMULATORS)
def test_permuting_classes_permutes_the_estimate(accumulator_class):
    probs, labels = random_probabilities(80, 5, seed=1)
    order = torch.tensor([3, 0, 4, 1, 2])
    matrix, _ = accumulate(accumulator_class, probs, labels, 80).compute()
    permuted, _ = accumulate(accumulator_class, probs[:, order], torch.argsort(order)[labels], 80).compute()
    torch.testing.assert_close(permuted, matrix[order][:, order], rtol=0, atol=1e-12)


@pytest.mark.parametrize("accumulator_class", ACCUMULATORS)
def test_ignored_tokens_and_unseen_classes_have_no_effect(accumulator_class):
    probs, labels = random_probabilities(24, 5, seed=2)
    labels[labels == 3] = -100
    tokens = accumulator_class(5)
    with_nan = probs.clone()
    with_nan[labels == -100] = float("nan")
    tokens.update(with_nan.reshape(4, 6, 5), labels.reshape(4, 6))
    matrix, counts = tokens.compute()
    torch.testing.assert_close(matrix, brute_force(accumulator_class, probs, labels), rtol=0, atol=1e-12)
    assert counts[3] == 0
    assert (matrix[3] == 0).all()


def test_float32_probabilities_are_summed_in_float64():
    probs = torch.tensor([[0.9, 0.1]]).repeat(300_000, 1)
    labels = torch.zeros(len(probs), dtype=torch.int64)
    accumulator = GoldAccumulator(2)
    accumulator.update(probs, labels)
    assert accumulator.sums[0].dtype == torch.float64
    assert accumulator.compute()[0][0, 0].item() == pytest.approx(float(probs[0, 0].double()), abs=1e-7)


@pytest.mark.parametrize("accumulator_class", ACCUMULATORS)
@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_update_logits_divides_by_the_temperature(accumulator_class, temperature):
    logits, labels, _ = random_batch(40, 4, seed=3)
    accumulator = accumulator_class(4)
    accumulator.update_logits(logits.float(), labels, temperature)
    probs = torch.softmax(logits.float().double() / temperature, dim=1)
    torch.testing.assert_close(
        accumulator.compute()[0], brute_force(accumulator_class, probs, labels), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("accumulator_class", ACCUMULATORS)
def test_errors_name_the_row_counted_over_all_batches(accumulator_class):
    accumulator = accumulator_class(3)
    good = torch.full((4, 3), 1 / 3)
    accumulator.update(good, torch.tensor([0, 1, 2, 0]))
    for bad in ([1.0, float("nan"), 0.0], [2.0, 0.5, 0.1], [1.2, -0.2, 0.0]):
        batch = good.clone()
        batch[2] = torch.tensor(bad)
        with pytest.raises(ValueError, match=r"row 6 .* softmax\(logits\)"):
            accumulator.update(batch, torch.tensor([0, -100, 1, 2]))
    with pytest.raises(ValueError, match="label of row 5 is 3"):
        accumulator.update(good, torch.tensor([0, 3, 1, 2]))
    with pytest.raises(ValueError, match="expected 3 classes"):
        accumulator.update(torch.full((4, 4), 1 / 4), torch.tensor([0, 1, 1, 2]))
    assert accumulator.compute()[1].tolist() == [2, 1, 1]


def test_smoothing_outside_0_to_1_raises():
    with pytest.raises(ValueError, match=r"1\.5"):
        ConfusionAccumulator(3, smoothing=1.5)
