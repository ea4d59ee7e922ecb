# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Intervals of shares, and whether two accuracies differ."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from glc_hf.intervals import (
    accuracies_differ,
    format_accuracy,
    format_interval,
    format_level,
    mean_interval,
    smallest_difference,
    wilson_interval,
)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 500), st.data(), st.sampled_from([0.8, 0.9, 0.95, 0.99]))
def test_interval_is_that_of_scipy(rows, data, level):
    hits = data.draw(st.integers(0, rows))
    expected = binomtest(hits, rows).proportion_ci(level, method="wilson")
    assert wilson_interval(hits / rows, rows, level) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_interval_is_computed_for_arrays_of_shares_and_of_rows():
    low, high = wilson_interval([[0.2, 0.8], [0.5, 0.5]], np.array([10, 40])[:, None], 0.95)
    assert low.shape == high.shape == (2, 2)
    for i, j in np.ndindex(2, 2):
        share, rows = [[0.2, 0.8], [0.5, 0.5]][i][j], (10, 40)[i]
        assert (low[i, j], high[i, j]) == wilson_interval(share, rows, 0.95)


def test_no_rows_give_the_whole_range():
    for share in (0.0, 0.3, 1.0):
        assert wilson_interval(share, 0, 0.9) == pytest.approx((0.0, 1.0), abs=0.0)


def test_hits_do_not_have_to_be_an_integer():
    below, between, above = (wilson_interval(hits / 7, 7, 0.9) for hits in (3, 3.5, 4))
    assert below[0] < between[0] < above[0]
    assert below[1] < between[1] < above[1]
    assert wilson_interval(0.5, 2.5, 0.9)[0] > wilson_interval(0.5, 2, 0.9)[0]


@settings(max_examples=100, deadline=None)
@given(st.floats(0, 1), st.floats(0, 1e6), st.floats(0.01, 0.999))
def test_interval_contains_the_share_and_has_a_width(share, rows, level):
    low, high = wilson_interval(share, rows, level)
    assert 0 <= low <= share <= high <= 1
    assert high > low
    assert wilson_interval(1 - share, rows, level) == pytest.approx((1 - high, 1 - low), abs=1e-9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1.2, 10, 0.9), r"a share is in \[0, 1\], got 1.2"),
        (([0.5, float("nan")], 10, 0.9), "got nan"),
        ((0.5, -1, 0.9), "can't be negative, got -1"),
        ((0.5, 10, 1.0), r"level must be in \(0, 1\), got 1.0"),
        ((0.5, 10, 90), "got 90"),
    ],
)
def test_values_outside_their_range_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        wilson_interval(*arguments)


def test_interval_contains_the_true_share_about_as_often_as_its_level():
    hits = np.random.default_rng(0).binomial(40, 0.85, size=4000)
    low, high = wilson_interval(hits / 40, 40, 0.9)
    assert np.mean((low <= 0.85) & (high >= 0.85)) == pytest.approx(0.9, abs=0.04)


def test_interval_of_a_mean_covers_and_is_narrower_than_those_of_its_parts():
    rng = np.random.default_rng(0)
    rates = rng.uniform(0.05, 0.6, size=8)
    covered = []
    for _ in range(1000):
        shares = rng.binomial(12, rates) / 12
        low, high = wilson_interval(shares, 12, 0.95)
        bounds = mean_interval(shares, low, high)
        assert bounds[1] - bounds[0] < (high - low).min()
        covered.append(bounds[0] <= rates.mean() <= bounds[1])
    assert np.mean(covered) == pytest.approx(0.95, abs=0.03)


def test_interval_of_a_mean_stays_within_0_and_1():
    assert mean_interval([0.0, 1.0], [0.0, 0.0], [1.0, 1.0]) == (0.0, 1.0)
    assert mean_interval([1.0], [0.4], [1.0]) == (0.4, 1.0)


def test_accuracies_on_few_rows_need_a_large_difference():
    assert not accuracies_differ(0.9, 0.85, 60)
    assert accuracies_differ(0.9, 0.75, 60)
    assert accuracies_differ(0.75, 0.9, 60)
    assert accuracies_differ(0.9, 0.85, 600)
    assert not accuracies_differ(0.9, 0.9, 10**6)
    assert not accuracies_differ(1.0, 0.0, 0)


def test_equal_models_seldom_differ():
    rng = np.random.default_rng(0)
    pairs = rng.binomial(60, 0.8, size=(2000, 2)) / 60
    assert np.mean([accuracies_differ(first, second, 60) for first, second in pairs]) < 0.12


@settings(max_examples=50, deadline=None)
@given(st.floats(0.3, 1), st.integers(20, 5000))
def test_smallest_difference_is_the_limit_of_chance(accuracy, rows):
    limit = smallest_difference(accuracy, rows)
    if math.isfinite(limit):
        assert accuracies_differ(accuracy, accuracy - limit, rows)
        assert not accuracies_differ(accuracy, accuracy - limit + 1e-6, rows)
    assert smallest_difference(1.0, 1) == math.inf


def test_accuracy_is_printed_with_its_interval_and_rows():
    assert format_accuracy(0.86, 300) == "86.0% (82.4 to 89.0 on 300 rows)"
    assert format_accuracy(0.86, 12000, "labels") == "86.0% (85.5 to 86.5 on 12,000 labels)"
    assert format_accuracy(0.86, 300, level=0.95) == "86.0% (81.6 to 89.5 on 300 rows)"
    assert format_accuracy(0.86, None) == "86.0%"
    assert format_accuracy(1.0, 1) == "100.0% (27.0 to 100.0 on 1 row)"
    assert format_interval(0.123, 0.9, digits=0) == "12 to 90"
    assert (format_level(0.9), format_level(0.995)) == ("90%", "99.5%")
