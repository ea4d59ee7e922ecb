# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Linear models of the true labels on fixed features, and a pool of them weighted on trusted labels that they have not
been fitted to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from glc_hf.correction.linear import FeatureTable, LinearHead, Prior
from glc_hf.correction.pool_data import MEMBERS, PoolData
from glc_hf.correction.refinement import fit_with_matrix
from glc_hf.correction.sources import SourceModel
from glc_hf.lbfgs import minimize


POOL = "pool"
# Share of the loss on trusted items in `glc`, with several sources of labels.
_VOTES_SHARE = 0.3
# Strength of the prior of the weights, in trusted items.
_PRIOR = 10.0
_STACK_SCALE = 3.0
_FEW_TRUSTED = 50  # with fewer, the models of all labels have the correlated prior, too
# Members that are fitted to trusted items only, close to another member.
_TUNED = {"tuned": "plain", "glc_tuned": "glc", "majority_tuned": "majority"}
_LOWEST_LOG_PROB, _LOWEST_LIKELIHOOD = -8.0, 1e-4
# Weight of the given label of an item beside the pool's prediction for it: 1 if errors depend on the class only, 0 if
# they follow from the features. Trusted items don't say which; 0.3 is close to the best weight for either.
_GIVEN_WEIGHT = 0.3
_WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25)


# ---------------------------------------------------------------------- fits
def calibrated(table: FeatureTable, head: LinearHead, rows: Tensor, labels: Tensor) -> LinearHead:
    """The head with its logits times the t that minimizes the sum of the losses plus (log t)²: a model of noisy labels
    is as sure as these labels are, not as it should be of true ones."""
    scales = torch.logspace(-1.5, 0.75, 46)
    logits = table.logits(head, rows).double()
    losses = torch.stack([F.cross_entropy(scale * logits, labels, reduction="sum") for scale in scales.tolist()])
    scale = float(scales[(table.reduce(losses) + scales.log().square()).argmin()])
    return LinearHead(scale * head.weight, scale * head.bias, head.mean, head.scale)


def fit_with_votes(
    data: PoolData, trusted: Tensor, prior: Prior, left_out: np.ndarray | None = None, rounds: int = 3
) -> tuple[LinearHead, LinearHead, SourceModel]:
    """
    Fit linear models of the true labels with the likelihood of the votes of several sources, and what these votes say
    with it. With people as sources, each round estimates them again with the predictions of the model; see
    [`~correction.sources.fit_sources`].

    Args:
        data ([`PoolData`]): The items.
        trusted (`Tensor`): Table rows of the trusted items to fit on.
        prior ([`Prior`]): Of the weights of the models.
        left_out (`np.ndarray`, *optional*): Numbers of the trusted items that must not be used.
        rounds (`int`, *optional*, defaults to 3): How often.

    Returns:
        The model with all items weighted equally, the one in which trusted items have 30 % of the weight, and the
        sources.
    """
    table, voted = data.table, data.voted
    assert voted is not None
    rows = torch.cat([trusted, data.untrusted])
    number = data.num_trusted - (0 if left_out is None else len(left_out))

    def fit(sources: SourceModel, weight: float, start: LinearHead | None) -> LinearHead:
        return table.fit(
            rows,
            data.labels[rows],
            data.num_labels,
            penalty=prior.penalty,
            prior=prior.root,
            log_likelihood=voted.log_likelihood(sources, table.numbers[rows]),
            trusted=torch.arange(len(rows)) < len(trusted),
            trusted_weight=weight,
            start=start,
        )

    sources = voted.fit(left_out)
    head = fit(sources, 1.0, None)
    for _ in range(rounds - 1 if voted.uses_predictions else 0):
        sources = voted.refit(table, head, data.numbers, left_out)
        head = fit(sources, 1.0, head)
    return head, fit(sources, data.weight_for(_VOTES_SHARE, number), head), sources


# ---------------------------------------------------------------------- the members
class Members:
    """
    The members of the pool, fitted on the untrusted items and on some of the trusted ones.

    - `plain`: all labels as they are.
    - `trusted`: trusted items only.
    - `glc`: all items, with the loss corrected by the matrix; trusted items have 15 % of the weight.
    - `tuned`, `glc_tuned`: trusted items only, kept close to `plain` and to `glc` (calibrated), as fine-tuning would.
    - `stack`: trusted items only, on the features and the log-probabilities of the model of the noisy labels. It
      learns errors of the noisy labels that depend on the example.

    With the votes of several sources, `glc` is fitted with the likelihood of the votes, and three more members are:

    - `votes`: as `glc`, with all items weighted equally.
    - `majority`, `majority_tuned`: as `plain` and `tuned`, with the majority vote as label.

    Args:
        data ([`PoolData`]): The items.
        noisy ([`LinearHead`]): The model of the noisy labels, fitted on untrusted items.
        prior ([`Prior`]): Of the members that are fitted on untrusted items too.
        trusted_prior ([`Prior`]): Of the members that are fitted on trusted items only.
        tuning_prior ([`Prior`]): The same for members that start from another one.
        held_out (`int`, *optional*): Fold of the trusted items that are left out.

    Attributes:
        matrix: The refined matrix; `None` with several sources.
        sources: What the votes of each source say; `None` with one source.
        priors: The three of them.
    """

    def __init__(
        self,
        data: PoolData,
        noisy: LinearHead,
        prior: Prior,
        trusted_prior: Prior,
        tuning_prior: Prior,
        held_out: int | None = None,
    ) -> None:
        table, labels, classes = data.table, data.labels, data.num_labels
        self.data, self.noisy = data, noisy
        self.priors = prior, trusted_prior, tuning_prior
        self.matrix: Tensor | None = None
        self.sources: SourceModel | None = None
        mine = data.trusted if held_out is None else data.trusted[data.fold != held_out]
        rows = torch.cat([mine, data.untrusted])
        plain = table.fit(rows, labels[rows], classes, penalty=prior.penalty, start=noisy, prior=prior.root)
        self.heads = {
            "plain": plain,
            "trusted": table.fit(mine, labels[mine], classes, penalty=trusted_prior.penalty, prior=trusted_prior.root),
        }
        self.heads["glc"] = self._fit_corrected(mine, held_out)
        if data.voted is not None:
            most_votes = data.voted.majority(table.numbers)
            most_votes[mine] = labels[mine]
            self.heads["majority"] = table.fit(
                rows, most_votes[rows], classes, penalty=prior.penalty, start=plain, prior=prior.root
            )
        for name, center in _TUNED.items():
            if center in self.heads:
                near = calibrated(table, self.heads[center], mine, labels[mine])
                self.heads[name] = table.fit(
                    mine,
                    labels[mine],
                    classes,
                    penalty=tuning_prior.penalty,
                    start=near,
                    center=near,
                    prior=tuning_prior.root,
                )
        stacked = FeatureTable(self._stacked(mine), table.numbers[mine], table.reduce, table.device)
        stacked.scale[-classes:] /= _STACK_SCALE
        of_features = trusted_prior.root
        root = None if of_features is None else torch.block_diag(of_features, torch.eye(classes).to(of_features))
        self.stack = stacked.fit(
            torch.arange(len(mine)), labels[mine], classes, penalty=trusted_prior.penalty, prior=root
        )

    def _fit_corrected(self, mine: Tensor, held_out: int | None) -> LinearHead:
        """Fit `glc`, and the matrix or the sources with it, on the trusted rows `mine` and the untrusted rows."""
        data = self.data
        if data.voted is not None:
            left_out = None if held_out is None else data.numbers_of_fold(held_out)
            self.heads["votes"], head, self.sources = fit_with_votes(data, mine, self.priors[0], left_out)
            return head
        # The first round makes nearly all of the difference.
        rounds = 2 if held_out is None else 1
        self.matrix, head = fit_with_matrix(data, self.noisy, mine, data.untrusted, self.priors[0], rounds)
        return head

    def _stacked(self, rows: Tensor) -> Tensor:
        noisy = self.data.table.logits(self.noisy, rows).log_softmax(dim=-1).clamp(min=_LOWEST_LOG_PROB)
        return torch.cat([self.data.table.features[rows], noisy - noisy.mean(dim=-1, keepdim=True)], dim=1)

    def log_likelihood(self, rows: Tensor) -> Tensor:
        """`(n, K)`: ℓ of the votes on table rows, with several sources."""
        assert self.data.voted is not None
        assert self.sources is not None
        return self.data.voted.log_likelihood(self.sources, self.data.table.numbers[rows])

    def log_probs(self, rows: Tensor) -> Tensor:
        """`(n, M, K)` log-probabilities of the members for table rows, in the order of the members."""
        logits = {name: self.data.table.logits(head, rows) for name, head in self.heads.items()}
        logits["stack"] = self.stack.logits(self._stacked(rows).to(self.data.table.device)).cpu()
        return torch.stack([logits[name].log_softmax(dim=-1) for name in self.data.members], dim=1)


# ---------------------------------------------------------------------- the pool
@dataclass
class Pool:
    """
    softmax(Σ_m w_m · log p_m) over the members.

    Attributes:
        members: The members, fitted on all trusted items.
        weights: `(M,)`, in the order of the members.
        held_out: `(n, M + 1, K)` log-probabilities of the members and of the pool for the n trusted items, each from a
            fit without the item. The same on every process.
        labels: `(n,)`, their labels.
        given_weight: Weight of the given label of an item, or of the votes on it, beside the pool's prediction for it.
    """

    members: Members
    weights: Tensor
    held_out: Tensor
    labels: Tensor
    given_weight: float = _GIVEN_WEIGHT

    @property
    def matrix(self) -> Tensor | None:
        """The matrix that the members have refined; `None` with several sources."""
        return self.members.matrix

    @property
    def held_out_correct(self) -> dict[str, Tensor]:
        """Whether each member and the pool predicted the label of each trusted item, from a fit without the item."""
        correct = (self.held_out.argmax(dim=-1) == self.labels[:, None]).t()
        return dict(zip([*self.members.data.members, POOL], correct, strict=True))

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
        return (self.log_probs(rows) + self.given_weight * self._log_evidence(rows, soft)).softmax(dim=-1)

    def _log_evidence(self, rows: Tensor, soft: Tensor | None) -> Tensor:
        """`(n, K)`: log p(given label or votes | true label)."""
        data = self.members.data
        if data.voted is not None:
            return self.members.log_likelihood(rows)
        return self._log_likelihood(data.labels[rows] if soft is None else soft)

    def _log_likelihood(self, given: Tensor) -> Tensor:
        """`(n, K)`: log p(given label | true label), for labels `(n,)` or soft labels `(n, K)`."""
        assert self.matrix is not None
        by_label = self.matrix.t().float()
        likelihood = given @ by_label if given.is_floating_point() else by_label[given]
        return likelihood.clamp(min=_LOWEST_LIKELIHOOD).log()

    def weigh_given_labels(self, noisy: Tensor) -> None:
        """Set `given_weight` to the weight that makes the labels of trusted items most likely, with the noisy labels
        of these items, `(n,)`, -1 where they are not known."""
        known = noisy >= 0
        likelihood = self._log_likelihood(noisy[known])
        self.given_weight = _best_weight(self.held_out[known, -1], likelihood, self.labels[known])


def fit_pool(data: PoolData, noisy: LinearHead, penalty: float) -> Pool:
    """
    Fit the members in folds over the trusted items, weight them by the likelihood of the labels that each fold left
    out, and fit them again on all items.

    Args:
        data ([`PoolData`]): The items.
        noisy ([`LinearHead`]): The model of the noisy labels.
        penalty (`float`): Its weight decay.
    """
    reduce = data.table.reduce
    correlated = data.table.correlated_prior()
    roots = [None] if correlated is None else [None, correlated]
    # Few trusted items have large weights beside the untrusted ones, and need a prior there, too.
    few = data.num_trusted < _FEW_TRUSTED
    priors = Prior(penalty, correlated if few else None), best_prior(data, roots), best_prior(data, roots, noisy)
    folds = range(data.num_folds)
    prior = torch.tensor(list(data.members.values()))
    log_probs = torch.zeros(data.num_trusted, len(prior), data.num_labels)
    labels = torch.zeros(data.num_trusted, dtype=torch.int64)
    fold_of = torch.zeros(data.num_trusted, dtype=torch.int64)
    labels[data.position], fold_of[data.position] = data.labels[data.trusted], data.fold
    votes = torch.zeros(data.num_trusted, data.num_labels)
    for fold in folds if len(folds) > 1 else ():
        members = Members(data, noisy, *priors, held_out=fold)
        here = data.fold == fold
        log_probs[data.position[here]] = members.log_probs(data.trusted[here])
        if data.voted is not None:
            votes[data.position[here]] = members.log_likelihood(data.trusted[here])
    log_probs, labels, fold_of, votes = reduce(log_probs), reduce(labels), reduce(fold_of), reduce(votes)
    pooled = torch.zeros(data.num_trusted, 1, data.num_labels)
    for fold in folds:  # the weights, too, must not have seen the item
        here = fold_of == fold
        pooled[here, 0] = combine(log_probs[here], pool_weights(log_probs[~here], labels[~here], prior))
    members, held_out = Members(data, noisy, *priors), torch.cat([log_probs, pooled], dim=1)
    weight = _GIVEN_WEIGHT if data.voted is None else _best_weight(pooled[:, 0], votes, labels)
    return Pool(members, pool_weights(log_probs, labels, prior), held_out, labels, weight)


def _best_weight(log_probs: Tensor, votes: Tensor, labels: Tensor) -> float:
    """The weight of what votes say about an item, beside a prediction for it, that makes the labels most likely. Rules
    see the same words as the model does: their votes say less than they would alone."""
    losses = torch.stack([F.cross_entropy(log_probs + weight * votes, labels) for weight in _WEIGHTS])
    return _WEIGHTS[int(losses.argmin())] if len(labels) else 1.0


def combine(log_probs: Tensor, weights: Tensor) -> Tensor:
    """`(n, M, K)` → `(n, K)`: the weighted sum of log-probabilities, normalized."""
    return torch.einsum("m,nmk->nk", weights.to(log_probs), log_probs).log_softmax(dim=-1)


def pool_weights(log_probs: Tensor, labels: Tensor, prior: Tensor | None = None) -> Tensor:
    """
    Non-negative weights w that minimize the mean of -log softmax(Σ_m w_m · log p_m)[label], plus a penalty
    10/n · ‖w − prior‖² that keeps the weights close to the prior if items are few.

    Args:
        log_probs (`Tensor` of shape `(n, M, K)`): Log-probabilities of the members for items they were not fitted to.
        labels (`Tensor` of shape `(n,)`): The labels of these items.
        prior (`Tensor` of shape `(M,)`, *optional*): Defaults to that of `MEMBERS`.
    """
    prior = torch.tensor(list(MEMBERS.values())) if prior is None else prior
    prior = prior.double()
    if len(labels) == 0:
        return prior.float()
    log_probs, strength = log_probs.double(), _PRIOR / len(labels)

    def evaluate(raw: np.ndarray) -> tuple[float, np.ndarray]:
        """The loss and its gradient, for w = softplus(raw) > 0."""
        weights = F.softplus(torch.from_numpy(raw))
        pooled, distance = combine(log_probs, weights), weights - prior
        loss = F.nll_loss(pooled, labels) + strength * distance.square().sum()
        errors = (pooled.exp() - F.one_hot(labels, pooled.shape[1])) / len(labels)
        gradient = torch.einsum("nk,nmk->m", errors, log_probs) + 2 * strength * distance
        return float(loss), (gradient * -(-weights).expm1()).numpy()  # softplus' = 1 − exp(−softplus)

    raw = minimize(evaluate, prior.clamp(min=0.01).expm1().log().numpy(), max_iterations=200)
    return F.softplus(torch.from_numpy(raw)).float()


_PENALTIES = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5)


def best_prior(data: PoolData, roots: Sequence[Tensor | None], center: LinearHead | None = None) -> Prior:
    """The prior (around `center`) with which trusted items predict the others best, over the folds, with one of these
    roots."""
    table, classes = data.table, data.num_labels
    folds = range(data.num_folds) if data.num_trusted > 1 else range(0)
    rows = [(data.trusted[data.fold != fold], data.trusted[data.fold == fold]) for fold in folds]
    near = [None if center is None else calibrated(table, center, kept, data.labels[kept]) for kept, _ in rows]
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
