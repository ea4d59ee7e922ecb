# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glc_hf.correction.estimators import AnchorFinder

from .problems import random_probabilities


def authors_rule(probs: np.ndarray, percentile: float) -> list[int]:
    """Column by column, on all probabilities at once."""
    anchors = []
    for k in range(probs.shape[1]):
        column = probs[:, k].copy()
        if percentile != 100:
            column[column >= np.percentile(column, percentile, method="higher")] = 0.0
        anchors.append(int(np.argmax(column)))
    return anchors


def random_rows(rows: int, num_labels: int, seed: int, rounded: bool) -> torch.Tensor:
    """With `rounded`, rows of few distinct values, zeros and ones among them: many ties."""
    probs, _ = random_probabilities(rows, num_labels, seed, scale=4.0)
    if rounded:
        probs = torch.round(probs * 4) / 4
        probs[:, 0] += 1 - probs.sum(dim=1)
        bad = (probs < 0).any(dim=1)
        probs[bad] = torch.eye(num_labels, dtype=probs.dtype)[0]
    return probs


@settings(deadline=None, max_examples=120)
@given(
    st.integers(1, 150),
    st.integers(1, 6),
    st.integers(0, 10_000),
    st.booleans(),
    st.sampled_from([97.0, 90.0, 50.0, 99.9, 1.0, 100.0, 100.0 / 3]),
    st.integers(1, 40),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_streaming_finds_what_the_authors_rule_finds(rows, num_labels, seed, rounded, percentile, batch_size, dtype):
    probs = random_rows(rows, num_labels, seed, rounded).to(dtype)
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    finders = [AnchorFinder(num_labels, rows, percentile) for _ in range(2)]
    for number, ids in enumerate(order.split(batch_size)):
        finder = finders[number % 2]
        finder.update(probs[ids], ids)
        if seed % 2:
            finder._compact()  # otherwise only after a thousand rows
    merged = finders[0].merge(pickle.loads(pickle.dumps(finders[1])))
    assert merged.anchors().tolist() == authors_rule(probs.numpy(), percentile)


def test_long_streams_keep_a_small_share_of_the_rows():
    rows, num_labels = 20_000, 5
    probs = random_rows(rows, num_labels, seed=0, rounded=False).float()
    finder = AnchorFinder(num_labels, rows)
    most = 0
    for ids in torch.arange(rows).split(512):
        finder.update(probs[ids], ids)
        most = max(most, finder._values.shape[1] + sum(len(ids) for _, ids in finder._pending))
    assert most <= 0.03 * rows + 2 + 1024
    assert finder.anchors().tolist() == authors_rule(probs.numpy(), 97.0)


def test_a_saturated_column_falls_back_to_the_best_value_below_the_ties():
    probs = torch.tensor([[1.0, 0.0]] * 60 + [[0.7, 0.3], [0.8, 0.2], [0.8, 0.2]] + [[0.1, 0.9]] * 37)
    finder = AnchorFinder(2, 100)
    for ids in torch.arange(100).split(9):
        finder.update(probs[ids], ids)
        finder._compact()
    assert finder.anchors().tolist() == [61, 60]
    assert authors_rule(probs.numpy(), 97.0) == [61, 60]


@pytest.mark.parametrize("percentile", [97.0, 100.0])
def test_repeated_rows_count_once(percentile):
    probs = random_rows(70, 4, seed=3, rounded=False)
    ids = torch.arange(70)
    first, second = AnchorFinder(4, 70, percentile), AnchorFinder(4, 70, percentile)
    first.update(probs[:50], ids[:50])
    first.update(torch.cat([probs[:20], probs[:20]]), torch.cat([ids[:20], ids[:20]]))
    second.update(torch.cat([probs[30:], probs[60:]]), torch.cat([ids[30:], ids[60:]]))
    assert first.merge(second).anchors().tolist() == authors_rule(probs.numpy(), percentile)


def test_errors_name_what_is_wrong():
    finder = AnchorFinder(2, 4)
    half = torch.full((2, 2), 0.5)
    finder.update(half, torch.tensor([0, 3]))
    with pytest.raises(ValueError, match="2 of 4 rows were seen; row 1"):
        finder.anchors()
    with pytest.raises(ValueError, match="row id 4"):
        finder.update(half, torch.tensor([1, 4]))
    with pytest.raises(ValueError, match="2 rows of probabilities with 1 row ids"):
        finder.update(half, torch.tensor([1]))
    with pytest.raises(ValueError, match=r"row 2 .*softmax"):
        finder.update(3 * half, torch.tensor([2, 1]))
    with pytest.raises(ValueError, match=r"percentile is 97\.0 here and 95\.0 there"):
        finder.merge(AnchorFinder(2, 4, 95.0))
    for percentile in (0.0, 101.0, float("nan")):
        with pytest.raises(ValueError, match="percentile"):
            AnchorFinder(2, 4, percentile)
    with pytest.raises(ValueError, match="num_rows"):
        AnchorFinder(2, 0)
