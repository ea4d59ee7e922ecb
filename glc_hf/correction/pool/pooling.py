# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""A pool of linear models, weighted on trusted labels that they have not been fitted to."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from glc_hf.correction.linear import LinearHead, Prior
from glc_hf.correction.pool.members import (
    DISCRIMINANT_SCALE,
    WRONG_ANYWAY,
    Members,
    best_scale,
    combine,
    label_losses,
    scaled,
)
from glc_hf.correction.pool.pool_data import DISCRIMINANTS, FEW_TRUSTED, MEMBERS, PoolData
from glc_hf.lbfgs import minimize


POOL = "pool"
# Weight of the given label of an item beside the pool's prediction for it: 1 if errors depend on the class only, 0 if
# they follow from the features. Trusted items don't say which; 0.3 is close to the best weight for either.
_GIVEN_WEIGHT = 0.3
_WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25)


# ---------------------------------------------------------------------- the pool
class Gain(NamedTuple):
    """How much better one model predicts trusted labels than another one: the sum of the differences of their losses,
    and its standard error."""

    total: float
    error: float

    @classmethod
    def of(cls, differences: Tensor) -> Gain:
        """The gain from the difference for each trusted item."""
        differences = differences.double()
        return cls(float(differences.sum()), float((differences - differences.mean()).norm()))


@dataclass
class Pool:
    """
    softmax(Σ_m w_m · log p_m) over the members.

    Attributes:
        members: The members, fitted on all trusted items.
        weights: `(M,)`, in the order of the members.
        first_weights: The weights of the other members, with which the discriminants were fitted.
        held_out: `(R, n, M + 1, K)` log-probabilities of the members and of the pool for the n trusted items, for each
            division into folds, from fits without the item. The same on every process.
        labels: `(n,)`, their labels.
        given_weight: Weight of the given label of an item, or of the votes on it, beside the pool's prediction for it.
    """

    members: Members
    weights: Tensor
    first_weights: Tensor
    held_out: Tensor
    labels: Tensor
    given_weight: float = _GIVEN_WEIGHT

    @property
    def matrix(self) -> Tensor | None:
        """The matrix that the members have refined; `None` with several sources."""
        return self.members.matrix

    @property
    def held_out_correct(self) -> dict[str, Tensor]:
        """Whether each member and the pool predicted the label of each trusted item, from fits without the item."""
        correct = (self.held_out.mean(dim=0).argmax(dim=-1) == self.labels[:, None]).t()
        return dict(zip([*self.members.data.members, POOL], correct, strict=True))

    @property
    def gain(self) -> Gain:
        """
        How much better trusted labels are predicted than by a model of all labels as they are: the differences of the
        losses, for the pool or for `tuned`, whichever gains more. Each model was fitted without the item, and is first
        made as sure as it should be, on the other folds. The mean over the divisions into folds.
        """
        data = self.members.data

        def losses(name: str) -> Tensor:
            total, predicted = torch.zeros(len(self.labels)), self.held_out[:, :, [*data.members, POOL].index(name)]
            for split, here in enumerate(data.splits):
                log_probs = predicted[data.division(split)]
                scale = best_scale(log_probs[~here], self.labels[~here])
                total[here] += label_losses((scale * log_probs[here]).log_softmax(dim=-1), self.labels[here]).float()
            return total / data.repeats

        plain = losses("plain")
        gains = [Gain.of(plain - losses(name)) for name in ("tuned", POOL)]
        return max(gains, key=lambda gain: gain.total)

    def log_probs(self, rows: Tensor, members: Members | None = None) -> Tensor:
        """`(n, K)` for table rows; with the same weights for members that were fitted on other items, if given."""
        members = members or self.members
        parts = [combine(members.log_probs(some), self.weights) for some in rows.split(2**14)]
        return torch.cat(parts) if parts else torch.empty(0, members.data.num_labels)

    def posterior(self, rows: Tensor, soft: Tensor | None = None) -> Tensor:
        """
        `(n, K)` probabilities of the true labels of table rows, from the pool and the given label of each row, or the
        votes on it.

        Args:
            rows (`Tensor` of shape `(n,)`): The table rows.
            soft (`Tensor` of shape `(n, K)`, *optional*): Their soft labels, in place of the given ones.
        """
        return (self.log_probs(rows) + self.given_weight * self.members.log_evidence(rows, soft)).softmax(dim=-1)

    def weigh_given_labels(self, noisy: Tensor) -> None:
        """Set `given_weight` to the weight that makes the labels of trusted items most likely, with the noisy labels
        of these items, `(n,)`, -1 where they are not known."""
        known = noisy >= 0
        likelihood = self.members.log_label_likelihood(noisy[known])
        predicted = self.held_out[:, known, -1].flatten(0, 1)
        repeats = len(self.held_out)
        self.given_weight = _best_weight(predicted, likelihood.repeat(repeats, 1), self.labels[known].repeat(repeats))


def fit_pool(data: PoolData, noisy: LinearHead, penalty: float) -> Pool:
    """
    Fit the members in folds over the trusted items, weight them by the likelihood of the labels that each fold left
    out, and fit them again on all items.

    Args:
        data ([`PoolData`]): The items.
        noisy ([`LinearHead`]): The model of the noisy labels.
        penalty (`float`): Its weight decay.
    """
    correlated = data.table.correlated_prior()
    roots = [None] if correlated is None else [None, correlated]
    # Few trusted items have large weights beside the untrusted ones, and need a prior there, too.
    few = data.num_trusted < FEW_TRUSTED
    priors = Prior(penalty, correlated if few else None), best_prior(data, roots), best_prior(data, roots, noisy)
    fits, num_labels = FoldFits(data, noisy, priors), data.num_labels
    labels = fits.labels
    first, prior = (torch.tensor(list(names.values())) for names in (data.first_members, data.members))

    def weigh(log_probs: Tensor, others: Tensor, prior: Tensor, repeats: int) -> Tensor:
        return pool_weights(log_probs[others], labels[others], prior, items=data.weight_items * repeats)

    for name in fits.whole.tuned:
        logits = fits.predict(Members.center_logits, num_labels, name=name)
        for members, others, repeats in fits:
            members.tune(name, best_scale(logits[others], labels[others], repeats=repeats))
    log_probs = fits.predict(Members.log_probs, len(first), num_labels)
    first_weights = [weigh(log_probs, others, first, repeats) for _, others, repeats in fits]
    votes = None if data.voted is None else fits.predict(Members.log_evidence, num_labels)
    if data.scatter_root is not None:
        for (members, others, _), weights in zip(fits, first_weights, strict=True):
            given_weight = 1.0
            if votes is not None:
                given_weight = _best_weight(combine(log_probs[others], weights), votes[others], labels[others])
            members.fit_discriminants(weights, given_weight)
        for name in DISCRIMINANTS:
            logits = fits.predict(Members.logits, num_labels, name=name)
            for members, others, repeats in fits:
                scale = best_scale(logits[others], labels[others], expected=DISCRIMINANT_SCALE, repeats=repeats)
                members.scale(name, scale)
    log_probs = fits.predict(Members.log_probs, len(prior), num_labels)
    pooled = torch.zeros(len(labels), 1, num_labels)
    for (_, others, _), here in zip(fits, fits.left_out, strict=False):
        pooled[here, 0] = combine(log_probs[here], weigh(log_probs, others, prior, 1))
    held_out, weight = torch.cat([log_probs, pooled], dim=1), _GIVEN_WEIGHT
    if votes is not None:
        weight = _best_weight(pooled[:, 0], votes, labels)
    everything = torch.ones_like(labels, dtype=torch.bool)
    return Pool(
        fits.whole,
        weigh(log_probs, everything, prior, data.repeats),
        first_weights[-1],
        held_out.unflatten(0, (data.repeats, data.num_trusted)),
        labels[: data.num_trusted],
        weight,
    )


class FoldFits:
    """
    The members fitted without each fold of the trusted items, and on all of these items.

    Each trusted item is in one fold of every division into folds, so n items and R divisions have R · n predictions:
    first those of the first division.

    Iterating yields each fit with the mask, `(R · n,)`, of the predictions that its weights and scales are chosen on,
    and with how often each item is in it: the other folds of the same division, or everything. Other fits make them.

    Args:
        data ([`PoolData`]): The items.
        noisy ([`LinearHead`]): The model of the noisy labels.
        priors ([`Prior`]): Of the members.

    Attributes:
        whole: The fit on all items.
        left_out: `(R · folds, R · n)`: the predictions that each fit without a fold makes.
        labels: `(R · n,)`, the labels of the trusted items of all processes.
    """

    def __init__(self, data: PoolData, noisy: LinearHead, priors: tuple[Prior, Prior, Prior]) -> None:
        self.data, self.whole = data, Members(data, noisy, *priors)
        self._fits = [Members(data, noisy, *priors, left_out=left_out) for left_out in data.splits]
        labels = torch.zeros(data.num_trusted, dtype=torch.int64)
        labels[data.position] = data.labels[data.trusted]
        self.labels = data.table.reduce(labels).repeat(data.repeats)
        # Whether each prediction is made in the same division as each split.
        divisions = torch.tensor([data.division(split) for split in range(len(data.splits))])
        own = (divisions[:, None] == torch.arange(data.repeats)).repeat_interleave(data.num_trusted, dim=1)
        self.left_out = own & data.splits.repeat(1, data.repeats)
        self._others = own & ~self.left_out

    def __iter__(self) -> Iterator[tuple[Members, Tensor, int]]:
        for members, others in zip(self._fits, self._others, strict=True):
            yield members, others, 1
        yield self.whole, torch.ones_like(self.labels, dtype=torch.bool), self.data.repeats

    def predict(self, predict: Callable[..., Tensor], *shape: int, **options: str) -> Tensor:
        """`(R · n, *shape)`: what `predict` returns for each trusted item with the fits without it, on every process;
        0 for a single item."""
        data = self.data
        values = torch.zeros(data.repeats, data.num_trusted, *shape)
        for split, (members, left_out) in enumerate(zip(self._fits, data.splits, strict=True)):
            mine = left_out[data.position]
            predicted = predict(members, data.trusted[mine], **options)
            values[data.division(split)].index_copy_(0, data.position[mine], predicted)
        return data.table.reduce(values).flatten(0, 1)


def _best_weight(log_probs: Tensor, votes: Tensor, labels: Tensor) -> float:
    """The weight of what votes say about an item, beside a prediction for it, that makes the labels most likely. Rules
    see the same words as the model does: their votes say less than they would alone."""
    losses = torch.stack([F.cross_entropy(log_probs + weight * votes, labels) for weight in _WEIGHTS])
    return _WEIGHTS[int(losses.argmin())] if len(labels) else 1.0


def pool_weights(log_probs: Tensor, labels: Tensor, prior: Tensor | None = None, items: float = 10.0) -> Tensor:
    """
    Non-negative weights w that minimize the mean loss of softmax(Σ_m w_m · log p_m), see
    [`~correction.pool.members.label_losses`], plus a penalty items/n · ‖w − prior‖² that keeps the weights close to
    the prior if items are few.

    Args:
        log_probs (`Tensor` of shape `(n, M, K)`): Log-probabilities of the members for items they were not fitted to.
        labels (`Tensor` of shape `(n,)`): The labels of these items.
        prior (`Tensor` of shape `(M,)`, *optional*): Defaults to that of `MEMBERS`.
        items (`float`, *optional*, defaults to 10.0): Strength of the prior, in trusted items.
    """
    prior = torch.tensor(list(MEMBERS.values())) if prior is None else prior
    prior = prior.double()
    if len(labels) == 0:
        return prior.float()
    log_probs, strength, num_labels = log_probs.double(), items / len(labels), log_probs.shape[-1]

    def evaluate(raw: np.ndarray) -> tuple[float, np.ndarray]:
        """The loss and its gradient, for w = softplus(raw) > 0."""
        weights = F.softplus(torch.from_numpy(raw))
        pooled, distance = combine(log_probs, weights), weights - prior
        losses = label_losses(pooled, labels)
        loss = losses.mean() + strength * distance.square().sum()
        # The gradient of -log p, times the part of exp(-loss) that is not the constant.
        believed = 1 - losses.exp() * WRONG_ANYWAY / num_labels
        errors = believed[:, None] * (pooled.exp() - F.one_hot(labels, num_labels)) / len(labels)
        gradient = torch.einsum("nk,nmk->m", errors, log_probs) + 2 * strength * distance
        return float(loss), (gradient * -(-weights).expm1()).numpy()  # softplus' = 1 − exp(−softplus)

    raw = minimize(evaluate, prior.clamp(min=0.01).expm1().log().numpy(), max_iterations=200)
    return F.softplus(torch.from_numpy(raw)).float()


_PENALTIES = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5)


def best_prior(data: PoolData, roots: Sequence[Tensor | None], center: LinearHead | None = None) -> Prior:
    """The prior (around `center`) with which trusted items predict the others best, over the folds, with one of these
    roots."""
    table, classes = data.table, data.num_labels
    masks = [left_out[data.position] for left_out in data.splits]
    rows = [(data.trusted[~left_out], data.trusted[left_out]) for left_out in masks]
    near = [None if center is None else _scaled_to(data, center, kept) for kept, _ in rows]
    best, lowest = Prior(_PENALTIES[0]), math.inf
    for root in roots:
        heads, before = list(near), math.inf
        for penalty in _PENALTIES:
            losses = torch.zeros(1, dtype=torch.float64)
            for fold, (kept, left_out) in enumerate(rows):
                head = table.fit(
                    kept,
                    data.labels[kept],
                    classes,
                    penalty=penalty,
                    start=heads[fold],
                    center=near[fold],
                    prior=root,
                )
                heads[fold], logits = head, table.logits(head, left_out)
                losses += F.cross_entropy(logits, data.labels[left_out], reduction="sum").double()
            loss = float(table.reduce(losses))
            if loss < lowest:
                best, lowest = Prior(penalty, root), loss
            if loss > before:  # weaker penalties overfit more
                break
            before = loss
    return best


def _scaled_to(data: PoolData, head: LinearHead, rows: Tensor) -> LinearHead:
    """A head that was not fitted to these rows, as sure as it should be of their labels."""
    return scaled(head, best_scale(data.table.logits(head, rows), data.labels[rows], data.table.reduce))
