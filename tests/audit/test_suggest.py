# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Which rows to check next: uncertain rows of little-known classes, spread over the data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glc_hf.audit import suggest
from glc_hf.audit.suggest import disagreement_of, reasons, rows_to_check, uncertainty, value_of_checking
from glc_hf.labels.label_batch import Votes


def _rows(number: int, seed: int = 0, width: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Values and features."""
    rng = np.random.default_rng(seed)
    return rng.random(number), rng.normal(size=(number, width))


def _choose(value, features, known=None, n: int = 10, seed: int = 0) -> list[int]:
    return rows_to_check(np.asarray(value), np.asarray(features).__getitem__, known, n, seed).tolist()


# ---------------------------------------------------------------------- the choice
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 60), st.integers(0, 80), st.integers(0, 5), st.integers(0, 10), st.booleans())
def test_rows_are_chosen_once_and_the_same_ones_each_time(
    number: int, n: int, trusted: int, seed: int, is_sure: bool
) -> None:
    value, features = _rows(number, seed)
    value = 0 * value if is_sure else value
    known = np.random.default_rng(seed).normal(size=(trusted, 5))
    chosen = _choose(value, features, known, n, seed)
    assert len(chosen) == len(set(chosen)) == min(n, number)
    assert all(0 <= row < number for row in chosen)
    assert _choose(value, features, known, n, seed) == chosen


def test_all_rows_are_chosen_if_there_are_no_more_and_beyond_the_clusters_and_candidates(monkeypatch) -> None:
    value, features = _rows(300)
    monkeypatch.setattr(suggest, "_MAX_CLUSTERS", 7)
    monkeypatch.setattr(suggest, "_MAX_CANDIDATES", 100)
    chosen = _choose(value, features, features[:3], 1000)
    assert sorted(chosen) == list(range(300))
    most = np.argsort(-value)
    assert set(chosen[:100]) == set(most[:100].tolist())
    assert chosen[100:] == most[100:].tolist()


def test_copies_of_a_row_and_of_trusted_rows_are_not_chosen_before_other_rows() -> None:
    directions = np.repeat(np.eye(6), 30, axis=0)  # six groups of copies
    chosen = _choose(np.ones(180), directions, directions[:1], 5)
    assert sorted(row // 30 for row in chosen) == [1, 2, 3, 4, 5]
    more = _choose(np.ones(180), directions, directions[:1], 8)
    assert sorted(row // 30 for row in more[:5]) == [1, 2, 3, 4, 5]
    assert all(row >= 30 for row in more)


@pytest.mark.parametrize("seed", range(5))
def test_near_duplicates_are_not_chosen_together(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = rng.normal(size=(20, 30))
    features = np.repeat(groups, 25, axis=0) + 0.01 * rng.normal(size=(500, 30))
    value = np.where(np.arange(500) < 25, 1.0, 0.5)  # a group of near-duplicates has the largest values
    groups_of_chosen = [row // 25 for row in _choose(value, features, n=20, seed=seed)]
    assert len(set(groups_of_chosen)) >= 18
    assert groups_of_chosen.count(0) <= 2


def test_sure_rows_are_not_chosen_even_if_they_are_far_away() -> None:
    rng = np.random.default_rng(0)
    value = np.where(np.arange(100) < 50, 0.9, 0.002)
    features = rng.normal(size=(100, 20))
    features[:50] += 4  # the uncertain rows are close together
    assert sum(row < 50 for row in _choose(value, features, n=20)) >= 17


def test_rows_that_stand_for_many_valuable_rows_come_first() -> None:
    rng = np.random.default_rng(0)
    sizes = [5, 100, 20]
    group = np.repeat(np.arange(3), sizes)
    features = 10 * np.eye(3)[group] + 0.1 * rng.normal(size=(125, 3))
    for seed in range(10):
        chosen = _choose(np.ones(125), features, n=3, seed=seed)
        assert group[chosen].tolist() == [1, 2, 0]
        chosen = _choose(np.array([100.0, 1, 1])[group], features, n=3, seed=seed)
        assert group[chosen].tolist() == [0, 1, 2]


def test_many_rows_need_the_features_of_the_candidates_only() -> None:
    value, features = _rows(50_000, width=16)
    asked = []

    def features_of(rows: np.ndarray) -> np.ndarray:
        asked.append(len(rows))
        return features[rows]

    assert len(rows_to_check(value, features_of, features[:5000], 50)) == 50
    assert asked == [20_000]


# ---------------------------------------------------------------------- the value of a row
def test_rows_of_classes_with_few_trusted_rows_are_worth_more() -> None:
    log_probs = np.log([[0.6, 0.3, 0.1], [0.1, 0.6, 0.3], [0.3, 0.1, 0.6]])  # equally uncertain
    value = value_of_checking(log_probs, np.array([0, 20, 5]))
    assert np.argsort(-value).tolist() == [0, 2, 1]
    assert value_of_checking(log_probs, np.zeros(3)) == pytest.approx(uncertainty(log_probs))


def test_a_class_without_trusted_rows_gets_rows() -> None:
    rng = np.random.default_rng(0)
    group = np.arange(400) % 4
    probs = np.full((400, 4), 0.2)
    probs[np.arange(400), group] = 0.4
    features = np.eye(4)[group] + 0.5 * rng.normal(size=(400, 4))
    shares = []
    for counts in ([40, 40, 40, 0], [40, 40, 40, 40]):
        value = value_of_checking(np.log(probs), np.array(counts))
        shares.append(np.mean(group[_choose(value, features, n=60)] == 3))
    assert shares[0] > shares[1]


def test_rows_on_which_sources_disagree_are_worth_more() -> None:
    votes = Votes.from_dense(np.array([[0, 0, 0], [0, 1, 0], [0, 1, -1], [-1, -1, -1], [2, -1, -1]]))
    disagreement = disagreement_of(votes, 3)
    assert disagreement.tolist() == pytest.approx([0, 1 / 3, 1 / 2, 0, 0])
    value = value_of_checking(np.log(np.tile([0.5, 0.3, 0.2], (5, 1))), np.ones(3), disagreement)
    assert np.argsort(-value, kind="stable").tolist() == [2, 1, 0, 3, 4]


def test_one_class_is_never_uncertain() -> None:
    assert uncertainty(np.zeros((3, 1))).tolist() == [0, 0, 0]
    assert reasons(np.zeros((1, 1)), np.ones((1, 1)), np.array([0]), np.array([9]), str) == [
        "the model predicts 0 100%"
    ]
    assert uncertainty(np.log([[0.6, 0.3, 0.1]])) == pytest.approx(0.7)


# ---------------------------------------------------------------------- reasons
def test_reasons_name_the_classes_votes_and_classes_with_few_trusted_rows() -> None:
    log_probs = np.log([[0.5, 0.4, 0.1], [0.9, 0.06, 0.04], [0.2, 0.3, 0.5]])
    posterior = np.array([[0.8, 0.1, 0.1], [0.9, 0.05, 0.05], [0.2, 0.3, 0.5]])
    labels = np.array([0, 2, -100])
    lines = reasons(log_probs, posterior, labels, np.array([5, 9, 4]), lambda label: "abc"[label])
    assert lines == [
        "the model predicts a 50% or b 40%",
        "the model predicts a 90% or b 6%; c is probably wrong",
        "the model predicts c 50% or b 30%; the row has no label; few trusted rows of c (4)",
    ]
    disagreement = np.array([0.25, 0, 0])
    lines = reasons(log_probs, posterior, labels, np.array([5, 9, 9]), lambda label: "abc"[label], disagreement)
    assert lines[0] == "the model predicts a 50% or b 40%; the sources disagree"
    assert lines[1:] == [
        "the model predicts a 90% or b 6%; c is probably wrong",
        "the model predicts c 50% or b 30%; the row has no label",
    ]
