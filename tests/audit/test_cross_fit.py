# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Out-of-sample probabilities from linear models, and the test for memorized labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from glc_hf import CorruptionMatrix
from glc_hf.audit.cross_fit import CrossFit, agreement, cross_fit, with_correct_rows
from glc_hf.audit.findings import verdicts_by_votes, verdicts_on
from glc_hf.correction.linear import FeatureTable
from glc_hf.correction.sources import fit_sources
from glc_hf.labels.label_batch import Votes
from tests.training.tiny import quick_pool


@pytest.fixture(scope="module", autouse=True)
def _quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with quick_pool(tmp_path_factory.mktemp("features")):
        yield


class Rows(NamedTuple):
    """Clusters of items, of which a third has the label of the next class."""

    table: FeatureTable
    given: np.ndarray
    true: np.ndarray
    trusted: np.ndarray
    matrix: CorruptionMatrix

    @property
    def wrong(self) -> np.ndarray:
        return (self.given != self.true)[~self.trusted]

    def precision(self, log_probs: torch.Tensor) -> float:
        verdicts = verdicts_on(log_probs, torch.from_numpy(self.given), self.matrix)
        return average_precision_score(self.wrong, verdicts.p_wrong[~self.trusted])

    def fit(self, **options: object) -> CrossFit:
        matrix = torch.from_numpy(np.array(self.matrix.probs))
        return cross_fit(self.table, self.given, self.trusted, self.matrix.num_labels, matrix=matrix, **options)


def _rows(num_trusted: int = 40, number: int = 240, classes: int = 3, width: int = 8, seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    true = rng.integers(classes, size=number)
    features = (2 * rng.normal(size=(classes, width))[true] + rng.normal(size=(number, width))).astype(np.float32)
    trusted = np.zeros(number, dtype=bool)
    trusted[rng.permutation(number)[:num_trusted]] = True
    wrong = ~trusted & (rng.random(number) < 1 / 3)
    given = np.where(wrong, (true + 1) % classes, true)
    probs = np.eye(classes) * 2 / 3 + np.roll(np.eye(classes), 1, axis=1) / 3
    table = FeatureTable(torch.from_numpy(features), torch.arange(number))
    return Rows(table, given, true, trusted, CorruptionMatrix(probs))


@pytest.mark.parametrize("num_trusted", [0, 5, 40])
def test_wrong_labels_are_found_with_any_number_of_trusted_items(num_trusted: int) -> None:
    rows = _rows(num_trusted)
    result = rows.fit()
    assert result.log_probs.shape == (240, 3)
    torch.testing.assert_close(result.log_probs.exp().sum(dim=1), torch.ones(240))
    assert rows.precision(result.log_probs) > 0.9 > 2 * rows.wrong.mean()
    if num_trusted == 40:
        assert rows.matrix.distance(result.matrix.numpy()) < 0.15
    else:
        assert result.matrix is None


def test_model_that_memorized_the_labels_finds_no_issue_and_cross_fitted_ones_do() -> None:
    """With more features than items, a linear model can fit every label."""
    rows = _rows(num_trusted=40, width=400)
    out_of_sample = rows.fit(folds=5).log_probs
    head = rows.table.fit(torch.arange(240), torch.from_numpy(rows.given), 3, penalty=1e-6)
    memorized = rows.table.logits(head, torch.arange(240))
    assert (memorized.argmax(dim=1).numpy() == rows.given).all()
    own = torch.from_numpy(rows.given)
    assert (verdicts_on(memorized, own, rows.matrix).suggested == rows.given).all()
    suggested = verdicts_on(out_of_sample, own, rows.matrix).suggested[~rows.trusted]
    assert (suggested == rows.true[~rows.trusted]).mean() > 0.95


@pytest.mark.parametrize("num_trusted", [0, 40])
def test_prediction_of_an_item_does_not_depend_on_its_own_label(num_trusted: int) -> None:
    rows = _rows(num_trusted)
    item = int(np.flatnonzero(~rows.trusted)[3])
    changed = rows.given.copy()
    changed[item] = (changed[item] + 1) % 3
    # Only the choice of the penalty and the weights, made once for all folds, could see it.
    before, after = rows.fit().log_probs, rows._replace(given=changed).fit().log_probs
    own = (before[item] - after[item]).abs().max()
    others = (before - after).abs().amax(dim=1)[~rows.trusted]
    assert own < others.max()
    assert own < 0.1


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 7))
def test_same_seed_gives_the_same_result_in_any_order_of_the_table(seed: int, folds: int) -> None:
    rows = _rows(num_trusted=0, number=60)
    first = rows.fit(folds=folds, seed=seed).log_probs
    assert torch.equal(first, rows.fit(folds=folds, seed=seed).log_probs)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(seed))
    shuffled = rows._replace(table=FeatureTable(rows.table.features[order], rows.table.numbers[order]))
    torch.testing.assert_close(first, shuffled.fit(folds=folds, seed=seed).log_probs, atol=1e-6, rtol=1e-6)


def test_another_seed_gives_other_folds() -> None:
    rows = _rows(num_trusted=0)
    assert not torch.equal(rows.fit(seed=0).log_probs, rows.fit(seed=1).log_probs)


@pytest.mark.parametrize("num_trusted", [0, 40])
def test_votes_take_the_place_of_the_matrix(num_trusted: int) -> None:
    rows = _rows(num_trusted)
    rng = np.random.default_rng(1)
    right = rng.random((240, 3)) < [0.8, 0.7, 0.6]
    dense = np.where(right, rows.true[:, None], (rows.true[:, None] + rng.integers(1, 3, size=(240, 3))) % 3)
    dense[rng.random((240, 3)) < 0.3] = -1
    missing = np.flatnonzero((dense < 0).all(axis=1) & ~rows.trusted)
    assert len(missing) > 0
    votes = Votes.from_dense(dense)
    trusted = np.flatnonzero(rows.trusted)
    sources = fit_sources(votes, 3, trusted, rows.true[trusted])
    labels = np.where(rows.trusted, rows.true, sources.posterior(votes).argmax(axis=1))
    result = cross_fit(rows.table, labels, rows.trusted, 3, sources=sources, votes=votes, missing=missing)
    assert result.matrix is None
    verdicts = verdicts_by_votes(result.log_probs, torch.from_numpy(labels), sources, votes)
    judged = np.setdiff1d(np.flatnonzero(~rows.trusted), missing)
    wrong = (labels != rows.true)[judged]
    assert average_precision_score(wrong, verdicts.p_wrong[judged]) > 2 * wrong.mean()
    assert (result.log_probs[missing].argmax(dim=1).numpy() == rows.true[missing]).mean() > 0.7


def test_bad_arguments_raise_clear_errors() -> None:
    rows = _rows(num_trusted=5, number=20)
    for folds in (1, 16):
        with pytest.raises(ValueError, match=f"folds={folds}: an audit of 15 untrusted labels needs at least 2"):
            rows.fit(folds=folds)
    with pytest.raises(ValueError, match="5 trusted labels are too few .* at least 10 are needed"):
        cross_fit(rows.table, rows.given, rows.trusted, 3)


def test_rows_of_the_matrix_with_few_trusted_rows_move_to_correct_labels() -> None:
    matrix = CorruptionMatrix([[0.0, 1.0, 0.0], [0.5, 0.5, 0.0], [0.1, 0.1, 0.8]], list("abc"), [0, 2, 998])
    careful = with_correct_rows(matrix)
    np.testing.assert_allclose(careful.probs[0], [1, 0, 0])
    np.testing.assert_allclose(careful.probs[1], [0.25, 0.75, 0])
    np.testing.assert_allclose(careful.probs[2], [0.0998, 0.0998, 0.8004])
    assert careful.label_names == ["a", "b", "c"]
    known = CorruptionMatrix.uniform(3, 0.3)
    assert with_correct_rows(known) is known


# ---------------------------------------------------------------------- memorized labels
@pytest.mark.parametrize(("learned", "memorized"), [(0.0, False), (0.4, False), (0.6, True), (1.0, True)])
def test_network_has_memorized_if_it_learned_more_than_half_of_the_wrong_labels(
    learned: float, memorized: bool
) -> None:
    rows = _rows(num_trusted=0, number=3000)
    predicted = np.where(np.random.default_rng(0).random(3000) < learned, rows.given, rows.true)
    result = agreement(predicted, rows.given, rows.matrix.probs)
    assert result.expected == pytest.approx(2 / 3)
    assert result.has_memorized == memorized
    assert agreement(predicted, rows.given, correct=np.full(3000, 2 / 3)).has_memorized == memorized


def test_few_labels_say_nothing_about_memorization() -> None:
    labels = np.zeros(49, dtype=np.int64)
    matrix = CorruptionMatrix.uniform(2, 0.5).probs
    assert not agreement(labels, labels, matrix).has_memorized
    assert agreement(np.append(labels, 0), np.append(labels, 0), matrix).has_memorized
    assert not agreement(labels[:0], labels[:0], matrix).has_memorized
