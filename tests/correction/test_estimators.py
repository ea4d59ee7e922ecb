# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from glc_hf.correction.accumulators import ConfusionAccumulator, GoldAccumulator
from glc_hf.correction.calibration import match_base_rates
from glc_hf.correction.estimators import estimate_corruption_matrix
from glc_hf.matrix import CorruptionMatrix

from .problems import random_probabilities
from .test_anchors import authors_rule


@pytest.fixture
def data():
    return random_probabilities(120, 5, seed=0)


@pytest.mark.parametrize(("method", "kind"), [("gold", GoldAccumulator), ("confusion", ConfusionAccumulator)])
def test_whole_arrays_give_what_the_accumulators_give(data, method, kind):
    probs, labels = data
    accumulator = kind(5)
    accumulator.update(probs, labels)
    matrix = estimate_corruption_matrix(probs, labels, method, label_names=list("abcde"))
    assert isinstance(matrix, CorruptionMatrix)
    assert matrix.label_names == list("abcde")
    np.testing.assert_allclose(matrix.probs, accumulator.compute()[0].numpy(), atol=1e-12)


@pytest.mark.parametrize("method", ["gold", "confusion", "anchor"])
def test_arrays_tensors_lists_and_token_shapes_are_the_same(data, method, monkeypatch):
    probs, labels = data
    labels[::7] = -100
    expected = estimate_corruption_matrix(probs, labels, method)
    read_only = probs.numpy().copy()
    read_only.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert estimate_corruption_matrix(read_only, labels.numpy().astype(np.int32), method) == expected
        assert estimate_corruption_matrix(probs.tolist(), labels.tolist(), method) == expected
        assert estimate_corruption_matrix(probs.reshape(4, 30, 5), labels.reshape(4, 30), method) == expected
        # Many small chunks; ignored rows may hold anything.
        monkeypatch.setattr("glc_hf.correction.estimators._NUMBERS_A_CHUNK", 35)
        garbage = probs.masked_fill((labels == -100).unsqueeze(1), float("nan"))
        in_chunks = estimate_corruption_matrix(garbage, labels, method)
    np.testing.assert_allclose(in_chunks.probs, expected.probs, atol=1e-12)


@pytest.mark.parametrize("percentile", [97.0, 80.0, 100.0])
def test_anchor_rows_are_the_probabilities_where_the_authors_rule_points(data, percentile):
    probs, labels = data
    anchors = authors_rule(probs.numpy(), percentile)
    matrix = estimate_corruption_matrix(probs, None, "anchor", percentile=percentile)
    np.testing.assert_allclose(matrix.probs, probs.numpy()[anchors], atol=1e-12)
    labels[:60] = -100
    anchors = authors_rule(probs.numpy()[60:], percentile)
    matrix = estimate_corruption_matrix(probs, labels, "anchor", percentile=percentile)
    np.testing.assert_allclose(matrix.probs, probs.numpy()[60:][anchors], atol=1e-12)


@pytest.mark.parametrize("method", ["gold", "confusion", "anchor"])
def test_renaming_the_classes_renames_the_estimate(data, method):
    probs, labels = data
    order = torch.tensor([3, 0, 4, 1, 2])
    matrix = estimate_corruption_matrix(probs, labels, method)
    renamed = estimate_corruption_matrix(probs[:, order], torch.argsort(order)[labels], method)
    np.testing.assert_allclose(renamed.probs, matrix.probs[order][:, order], atol=1e-12)


@pytest.mark.parametrize("method", ["gold", "anchor"])
def test_a_temperature_gives_what_cooler_logits_would(data, method):
    probs, labels = data
    cooler = torch.softmax(probs.log() / 3.0, dim=1)
    matrix = estimate_corruption_matrix(probs, labels, method, temperature=3.0)
    np.testing.assert_allclose(matrix.probs, estimate_corruption_matrix(cooler, labels, method).probs, atol=1e-12)


def test_base_rates_move_the_estimate_by_the_closed_form(data):
    probs, labels = data
    noisy_rates = np.array([0.4, 0.3, 0.1, 0.1, 0.1])
    first = estimate_corruption_matrix(probs, labels)
    b = torch.bincount(labels, minlength=5) / len(labels)
    for weight in (None, 0.05):
        moved = estimate_corruption_matrix(probs, labels, base_rates=noisy_rates, base_rate_weight=weight)
        expected = match_base_rates(first.probs, b, noisy_rates, weight)
        np.testing.assert_allclose(moved.probs, expected.numpy(), atol=1e-7)
    assert np.abs(b.numpy() @ moved.probs - noisy_rates).sum() < np.abs(b.numpy() @ first.probs - noisy_rates).sum()


def test_the_gold_estimate_finds_the_matrix_that_made_the_labels():
    """A classifier that knows p(noisy label | x) exactly, on well separated classes."""
    truth = CorruptionMatrix.flip(4, 0.4, seed=1)
    _, labels = random_probabilities(400, 4, seed=1)
    probs = torch.tensor(truth.probs)[labels]
    assert estimate_corruption_matrix(probs, labels).distance(truth) < 1e-12


# ---------------------------------------------------------------------------------------------- missing classes
@pytest.mark.parametrize("method", ["gold", "confusion"])
@pytest.mark.parametrize("missing", ["average", "identity", "uniform"])
def test_a_class_without_trusted_rows_gets_a_defined_row_and_one_warning(data, method, missing):
    probs, labels = data
    labels[(labels == 1) | (labels == 4)] = 0
    with pytest.warns(UserWarning, match="no trusted row") as caught:
        matrix = estimate_corruption_matrix(probs, labels, method, missing=missing, label_names=list("abcde"))
    assert len(caught) == 1
    assert "2 of 5 classes: b, e." in str(caught[0].message)
    assert missing in str(caught[0].message)
    assert caught[0].filename == __file__
    stay = {"identity": 1.0, "uniform": 0.2, "average": np.diag(matrix.probs)[[0, 2, 3]].mean()}[missing]
    expected = np.full((2, 5), (1 - stay) / 4)
    expected[0, 1] = expected[1, 4] = stay
    np.testing.assert_allclose(matrix.probs[[1, 4]], expected, atol=1e-12)


def test_all_classes_seen_is_silent_and_none_seen_an_error(data):
    probs, labels = data
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimate_corruption_matrix(probs, labels)
    with pytest.raises(ValueError, match="no class has a trusted row"):
        estimate_corruption_matrix(probs, torch.full_like(labels, -100))
    with pytest.raises(ValueError, match="there are no rows"):
        estimate_corruption_matrix(probs[:0], None, "anchor")


def test_a_long_list_of_missing_classes_is_cut_short():
    probs = torch.full((1, 50), 1 / 50)
    with pytest.warns(UserWarning, match="49 of 50 classes: 1, 2, .*, 20 and 29 more"):
        estimate_corruption_matrix(probs, torch.tensor([0]))


def test_one_class_alone():
    assert estimate_corruption_matrix(np.ones((3, 1)), np.zeros(3, dtype=int)).probs.tolist() == [[1.0]]


# ---------------------------------------------------------------------------------------------- errors
@pytest.mark.parametrize("method", ["gold", "confusion", "anchor"])
def test_logits_for_probabilities_are_an_error_naming_the_row(data, method):
    probs, labels = data
    for value in (float("nan"), 0.9, -1e-6 - probs[17, 2]):
        bad = probs.clone()
        bad[17, 2] += value
        with pytest.raises(ValueError, match=r"row 17 .*softmax\(logits\)"):
            estimate_corruption_matrix(bad, labels, method)
        with pytest.raises(ValueError, match=r"row 17 .*softmax\(logits\)"):
            estimate_corruption_matrix(bad, labels, method, temperature=2.0)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"method": "glc"}, ValueError, "'gold', 'confusion', 'anchor', got 'glc'"),
        ({"labels": None}, ValueError, "needs the true labels"),
        ({"labels": None, "method": "anchor", "base_rates": [0.5, 0.5]}, ValueError, "labels is None"),
        ({"labels": [0, 1]}, ValueError, r"labels of shape \(3,\)"),
        ({"labels": [0, 1, 2]}, ValueError, "label of row 2 is 2"),
        ({"labels": [0, 1, -1]}, ValueError, "label of row 2 is -1"),
        ({"labels": [0.0, 1.0, 1.0]}, TypeError, "integers, got float64"),
        ({"labels": ["a", "b", "b"]}, TypeError, "integers"),
        ({"labels": torch.tensor([0.0, 1.0, 1.0])}, TypeError, "integers"),
        ({"num_labels": 3}, ValueError, "2 classes .* num_labels is 3"),
        ({"probs": np.array([0.5, 0.5])}, ValueError, "shape"),
        ({"missing": "drop"}, ValueError, "'drop'"),
        ({"temperature": 0.0}, ValueError, "temperature"),
        ({"label_names": ["a"]}, ValueError, "1 label names"),
        ({"base_rates": [1.0]}, ValueError, "there are 2 classes"),
    ],
)
def test_wrong_arguments_are_named(change, error, message):
    good = {"probs": np.full((3, 2), 0.5), "labels": [0, 1, 1], "method": "gold"}
    with pytest.raises(error, match=message):
        estimate_corruption_matrix(**{**good, **change})
