# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Draws by integer thresholds: frequencies, edges, and values fixed across releases."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from glc_hf import CorruptionMatrix
from glc_hf.noise.sampling import MatrixNoise, sample_from_logits, thresholds
from glc_hf.randomness import uniform_bits


def draw(noise: MatrixNoise, labels: np.ndarray, index: np.ndarray | None = None) -> np.ndarray:
    index = np.arange(len(labels)) if index is None else index
    return noise.draw(None, labels, index, None, np.ones(len(labels), dtype=bool), str)


FAMILIES = {
    "identity": CorruptionMatrix.identity(4),
    "uniform": CorruptionMatrix.uniform(4, 0.7),
    "flip": CorruptionMatrix.flip(4, 0.3),
    "hierarchical": CorruptionMatrix.hierarchical([0, 0, 0, 1], 0.6),
    "many classes": CorruptionMatrix.uniform(80, 0.9),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_frequencies_are_those_of_the_matrix(family):
    matrix = FAMILIES[family]
    labels = np.random.default_rng(0).integers(0, matrix.num_labels, 400_000)
    noisy = draw(MatrixNoise(matrix, seed=5), labels)
    counts = np.zeros_like(matrix.probs)
    np.add.at(counts, (labels, noisy), 1)
    expected = matrix.probs * counts.sum(axis=1, keepdims=True)
    possible = expected > 0
    assert not counts[~possible].any()
    statistic = ((counts - expected)[possible] ** 2 / expected[possible]).sum()
    freedom = possible.sum() - matrix.num_labels
    assert freedom == 0 or 1e-4 < stats.chi2.sf(statistic, freedom) < 1 - 1e-4


@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(np.float64, st.integers(1, 8).map(lambda k: (k, k)), elements=st.sampled_from([0, 0, 1e-13, 0.1, 1]))
)
def test_impossible_classes_have_no_words_and_possible_classes_share_all_words(weights):
    weights[:, 0] += weights.sum(axis=1) == 0
    edges = np.concatenate([np.zeros((len(weights), 1), dtype=np.uint64), thresholds(weights)], axis=1)
    widths = np.diff(edges.astype(np.int64), axis=1)
    assert (widths >= 0).all()
    assert (widths[weights == 0] == 0).all()
    assert (edges[:, -1] == 2**40).all()
    assert np.allclose(widths / 2**40, weights / weights.sum(axis=1, keepdims=True), atol=2.0**-40)


@settings(max_examples=40, deadline=None)
@given(
    hnp.arrays(np.float64, st.integers(2, 8).map(lambda k: (k, k)), elements=st.sampled_from([0, 1e-5, 0.1, 0.7])),
    st.integers(0, 2**32),
)
def test_the_table_agrees_with_the_thresholds(weights, seed):
    weights[:, 0] += weights.sum(axis=1) == 0
    matrix = CorruptionMatrix(weights / weights.sum(axis=1, keepdims=True))
    labels = np.random.default_rng(seed).integers(0, len(weights), 20_000)
    words = uniform_bits("corrupt_labels", seed, np.arange(20_000), bits=40)
    expected = (thresholds(matrix.probs)[labels] <= words[:, None]).sum(axis=1)
    noise = MatrixNoise(matrix, seed)
    assert noise._table is not None
    assert np.array_equal(draw(noise, labels), expected)
    noise._table = None
    assert np.array_equal(draw(noise, labels), expected)


def test_thresholds_of_many_classes_are_computed_in_parts(monkeypatch):
    matrix, labels = CorruptionMatrix.uniform(70, 0.8), np.arange(70).repeat(20)
    whole = draw(MatrixNoise(matrix, seed=0), labels)
    monkeypatch.setattr("glc_hf.noise.sampling._THRESHOLDS_AT_ONCE", 1000)
    np.testing.assert_array_equal(draw(MatrixNoise(matrix, seed=0), labels), whole)


def test_the_table_leaves_undecided_words_to_the_thresholds():
    noise = MatrixNoise(CorruptionMatrix.uniform(3, 1.0), seed=0)
    assert (noise._table == -1).sum() == 6  # two edges inside a row's 4,096 intervals, three rows


def test_a_word_on_a_threshold_belongs_to_the_class_above_it():
    """Otherwise word 0 would draw an impossible first class."""
    noise = MatrixNoise(CorruptionMatrix([[0.0, 1.0, 0.0], [0.5, 0.25, 0.25], [0.25, 0.0, 0.75]]), seed=0)
    half, quarter = 1 << 39, 1 << 38
    cases = [(0, 0, 1), (0, (1 << 40) - 1, 1), (1, half - 1, 0), (1, half, 1), (1, 3 * quarter, 2), (2, quarter, 2)]
    for label, word, expected in cases:
        key = np.array([(label << 40) | word], dtype=np.uint64)
        assert noise._search(key, np.array([label])) == expected
        decided = noise._table[(label << 12) | (word >> 28)]
        assert decided in (expected, -1)


def test_noise_of_published_seeds_does_not_change():
    labels = np.arange(24) % 4
    noisy = draw(MatrixNoise(CorruptionMatrix.uniform(4, 0.8), seed=0), labels)
    words = uniform_bits("corrupt_labels", 0, np.arange(24), bits=40)
    assert words[:3].tolist() == [429654471799, 623875786827, 367065423703]
    assert noisy.tolist() == [0, 1, 1, 1, 1, 2, 1, 0, 0, 1, 0, 1, 0, 0, 1, 3, 0, 2, 3, 0, 2, 3, 3, 3]


def test_logits_are_sampled_from_their_softmax_with_temperature():
    logits = np.array([4.0, 1.0, -2.0, -np.inf])
    drawn = sample_from_logits(np.tile(logits, (200_000, 1)), 2.0, 0, np.arange(200_000), None)
    expected = np.exp(logits / 2.0)[:3]
    counts = np.bincount(drawn, minlength=4)
    assert counts[3] == 0
    assert stats.chisquare(counts[:3], 200_000 * expected / expected.sum()).pvalue > 1e-3


def test_huge_logits_do_not_overflow():
    drawn = sample_from_logits(np.array([[1e300, 0.0], [0.0, 1e300], [-1e300, -1e299]]), 1.0, 0, np.arange(3), None)
    assert drawn.tolist() == [0, 1, 1]


@pytest.mark.parametrize("seed", [0.5, None, "0"])
def test_a_seed_that_is_not_an_integer_is_refused(seed):
    with pytest.raises(TypeError, match="seed must be an integer"):
        MatrixNoise(CorruptionMatrix.identity(2), seed)
