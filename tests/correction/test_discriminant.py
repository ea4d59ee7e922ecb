# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Linear discriminants of probable labels, alone and as members of the pool."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from glc_hf.correction import linear
from glc_hf.correction.linear import FeatureTable
from glc_hf.correction.pool import pool_data, pooling
from glc_hf.correction.pool.discriminant import DiscriminantFit, scatter_root
from glc_hf.correction.pool.members import Members
from glc_hf.correction.pool.pool_data import DISCRIMINANTS, MEMBERS, PoolData
from glc_hf.correction.pool.pooling import fit_pool


ROWS, WIDTH, CLASSES = 3000, 6, 3


def gaussians(rows: int = ROWS, width: int = WIDTH, distance: float = 2.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of three classes with one covariance, far from standardized, and their classes."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(CLASSES, (rows,), generator=generator)
    centers = distance * torch.randn(CLASSES, width, generator=generator)
    mixing = torch.randn(width, width, generator=generator) / math.sqrt(width) + torch.eye(width)
    points = (centers[labels] + torch.randn(rows, width, generator=generator)) @ mixing
    return 3.0 * points + 5.0, labels


def table_of(points: torch.Tensor) -> FeatureTable:
    return FeatureTable(points, torch.arange(len(points)))


def fit(points: torch.Tensor, probs: torch.Tensor):
    table = table_of(points)
    root = scatter_root(table)
    assert root is not None
    return DiscriminantFit(table, root, torch.arange(len(points)), probs.shape[1]).fit(probs)


def direct_logits(points: torch.Tensor, probs: torch.Tensor) -> torch.Tensor:
    """The equations of the module, with the covariance inverted."""
    x, q = points.double(), probs.double()
    x = (x - x.mean(0)) / x.std(0, unbiased=False)
    counts = q.sum(0)
    means = (q.t() @ x) / counts[:, None]
    rates = (counts + 1) / (counts.sum() + q.shape[1])
    within = x.t() @ x / len(x) - (means.t() * rates) @ means
    inverse = torch.linalg.inv(0.6 * within + 0.4 * torch.eye(x.shape[1]).double())
    return x @ inverse @ means.t() - 0.5 * ((means @ inverse) * means).sum(1) + rates.log()


@pytest.mark.parametrize("width", [96, 768])
def test_a_few_rows_of_uneven_classes_are_separated(width):
    """With few rows, the rates of the classes and the scatter do not agree: B has eigenvalues above 1."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.tensor([0] * 60 + [1] * 37 + [2] * 3)
    centers = 2.0 * torch.randn(3, width, generator=generator)
    points = centers[labels] + torch.randn(100, width, generator=generator)
    head = fit(points, torch.nn.functional.one_hot(labels).float())
    assert (table_of(points).logits(head, torch.arange(100)).argmax(dim=1) == labels).all()


@pytest.mark.parametrize("certain", [True, False])
def test_logits_are_those_of_the_equations(certain):
    points, labels = gaussians()
    probs = torch.nn.functional.one_hot(labels, CLASSES).float()
    if not certain:
        probs = (probs + torch.rand(ROWS, CLASSES, generator=torch.Generator().manual_seed(1))).softmax(dim=-1)
    found = fit(points, probs).logits(points).double()
    torch.testing.assert_close(found, direct_logits(points, probs), atol=2e-3, rtol=1e-3)


def test_rows_are_read_in_chunks_and_summed_over_processes(monkeypatch):
    points, labels = gaussians()
    probs = torch.nn.functional.one_hot(labels, CLASSES).float()
    whole = fit(points, probs)
    monkeypatch.setattr(linear, "_NUMBERS_AT_ONCE", 100 * WIDTH)
    chunked = fit(points, probs)
    torch.testing.assert_close(chunked.weight, whole.weight, atol=1e-4, rtol=1e-4)
    table = table_of(points)
    root, half = scatter_root(table), torch.arange(ROWS // 2)
    table.reduce = lambda tensor: 2 * tensor  # two processes with the same rows
    twice = DiscriminantFit(table, root, half, CLASSES).fit(probs[half])
    table.reduce = lambda tensor: tensor
    once = DiscriminantFit(table, root, torch.cat([half, half]), CLASSES).fit(probs[torch.cat([half, half])])
    torch.testing.assert_close(twice.weight, once.weight)


def test_class_without_rows_has_finite_logits_and_is_never_predicted():
    points, labels = gaussians()
    probs = torch.nn.functional.one_hot(labels, CLASSES + 1).float()
    logits = fit(points, probs).logits(points)
    assert torch.isfinite(logits).all()
    assert not (logits.argmax(dim=-1) == CLASSES).any()


def noisy_pool(trusted: int, width: int = 60):
    """A pool of rows whose given labels are those of a rule that follows one feature in half of the cases."""
    points, true = gaussians(1200, width, distance=0.3)
    generator = torch.Generator().manual_seed(1)
    rule = (points[:, 0] > points[:, 0].median()).long()
    noisy = torch.where(torch.rand(len(true), generator=generator) < 0.5, rule, true)
    given = torch.where(torch.arange(len(true)) < trusted, true, noisy)
    data = PoolData.of(table_of(points), given.numpy(), np.arange(trusted), np.arange(trusted, 1000), CLASSES, seed=0)
    head = data.table.fit(data.untrusted, data.labels[data.untrusted], CLASSES, penalty=1e-3)
    return fit_pool(data, head, 1e-3), true


@pytest.fixture(scope="module")
def fitted():
    return noisy_pool(60)


def test_discriminants_make_the_pool_more_accurate_on_new_rows(fitted, monkeypatch):
    pool, true = fitted
    new = torch.arange(1000, 1200)
    monkeypatch.setattr(linear, "_MAX_CORRELATED", 59)  # too many features
    without, _ = noisy_pool(60)
    assert list(pool.members.data.members) == [*MEMBERS, *DISCRIMINANTS]
    assert list(without.members.data.members) == list(MEMBERS)
    assert without.held_out.shape[2] == len(MEMBERS) + 1
    with_them, alone = (
        float((some.log_probs(new).argmax(dim=-1) == true[new]).double().mean()) for some in (pool, without)
    )
    assert with_them > alone + 0.02


def test_weights_before_any_label_sum_to_one(fitted):
    pool, _ = fitted
    data = pool.members.data
    assert sum(data.members.values()) == pytest.approx(1.0)
    assert sum(data.first_members.values()) == pytest.approx(1.0)
    assert len(pool.first_weights) == len(MEMBERS)
    assert len(pool.weights) == len(MEMBERS) + len(DISCRIMINANTS)


def test_only_one_discriminant_uses_the_given_labels(fitted):
    pool, _ = fitted
    members, data = pool.members, pool.members.data
    before = {name: members.heads[name].weight.clone() for name in DISCRIMINANTS}
    flipped = Members.__new__(Members)
    flipped.__dict__.update(members.__dict__, heads={**members.heads}, scales={})
    flipped.log_evidence = lambda rows, soft=None: members.log_evidence(rows).roll(1, dims=1)
    for name in DISCRIMINANTS:
        del flipped.heads[name]
    flipped.complete(members.scales, pool.first_weights)
    assert torch.equal(flipped.heads["discriminant"].weight, before["discriminant"])
    assert not torch.allclose(flipped.heads["given_discriminant"].weight, before["given_discriminant"], atol=0.1)
    assert data.num_trusted == 60


def test_weights_behind_a_held_out_prediction_have_not_seen_the_fold(monkeypatch):
    seen, weigh = [], pooling.pool_weights

    def recorded(log_probs: torch.Tensor, labels: torch.Tensor, *rest, items: float) -> torch.Tensor:
        seen.append((log_probs.shape[1], len(labels), items))
        return weigh(log_probs, labels, *rest, items=items)

    monkeypatch.setattr(pooling, "pool_weights", recorded)
    monkeypatch.setattr(pool_data, "_WEIGHT_ITEMS", 7.0)
    noisy_pool(60)
    first, all_of_them = len(MEMBERS), len(MEMBERS) + len(DISCRIMINANTS)
    numbers = [48] * 5 + [60]
    assert seen == [(models, number, 7.0) for models in (first, all_of_them) for number in numbers]


def test_votes_have_stronger_prior_weights(fitted):
    data = fitted[0].members.data
    assert data.weight_items == 10.0
    assert dataclasses.replace(data, voted=object()).weight_items == 20.0
