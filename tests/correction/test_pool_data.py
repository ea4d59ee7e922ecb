# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The items of the pool and their folds."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from glc_hf.correction.linear import FeatureTable
from glc_hf.correction.pool import pool_data as pool_data_module
from tests.correction.test_pool import CLASSES, ROWS, TRUSTED, pool_data, problem, table_of


@pytest.mark.parametrize(("trusted", "divisions"), [(TRUSTED, 1), (50, 1), (49, 3), (20, 3)])
def test_each_class_has_equal_shares_of_the_folds(trusted, divisions):
    points, true, given = problem()
    data = pool_data(table_of(points), given, trusted)
    assert (data.repeats, data.folds.shape) == (divisions, (divisions, trusted))
    for folds in data.folds:
        for label in range(CLASSES):
            counts = np.bincount(folds[true[:trusted] == label], minlength=pool_data_module.FOLDS)
            assert counts.max() - counts.min() <= 1
        counts = np.bincount(folds)
        assert len(counts) == pool_data_module.FOLDS
        assert counts.max() - counts.min() <= 1
    assert not torch.equal(data.folds, pool_data(data.table, given, trusted, seed=1).folds)


def test_few_trusted_items_are_divided_into_folds_in_different_ways():
    points, _, given = problem()
    data = pool_data(table_of(points), given, trusted=30)
    together = [folds[:, None] == folds for folds in data.folds]
    assert not any(torch.equal(together[one], together[other]) for one, other in [(0, 1), (0, 2), (1, 2)])
    assert data.splits.shape == (3 * pool_data_module.FOLDS, 30)
    for split, left_out in enumerate(data.splits):
        assert data.division(split) == split // pool_data_module.FOLDS
        assert torch.equal(left_out, data.folds[data.division(split)] == split % pool_data_module.FOLDS)


def test_fewer_trusted_items_than_folds_have_one_fold_each():
    points, _, given = problem()
    data = pool_data(table_of(points), given, trusted=3)
    assert data.folds.sort(dim=1).values.tolist() == [[0, 1, 2]] * 3
    assert data.splits.sum(dim=1).tolist() == [1] * 9
    for number in (0, 1):
        data = pool_data(table_of(points), given, trusted=number)
        assert (data.num_trusted, data.splits.shape) == (number, (0, number))


@pytest.mark.parametrize("reversed_table", [False, True])
def test_too_many_items_are_drawn_at_random_but_the_same_for_any_order(monkeypatch, reversed_table):
    monkeypatch.setattr(pool_data_module, "_MAX_TRUSTED", 20)
    monkeypatch.setattr(pool_data_module, "_MAX_UNTRUSTED", 50)
    points, _, given = problem()
    data = pool_data(table_of(points), given)
    if reversed_table:
        table = FeatureTable(points.flip(0), torch.arange(ROWS).flip(0))
        other = pool_data(table, given)
        assert torch.equal(other.trusted_numbers, data.trusted_numbers)
        assert set(table.numbers[other.untrusted].tolist()) == set(data.untrusted.tolist())
        assert torch.equal(other.folds, data.folds)
        for row, position in zip(other.trusted, other.position, strict=True):
            assert data.trusted_numbers[position] == table.numbers[row]
        assert torch.equal(other.labels, given.flip(0))
    assert (data.num_trusted, len(data.trusted), data.num_untrusted, len(data.untrusted)) == (20, 20, 50, 50)
    assert (data.trusted < TRUSTED).all()
    assert (data.untrusted >= TRUSTED).all()
    assert not torch.equal(data.untrusted, pool_data(data.table, given, seed=1).untrusted)


def test_number_of_items_is_limited_for_many_features_and_classes(monkeypatch):
    points, _, given = problem()
    monkeypatch.setattr(pool_data_module, "_MAX_PRODUCTS", 4 * CLASSES * 25)
    assert (pool_data(table_of(points), given).num_trusted, pool_data(table_of(points), given).num_untrusted) == (
        25,
        25,
    )
    monkeypatch.setattr(pool_data_module, "_MAX_PRODUCTS", 1)  # never fewer than two per class
    assert pool_data(table_of(points), given).num_untrusted == 2 * CLASSES


def test_weight_gives_trusted_items_their_share():
    points, _, given = problem()
    data = pool_data(table_of(points), given)
    weight = data.weight_for(0.15, TRUSTED)
    assert weight * TRUSTED / (weight * TRUSTED + data.num_untrusted) == pytest.approx(0.15)
    assert data.weight_for(0.01, TRUSTED) == 1.0
