# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The pool of linear models with the votes of several sources."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from glc_hf.correction.linear import FeatureTable
from glc_hf.correction.pool.members import Members
from glc_hf.correction.pool.pool_data import DISCRIMINANTS, PoolData
from glc_hf.correction.pool.pooling import Pool, fit_pool
from glc_hf.labels.label_batch import Votes


ROWS, TRUSTED, CLASSES, SOURCES = 900, 60, 3, 4
KINDS = ("independent", "copied")


def pool_of(kind: str) -> tuple[Pool, torch.Tensor]:
    """A pool of overlapping classes, and the true labels. Four sources see the class, and half of their votes are
    right, or they see the features, as rules do."""
    generator = torch.Generator().manual_seed(0)
    true = torch.randint(CLASSES, (ROWS,), generator=generator)
    centers = torch.randn(CLASSES, 4, generator=generator)
    points = centers[true] + torch.randn(ROWS, 4, generator=generator)
    random = torch.randint(CLASSES, (ROWS, SOURCES), generator=generator)
    right = torch.rand(ROWS, SOURCES, generator=generator) < 0.5
    seen = true if kind == "independent" else torch.cdist(points, centers).argmin(dim=1)
    votes = Votes.from_dense(torch.where(right | (kind == "copied"), seen[:, None], random).numpy())
    given = torch.where(torch.arange(ROWS) < TRUSTED, true, random[:, 0])
    table = FeatureTable(points, torch.arange(ROWS))
    data = PoolData.of(
        table, given.numpy(), np.arange(TRUSTED), np.arange(TRUSTED, ROWS), CLASSES, seed=0, votes=votes
    )
    head = table.fit(data.untrusted, data.labels[data.untrusted], CLASSES, penalty=1e-3)
    return fit_pool(data, head, 1e-3), true


@pytest.fixture(scope="module")
def pools() -> dict[str, tuple[Pool, torch.Tensor]]:
    return {kind: pool_of(kind) for kind in KINDS}


def test_weights_before_any_label_sum_to_one_and_prefer_the_discriminant_with_the_votes(pools):
    weights = pools["independent"][0].members.data.members
    assert sum(weights.values()) == pytest.approx(1.0)
    assert weights["given_discriminant"] > weights["discriminant"] == 0.2


def test_votes_weigh_as_much_in_the_discriminant_as_trusted_items_show(pools):
    """Votes that follow from the features say nothing that the other members don't know."""
    weights = {kind: pool.members.given_weight for kind, (pool, _) in pools.items()}
    assert weights["copied"] <= 0.3
    assert weights["independent"] >= 0.6


def test_members_completed_as_those_of_a_pool_are_the_same(pools):
    pool, _ = pools["independent"]
    fitted, data = pool.members, pool.members.data
    again = Members(data, fitted.noisy, *fitted.priors)
    again.complete(fitted.scales, pool.first_weights, fitted.given_weight)
    rows = torch.arange(ROWS)
    torch.testing.assert_close(again.log_probs(rows), fitted.log_probs(rows))
    assert again.given_weight == fitted.given_weight
    other = Members(data, fitted.noisy, *fitted.priors)
    other.complete(fitted.scales, pool.first_weights, fitted.given_weight - 0.5)
    equal = {name: torch.equal(other.heads[name].weight, fitted.heads[name].weight) for name in DISCRIMINANTS}
    assert equal == {"discriminant": True, "given_discriminant": False}


def test_estimated_labels_are_better_than_the_pool_with_votes_that_say_more_than_the_features(pools):
    pool, true = pools["independent"]
    rows = pool.members.data.untrusted

    def accuracy(probs: torch.Tensor) -> float:
        return float((probs.argmax(dim=-1) == true[rows]).double().mean())

    assert accuracy(pool.posterior(rows)) > accuracy(pool.log_probs(rows)) + 0.05
