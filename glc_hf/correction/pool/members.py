# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The linear models of the true labels that a pool combines."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from glc_hf.correction.linear import FeatureTable, LinearHead, Prior
from glc_hf.correction.pool.discriminant import DiscriminantFit
from glc_hf.correction.pool.pool_data import DISCRIMINANTS, PoolData
from glc_hf.correction.refinement import fit_with_matrix
from glc_hf.correction.sources import SourceModel


# Share of the loss on trusted items in `glc`, with several sources of labels.
_VOTES_SHARE = 0.3
_STACK_SCALE = 3.0
# Members that are fitted to trusted items only, close to another member.
_CENTERS = {"tuned": "plain", "glc_tuned": "glc", "majority_tuned": "majority"}
_LOWEST_LOG_PROB, _LOWEST_LIKELIHOOD = -8.0, 1e-4
_DISCRIMINANT_ROUNDS = 3
# Of the logits of a discriminant: its features are no samples of a Gaussian, and it is too sure.
DISCRIMINANT_SCALE = 0.3
# Part of the probability that any class has, whatever a model says.
WRONG_ANYWAY = 0.02
_SCALE_ITEMS = 3.0  # strength of the prior of a scale, in trusted items


def combine(log_probs: Tensor, weights: Tensor) -> Tensor:
    """`(n, M, K)` → `(n, K)`: the weighted sum of log-probabilities, normalized."""
    return torch.einsum("m,nmk->nk", weights.to(log_probs), log_probs).log_softmax(dim=-1)


# ---------------------------------------------------------------------- fits
def label_losses(log_probs: Tensor, labels: Tensor) -> Tensor:
    """`(n,)`: -log(0.98 · p + 0.02/K), where p is the probability of the label. One label of which a model is
    sure that it is wrong does not outweigh all others."""
    right = log_probs.double().gather(-1, labels[:, None]).squeeze(-1).exp()
    return -((1 - WRONG_ANYWAY) * right + WRONG_ANYWAY / log_probs.shape[-1]).log()


def best_scale(
    logits: Tensor,
    labels: Tensor,
    reduce: Callable[[Tensor], Tensor] = lambda tensor: tensor,
    expected: float = 1.0,
    repeats: int = 1,
) -> float:
    """
    The t with the lowest sum of the losses of t · logits, plus 3 · (log t − log `expected`)², a prior for few labels,
    each of which is there `repeats` times.

    A model of noisy labels is as sure as these labels are, not as it should be of true ones. The labels must not be
    those that the model was fitted to, of which it is too sure.
    """
    scales = torch.logspace(-1.5, 0.75, 46)
    losses = [label_losses((scale * logits.double()).log_softmax(dim=-1), labels).sum() for scale in scales]
    penalty = repeats * _SCALE_ITEMS * (scales / expected).log().square()
    return float(scales[(reduce(torch.stack(losses)) + penalty).argmin()])


def scaled(head: LinearHead, scale: float) -> LinearHead:
    """The head with its logits times a number."""
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
        The model with all items weighted equally, the one in which trusted items have at least 30 % of the weight, and
        the sources.
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
    - `glc`: all items, with the loss corrected by the matrix; trusted items have at least 15 % of the weight.
    - `tuned`, `glc_tuned`: trusted items only, kept close to `plain` and to `glc` (scaled), as fine-tuning would.
    - `stack`: trusted items only, on the features and the log-probabilities of the model of the noisy labels. It
      learns errors of the noisy labels that depend on the example.

    With the votes of several sources, `glc` is fitted with the likelihood of the votes, and three more members are:

    - `votes`: as `glc`, with all items weighted equally.
    - `majority`, `majority_tuned`: as `plain` and `tuned`, with the majority vote as label.

    Two members are linear discriminants (see [`~correction.pool.discriminant`]) of the labels of the trusted items and
    the probable labels of the untrusted ones. They follow the classes as a whole, and not the errors that the members
    make on single items. The labels are then made more probable with the predictions, as in EM.

    - `discriminant`: of the labels that the other members predict.
    - `given_discriminant`: the same, given the noisy labels or the votes, which are right to use if their errors
      depend on the class only. Votes have a weight that trusted items have found.

    A new object has the members that depend on nothing else. [`~Members.tune`], [`~Members.fit_discriminants`] and
    [`~Members.scale`] fit the others, with scales and weights that other fits have found; so does
    [`~Members.complete`].

    Args:
        data ([`PoolData`]): The items.
        noisy ([`LinearHead`]): The model of the noisy labels, fitted on untrusted items.
        prior ([`Prior`]): Of the members that are fitted on untrusted items too.
        trusted_prior ([`Prior`]): Of the members that are fitted on trusted items only.
        tuning_prior ([`Prior`]): The same for members that start from another one.
        left_out (`Tensor` of shape `(n,)`, *optional*): Which of the trusted items of all processes are left out.

    Attributes:
        matrix: The refined matrix; `None` with several sources.
        sources: What the votes of each source say; `None` with one source.
        priors: The three of them.
        scales: The scales of the members that have one.
        given_weight: Weight of the noisy labels or the votes in `given_discriminant`.
    """

    def __init__(
        self,
        data: PoolData,
        noisy: LinearHead,
        prior: Prior,
        trusted_prior: Prior,
        tuning_prior: Prior,
        left_out: Tensor | None = None,
    ) -> None:
        table, labels, classes = data.table, data.labels, data.num_labels
        self.data, self.noisy = data, noisy
        self.priors = prior, trusted_prior, tuning_prior
        self.scales: dict[str, float] = {}
        self.given_weight = 1.0
        self.matrix: Tensor | None = None
        self.sources: SourceModel | None = None
        mine = data.trusted if left_out is None else data.trusted[~left_out[data.position]]
        self._trusted = mine
        rows = torch.cat([mine, data.untrusted])
        plain = table.fit(rows, labels[rows], classes, penalty=prior.penalty, start=noisy, prior=prior.root)
        self.heads = {
            "plain": plain,
            "trusted": table.fit(mine, labels[mine], classes, penalty=trusted_prior.penalty, prior=trusted_prior.root),
        }
        self.heads["glc"] = self._fit_corrected(mine, left_out)
        if data.voted is not None:
            most_votes = data.voted.majority(table.numbers)
            most_votes[mine] = labels[mine]
            self.heads["majority"] = table.fit(
                rows, most_votes[rows], classes, penalty=prior.penalty, start=plain, prior=prior.root
            )
        stacked = FeatureTable(self._stacked(mine), table.numbers[mine], table.reduce, table.device)
        stacked.scale[-classes:] /= _STACK_SCALE
        of_features = trusted_prior.root
        root = None if of_features is None else torch.block_diag(of_features, torch.eye(classes).to(of_features))
        self.stack = stacked.fit(
            torch.arange(len(mine)), labels[mine], classes, penalty=trusted_prior.penalty, prior=root
        )

    def _fit_corrected(self, mine: Tensor, left_out: Tensor | None) -> LinearHead:
        """Fit `glc`, and the matrix or the sources with it, on the trusted rows `mine` and the untrusted rows."""
        data = self.data
        if data.voted is not None:
            numbers = None if left_out is None else data.trusted_numbers[left_out].numpy()
            self.heads["votes"], head, self.sources = fit_with_votes(data, mine, self.priors[0], numbers)
            return head
        # The first round makes nearly all of the difference.
        rounds = 2 if left_out is None else 1
        self.matrix, head = fit_with_matrix(data, self.noisy, mine, data.untrusted, self.priors[0], rounds)
        return head

    def _stacked(self, rows: Tensor) -> Tensor:
        noisy = self.data.table.logits(self.noisy, rows).log_softmax(dim=-1).clamp(min=_LOWEST_LOG_PROB)
        return torch.cat([self.data.table.features[rows], noisy - noisy.mean(dim=-1, keepdim=True)], dim=1)

    # ------------------------------------------------------------------ members that need a scale
    @property
    def tuned(self) -> list[str]:
        """The members that are tuned, of those that can be."""
        return [name for name, center in _CENTERS.items() if center in self.heads]

    def center_logits(self, rows: Tensor, name: str) -> Tensor:
        """Logits of the model that a member is kept close to."""
        return self.data.table.logits(self.heads[_CENTERS[name]], rows)

    def tune(self, name: str, scale: float) -> None:
        """Fit a member to the trusted items, close to another one, whose logits are multiplied by `scale`."""
        data, mine, prior = self.data, self._trusted, self.priors[2]
        near = scaled(self.heads[_CENTERS[name]], scale)
        self.scales[name] = scale
        self.heads[name] = data.table.fit(
            mine,
            data.labels[mine],
            data.num_labels,
            penalty=prior.penalty,
            start=near,
            center=near,
            prior=prior.root,
        )

    def fit_discriminants(self, weights: Tensor, given_weight: float = 1.0) -> None:
        """
        Fit the discriminants; they have no scale yet.

        Args:
            weights (`Tensor` of shape `(M,)`): Of the other members.
            given_weight (`float`, *optional*, defaults to 1.0): Of the noisy labels or the votes beside them.
        """
        data = self.data
        assert data.scatter_root is not None
        known = F.one_hot(data.labels[self._trusted], data.num_labels).float()
        rows = torch.cat([self._trusted, data.untrusted])
        fit = DiscriminantFit(data.table, data.scatter_root, rows, data.num_labels)
        pooled, given = combine(self.log_probs(data.untrusted), weights), self.log_evidence(data.untrusted)
        self.given_weight = given_weight
        for name, weight in zip(DISCRIMINANTS, (0.0, given_weight), strict=True):
            predicted = torch.zeros(())
            for _ in range(_DISCRIMINANT_ROUNDS):
                probs = (pooled + predicted + weight * given).softmax(dim=-1)
                head = fit.fit(torch.cat([known, probs]))
                predicted = data.table.logits(head, data.untrusted).log_softmax(dim=-1)
            self.heads[name] = head

    def scale(self, name: str, scale: float) -> None:
        """Multiply the logits of a discriminant."""
        self.scales[name] = scale
        self.heads[name] = scaled(self.heads[name], scale)

    def complete(self, scales: dict[str, float], weights: Tensor, given_weight: float = 1.0) -> None:
        """Fit all other members, with the scales of other fits, and with these weights of the first members and of the
        noisy labels or the votes."""
        for name in self.tuned:
            self.tune(name, scales[name])
        if self.data.scatter_root is not None:
            self.fit_discriminants(weights, given_weight)
            for name in DISCRIMINANTS:
                self.scale(name, scales[name])

    # ------------------------------------------------------------------ predictions
    def logits(self, rows: Tensor, name: str) -> Tensor:
        """Logits of a member for table rows."""
        return self.data.table.logits(self.heads[name], rows)

    def log_evidence(self, rows: Tensor, soft: Tensor | None = None) -> Tensor:
        """`(n, K)`: log p(given label or votes | true label) of table rows, or of their soft labels `(n, K)`."""
        if self.data.voted is None:
            return self.log_label_likelihood(self.data.labels[rows] if soft is None else soft)
        assert self.sources is not None
        return self.data.voted.log_likelihood(self.sources, self.data.table.numbers[rows])

    def log_label_likelihood(self, given: Tensor) -> Tensor:
        """`(n, K)`: log p(given label | true label), for labels `(n,)` or soft labels `(n, K)`, with one source."""
        assert self.matrix is not None
        by_label = self.matrix.t().float()
        likelihood = given @ by_label if given.is_floating_point() else by_label[given]
        return likelihood.clamp(min=_LOWEST_LIKELIHOOD).log()

    def log_probs(self, rows: Tensor) -> Tensor:
        """`(n, M, K)` log-probabilities of the fitted members for table rows, in the order of the members."""
        logits = {name: self.data.table.logits(head, rows) for name, head in self.heads.items()}
        logits["stack"] = self.stack.logits(self._stacked(rows).to(self.data.table.device)).cpu()
        return torch.stack([logits[name].log_softmax(dim=-1) for name in self.data.members if name in logits], dim=1)
