# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""A linear softmax classifier on fixed features, fitted to convergence: the cheap first stage."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from glc_hf.lbfgs import minimize
from glc_hf.randomness import random_uint64


if TYPE_CHECKING:
    from glc_hf.data.feature_files import MappedRows

_NUMBERS_AT_ONCE = 2**25  # features or logits in memory at a time
_PENALTIES = tuple(10 ** (-exponent / 2) for exponent in range(4, 15))  # 1e-2 … 1e-7
_DEFAULT_PENALTY = 1e-4
_MAX_ITERATIONS = 200
_MAX_HISTORY_NUMBERS = 2**27  # in the history of L-BFGS; each step takes twice the size of the head
_CORRELATION_ROWS = 20_000  # behind the correlation of the features, about
_MAX_CORRELATED = 2048  # features; with more, their correlation takes longer than the fits


@dataclass
class LinearHead:
    """
    softmax(((x − mean) / scale) · weight + bias).

    Args:
        weight (`Tensor` of shape `(D, K)`), bias (`Tensor` of shape `(K,)`): For the standardized features.
        mean (`Tensor` of shape `(D,)`), scale (`Tensor` of shape `(D,)`): The standardization. `scale` includes √D, so
            that a penalty has the same effect for any number of features.
    """

    weight: Tensor
    bias: Tensor
    mean: Tensor
    scale: Tensor

    def logits(self, features: Tensor) -> Tensor:
        """(..., D) → (..., K)."""
        weight = self.weight / self.scale.unsqueeze(1)
        # For few classes this is several times as fast as `features @ weight`.
        return F.linear(features, weight.t().contiguous(), self.bias - self.mean @ weight)

    def to(self, device: torch.device | str) -> LinearHead:
        """Return a copy on another device."""
        return LinearHead(*(tensor.to(device) for tensor in (self.weight, self.bias, self.mean, self.scale)))


class Prior(NamedTuple):
    """
    What keeps the weights of a head small if items are few.

    Attributes:
        penalty: Weight decay.
        root: Of the correlated prior; `None` if the weights of all features are equally large before items are seen.
            See [`FeatureTable.correlated_prior`].
    """

    penalty: float
    root: Tensor | None = None


class _Chunk(NamedTuple):
    """
    Rows that a head is fitted to.

    Attributes:
        features: `(n, D)`.
        labels: `(n, 1)`.
        weights: `(n, 1)`, of their losses.
        likelihood: `(n, K)`: log p(label or votes | true label); `None` for plain cross-entropy.
        sure: `(n, 1)`: rows with plain cross-entropy all the same.
    """

    features: Tensor
    labels: Tensor
    weights: Tensor
    likelihood: Tensor | None
    sure: Tensor | None

    def loss_and_errors(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The weighted sum of the losses, and its gradient with respect to the logits."""
        log_probs = logits.log_softmax(dim=-1)
        losses, errors = -log_probs.gather(1, self.labels), log_probs.exp()
        if self.likelihood is None:
            errors.scatter_add_(1, self.labels, torch.full_like(losses, -1.0))
        else:
            joint = log_probs + self.likelihood
            total = joint.logsumexp(dim=-1, keepdim=True)
            explained = joint.sub_(total).exp_()
            if self.sure is not None:
                losses = torch.where(self.sure, losses, -total)
                explained.mul_(~self.sure).scatter_add_(1, self.labels, self.sure.to(explained.dtype))
            else:
                losses = -total
            errors -= explained
        return (losses * self.weights).sum(), errors.mul_(self.weights)


class FeatureTable:
    """
    The fixed features of this process's items, read in chunks: they can be a memory-mapped file larger than memory.

    Args:
        features (`Tensor` of shape `(N, D)`): In float32.
        numbers (`Tensor` of shape `(N,)`): The number of each item in the dataset.
        reduce (`Callable`, *optional*): Sum of a tensor over processes; every process calls it equally often.
        device (`torch.device`, *optional*): Where to compute.
    """

    def __init__(
        self,
        features: Tensor | MappedRows,
        numbers: Tensor,
        reduce: Callable[[Tensor], Tensor] = lambda tensor: tensor,
        device: torch.device | str = "cpu",
    ) -> None:
        self.features = features
        self.numbers = numbers
        self.reduce = reduce
        self.device = device
        self.mean, self.scale = self._standardization()
        self._correlation: Tensor | None = None

    def chunks(
        self, rows: Tensor, width: int, prepare: Callable[[Tensor, Tensor], Any] = lambda chunk, part: (chunk, part)
    ) -> Callable[[], Iterable[Any]]:
        """Return a function that iterates over what `prepare` makes of the features of `rows` and their positions in
        `rows`. A single chunk is read and prepared only once."""
        at_once = max(1, _NUMBERS_AT_ONCE // max(width, self.features.shape[1]))

        def read() -> Iterator[Any]:
            for part in torch.arange(len(rows)).split(at_once):
                yield prepare(self.features[rows[part]].to(self.device), part.to(self.device))

        if len(rows) > at_once:
            return read
        chunks = list(read())
        return lambda: chunks

    def _standardization(self) -> tuple[Tensor, Tensor]:
        width = self.features.shape[1]
        chunks = self.chunks(torch.arange(len(self.features)), width)
        sums = torch.zeros(2, width, dtype=torch.float64)
        for chunk, _ in chunks():
            sums[0] += chunk.double().sum(dim=0).cpu()
        count = float(self.reduce(torch.tensor([float(len(self.features))], dtype=torch.float64)))
        mean = self.reduce(sums[0]) / count
        for chunk, _ in chunks():
            sums[1] += (chunk.double() - mean.to(chunk.device)).square().sum(dim=0).cpu()
        deviation = (self.reduce(sums[1]) / count).sqrt()
        # A constant feature is not scaled up.
        scale = torch.where(deviation > 1e-6 * mean.abs() + 1e-12, deviation, torch.ones_like(deviation))
        return mean.float().to(self.device), (scale * math.sqrt(width)).float().to(self.device)

    def correlation(self) -> Tensor | None:
        """`(D, D)`: the correlation of the features, in float64 on the CPU, from about 20,000 items of all processes;
        `None` if there are too many features. It is computed once."""
        width = self.features.shape[1]
        if width > _MAX_CORRELATED:
            return None
        if self._correlation is None:
            count = float(self.reduce(torch.tensor([float(len(self.features))], dtype=torch.float64)))
            # The same items for any number of processes.
            draws = torch.from_numpy(random_uint64("prior", 0, self.numbers.numpy()) / 2.0**64)
            rows = (draws * count < _CORRELATION_ROWS).nonzero().squeeze(1)
            sums = torch.zeros(width + 1, width, dtype=torch.float64)
            for chunk, part in self.chunks(rows, width)():
                standardized = ((chunk - self.mean) / self.scale).double().cpu() * math.sqrt(width)
                sums[:-1] += standardized.t() @ standardized
                sums[-1] += len(part)
            sums = self.reduce(sums)
            self._correlation = sums[:-1] / sums[-1].clamp(min=1.0)
        return self._correlation

    def correlated_prior(self) -> Tensor | None:
        """
        `(D, D)`: the root L of a prior N(0, L · Lᵀ) of the weights of a head, L · Lᵀ ∝ ½ · I + ½ · correlation of the
        features. Directions in which the features of a pretrained network differ more say more about the classes. With
        few rows, the weights of other directions would only fit what is particular to these rows. `None` if there are
        too many features.
        """
        correlation = self.correlation()
        if correlation is None:
            return None
        width = len(correlation)
        mixed = (correlation + torch.eye(width, dtype=torch.float64)) / 2
        # A penalty has the same effect with any prior: the variance of the features times L is 1 on average.
        mixed /= ((mixed * correlation).sum() / width).clamp(min=1e-6)
        return torch.linalg.cholesky(mixed).float().to(self.device)

    def rows_of(self, numbers: Tensor) -> Tensor:
        """Return the table rows of these item numbers, without the items of other processes."""
        return torch.isin(self.numbers, numbers).nonzero().squeeze(1)

    def gather(self, numbers: np.ndarray, width: int, predict: Callable[[Tensor], Tensor]) -> Tensor:
        """`(len(numbers), width)`: what `predict` returns for the table rows of these items, which are ascending, from
        all processes."""
        rows = self.rows_of(torch.from_numpy(numbers))
        values = torch.zeros(len(numbers), width)
        values[torch.from_numpy(np.searchsorted(numbers, self.numbers[rows].numpy()))] = predict(rows)
        return self.reduce(values)

    def logits(self, head: LinearHead, rows: Tensor) -> Tensor:
        """Return the logits of a head for these rows, on the CPU."""
        logits = [head.logits(chunk).cpu() for chunk, _ in self.chunks(rows, len(head.bias))()]
        return torch.cat(logits) if logits else torch.empty(0, len(head.bias))

    def fit(
        self,
        rows: Tensor,
        labels: Tensor,
        num_labels: int,
        *,
        penalty: float,
        matrix: Tensor | None = None,
        log_likelihood: Tensor | None = None,
        trusted: Tensor | None = None,
        trusted_weight: float = 1.0,
        start: LinearHead | None = None,
        center: LinearHead | None = None,
        prior: Tensor | None = None,
    ) -> LinearHead:
        """
        Fit the head that minimizes the mean loss plus `penalty` · ‖L⁻¹ · weight‖², by full-batch L-BFGS.

        Args:
            rows, labels (`Tensor` of shape `(n,)`): Table rows and their labels.
            num_labels (`int`): K.
            penalty (`float`): Weight decay.
            matrix (`Tensor` of shape `(K, K)`, *optional*): With it the head learns true labels: the loss is
                -log Σ_i softmax_i · matrix[i, label]. Without it, plain cross-entropy.
            log_likelihood (`Tensor` of shape `(n, K)`, *optional*): Of the votes on each row, given each true label,
                in place of `matrix`: the loss is -log Σ_i softmax_i · exp(log_likelihood_i).
            trusted (`Tensor` of shape `(n,)`, *optional*): Rows whose labels are correct; they get no correction.
            trusted_weight (`float`, *optional*, defaults to 1.0): Weight of each trusted row.
            start ([`LinearHead`], *optional*): Initial weights.
            center ([`LinearHead`], *optional*): The penalty is `penalty` · ‖L⁻¹ · (weight − center.weight)‖², and
                ‖bias − center.bias‖² for the bias.
            prior (`Tensor` of shape `(D, D)`, *optional*): L, lower triangular, such as `correlated_prior`. Defaults
                to the identity.
        """
        labels = labels.to(self.device)
        weights = torch.ones(len(rows), device=self.device)
        by_label = None  # log p(label | true label), a row per label
        if matrix is not None:
            by_label = matrix.to(self.device, torch.float32).clamp(min=1e-12).log().t()
        elif log_likelihood is not None:
            log_likelihood = log_likelihood.to(self.device, torch.float32)
        if trusted is not None:
            trusted = trusted.to(self.device)
            weights[trusted] = trusted_weight
        weights /= float(self.reduce(weights.double().sum().cpu().unsqueeze(0)))
        # The variables are L⁻¹ · weight, a row per class, and the bias.
        shape, size = (num_labels, self.features.shape[1]), num_labels * self.features.shape[1]
        variables = np.zeros(size + num_labels, dtype=np.float32)
        if start is not None:
            variables = self._variables(start, prior)
        # Without a center, the bias is free: it has to fit the frequencies of the classes.
        middle, penalized = np.zeros(size, dtype=np.float32), size
        if center is not None:
            middle, penalized = self._variables(center, prior), len(variables)

        def prepare(chunk: Tensor, part: Tensor) -> _Chunk:
            if prior is not None:  # it multiplies the features once, and not the weights in every evaluation
                chunk = ((chunk - self.mean) / self.scale) @ prior
            own, likelihood, sure = labels[part].unsqueeze(1), None, None
            if by_label is not None:
                likelihood = by_label[labels[part]]
            elif log_likelihood is not None:
                likelihood = log_likelihood[part]
            if likelihood is not None and trusted is not None:
                sure = trusted[part].unsqueeze(1)
            return _Chunk(chunk, own, weights[part].unsqueeze(1), likelihood, sure)

        chunks = self.chunks(rows, num_labels, prepare)

        def evaluate(variables: np.ndarray) -> tuple[float, np.ndarray]:
            given = torch.from_numpy(variables).to(self.device)
            weight, bias = given[:size].view(shape), given[size:]
            if prior is None:
                weight = weight / self.scale
                bias = bias - weight @ self.mean
            sums = torch.zeros(size + num_labels + 1, dtype=torch.float64)
            for chunk in chunks():
                loss, errors = chunk.loss_and_errors(F.linear(chunk.features, weight, bias))
                products, errors = errors.t() @ chunk.features, errors.sum(dim=0)
                if prior is None:
                    products = products.addr_(errors, self.mean, alpha=-1).div_(self.scale)
                sums += torch.cat([products.view(-1), errors, loss.view(1)]).cpu()
            total = self.reduce(sums).numpy()
            distance = variables[:penalized] - middle
            gradient = total[:-1].astype(np.float32)
            gradient[:penalized] += 2 * penalty * distance
            return float(total[-1]) + penalty * float(distance @ distance), gradient

        found = minimize(
            evaluate,
            variables,
            max_iterations=_MAX_ITERATIONS,
            history_size=max(5, min(100, _MAX_HISTORY_NUMBERS // (2 * len(variables)))),
            tolerance_gradient=1e-6,
            tolerance_change=1e-7,
        )
        parameters = torch.from_numpy(found).to(self.device)
        weight = parameters[:size].view(shape).t()
        weight = weight.contiguous() if prior is None else prior @ weight
        return LinearHead(weight, parameters[size:], self.mean, self.scale)

    @staticmethod
    def _variables(head: LinearHead, prior: Tensor | None) -> np.ndarray:
        """L⁻¹ · weight, a row per class, and the bias of a head as one array, a copy."""
        weight = head.weight
        if prior is not None:
            weight = torch.linalg.solve_triangular(prior, weight.to(prior.device), upper=False)
        return torch.cat([weight.t().reshape(-1).cpu(), head.bias.cpu()]).numpy()

    def fit_path(
        self, rows: Tensor, labels: Tensor, num_labels: int, held_out: Tensor
    ) -> tuple[LinearHead, float, list[float]]:
        """
        Fit the head with the penalty that has the lowest held-out loss. Penalties are tried from strong to weak, each
        fit starting from the one before, until the loss rises. The head is then refitted on all rows.

        Args:
            rows, labels (`Tensor` of shape `(n,)`): Table rows and their labels.
            num_labels (`int`): K.
            held_out (`Tensor` of shape `(n,)`): Mask of the rows that choose the penalty.

        Returns:
            The head, its penalty, and the mean held-out loss of each penalty tried.
        """
        fitted, num_held_out = ~held_out, self.reduce(held_out.sum().double().unsqueeze(0))
        if num_held_out == 0:
            return self.fit(rows, labels, num_labels, penalty=_DEFAULT_PENALTY), _DEFAULT_PENALTY, []
        best: tuple[float, LinearHead | None, float] = (math.inf, None, _PENALTIES[0])
        head, losses = None, []
        for penalty in _PENALTIES:
            head = self.fit(rows[fitted], labels[fitted], num_labels, penalty=penalty, start=head)
            logits = self.logits(head, rows[held_out])
            loss = F.cross_entropy(logits, labels[held_out], reduction="sum").double()
            losses.append(float(self.reduce(loss.unsqueeze(0)) / num_held_out))
            if losses[-1] >= best[0]:
                break
            best = (losses[-1], head, penalty)
        head = self.fit(rows, labels, num_labels, penalty=best[2], start=best[1])
        return head, best[2], losses


class Probe(Protocol):
    """A stage that is a linear head on fixed features."""

    @property
    def table(self) -> FeatureTable: ...

    @property
    def head(self) -> LinearHead: ...

    penalty: float

    @property
    def untrusted_numbers(self) -> np.ndarray:
        """Numbers of the untrusted items in the tables of all processes, ascending."""
        ...
