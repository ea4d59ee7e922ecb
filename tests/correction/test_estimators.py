# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glc_hf.correction.accumulators import ConfusionAccumulator, GoldAccumulator
from glc_hf.correction.calibration import match_base_rates
from glc_hf.correction.estimators import AnchorFinder, estimate_corruption_matrix
from glc_hf.matrix import CorruptionMatrix

from .problems import random_probabilities


def authors_rule(probs: np.ndarray, percentile: float) -> list[int]:
    """The rule of the authors' code, column by column."""
    anchors = []
    for k in range(probs.shape[1]):
        column = probs[:, k].copy()
        if percentile != 100:
            column[column >= np.percentile(column, percentile, method="higher")] = 0.0
        anchors.append(int(np.argmax(column)))
    return anchors


def random_rows(rows: int, num_labels: int, seed: int, rounded: bool) -> torch.Tensor:
    """Random probabilities; with `rounded` they have few distinct values, including 0 and 1, and many ties."""
    probs, _ = random_probabilities(rows, num_labels, seed, scale=4.0)
    if rounded:
        probs = torch.round(probs * 4) / 4
        probs[:, 0] += 1 - probs.sum(dim=1)
        bad = (probs < 0).any(dim=1)
        probs[bad] = torch.eye(num_labels, dtype=probs.dtype)[0]
    return probs


@pytest.fixture
def data():
    return random_probabilities(120, 5, seed=0)


@pytest.mark.parametrize(
    ("method", "accumulator_class"), [("gold", GoldAccumulator), ("confusion", ConfusionAccumulator)]
)
def test_whole_arrays_give_the_same_as_the_accumulators(data, method, accumulator_class):
    probs, labels = data
    accumulator = accumulator_class(5)
    accumulator.update(probs, labels)
    matrix = estimate_corruption_matrix(probs, labels, method, label_names=list("abcde"))
    assert isinstance(matrix, CorruptionMatrix)
    assert matrix.label_names == list("abcde")
    np.testing.assert_allclose(matrix.probs, accumulator.compute()[0].numpy(), atol=1e-12)


@pytest.mark.parametrize("method", ["gold", "confusion", "anchor"])
def test_arrays_tensors_lists_and_token_shapes_give_the_same_estimate(data, method, monkeypatch):
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
        # Many small chunks, and NaN in ignored rows.
        monkeypatch.setattr("glc_hf.correction.estimators._NUMBERS_PER_CHUNK", 35)
        with_nan = probs.masked_fill((labels == -100).unsqueeze(1), float("nan"))
        in_chunks = estimate_corruption_matrix(with_nan, labels, method)
    np.testing.assert_allclose(in_chunks.probs, expected.probs, atol=1e-12)


@pytest.mark.parametrize("percentile", [97.0, 80.0, 100.0])
def test_anchor_rows_are_the_probabilities_at_the_authors_anchors(data, percentile):
    probs, labels = data
    anchors = authors_rule(probs.numpy(), percentile)
    matrix = estimate_corruption_matrix(probs, None, "anchor", percentile=percentile)
    np.testing.assert_allclose(matrix.probs, probs.numpy()[anchors], atol=1e-12)
    labels[:60] = -100
    anchors = authors_rule(probs.numpy()[60:], percentile)
    matrix = estimate_corruption_matrix(probs, labels, "anchor", percentile=percentile)
    np.testing.assert_allclose(matrix.probs, probs.numpy()[60:][anchors], atol=1e-12)


@pytest.mark.parametrize("method", ["gold", "confusion", "anchor"])
def test_permuting_classes_permutes_the_estimate(data, method):
    probs, labels = data
    order = torch.tensor([3, 0, 4, 1, 2])
    matrix = estimate_corruption_matrix(probs, labels, method)
    permuted = estimate_corruption_matrix(probs[:, order], torch.argsort(order)[labels], method)
    np.testing.assert_allclose(permuted.probs, matrix.probs[order][:, order], atol=1e-12)


@pytest.mark.parametrize("method", ["gold", "anchor"])
def test_temperature_equals_scaled_logits(data, method):
    probs, labels = data
    scaled = torch.softmax(probs.log() / 3.0, dim=1)
    matrix = estimate_corruption_matrix(probs, labels, method, temperature=3.0)
    np.testing.assert_allclose(matrix.probs, estimate_corruption_matrix(scaled, labels, method).probs, atol=1e-12)


def test_base_rates_apply_match_base_rates(data):
    probs, labels = data
    noisy_rates = np.array([0.4, 0.3, 0.1, 0.1, 0.1])
    first = estimate_corruption_matrix(probs, labels)
    b = torch.bincount(labels, minlength=5) / len(labels)
    for weight in (None, 0.05):
        moved = estimate_corruption_matrix(probs, labels, base_rates=noisy_rates, base_rate_weight=weight)
        expected = match_base_rates(first.probs, b, noisy_rates, weight)
        np.testing.assert_allclose(moved.probs, expected.numpy(), atol=1e-7)
    assert np.abs(b.numpy() @ moved.probs - noisy_rates).sum() < np.abs(b.numpy() @ first.probs - noisy_rates).sum()


def test_gold_estimate_recovers_the_true_matrix():
    """With a classifier that predicts p(noisy label | x) exactly, on well separated classes."""
    truth = CorruptionMatrix.flip(4, 0.4, seed=1)
    _, labels = random_probabilities(400, 4, seed=1)
    probs = torch.tensor(truth.probs)[labels]
    assert estimate_corruption_matrix(probs, labels).distance(truth) < 1e-12


def test_estimate_from_trusted_rows_counts_them_per_class(data):
    probs, labels = data
    labels[:3] = -100
    expected = np.bincount(np.asarray(labels[3:]), minlength=5).tolist()
    for method in ("gold", "confusion"):
        assert estimate_corruption_matrix(probs, labels, method).trusted_rows.tolist() == expected
    assert estimate_corruption_matrix(probs, labels, "anchor").trusted_rows is None


# ---------------------------------------------------------------------------------------------- missing classes
@pytest.mark.parametrize("method", ["gold", "confusion"])
@pytest.mark.parametrize("missing", ["average", "identity", "uniform"])
def test_class_without_trusted_rows_gets_a_default_row_and_one_warning(data, method, missing):
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


def test_no_warning_if_all_classes_are_seen_and_error_if_none_is(data):
    probs, labels = data
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimate_corruption_matrix(probs, labels)
    with pytest.raises(ValueError, match="no class has a trusted row"):
        estimate_corruption_matrix(probs, torch.full_like(labels, -100))
    with pytest.raises(ValueError, match="there are no rows"):
        estimate_corruption_matrix(probs[:0], None, "anchor")


def test_long_list_of_missing_classes_is_shortened():
    probs = torch.full((1, 50), 1 / 50)
    with pytest.warns(UserWarning, match="49 of 50 classes: 1, 2, .*, 20 and 29 more"):
        estimate_corruption_matrix(probs, torch.tensor([0]))


def test_single_class():
    assert estimate_corruption_matrix(np.ones((3, 1)), np.zeros(3, dtype=int)).probs.tolist() == [[1.0]]


# ---------------------------------------------------------------------------------------------- errors
@pytest.mark.parametrize("method", ["gold", "confusion", "anchor"])
def test_invalid_probabilities_raise_and_name_the_row(data, method):
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
def test_invalid_arguments_raise_clear_errors(change, error, message):
    good = {"probs": np.full((3, 2), 0.5), "labels": [0, 1, 1], "method": "gold"}
    with pytest.raises(error, match=message):
        estimate_corruption_matrix(**{**good, **change})


# ---------------------------------------------------------------------------------------------- anchors
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
def test_streaming_finds_the_same_anchors_as_the_authors_rule(
    rows, num_labels, seed, rounded, percentile, batch_size, dtype
):
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


def test_only_a_small_share_of_the_rows_is_kept():
    rows, num_labels = 20_000, 5
    probs = random_rows(rows, num_labels, seed=0, rounded=False).float()
    finder = AnchorFinder(num_labels, rows)
    most_kept = 0
    for ids in torch.arange(rows).split(512):
        finder.update(probs[ids], ids)
        most_kept = max(most_kept, finder._values.shape[1] + sum(len(ids) for _, ids in finder._pending))
    assert most_kept <= 0.03 * rows + 2 + 1024
    assert finder.anchors().tolist() == authors_rule(probs.numpy(), 97.0)


def test_saturated_column_uses_the_best_value_below_the_ties():
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


def test_anchor_finder_errors_name_the_cause():
    finder = AnchorFinder(2, 4)
    half = torch.full((2, 2), 0.5)
    finder.update(half, torch.tensor([0, 3]))
    with pytest.raises(ValueError, match="2 of 4 rows were seen; the first missing one is row 1"):
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
