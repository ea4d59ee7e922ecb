# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from glc_hf.correction import linear
from glc_hf.correction.linear import FeatureTable


def features(rows: int = 400, width: int = 8, classes: int = 3, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Overlapping clusters with an offset and unequal scales."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (rows,), generator=generator)
    centers = torch.randn(classes, width, generator=generator)
    points = centers[labels] + torch.randn(rows, width, generator=generator)
    return points * torch.logspace(-1, 1, width) + 5.0, labels


def table(points: torch.Tensor, **settings) -> FeatureTable:
    return FeatureTable(points, torch.arange(len(points)), **settings)


def test_head_equals_logistic_regression_on_standardized_features():
    sklearn = pytest.importorskip("sklearn.linear_model")
    points, labels = features()
    feature_table = table(points)
    head = feature_table.fit(torch.arange(400), labels, 3, penalty=1e-3)
    ours = feature_table.logits(head, torch.arange(400)).softmax(-1).numpy()
    scaled = ((points - points.mean(0)) / points.std(0, unbiased=False) / 8**0.5).numpy()
    # scikit-learn minimizes the sum of losses + ‖w‖²/(2C), we minimize the mean + penalty·‖w‖².
    theirs = sklearn.LogisticRegression(C=1 / (2 * 1e-3 * 400), tol=1e-8, max_iter=1000).fit(scaled, labels.numpy())
    np.testing.assert_allclose(ours, theirs.predict_proba(scaled), atol=2e-3)


def test_features_read_in_chunks_give_the_same_head(monkeypatch):
    points, labels = features()
    whole = table(points).fit(torch.arange(400), labels, 3, penalty=1e-3)
    monkeypatch.setattr(linear, "_NUMBERS_AT_ONCE", 8 * 37)
    in_chunks = table(points).fit(torch.arange(400), labels, 3, penalty=1e-3)
    torch.testing.assert_close(in_chunks.weight, whole.weight, atol=2e-3, rtol=1e-3)


def test_processes_that_share_the_rows_get_the_same_head():
    points, labels = features()
    alone = table(points)
    expected = alone.fit_path(torch.arange(400), labels, 3, torch.arange(400) % 10 == 0)
    barrier, parts, lock = threading.Barrier(2), {}, threading.Lock()

    def run(rank: int, results: dict) -> None:
        calls = 0

        def reduce(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal calls
            with lock:
                parts[(calls, rank)] = tensor.clone()
            barrier.wait(30)
            total = parts[(calls, 0)] + parts[(calls, 1)]
            calls += 1
            barrier.wait(30)
            return total

        mine = torch.arange(rank, 400, 2)
        shared = FeatureTable(points[mine], mine, reduce)
        results[rank] = shared.fit_path(torch.arange(200), labels[mine], 3, mine % 10 == 0)

    results: dict = {}
    threads = [threading.Thread(target=run, args=(rank, results)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert torch.equal(results[0][0].weight, results[1][0].weight)
    assert results[0][1] == expected[1]
    # The optimizer's path differs by rounding, so its end point differs slightly.
    here, there = alone.logits(results[0][0], torch.arange(400)), alone.logits(expected[0], torch.arange(400))
    torch.testing.assert_close(here.softmax(-1), there.softmax(-1), atol=5e-3, rtol=0)


def test_constant_feature_does_no_harm():
    points, labels = features()
    points = torch.cat([points, torch.full((400, 1), 7.0)], dim=1)
    head = table(points).fit(torch.arange(400), labels, 3, penalty=1e-3)
    assert torch.isfinite(head.weight).all()
    assert (table(points).logits(head, torch.arange(400)).argmax(-1) == labels).float().mean() > 0.8


def test_penalty_minimizes_the_held_out_loss():
    points, labels = features(rows=300, width=60)
    generator = torch.Generator().manual_seed(1)
    noisy = torch.where(
        torch.rand(300, generator=generator) < 0.5, torch.randint(3, (300,), generator=generator), labels
    )
    held_out = torch.arange(300) % 3 == 0
    _, penalty, losses = table(points).fit_path(torch.arange(300), noisy, 3, held_out)
    assert len(losses) < len(linear._PENALTIES)  # it stopped when the loss rose
    assert min(losses) == losses[-2]
    assert penalty == linear._PENALTIES[len(losses) - 2]
    loose = table(points).fit(torch.arange(300)[~held_out], noisy[~held_out], 3, penalty=1e-7)
    at_loose = F.cross_entropy(table(points).logits(loose, torch.arange(300)[held_out]), noisy[held_out])
    assert min(losses) < float(at_loose)


def test_head_with_matrix_learns_true_labels_from_flipped_ones():
    points, labels = features(rows=2000)
    matrix = torch.eye(3).double() * 0.3 + torch.roll(torch.eye(3).double() * 0.7, 1, dims=1)
    generator = torch.Generator().manual_seed(0)
    noisy = torch.multinomial(matrix[labels], 1, generator=generator).squeeze(1)
    trusted = torch.arange(2000) < 40
    given = torch.where(trusted, labels, noisy)
    feature_table, everything = table(points), torch.arange(2000)

    def accuracy(**settings) -> float:
        head = feature_table.fit(everything, given, 3, penalty=1e-4, **settings)
        return float((feature_table.logits(head, everything).argmax(-1) == labels).float().mean())

    clean = feature_table.fit(everything, labels, 3, penalty=1e-4)
    reachable = float((feature_table.logits(clean, everything).argmax(-1) == labels).float().mean())
    assert accuracy() < 0.4
    assert accuracy(matrix=matrix, trusted=trusted) > reachable - 0.03


def test_trusted_rows_are_not_corrected():
    points, labels = features()
    swapped = torch.roll(torch.eye(3).double(), 1, dims=1)
    feature_table, everything = table(points), torch.arange(400)
    plain = feature_table.fit(everything, labels, 3, penalty=1e-3)
    trusted = feature_table.fit(
        everything, labels, 3, penalty=1e-3, matrix=swapped, trusted=torch.ones(400, dtype=torch.bool)
    )
    torch.testing.assert_close(trusted.weight, plain.weight, atol=1e-4, rtol=1e-4)


def test_head_with_a_center_moves_only_as_far_as_the_penalty_lets_it():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(60, 5, generator=generator)
    labels = (features[:, 0] > 0.5).long()
    table, rows = FeatureTable(features, torch.arange(60)), torch.arange(60)
    center = table.fit(rows, 1 - labels, 2, penalty=1e-2)
    moved = []
    for penalty in (1e3, 1e-2, 1e-4):
        head = table.fit(rows, labels, 2, penalty=penalty, start=center, center=center)
        moved.append((float((head.weight - center.weight).norm()), float((head.bias - center.bias).norm())))
    weights, biases = zip(*moved, strict=True)
    assert weights[0] < 1e-2 < weights[1] < weights[2]
    assert biases[0] < 1e-2 < biases[1] < biases[2]
    assert (table.logits(head, rows).argmax(dim=-1) == labels).double().mean() > 0.95


def test_head_fitted_with_votes_equals_the_one_with_the_matrix():
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(80, 4, generator=generator)
    labels = torch.randint(3, (80,), generator=generator)
    matrix = torch.softmax(torch.randn(3, 3, generator=generator), dim=1)
    table, rows = FeatureTable(features, torch.arange(80)), torch.arange(80)
    options = {"penalty": 1e-3, "trusted": rows < 20, "trusted_weight": 2.0}
    expected = table.fit(rows, labels, 3, matrix=matrix, **options)
    found = table.fit(rows, labels, 3, log_likelihood=matrix.log().t()[labels], **options)
    torch.testing.assert_close(found.weight, expected.weight, atol=1e-4, rtol=1e-3)


# ---------------------------------------------------------------------- the prior of the weights
def correlated(rows: int = 400, width: int = 8, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, width, generator=generator) @ torch.randn(width, width, generator=generator)


def test_fit_with_a_prior_equals_a_fit_on_transformed_features():
    points, labels = correlated(), features()[1]
    feature_table = table(points)
    prior, rows = feature_table.correlated_prior(), torch.arange(400)
    head = feature_table.fit(rows, labels, 3, penalty=1e-2, prior=prior)
    transformed = table(((points - feature_table.mean) / feature_table.scale) @ prior)
    transformed.mean, transformed.scale = torch.zeros(8), torch.ones(8)
    expected = transformed.fit(rows, labels, 3, penalty=1e-2)
    torch.testing.assert_close(
        feature_table.logits(head, rows), transformed.logits(expected, rows), atol=1e-4, rtol=1e-4
    )


def test_strong_penalty_with_a_prior_returns_the_center():
    points, labels = features()
    feature_table = table(points)
    rows, prior = torch.arange(400), feature_table.correlated_prior()
    center = feature_table.fit(rows, labels.roll(1), 3, penalty=1e-3)
    head = feature_table.fit(rows, labels, 3, penalty=1e6, start=center, center=center, prior=prior)
    torch.testing.assert_close(head.weight, center.weight, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(head.bias, center.bias, atol=1e-4, rtol=1e-4)


def test_correlated_prior_is_half_correlation_and_half_identity_with_unit_variance():
    points = correlated()
    root = table(points).correlated_prior().double()
    torch.testing.assert_close(root, root.tril())
    correlation = torch.corrcoef(points.double().t())
    mixed = (correlation + torch.eye(8)) / 2
    covariance = root @ root.t()
    torch.testing.assert_close(covariance / covariance.trace(), mixed / mixed.trace(), atol=1e-5, rtol=1e-4)
    standardized = (points.double() - points.double().mean(0)) / points.double().std(0, unbiased=False)
    assert (standardized @ root).var(0, unbiased=False).mean() == pytest.approx(1.0, abs=1e-4)


def test_constant_features_have_a_prior():
    points = correlated()
    points[:, 3] = 2.0
    assert torch.isfinite(table(points).correlated_prior()).all()


def test_too_many_features_have_no_correlated_prior(monkeypatch):
    monkeypatch.setattr(linear, "_MAX_CORRELATED", 7)
    assert table(correlated()).correlated_prior() is None
