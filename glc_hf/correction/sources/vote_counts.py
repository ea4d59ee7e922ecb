# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Counts of the votes of each source per true class, and the tables that follow from them.

J_s[y, v] = p(source s votes for v | true class y); the rest of row y is p(s does not vote | y). For a rule that only
ever votes for one class, all information is in when it votes. Trusted items are few, so their counts are shrunk:

    J_s[y, v] = (count_s[y, v] + m_s · prior_s[y, v]) / (n_y + m_s),   prior_s[y, v] ∝ q_s[v] · R[y, v]

q_s[v] is the frequency of vote v of the source over **all** items, and R[y, v] = p(v | y) / p(v) the lift that all
sources share; R[y, none] = 1, and each row of the prior is normalized. The prior of a source that votes rarely counts
as more items, so that it counts as one vote at least.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from glc_hf.correction.sources.source_model import SourceModel, log_likelihood
from glc_hf.labels.label_batch import Votes


# The prior of a source counts as this many items, and at least as this many votes.
_PRIOR_ITEMS, _PRIOR_VOTES, _PRIOR_VOTES_WITHOUT_TRUSTED = 30.0, 1.0, 10.0
# Without trusted items: a source names one class only if it gives less than this share of its votes to all others.
# With fewer votes than this, only if most votes are of such sources.
_ONE_CLASS, _ONE_CLASS_VOTES = 0.05, 10
# Expected votes that the two common lifts (of the right class, of any other) count as in each entry of R.
_LIFT_VOTES = 5.0
# Half a vote, spread over the classes: a vote that a source has not given yet is possible.
_UNSEEN_VOTES = 0.5
# Votes of untrusted items count as at most this many more than those of trusted ones.
_UNTRUSTED_VOTES = 5.0
_NUMBERS_PER_CHUNK = 2**22


class VoteCounts:
    """
    Votes counted per source, vote and true class, and the tables that follow from them. The counts are the only array
    of S·K·K numbers; rows of the tables are computed from them where they are needed.
    """

    def __init__(self, votes: Votes, num_labels: int, items: np.ndarray, labels: Tensor) -> None:
        num_sources = len(votes.names)
        self.votes, self.num_labels = votes, num_labels
        self.sources = torch.from_numpy(votes.sources)
        self.index = self.sources * num_labels + torch.from_numpy(votes.labels)
        self.vote_items = torch.from_numpy(votes.items)
        self.items, self.labels = torch.from_numpy(items), labels
        self.weights = torch.ones(num_sources, dtype=torch.float64)
        given = vote_numbers(votes, num_labels)
        number = given.sum(dim=1, keepdim=True)
        # A source without votes: the rate at which none is still likely.
        self.rate = torch.where(number > 0, number, 0.5) / max(len(votes), 1)
        self.frequencies = self.rate * (given + _UNSEEN_VOTES / num_labels) / (number + _UNSEEN_VOTES)
        self.strength = _PRIOR_ITEMS + (_PRIOR_VOTES if len(items) else _PRIOR_VOTES_WITHOUT_TRUSTED) / self.rate
        # Whether it depends on the true class how often a source votes. Without trusted items this can't be told from
        # which items it was asked about, except if it only ever votes for one class.
        one_class, surely = _rules(given)
        self.rules = votes_of_rules(given)
        self.by_class = torch.ones(num_sources, 1, dtype=torch.bool)
        if not len(items) and num_labels > 1:
            self.by_class = one_class if self.rules else surely
        self.table = torch.zeros(num_sources * num_labels, num_labels, dtype=torch.float64)
        self.voted = torch.zeros(num_sources, num_labels, dtype=torch.float64)
        self.total = torch.zeros(num_sources, num_labels, dtype=torch.float64)
        # The votes on trusted items, and their true classes.
        position = torch.full((len(votes),), -1)
        position[self.items] = torch.arange(len(items))
        self.position = position[self.vote_items]
        self._add_trusted(torch.ones(len(items), dtype=torch.bool), 1.0)
        self.trusted_votes = self.voted.long()

    def _add_trusted(self, chosen: Tensor, sign: float) -> None:
        """Add or subtract the votes of the chosen trusted items."""
        if not len(self.items):
            return
        mine = (self.position >= 0) & chosen[self.position]
        classes = self.labels[self.position[mine]]
        ones = torch.full((len(classes),), sign, dtype=torch.float64)
        self.table.view(-1).index_add_(0, self.index[mine] * self.num_labels + classes, ones)
        self.voted.view(-1).index_add_(0, self.sources[mine] * self.num_labels + classes, ones)
        self.total += sign * torch.bincount(self.labels[chosen], minlength=self.num_labels)

    def vote_shares(self, log_probs: Tensor | None) -> Tensor:
        """The weighted share of each class among the votes of each item; almost 0 where there is no vote for it.
        Items without votes have their prediction, or equal shares."""
        shares = torch.zeros(len(self.votes), self.num_labels, dtype=torch.float64)
        index = self.vote_items * self.num_labels + torch.from_numpy(self.votes.labels)
        shares.view(-1).index_add_(0, index, self.weights[self.sources])
        total = shares.sum(dim=1, keepdim=True)
        shares = shares / torch.where(total > 0, total, 1.0) + 1e-3
        if log_probs is not None:
            shares = torch.where(total > 0, shares, log_probs.exp())
        return shares / shares.sum(dim=1, keepdim=True)

    def count(self, posterior: Tensor) -> None:
        """Count trusted items by their labels, and the others by their posterior, less per vote the more there are."""
        self.table.zero_(), self.voted.zero_(), self.total.zero_()
        self._add_trusted(torch.ones(len(self.items), dtype=torch.bool), 1.0)
        untrusted = self.position < 0
        number = torch.bincount(self.sources[untrusted], minlength=len(self.total))
        share = torch.ones(len(number), dtype=torch.float64)
        if len(self.items):
            share = ((self.trusted_votes.sum(dim=1) + _UNTRUSTED_VOTES) / number.clamp(min=1)).clamp(max=1.0)
        step = max(1, _NUMBERS_PER_CHUNK // self.num_labels)
        for part in untrusted.nonzero().squeeze(-1).split(step):
            sources = self.sources[part]
            rows = posterior[self.vote_items[part]] * share[sources].unsqueeze(1)
            self.table.index_add_(0, self.index[part], rows)
            self.voted.index_add_(0, sources, rows)
        others = torch.ones(len(posterior), dtype=torch.bool)
        others[self.items] = False
        self.total += share.unsqueeze(1) * posterior[others].sum(dim=0)

    def tables(self) -> tuple[Callable[[Tensor], Tensor], Tensor]:
        """A function from rows s·K + v to p(vote v | y, s votes), and the coverage p(s votes | y), `(S, K)`."""
        lift = self._lift()
        expected = self.frequencies @ lift  # Σ_v q_s[v] R[v, y]
        scale = 1.0 / (expected + 1.0 - self.rate)
        prior = self.strength * scale
        votes = self.voted + prior * expected
        coverage = votes / (self.total + self.strength)
        coverage = torch.where(self.by_class & (self.rate < 1.0), coverage, self.rate.clamp(max=1.0))

        def given_vote(index: Tensor) -> Tensor:
            source = torch.div(index, self.num_labels, rounding_mode="floor")
            shared = self.frequencies.view(-1)[index].unsqueeze(1) * lift[index % self.num_labels]
            return (self.table[index] + prior[source] * shared) / votes[source]

        return given_vote, coverage

    def _lift(self) -> Tensor:
        """R[v, y] = p(v | y) / p(v), shared by all sources."""
        observed = torch.tensordot(self.weights, self.table.view(len(self.rate), -1), 1).view(self.num_labels, -1)
        total = torch.where(self.by_class, self.total, self.voted / self.rate)
        expected = (self.weights.unsqueeze(1) * self.frequencies).T @ total
        right = (observed.trace() + 1.0) / (expected.trace() + 1.0)
        wrong = (observed.sum() - observed.trace() + 1.0) / (expected.sum() - expected.trace() + 1.0)
        common = wrong + (right - wrong) * torch.eye(self.num_labels, dtype=torch.float64)
        return (observed + _LIFT_VOTES * common) / (expected + _LIFT_VOTES)

    def log_likelihood(self) -> Tensor:
        """Σ_s w_s log J_s[y, vote_s] of every item."""
        return log_likelihood(self.votes, *self.tables(), self.weights)

    def posterior(self, log_prior: Tensor, temperature: float) -> Tensor:
        """p(true class) of every item: one-hot for trusted items."""
        result = torch.softmax(log_prior + temperature * self.log_likelihood(), dim=-1)
        result[self.items] = torch.eye(self.num_labels, dtype=torch.float64)[self.labels]
        return result

    def held_out(self, folds: Tensor) -> Tensor:
        """The log-likelihood of each trusted item, from tables counted without the items of its fold."""
        result = torch.empty(len(self.items), self.num_labels, dtype=torch.float64)
        for fold in range(int(folds.max()) + 1):
            mine = folds == fold
            self._add_trusted(mine, -1.0)
            chosen = self.votes.select(self.items[mine].numpy())
            result[mine] = log_likelihood(chosen, *self.tables(), self.weights)
            self._add_trusted(mine, 1.0)
        return result

    def model(self, temperature: float, rates: Tensor, held_out: Tensor) -> SourceModel:
        """The tables of all sources. They replace the counts."""
        given_vote, coverage = self.tables()
        step = max(1, _NUMBERS_PER_CHUNK // self.num_labels)
        for rows in torch.arange(len(self.table)).split(step):
            self.table[rows] = given_vote(rows)
        tables = self.table.view(len(self.rate), self.num_labels, self.num_labels)
        tables /= tables.sum(dim=1, keepdim=True)
        return SourceModel(
            self.votes.names,
            tables.numpy(),
            coverage.numpy().copy(),
            self.weights.numpy(),
            temperature,
            (rates / rates.sum()).numpy(),
            self.trusted_votes.numpy(),
            held_out.numpy(),
        )


def vote_numbers(votes: Votes, num_labels: int) -> Tensor:
    """Number of votes of each source for each class, `(S, K)`."""
    index = torch.from_numpy(votes.sources * num_labels + votes.labels)
    return torch.bincount(index, minlength=len(votes.names) * num_labels).double().view(-1, num_labels)


def votes_of_rules(numbers: Tensor) -> bool:
    """Whether most votes are of rules: sources that only ever vote for one class. `numbers` are those of
    [`vote_numbers`]."""
    return numbers.shape[1] > 1 and float(numbers[_rules(numbers)[1].squeeze(1)].sum()) > 0.5 * float(numbers.sum())


def _rules(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Masks of the sources that vote for one class, and of those with enough votes to be sure, `(S, 1)`."""
    number = numbers.sum(dim=1, keepdim=True)
    one_class = number - numbers.amax(dim=1, keepdim=True) < _ONE_CLASS * number
    return one_class, one_class & (number >= _ONE_CLASS_VOTES)
