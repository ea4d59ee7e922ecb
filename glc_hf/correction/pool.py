# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Linear models of the true labels on fixed features, and a pool of them weighted on trusted labels that they have not
been fitted to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from glc_hf.correction.linear import FeatureTable, LinearHead
from glc_hf.correction.refinement import most_likely_matrix, rare_class_threshold, symmetric_noise
from glc_hf.randomness import random_uint64


# The members of the pool, and their weights before any trusted label is seen. `glc` uses both kinds of labels.
MEMBERS = {"plain": 0.1, "trusted": 0.05, "glc": 0.35, "tuned": 0.2, "glc_tuned": 0.25, "stack": 0.05}
POOL = "pool"
FOLDS = 5
# Share of the loss on trusted items in `glc`.
_SHARE = 0.15
# Strength of the prior of the weights, in trusted items.
_PRIOR = 10.0
_MAX_TRUSTED, _MAX_UNTRUSTED = 2000, 20_000
_MAX_PRODUCTS = 4 * 10**9  # items × features × classes of one fit
_STACK_SCALE = 3.0
_LOWEST_LOG_PROB = -8.0


@dataclass
class PoolData:
    """
    The items that the members are fitted on: features, labels and flags of this process, and the folds.

    Attributes:
        table: The features.
        trusted, untrusted: Table rows of the items of each kind that are used.
        labels: `(N,)`, the given label of each table row.
        fold: `(len(trusted),)`, the fold of each trusted item.
        position: `(len(trusted),)`, its position in `trusted_numbers`.
        trusted_numbers: Numbers of the trusted items of all processes, ascending.
        num_untrusted: Untrusted items of all processes.
        num_labels: K.
    """

    table: FeatureTable
    trusted: Tensor
    untrusted: Tensor
    labels: Tensor
    fold: Tensor
    position: Tensor
    trusted_numbers: Tensor
    num_untrusted: int
    num_labels: int

    @property
    def num_trusted(self) -> int:
        """Number of trusted items of all processes."""
        return len(self.trusted_numbers)

    @classmethod
    def of(
        cls,
        table: FeatureTable,
        labels: np.ndarray,
        trusted: np.ndarray,
        untrusted: np.ndarray,
        num_labels: int,
        seed: int,
    ) -> PoolData:
        """
        Choose the items, the same ones for any number of processes.

        Args:
            table ([`FeatureTable`]): The features of this process's items.
            labels (`np.ndarray`): The given labels of all items of the dataset.
            trusted, untrusted (`np.ndarray`): Numbers of the items of each kind, of all processes.
            num_labels (`int`): K.
            seed (`int`): Chooses the items if there are too many, and the folds.
        """
        most = max(2 * num_labels, _MAX_PRODUCTS // (table.features.shape[1] * num_labels))
        trusted = _some("pool trusted", seed, trusted, min(most, _MAX_TRUSTED))
        untrusted = _some("pool untrusted", seed, untrusted, min(most, _MAX_UNTRUSTED))
        # Folds with equal shares of each class: by class, then at random.
        order = np.lexsort((random_uint64("fold", seed, trusted), labels[trusted]))
        fold = np.empty(len(trusted), dtype=np.int64)
        fold[order] = np.arange(len(trusted)) % min(FOLDS, max(len(trusted), 1))
        rows = table.rows_of(torch.from_numpy(trusted))
        position = torch.from_numpy(np.searchsorted(trusted, table.numbers[rows].numpy()))
        return cls(
            table,
            rows,
            table.rows_of(torch.from_numpy(untrusted)),
            torch.from_numpy(np.asarray(labels))[table.numbers],
            torch.from_numpy(fold)[position],
            position,
            torch.from_numpy(trusted),
            len(untrusted),
            num_labels,
        )

    def weight_for(self, share: float, trusted: int) -> float:
        """Weight of each of these trusted items that gives them a share of the loss; at least 1."""
        return max(1.0, share / (1 - share) * self.num_untrusted / max(trusted, 1))


def _some(purpose: str, seed: int, numbers: np.ndarray, most: int) -> np.ndarray:
    if len(numbers) <= most:
        return np.sort(numbers)
    return np.sort(numbers[np.argsort(random_uint64(purpose, seed, numbers), kind="stable")[:most]])


# ---------------------------------------------------------------------- the matrix
def smoothed_estimate(sums: Tensor, counts: Tensor) -> Tensor:
    """
    The gold estimate with one more row per class: a row of average noise, so that classes with few trusted items, or
    none, are close to it.

    Args:
        sums (`Tensor` of shape `(K, K)`): Sums of p̂(noisy label | x) over the trusted items of each class.
        counts (`Tensor` of shape `(K,)`): Number of these items.
    """
    sums, counts = sums.double(), counts.double()
    seen = counts > 0
    diagonal = float((sums.diagonal()[seen] / counts[seen]).mean()) if seen.any() else 1.0
    smoothed = sums + symmetric_noise(len(sums), diagonal).to(sums)
    return smoothed / smoothed.sum(dim=1, keepdim=True)


def refine_with_linear_model(
    table: FeatureTable,
    rows: Tensor,
    labels: Tensor,
    trusted: Tensor,
    untrusted: Tensor,
    estimate: Tensor,
    counts: Tensor,
    *,
    penalty: float,
    trusted_weight: float,
    rounds: int = 2,
) -> tuple[Tensor, LinearHead]:
    """
    Refine a matrix with a linear model of the true labels. The model is fitted with the loss corrected by the current
    matrix, and the matrix becomes the most likely one given the model; see
    [`~correction.refinement.most_likely_matrix`]. After two rounds it hardly changes.

    Args:
        table ([`FeatureTable`]): The features.
        rows (`Tensor` of shape `(n,)`): Table rows to fit on.
        labels (`Tensor` of shape `(N,)`): The given label of each table row.
        trusted (`Tensor` of shape `(n,)`): Flags of `rows`.
        untrusted (`Tensor`): Table rows of the untrusted items that the matrix should explain.
        estimate (`Tensor` of shape `(K, K)`): The first estimate.
        counts (`Tensor` of shape `(K,)`): Number of trusted items behind each of its rows.
        penalty (`float`): Weight decay of the model.
        trusted_weight (`float`): Weight of each trusted item.
        rounds (`int`, *optional*, defaults to 2): How often.

    Returns:
        The matrix, and the head of the last round.
    """
    matrix, head = estimate, None
    for _ in range(rounds):
        head = table.fit(
            rows,
            labels[rows],
            len(estimate),
            penalty=penalty,
            matrix=matrix,
            trusted=trusted,
            trusted_weight=trusted_weight,
            start=head,
        )
        matrix = most_likely_matrix(
            table.logits(head, untrusted).softmax(dim=-1),
            labels[untrusted],
            estimate,
            counts.clamp(min=rare_class_threshold(counts)),
            reduce=table.reduce,
        )
    return matrix, head


# ---------------------------------------------------------------------- the members
class Members:
    """
    The members of the pool, fitted on the untrusted items and on some of the trusted ones.

    - `plain`: all labels as they are.
    - `trusted`: trusted items only.
    - `glc`: all items, with the loss corrected by the matrix; trusted items have 15 % of the weight.
    - `tuned`, `glc_tuned`: trusted items only, kept close to `plain` and to `glc`, as fine-tuning would.
    - `stack`: trusted items only, on the features and the log-probabilities of the model of the noisy labels. It
      learns errors of the noisy labels that depend on the example.

    Args:
        data ([`PoolData`]): The items.
        noisy ([`LinearHead`]): The model of the noisy labels, fitted on untrusted items.
        penalty (`float`): Its weight decay, also for the members that are fitted on untrusted items.
        trusted_penalty (`float`): Weight decay of the members that are fitted on trusted items only.
        tuning_penalty (`float`): The same for members that start from another one.
        held_out (`int`, *optional*): Fold of the trusted items that are left out.

    Attributes:
        matrix: The refined matrix.
    """

    def __init__(
        self,
        data: PoolData,
        noisy: LinearHead,
        penalty: float,
        trusted_penalty: float,
        tuning_penalty: float,
        held_out: int | None = None,
    ) -> None:
        table, labels, classes = data.table, data.labels, data.num_labels
        self.data, self.noisy = data, noisy
        mine = data.trusted if held_out is None else data.trusted[data.fold != held_out]
        rows = torch.cat([mine, data.untrusted])
        flags = torch.arange(len(rows)) < len(mine)
        sums = torch.zeros(classes, classes + 1, dtype=torch.float64)
        probs = F.pad(table.logits(noisy, mine).double().softmax(dim=-1), (0, 1), value=1.0)
        sums = table.reduce(sums.index_add_(0, labels[mine], probs))
        counts = sums[:, -1]
        number = int(counts.sum())
        self.matrix, glc = refine_with_linear_model(
            table,
            rows,
            labels,
            flags,
            data.untrusted,
            smoothed_estimate(sums[:, :-1], counts),
            counts,
            penalty=penalty,
            trusted_weight=data.weight_for(_SHARE, number),
            # The first round makes nearly all of the difference.
            rounds=2 if held_out is None else 1,
        )
        self.heads = {
            "plain": table.fit(rows, labels[rows], classes, penalty=penalty, start=noisy),
            "trusted": table.fit(mine, labels[mine], classes, penalty=trusted_penalty),
            "glc": glc,
        }
        for name, center in (("tuned", "plain"), ("glc_tuned", "glc")):
            self.heads[name] = table.fit(
                mine,
                labels[mine],
                classes,
                penalty=tuning_penalty,
                start=self.heads[center],
                center=self.heads[center],
            )
        stacked = FeatureTable(self._stacked(mine), table.numbers[mine], table.reduce, table.device)
        stacked.scale[-classes:] /= _STACK_SCALE
        self.stack = stacked.fit(torch.arange(len(mine)), labels[mine], classes, penalty=trusted_penalty)

    def _stacked(self, rows: Tensor) -> Tensor:
        noisy = self.data.table.logits(self.noisy, rows).log_softmax(dim=-1).clamp(min=_LOWEST_LOG_PROB)
        return torch.cat([self.data.table.features[rows], noisy - noisy.mean(dim=-1, keepdim=True)], dim=1)

    def log_probs(self, rows: Tensor) -> Tensor:
        """`(n, M, K)` log-probabilities of the members for table rows, in the order of `MEMBERS`."""
        logits = {name: self.data.table.logits(head, rows) for name, head in self.heads.items()}
        logits["stack"] = self.stack.logits(self._stacked(rows).to(self.data.table.device)).cpu()
        return torch.stack([logits[name].log_softmax(dim=-1) for name in MEMBERS], dim=1)


# ---------------------------------------------------------------------- the pool
@dataclass
class Pool:
    """
    softmax(Σ_m w_m · log p_m) over the members.

    Attributes:
        members: The members, fitted on all trusted items.
        weights: `(M,)`, in the order of `MEMBERS`.
        held_out: `(n, M + 1, K)` log-probabilities of the members and of the pool for the n trusted items, each from a
            fit without the item. The same on every process.
        labels: `(n,)`, their labels.
    """

    members: Members
    weights: Tensor
    held_out: Tensor
    labels: Tensor

    @property
    def matrix(self) -> Tensor:
        """The matrix that the members have refined."""
        return self.members.matrix

    def log_probs(self, rows: Tensor) -> Tensor:
        """`(n, K)` for table rows."""
        parts = [combine(self.members.log_probs(some), self.weights) for some in rows.split(2**14)]
        return torch.cat(parts) if parts else torch.empty(0, self.members.data.num_labels)


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
    penalties = (penalty, _best_penalty(data), _best_penalty(data, noisy))
    folds = range(min(FOLDS, data.num_trusted))
    log_probs = torch.zeros(data.num_trusted, len(MEMBERS), data.num_labels)
    labels = torch.zeros(data.num_trusted, dtype=torch.int64)
    fold_of = torch.zeros(data.num_trusted, dtype=torch.int64)
    labels[data.position], fold_of[data.position] = data.labels[data.trusted], data.fold
    for fold in folds if len(folds) > 1 else ():
        members = Members(data, noisy, *penalties, held_out=fold)
        here = data.fold == fold
        log_probs[data.position[here]] = members.log_probs(data.trusted[here])
    log_probs, labels, fold_of = reduce(log_probs), reduce(labels), reduce(fold_of)
    pooled = torch.zeros(data.num_trusted, 1, data.num_labels)
    for fold in folds:  # the weights, too, must not have seen the item
        here = fold_of == fold
        pooled[here, 0] = combine(log_probs[here], pool_weights(log_probs[~here], labels[~here]))
    members = Members(data, noisy, *penalties)
    return Pool(members, pool_weights(log_probs, labels), torch.cat([log_probs, pooled], dim=1), labels)


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
    raw = prior.clamp(min=0.01).expm1().log().requires_grad_()  # w = softplus(raw) > 0
    optimizer = torch.optim.LBFGS([raw], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        weights = F.softplus(raw)
        loss = F.nll_loss(combine(log_probs, weights), labels) + strength * (weights - prior).square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return F.softplus(raw).detach().float()


_PENALTIES = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5)


def _best_penalty(data: PoolData, center: LinearHead | None = None) -> float:
    """The weight decay (towards `center`) with which trusted items predict the others best, over the folds."""
    table, classes = data.table, data.num_labels
    losses = torch.zeros(len(_PENALTIES), dtype=torch.float64)
    for fold in range(min(FOLDS, data.num_trusted)) if data.num_trusted > 1 else ():
        kept, left_out = data.trusted[data.fold != fold], data.trusted[data.fold == fold]
        head = center
        for index, penalty in enumerate(_PENALTIES):
            head = table.fit(kept, data.labels[kept], classes, penalty=penalty, start=head, center=center)
            logits = table.logits(head, left_out)
            losses[index] += F.cross_entropy(logits, data.labels[left_out], reduction="sum").double()
    return _PENALTIES[int(table.reduce(losses).argmin())]
