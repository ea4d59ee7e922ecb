# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""A linear softmax classifier on fixed features, fitted to convergence: the cheap first stage."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from glc_hf.randomness import random_uint64


if TYPE_CHECKING:
    from glc_hf.data.feature_files import MappedRows

_NUMBERS_AT_ONCE = 2**25  # features or logits in memory at a time
_PENALTIES = tuple(10 ** (-exponent / 2) for exponent in range(4, 15))  # 1e-2 … 1e-7
_DEFAULT_PENALTY = 1e-4
_MAX_ITERATIONS = 200
_MAX_HISTORY_NUMBERS = 2**27  # in the history of L-BFGS; each step takes twice the size of the head
_COVARIANCE_ROWS = 20_000  # behind the correlated prior, about
_MAX_PRIOR_FEATURES = 2048  # with more, the prior takes longer than the fits


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

    def _chunks(
        self, rows: Tensor, width: int, prepare: Callable[[Tensor], Tensor] = lambda chunk: chunk
    ) -> Callable[[], Iterable[tuple[Tensor, Tensor]]]:
        """Return a function that iterates over the prepared features of `rows` and their positions in `rows`. A single
        chunk is read and prepared only once."""
        at_once = max(1, _NUMBERS_AT_ONCE // max(width, self.features.shape[1]))

        def read() -> Iterator[tuple[Tensor, Tensor]]:
            for part in torch.arange(len(rows)).split(at_once):
                yield prepare(self.features[rows[part]].to(self.device)), part.to(self.device)

        if len(rows) > at_once:
            return read
        chunks = list(read())
        return lambda: chunks

    def _standardization(self) -> tuple[Tensor, Tensor]:
        width = self.features.shape[1]
        chunks = self._chunks(torch.arange(len(self.features)), width)
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

    def correlated_prior(self) -> Tensor | None:
        """
        `(D, D)`: the root L of a prior N(0, L · Lᵀ) of the weights of a head, L · Lᵀ ∝ ½ · I + ½ · correlation of the
        features. Directions in which the features of a pretrained network differ more say more about the classes. With
        few rows, the weights of other directions would only fit what is particular to these rows. `None` if there are
        too many features.
        """
        width = self.features.shape[1]
        if width > _MAX_PRIOR_FEATURES:
            return None
        count = float(self.reduce(torch.tensor([float(len(self.features))], dtype=torch.float64)))
        # The same items for any number of processes.
        draws = torch.from_numpy(random_uint64("prior", 0, self.numbers.numpy()) / 2.0**64)
        rows = (draws * count < _COVARIANCE_ROWS).nonzero().squeeze(1)
        sums = torch.zeros(width + 1, width, dtype=torch.float64)
        for chunk, part in self._chunks(rows, width)():
            standardized = ((chunk - self.mean) / self.scale).double().cpu() * math.sqrt(width)
            sums[:-1] += standardized.t() @ standardized
            sums[-1] += len(part)
        sums = self.reduce(sums)
        correlation = sums[:-1] / sums[-1].clamp(min=1.0)
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
        logits = [head.logits(chunk).cpu() for chunk, _ in self._chunks(rows, len(head.bias))()]
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
        total = float(self.reduce(weights.double().sum().cpu().unsqueeze(0)))
        if start is None:
            parameters = torch.zeros(self.features.shape[1] + 1, num_labels, device=self.device)
        else:
            parameters = self._parameters(start, prior)
        optimizer = torch.optim.LBFGS(
            [parameters],
            max_iter=_MAX_ITERATIONS,
            history_size=max(5, min(100, _MAX_HISTORY_NUMBERS // (2 * parameters.numel()))),
            tolerance_grad=1e-6,
            tolerance_change=1e-7,
            line_search_fn="strong_wolfe",
        )

        # A prior multiplies the features once, and not the weights in every evaluation.
        mean, scale, chunks = self.mean, self.scale, self._chunks(rows, num_labels)
        if prior is not None:
            chunks = self._chunks(rows, num_labels, lambda chunk: ((chunk - self.mean) / self.scale) @ prior)
            mean, scale = torch.zeros_like(mean), torch.ones_like(scale)
        # Without a center, the bias is free: it has to fit the frequencies of the classes.
        middle, penalized = torch.zeros(1, device=self.device), len(parameters) - 1
        if center is not None:
            middle, penalized = self._parameters(center, prior), len(parameters)

        def losses_and_errors(logits: Tensor, part: Tensor) -> tuple[Tensor, Tensor]:
            """The loss of each row, and its gradient with respect to the logits."""
            log_probs, own = logits.log_softmax(dim=-1), labels[part].unsqueeze(1)
            errors = log_probs.exp()
            plain = -log_probs.gather(1, own).squeeze(1)
            if by_label is not None:
                likelihood = by_label[labels[part]]
            elif log_likelihood is not None:
                likelihood = log_likelihood[part]
            else:
                return plain, errors.scatter_add_(1, own, torch.full_like(own, -1.0, dtype=errors.dtype))
            joint = log_probs + likelihood
            total = joint.logsumexp(dim=-1, keepdim=True)
            explained, corrected = (joint - total).exp(), -total.squeeze(1)
            if trusted is not None:
                sure = trusted[part]
                explained[sure] = F.one_hot(labels[part][sure], num_labels).to(explained)
                corrected = torch.where(sure, plain, corrected)
            return corrected, errors - explained

        def closure() -> Tensor:
            sums = torch.zeros(parameters.numel() + 1, dtype=torch.float64)
            head = LinearHead(parameters[:-1], parameters[-1], mean, scale)
            for chunk, part in chunks():
                losses, errors = losses_and_errors(head.logits(chunk), part)
                share = weights[part] / total
                errors *= share.unsqueeze(1)
                # Narrow matrices multiply faster from the left.
                products, bias = (errors.t() @ chunk).t(), errors.sum(dim=0)
                gradient = (products - torch.outer(mean, bias)) / scale.unsqueeze(1)
                sums[:-1] += torch.cat([gradient, bias.unsqueeze(0)]).flatten().double().cpu()
                sums[-1] += (losses * share).sum().double().cpu()
            sums = self.reduce(sums)
            parameters.grad = sums[:-1].view_as(parameters).to(parameters)
            distance = parameters[:penalized] - middle
            parameters.grad[:penalized] += 2 * penalty * distance
            return sums[-1].float() + penalty * distance.square().sum().cpu()

        optimizer.step(closure)
        return self._head(parameters, prior)

    def _head(self, parameters: Tensor, prior: Tensor | None) -> LinearHead:
        """The head of L⁻¹ · weight and the bias, which are the variables of the optimizer."""
        weight = parameters[:-1] if prior is None else prior @ parameters[:-1]
        return LinearHead(weight, parameters[-1], self.mean, self.scale)

    def _parameters(self, head: LinearHead, prior: Tensor | None) -> Tensor:
        """L⁻¹ · weight and the bias of a head as one tensor, a copy."""
        weight = head.weight.to(self.device)
        if prior is not None:
            weight = torch.linalg.solve_triangular(prior, weight, upper=False)
        return torch.cat([weight, head.bias.to(self.device).unsqueeze(0)])

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
