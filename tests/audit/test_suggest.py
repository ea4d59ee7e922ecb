# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Which rows to check next: uncertain rows, spread over the data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glc_hf.audit.suggest import reasons, rows_to_check, uncertainty


def _rows(number: int, seed: int = 0, classes: int = 4, width: int = 5) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(number, classes))
    log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return log_probs, np.exp(log_probs), rng.integers(classes, size=number), rng.normal(size=(number, width))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 60), st.integers(1, 80), st.integers(0, 5), st.integers(0, 10))
def test_rows_are_chosen_once_and_the_first_ones_do_not_depend_on_their_number(
    number: int, n: int, trusted: int, seed: int
) -> None:
    log_probs, posterior, labels, features = _rows(number, seed)
    known = np.random.default_rng(seed).normal(size=(trusted, 5))
    chosen = rows_to_check(log_probs, posterior, labels, features, known, n, seed)
    assert len(chosen) == len(set(chosen.tolist())) == min(n, number)
    assert (rows_to_check(log_probs, posterior, labels, features, known, n, seed) == chosen).all()
    if n >= 3:  # the candidates are the same
        assert (rows_to_check(log_probs, posterior, labels, features, known, 3, seed) == chosen[:3]).all()


def test_uncertain_rows_come_first_without_features() -> None:
    log_probs, posterior, labels, _ = _rows(200)
    chosen = rows_to_check(log_probs, posterior, labels, None, None, 20)
    values = uncertainty(log_probs)
    assert (np.diff(values[chosen]) <= 0).all()
    assert values[chosen].min() >= np.delete(values, chosen).max()


def test_copies_of_a_row_and_of_trusted_rows_are_not_chosen_before_other_rows() -> None:
    directions = np.repeat(np.eye(6), 30, axis=0)  # six groups of copies
    log_probs = np.log(np.tile([0.51, 0.49], (180, 1)))
    chosen = rows_to_check(log_probs, np.exp(log_probs), np.zeros(180, int), directions, directions[:1], 5)
    assert sorted(chosen // 30) == [1, 2, 3, 4, 5]
    more = rows_to_check(log_probs, np.exp(log_probs), np.zeros(180, int), directions, directions[:1], 8)
    assert sorted(more[:5] // 30) == [1, 2, 3, 4, 5]


def test_sure_rows_are_not_chosen_even_if_they_are_far_away() -> None:
    rng = np.random.default_rng(0)
    log_probs = np.log(np.where(np.arange(100)[:, None] < 50, [0.55, 0.45], [0.999, 0.001]))
    features = rng.normal(size=(100, 20))
    features[:50] += 4  # the uncertain rows are close together
    assert rows_to_check(log_probs, np.exp(log_probs), np.zeros(100, int), features, None, 20).max() < 50


def test_many_rows_take_little_time() -> None:
    log_probs, posterior, labels, features = _rows(50_000, width=64)
    assert len(rows_to_check(log_probs, posterior, labels, features, features[:5000], 100)) == 100


def test_reasons_name_the_classes() -> None:
    log_probs = np.log([[0.5, 0.4, 0.1], [0.9, 0.06, 0.04], [0.2, 0.3, 0.5]])
    posterior = np.array([[0.8, 0.1, 0.1], [0.9, 0.05, 0.05], [0.2, 0.3, 0.5]])
    lines = reasons(log_probs, posterior, np.array([0, 2, -100]), lambda label: "abc"[label])
    assert lines == [
        "the model predicts a 50% or b 40%",
        "the model predicts a 90% or b 6%; c is probably wrong",
        "the model predicts c 50% or b 30%; the row has no label",
    ]


def test_one_class_is_never_uncertain() -> None:
    assert uncertainty(np.zeros((3, 1))).tolist() == [0, 0, 0]
    assert reasons(np.zeros((1, 1)), np.ones((1, 1)), np.array([0]), str) == ["the model predicts 0 100%"]
    assert uncertainty(np.log([[0.6, 0.3, 0.1]])) == pytest.approx(0.7)
