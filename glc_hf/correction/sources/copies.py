# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Weights of sources that vote alike."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from glc_hf.correction.sources.vote_counts import VoteCounts
from glc_hf.randomness import random_uint64


_MAX_SOURCES_COMPARED = 1000
_FEWEST_COMMON_VOTES = 5
_MAX_NUMBERS, _MAX_PRODUCTS = 2**23, 10**10


def shared_weights(counts: VoteCounts, posterior: Tensor, seed: int) -> Tensor:
    """
    w_s = 1 / Σ_t max(ρ_st, 0)², ρ_st the correlation of what sources s and t vote beyond what the true class explains.

    It is the lower one of two correlations: that of 1[vote = v] - p(v) over all items, and that of 1[vote = v] -
    p(v | s votes) over the items with votes of both. The first one alone would take two annotators of the same batch
    of items for copies, the second one alone can't see that two rules for the same class vote on the same items. Both
    are computed on a sample of the items. ρ is 0 for sources with few common items and within two standard errors.
    """
    num_sources, num_labels = counts.total.shape
    ones = torch.ones(num_sources, dtype=torch.float64)
    if not 1 < num_sources <= _MAX_SOURCES_COMPARED:
        return ones
    most = min(_MAX_NUMBERS, _MAX_PRODUCTS // (num_sources + num_labels)) // (num_sources * num_labels)
    order = np.argsort(random_uint64("source sample", seed, np.arange(len(posterior))), kind="stable")
    sample = np.sort(order[: max(most, 2 * _FEWEST_COMMON_VOTES)])
    votes, posterior = counts.votes.select(sample), posterior[torch.from_numpy(sample)]
    items, sources, labels = (torch.from_numpy(part) for part in (votes.items, votes.sources, votes.labels))
    given_vote, coverage = counts.tables()
    voted = torch.zeros(num_sources, len(sample), dtype=torch.float64)
    voted[sources, items] = 1.0
    joint = torch.empty(num_sources, len(sample), num_labels, dtype=torch.float64)
    given = torch.empty_like(joint)
    for source in range(num_sources):
        table = given_vote(torch.arange(source * num_labels, (source + 1) * num_labels)).T
        torch.matmul(posterior, table, out=given[source])
        torch.matmul(posterior * coverage[source], table, out=joint[source])
    joint.neg_()[sources, items, labels] += 1.0
    given.neg_()[sources, items, labels] += 1.0
    given *= voted.unsqueeze(-1)
    squares = given.square().sum(dim=-1)
    common = voted @ voted.T
    of_all = _correlation(joint, joint.square().sum(dim=(1, 2)).unsqueeze(1).expand(-1, num_sources))
    of_common = _correlation(given, squares @ voted.T)
    correlation = torch.minimum(of_all, of_common)
    correlation[(common < _FEWEST_COMMON_VOTES) | (correlation < 2.0 / common.clamp(min=1.0).sqrt())] = 0.0
    correlation.fill_diagonal_(1.0)
    return 1.0 / correlation.square().sum(dim=1)


def _correlation(residuals: Tensor, squares: Tensor) -> Tensor:
    """Correlation of the rows; 1 where one has no variation, so that it does not lower the other correlation."""
    rows = residuals.flatten(1)
    size = (squares * squares.T).sqrt()
    return torch.where(size > 1e-9, rows @ rows.T / size.clamp(min=1e-9), 1.0)
