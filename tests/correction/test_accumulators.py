# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glc_hf.correction.accumulators import ConfusionAccumulator, GoldAccumulator

from .problems import random_batch, random_probabilities


KINDS = [GoldAccumulator, ConfusionAccumulator]


def brute_force(kind, probs, labels, smoothing=0.01):
    """Class by class, from the definitions."""
    num_labels = probs.shape[1]
    matrix = torch.zeros(num_labels, num_labels, dtype=torch.float64)
    for k in range(num_labels):
        of_class = probs[labels == k]
        if len(of_class) == 0:
            continue
        if kind is GoldAccumulator:
            matrix[k] = of_class.mean(dim=0)
        else:
            choices = of_class.argmax(dim=1).tolist()
            shares = torch.tensor([choices.count(j) / len(choices) for j in range(num_labels)], dtype=torch.float64)
            matrix[k] = (1 - smoothing) * shares + smoothing / num_labels
    return matrix


def accumulated(kind, probs, labels, batch_size, **kwargs):
    accumulator = kind(probs.shape[1], **kwargs)
    for start in range(0, len(probs), batch_size):
        accumulator.update(probs[start : start + batch_size], labels[start : start + batch_size])
    return accumulator


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(KINDS), st.integers(1, 60), st.integers(1, 8), st.integers(0, 1000), st.integers(1, 70))
def test_equals_the_definition_for_any_batch_size(kind, rows, num_labels, seed, batch_size):
    probs, labels = random_probabilities(rows, num_labels, seed)
    matrix, counts = accumulated(kind, probs, labels, batch_size).compute()
    torch.testing.assert_close(matrix, brute_force(kind, probs, labels), rtol=0, atol=1e-12)
    assert counts.tolist() == [int((labels == k).sum()) for k in range(num_labels)]


@pytest.mark.parametrize("kind", KINDS)
def test_shards_together_equal_the_whole(kind):
    probs, labels = random_probabilities(101, 6, seed=0)
    whole, counts = accumulated(kind, probs, labels, 20).compute()
    shards = [accumulated(kind, probs[i::3], labels[i::3], 7) for i in range(3)]
    summed = [[sum(shard.sums[i] for shard in shards) for i in range(len(shards[0].sums))] for _ in shards]

    merged, merged_counts = shards[0].merge(shards[1]).merge(shards[2]).compute()
    torch.testing.assert_close(merged, whole, rtol=0, atol=1e-12)
    assert torch.equal(merged_counts, counts)

    of_all = iter(summed[0])
    reduced, reduced_counts = shards[1].all_reduce(lambda mine: next(of_all).float().double()).compute()
    torch.testing.assert_close(reduced, whole, rtol=0, atol=1e-6)
    assert torch.equal(reduced_counts, counts)


@pytest.mark.parametrize("kind", KINDS)
def test_renaming_the_classes_renames_the_estimate(kind):
    probs, labels = random_probabilities(80, 5, seed=1)
    order = torch.tensor([3, 0, 4, 1, 2])
    matrix, _ = accumulated(kind, probs, labels, 80).compute()
    renamed, _ = accumulated(kind, probs[:, order], torch.argsort(order)[labels], 80).compute()
    torch.testing.assert_close(renamed, matrix[order][:, order], rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_ignored_tokens_and_unseen_classes_leave_no_trace(kind):
    probs, labels = random_probabilities(24, 5, seed=2)
    labels[labels == 3] = -100
    tokens = kind(5)
    garbage = probs.clone()
    garbage[labels == -100] = float("nan")
    tokens.update(garbage.reshape(4, 6, 5), labels.reshape(4, 6))
    matrix, counts = tokens.compute()
    torch.testing.assert_close(matrix, brute_force(kind, probs, labels), rtol=0, atol=1e-12)
    assert counts[3] == 0
    assert (matrix[3] == 0).all()


def test_single_precision_probabilities_are_summed_in_double_precision():
    probs = torch.tensor([[0.9, 0.1]]).repeat(300_000, 1)
    labels = torch.zeros(len(probs), dtype=torch.int64)
    accumulator = GoldAccumulator(2)
    accumulator.update(probs, labels)
    assert accumulator.sums[0].dtype == torch.float64
    assert accumulator.compute()[0][0, 0].item() == pytest.approx(float(probs[0, 0].double()), abs=1e-7)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_logits_at_a_temperature(kind, temperature):
    logits, labels, _ = random_batch(40, 4, seed=3)
    accumulator = kind(4)
    accumulator.update_logits(logits.float(), labels, temperature)
    probs = torch.softmax(logits.float().double() / temperature, dim=1)
    torch.testing.assert_close(accumulator.compute()[0], brute_force(kind, probs, labels), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_bad_rows_are_named_by_their_place_in_all_batches(kind):
    accumulator = kind(3)
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


def test_accumulators_of_another_kind_or_size_do_not_merge():
    with pytest.raises(ValueError, match="GoldAccumulator"):
        GoldAccumulator(3).merge(ConfusionAccumulator(3))
    with pytest.raises(ValueError, match="number of classes"):
        GoldAccumulator(3).merge(GoldAccumulator(4))


def test_smoothing_outside_0_to_1_is_refused():
    with pytest.raises(ValueError, match=r"1\.5"):
        ConfusionAccumulator(3, smoothing=1.5)
