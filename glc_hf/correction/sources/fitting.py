# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`fit_sources`: the tables, weights and temperature of several sources, from votes and trusted items."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from glc_hf.correction.sources.source_model import SourceModel, check_votes
from glc_hf.correction.sources.vote_counts import VoteCounts
from glc_hf.labels.label_batch import Votes
from glc_hf.randomness import check_seed, random_uint64


FOLDS = 5
# (t - 1)² counts as the loss of this many items.
_TEMPERATURE_ITEMS = 1.0
_LOWEST_TEMPERATURE, _HIGHEST_TEMPERATURE = 0.01, 5.0
_STEPS_WITH_PROBS, _STEPS_WITHOUT_PROBS = 10, 50


def fit_sources(
    votes: Votes,
    num_labels: int,
    trusted_items: np.ndarray,
    trusted_labels: np.ndarray,
    class_probs: np.ndarray | None = None,
    seed: int = 0,
) -> SourceModel:
    """
    Estimate what the votes of each source say about the true class.

    With trusted items, the tables are counted on them. `class_probs` adds the other items by EM, with little weight:
    a source's votes on them count about as much as its votes on trusted items. Without `class_probs` they are not
    used, because EM on votes alone moves away from good counts. The temperature is fitted on trusted items whose votes
    were not counted.

    `class_probs` is not used if most votes are of rules that only ever vote for one class: EM helps with people, who
    differ in their errors, but where a rule votes depends on the inputs, as the predictions do, and EM moves away from
    the classes that the rules are for.

    Without trusted items, the tables come from EM that starts at the shares of the votes (Dawid and Skene 1979, with
    the prior above). Whether a source votes then says something about the class only if it always votes for the same
    one, as many rules do, and the temperature is 1. So it is if no source votes on any trusted item, as in a file of
    trusted rows that the sources never saw: their silence there says nothing.

    Sources that vote alike beyond what the true class explains share their weight: S copies have the weight 1/S.

    Args:
        votes ([`Votes`]): The votes on all items.
        num_labels (`int`): K.
        trusted_items (`np.ndarray` of integers): Numbers of the trusted items; may be empty.
        trusted_labels (`np.ndarray` of integers): Their true classes.
        class_probs (`np.ndarray` of shape `(items, K)`, *optional*):
            p(true class | x) of each item, from a model of the inputs.
        seed (`int`, *optional*, defaults to 0): Chooses the folds, and the items that sources are compared on.
    """
    check_seed(seed)
    items, labels = _checked_trusted(votes, num_labels, trusted_items, trusted_labels)
    check_votes(votes, num_labels)
    log_probs = _checked_log_probs(class_probs, len(votes), num_labels)
    if len(items) and never_voted_on(votes, items):
        others = np.setdiff1d(np.arange(len(votes)), items)
        probs = None if class_probs is None else np.asarray(class_probs)[others]
        model = fit_sources(votes.select(others), num_labels, items[:0], items[:0], probs, seed)
        return replace(model, held_out=np.zeros((len(items), num_labels)))
    counts = VoteCounts(votes, num_labels, items, labels)
    if counts.rules:
        log_probs = None
    if len(items) == 0:
        rates = _fit_without_trusted(counts, log_probs, seed)
        return counts.model(1.0, rates, torch.empty(0, num_labels, dtype=torch.float64))

    rates = torch.bincount(labels, minlength=num_labels).double().add(1.0) / (len(items) + num_labels)
    prior = rates.log().expand(len(votes), -1) if log_probs is None else log_probs
    folds = _folds(items, labels, seed)
    temperature = _best_temperature(counts.held_out(folds), rates.log(), labels)
    posterior = counts.posterior(prior, temperature)
    counts.weights = shared_weights(counts, posterior, seed)
    held_out = counts.held_out(folds)
    temperature = _best_temperature(held_out, rates.log(), labels)
    if log_probs is not None:
        for _ in range(_STEPS_WITH_PROBS):
            before, posterior = posterior, counts.posterior(prior, temperature)
            counts.count(posterior)
            if (posterior - before).abs().max() < 1e-3:
                break
        held_out = counts.held_out(folds)
        temperature = _best_temperature(held_out, rates.log(), labels)
    return counts.model(temperature, rates, temperature * held_out)


def never_voted_on(votes: Votes, items: np.ndarray) -> bool:
    """Whether there are votes, but none on these items."""
    return len(votes.labels) > 0 and not (np.diff(votes.offsets)[items] > 0).any()


def _fit_without_trusted(counts: VoteCounts, log_probs: Tensor | None, seed: int) -> Tensor:
    """EM from the shares of the votes. Returns the frequencies of the classes."""
    posterior = counts.vote_shares(log_probs)
    counts.count(posterior)
    counts.weights = shared_weights(counts, posterior, seed)
    posterior = counts.vote_shares(log_probs)
    voted = torch.from_numpy(np.diff(counts.votes.offsets)) > 0
    rates = torch.full((counts.num_labels,), 1.0 / counts.num_labels, dtype=torch.float64)
    steps = _STEPS_WITHOUT_PROBS if log_probs is None else _STEPS_WITH_PROBS
    if counts.rules:
        steps = 1  # further steps move away from the classes that the rules are for
    for _ in range(steps):
        counts.count(posterior)
        if not counts.rules:  # the votes of rules say which rules there are, not how frequent the classes are
            rates = (posterior[voted].sum(dim=0) + 1.0) / (voted.sum() + counts.num_labels)
        prior = rates.log().expand(len(posterior), -1) if log_probs is None else log_probs
        before, posterior = posterior, counts.posterior(prior, 1.0)
        if (posterior - before).abs().max() < 1e-3:
            break
    return rates


def _folds(items: np.ndarray, labels: Tensor, seed: int) -> Tensor:
    """The fold of each trusted item, with equal shares of each class."""
    order = np.lexsort((random_uint64("source folds", seed, items), labels.numpy()))
    folds = np.empty(len(items), dtype=np.int64)
    folds[order] = np.arange(len(items)) % min(FOLDS, len(items))
    return torch.from_numpy(folds)


def _best_temperature(held_out: Tensor, log_rates: Tensor, labels: Tensor) -> float:
    """
    The t that minimizes the mean of -log softmax(log rates + t · ℓ)_label plus (t - 1)² / n, by bisection: the sum is
    convex in t.
    """
    low, high = _LOWEST_TEMPERATURE, _HIGHEST_TEMPERATURE
    right = held_out.gather(1, labels.unsqueeze(1)).sum()
    for _ in range(50):
        middle = (low + high) / 2
        expected = (torch.softmax(log_rates + middle * held_out, dim=-1) * held_out).sum()
        slope = float(expected - right) + 2 * _TEMPERATURE_ITEMS * (middle - 1.0)
        low, high = (low, middle) if slope > 0 else (middle, high)
    return (low + high) / 2


def _checked_trusted(
    votes: Votes, num_labels: int, trusted_items: np.ndarray, trusted_labels: np.ndarray
) -> tuple[np.ndarray, Tensor]:
    items, labels = np.asarray(trusted_items, dtype=np.int64), np.asarray(trusted_labels, dtype=np.int64)
    if items.shape != labels.shape or items.ndim != 1:
        raise ValueError(f"{items.shape} trusted items and {labels.shape} trusted labels: pass one label per item.")
    for name, numbers, limit in (("item", items, len(votes)), ("label", labels, num_labels)):
        bad = (numbers < 0) | (numbers >= limit)
        if bad.any():
            first = int(np.argmax(bad))
            raise ValueError(
                f"trusted item {items[first]} has the {name} {numbers[first]}; it must be in 0…{limit - 1}."
            )
    if len(np.unique(items)) < len(items):
        values, number = np.unique(items, return_counts=True)
        raise ValueError(f"item {values[np.argmax(number > 1)]} is given twice among the trusted items.")
    return items, torch.from_numpy(labels)


def _checked_log_probs(class_probs: np.ndarray | None, items: int, num_labels: int) -> Tensor | None:
    if class_probs is None:
        return None
    probs = torch.as_tensor(class_probs).double()
    if probs.shape != (items, num_labels):
        raise ValueError(f"class_probs has the shape {(items, num_labels)} here, got {tuple(probs.shape)}.")
    bad = ~((probs >= 0).all(dim=1) & probs.isfinite().all(dim=1) & (probs.sum(dim=1) > 0))
    if bool(bad.any()):
        row = int(bad.nonzero()[0])
        raise ValueError(f"row {row} of class_probs is not a distribution: {probs[row].tolist()}.")
    return probs.clamp(min=1e-12).log()


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
