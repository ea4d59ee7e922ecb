# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The table of sources: counts, intervals, agreement, errors, and which sources hurt."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glc_hf.correction.sources import SourceTable, fit_sources, judge_sources
from glc_hf.correction.sources.source_table import _lower_tail
from glc_hf.intervals import wilson_interval
from glc_hf.labels.label_batch import Votes


def table_of(
    dense: np.ndarray, true: np.ndarray, trusted: np.ndarray, names: tuple[str, ...], **options: Any
) -> SourceTable:
    votes = Votes.from_dense(dense, names)
    model = fit_sources(votes, int(true.max()) + 1, trusted, true[trusted])
    return judge_sources(votes, model, trusted, true[trusted], **options)


def noisy(true: np.ndarray, right: float, coverage: float, rng: np.random.Generator, classes: int = 3) -> np.ndarray:
    """Votes of a source with a share of right ones; the others are wrong."""
    wrong = (true + rng.integers(1, classes, len(true))) % classes
    votes = np.where(rng.random(len(true)) < right, true, wrong)
    return np.where(rng.random(len(true)) < coverage, votes, -1)


def example(rows: int = 600) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    true = rng.integers(0, 3, rows)
    shares = [(0.9, 0.8), (0.6, 0.9), (1 / 3, 0.9), (0.1, 0.7)]
    return np.stack([noisy(true, *share, rng) for share in shares], axis=1), true, np.arange(0, rows, 5)


NAMES = ("good", "fair", "random", "broken")


def test_counts_are_those_of_the_votes():
    dense, true, trusted = example()
    table = table_of(dense, true, trusted, NAMES)
    for source, name in enumerate(NAMES):
        row, voted = table[name], dense[:, source] >= 0
        known = np.isin(np.arange(len(true)), trusted) & voted
        right = (dense[known, source] == true[known]).sum()
        assert (row.votes, row.trusted_votes, row.right) == (voted.sum(), known.sum(), right)
        assert row.coverage == pytest.approx(voted.mean(), abs=1e-6)
        low, high = wilson_interval(right / known.sum(), known.sum(), 0.9)
        assert (row.accuracy, row.low, row.high) == pytest.approx((right / known.sum(), low, high), abs=1e-6)
        others = np.delete(dense, source, axis=1)[voted]
        pairs = others >= 0
        equal = (others == dense[voted, source][:, None]) & pairs
        assert row.agreement == pytest.approx(equal.sum() / pairs.sum(), abs=1e-6)


def test_best_source_is_first_and_one_that_hurts_is_last():
    table = table_of(*example(), NAMES)
    assert [row.name for row in table] == list(NAMES)
    assert [row.name for row in table.hurting] == ["broken"]
    row = table["broken"]
    (sentence,) = table.sentences()
    assert sentence.startswith(f"broken hurts: {row.right} of its {row.trusted_votes} votes on trusted rows are right")
    assert f"would be right in {row.chance:.1%}." in sentence


def test_estimate_from_all_votes_is_close_to_the_accuracy_on_all_rows():
    dense, true, trusted = example(3000)
    table = table_of(dense, true, trusted, NAMES)
    for source, name in enumerate(NAMES):
        voted = dense[:, source] >= 0
        assert table[name].estimated_accuracy == pytest.approx((dense[voted, source] == true[voted]).mean(), abs=0.05)


def test_without_trusted_rows_there_is_only_the_estimate_and_nothing_is_named():
    dense, true, _ = example()
    table = table_of(dense[:, :2], true, np.empty(0, dtype=np.int64), NAMES[:2])
    assert not table.hurting
    for row in table:
        assert (row.trusted_votes, row.accuracy, row.low, row.chance) == (0, None, None, None)
        assert 0.5 < row.estimated_accuracy < 1
    assert "  -  " in str(table)


def test_rule_for_a_rare_class_is_not_named_although_most_of_its_votes_are_wrong():
    rng = np.random.default_rng(0)
    true = np.where(rng.random(4000) < 0.03, 1, 0)
    rule = np.where((true == 1) & (rng.random(4000) < 0.8) | (rng.random(4000) < 0.1), 1, -1)
    bad = np.where((true == 0) & (rng.random(4000) < 0.3), 1, -1)
    table = table_of(np.stack([rule, bad], axis=1), true, np.arange(4000), ("rare", "bad"))
    assert table["rare"].high < 0.5
    assert [row.name for row in table.hurting] == ["bad"]


@pytest.mark.parametrize("seed", range(3))
def test_of_many_random_sources_almost_none_is_named(seed):
    rng = np.random.default_rng(seed)
    true = rng.integers(0, 3, 400)
    dense = np.where(rng.random((400, 1000)) < 0.3, rng.integers(0, 3, (400, 1000)), -1)
    table = table_of(dense, true, np.arange(400), tuple(map(str, range(1000))))
    assert len(table.hurting) <= 1
    assert sum(row.high < row.chance for row in table) > 20  # the intervals alone would name many


def test_errors_are_the_largest_ones_of_the_source():
    rng = np.random.default_rng(0)
    true = rng.integers(0, 3, 3000)
    votes = np.where((true == 0) & (rng.random(3000) < 0.6), 2, true)
    other = noisy(true, 0.8, 1.0, rng)
    options = {"label_names": ["cat", "dog", "cow"]}
    table = table_of(np.stack([votes, other], axis=1), true, np.arange(0, 3000, 2), ("one", "two"), **options)
    first, *rest = table["one"].confusions
    assert (first["true"], first["vote"]) == ("cat", "cow")
    assert first["share"] == pytest.approx(0.2, abs=0.03)
    assert not rest
    assert len(table["two"].confusions) == 2
    assert "cat → cow 2" in str(table)


def test_source_that_votes_alone_or_never_has_no_agreement():
    dense = np.array([[0, -1, -1], [1, -1, -1], [-1, 1, -1], [-1, 0, -1]] * 10)
    table = table_of(dense, np.array([0, 1, 1, 0] * 10), np.arange(40), ("a", "b", "never"))
    assert table["a"].agreement is None
    never = table["never"]
    assert (never.votes, never.accuracy, never.estimated_accuracy, never.confusions) == (0, None, None, [])
    assert table[-1] is never


def test_of_many_sources_the_ten_best_and_the_ten_worst_are_shown():
    rng = np.random.default_rng(0)
    true = rng.integers(0, 3, 300)
    shares = np.linspace(0.98, 0.35, 50)
    dense = np.stack([noisy(true, share, 1.0, rng) for share in shares], axis=1)
    table = table_of(dense, true, np.arange(300), tuple(f"s{number}" for number in range(50)))
    lines = str(table).splitlines()
    assert len(lines) == 22
    assert lines[11].strip() == "… 30 more"
    assert [line.split()[0] for line in lines[1:11]] == [row.name for row in table[:10]]
    assert [line.split()[0] for line in lines[12:]] == [row.name for row in table[-10:]]
    assert len(table.cells(100)) == 50


def test_many_hurting_sources_are_counted_and_not_all_described():
    rng = np.random.default_rng(0)
    true = rng.integers(0, 3, 300)
    dense = np.stack([noisy(true, 0.02, 1.0, rng) for _ in range(15)], axis=1)
    sentences = table_of(dense, true, np.arange(300), tuple(map(str, range(15)))).sentences()
    assert len(sentences) == 11
    assert sentences[-1] == "5 more sources hurt."


def test_table_survives_json():
    table = table_of(*example(), NAMES)
    again = SourceTable.from_list(json.loads(json.dumps(table.to_list())))
    assert again.rows == table.rows
    assert str(again) == str(table)


def test_unknown_source_is_an_error_that_names_those_there_are():
    table = table_of(*example(), NAMES)
    with pytest.raises(KeyError, match=r"no source 'anna'; the sources are good, fair, random, broken"):
        table["anna"]


@given(st.integers(1, 60), st.floats(0.0, 1.0), st.data())
@settings(max_examples=60, deadline=None)
def test_tail_is_that_of_the_binomial_distribution(number, share, data):
    right = data.draw(st.integers(0, number))
    exact = sum(math.comb(number, hits) * share**hits * (1 - share) ** (number - hits) for hits in range(right + 1))
    # A second entry, so that the sums are over the right parts.
    tails = _lower_tail(np.array([right, 0]), np.array([number, 3]), np.array([share, 0.5]))
    assert tails == pytest.approx([min(exact, 1.0), 0.125], abs=1e-9)


def test_five_thousand_sources_take_seconds():
    rng = np.random.default_rng(0)
    items, sources = 20_000, 5000
    true = rng.integers(0, 5, items)
    number = 10
    who = np.sort(rng.integers(0, sources // number, (items, number)) + np.arange(number) * (sources // number))
    labels = np.where(rng.random((items, number)) < 0.7, true[:, None], rng.integers(0, 5, (items, number)))
    offsets = np.arange(items + 1) * number
    votes = Votes(tuple(map(str, range(sources))), offsets, who.reshape(-1), labels.reshape(-1))
    trusted = np.arange(0, items, 10)
    model = fit_sources(votes, 5, trusted, true[trusted])
    started = time.perf_counter()
    table = judge_sources(votes, model, trusted, true[trusted])
    assert time.perf_counter() - started < 5
    assert len(table) == sources
