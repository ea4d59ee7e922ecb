# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""A linear softmax model on fixed features, fitted to the end: what a cheap first stage is made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


_NUMBERS_AT_ONCE = 2**25  # features or logits in memory at a time
_PENALTIES = tuple(10 ** (-exponent / 2) for exponent in range(4, 15))  # 1e-2 … 1e-7
_USUAL_PENALTY = 1e-4
_MOST_ITERATIONS = 200
_NUMBERS_REMEMBERED = 2**27  # by the optimizer, of its steps so far; each takes two heads


def _as_it_is(tensor: Tensor) -> Tensor:
    return tensor


@dataclass
class LinearHead:
    """
    softmax(((x − mean) / scale) · weight + bias).

    Args:
        weight (`Tensor` of shape `(D, K)`), bias (`Tensor` of shape `(K,)`): Of the standardized features.
        mean (`Tensor` of shape `(D,)`), scale (`Tensor` of shape `(D,)`): The standardization; `scale` holds √D too,
            so that a penalty means the same whatever the number of features.
    """

    weight: Tensor
    bias: Tensor
    mean: Tensor
    scale: Tensor

    def logits(self, features: Tensor) -> Tensor:
        """(..., D) → (..., K)."""
        weight = self.weight / self.scale.unsqueeze(1)
        return features @ weight + (self.bias - self.mean @ weight)

    def to(self, device: torch.device | str) -> LinearHead:
        """The same on another device."""
        return LinearHead(*(tensor.to(device) for tensor in (self.weight, self.bias, self.mean, self.scale)))


class FeatureTable:
    """
    This process's items as fixed features, read in pieces: they may be a memory-mapped file larger than memory.

    Args:
        features (`Tensor` of shape `(N, D)`): In float32.
        numbers (`Tensor` of shape `(N,)`): The items' numbers; see [`~methods.between.Inferred`].
        reduce (`Callable`, *optional*): The sum of a tensor over processes; each process calls it equally often.
        device (`torch.device`, *optional*): Where to compute.
    """

    def __init__(
        self,
        features: Tensor,
        numbers: Tensor,
        reduce: Callable[[Tensor], Tensor] = _as_it_is,
        device: torch.device | str = "cpu",
    ) -> None:
        self.features = features
        self.numbers = numbers
        self.reduce = reduce
        self.device = device
        self.mean, self.scale = self._standardization()

    def _pieces(self, places: Tensor, width: int) -> Callable[[], Iterable[tuple[Tensor, Tensor]]]:
        """What gives the chosen items' features, and which of `places` they are; what fits in one piece is read only
        once."""
        at_once = max(1, _NUMBERS_AT_ONCE // max(width, self.features.shape[1]))

        def read() -> Iterator[tuple[Tensor, Tensor]]:
            for part in torch.arange(len(places)).split(at_once):
                yield self.features[places[part]].to(self.device), part.to(self.device)

        if len(places) > at_once:
            return read
        pieces = list(read())
        return lambda: pieces

    def _standardization(self) -> tuple[Tensor, Tensor]:
        width = self.features.shape[1]
        pieces = self._pieces(torch.arange(len(self.features)), width)
        sums = torch.zeros(2, width, dtype=torch.float64)
        for piece, _ in pieces():
            sums[0] += piece.double().sum(dim=0).cpu()
        count = float(self.reduce(torch.tensor([float(len(self.features))], dtype=torch.float64)))
        mean = self.reduce(sums[0]) / count
        for piece, _ in pieces():
            sums[1] += (piece.double() - mean.to(piece.device)).square().sum(dim=0).cpu()
        deviation = (self.reduce(sums[1]) / count).sqrt()
        # A feature that never changes says nothing: it is left at zero by its weight, not blown up.
        scale = torch.where(deviation > 1e-6 * mean.abs() + 1e-12, deviation, torch.ones_like(deviation))
        return mean.float().to(self.device), (scale * math.sqrt(width)).float().to(self.device)

    def places_of(self, numbers: Tensor) -> Tensor:
        """Where the items of these numbers stand; those of other processes are left out."""
        return torch.isin(self.numbers, numbers).nonzero().squeeze(1)

    def logits(self, head: LinearHead, places: Tensor) -> Tensor:
        """What a head says about these items, on the CPU."""
        found = [head.logits(piece).cpu() for piece, _ in self._pieces(places, len(head.bias))()]
        return torch.cat(found) if found else torch.empty(0, len(head.bias))

    def fit(
        self,
        places: Tensor,
        labels: Tensor,
        num_labels: int,
        *,
        penalty: float,
        matrix: Tensor | None = None,
        trusted: Tensor | None = None,
        trusted_weight: float = 1.0,
        start: LinearHead | None = None,
    ) -> LinearHead:
        """
        The head of the smallest mean loss on the items, plus `penalty` · ‖weight‖²; by L-BFGS, all items in each step.

        Args:
            places, labels (`Tensor` of shape `(n,)`): The items, and their labels.
            num_labels (`int`): K.
            penalty (`float`): How much weights are held back.
            matrix (`Tensor` of shape `(K, K)`, *optional*): With it the head learns true labels: the loss is
                -log Σ_i softmax_i · matrix[i, label]. Without, plain cross-entropy.
            trusted (`Tensor` of shape `(n,)`, *optional*): Items whose labels are right, whatever the matrix says.
            trusted_weight (`float`, *optional*, defaults to 1.0): How often each of these counts.
            start ([`LinearHead`], *optional*): Where to begin.
        """
        labels = labels.to(self.device)
        logs, weights = None, torch.ones(len(places), device=self.device)
        if matrix is not None:
            logs = matrix.to(self.device, torch.float32).clamp(min=1e-12).log().t()
        if trusted is not None:
            trusted = trusted.to(self.device)
            weights[trusted] = trusted_weight
        total = float(self.reduce(weights.double().sum().cpu().unsqueeze(0)))
        if start is None:
            parameters = torch.zeros(self.features.shape[1] + 1, num_labels, device=self.device)
        else:
            parameters = torch.cat([start.weight, start.bias.unsqueeze(0)]).to(self.device)
        parameters.requires_grad_()
        optimizer = torch.optim.LBFGS(
            [parameters],
            max_iter=_MOST_ITERATIONS,
            history_size=max(5, min(100, _NUMBERS_REMEMBERED // (2 * parameters.numel()))),
            tolerance_grad=1e-6,
            tolerance_change=1e-7,
            line_search_fn="strong_wolfe",
        )

        pieces = self._pieces(places, num_labels)

        def closure() -> Tensor:
            optimizer.zero_grad()
            value = torch.zeros(1, dtype=torch.float64)
            for piece, part in pieces():
                losses = self._losses(
                    self._head(parameters).logits(piece),
                    labels[part],
                    logs,
                    None if trusted is None else trusted[part],
                )
                loss = (losses * weights[part]).sum() / total
                loss.backward()
                value += loss.detach().double().cpu()
            gradient = torch.zeros_like(parameters) if parameters.grad is None else parameters.grad
            both = self.reduce(torch.cat([gradient.flatten().double().cpu(), value]))
            parameters.grad = both[:-1].view_as(parameters).to(parameters)
            parameters.grad[:-1] += 2 * penalty * parameters.detach()[:-1]
            return both[-1].float() + penalty * parameters.detach()[:-1].square().sum().cpu()

        optimizer.step(closure)
        return self._head(parameters.detach())

    def _head(self, parameters: Tensor) -> LinearHead:
        return LinearHead(parameters[:-1], parameters[-1], self.mean, self.scale)

    @staticmethod
    def _losses(logits: Tensor, labels: Tensor, logs: Tensor | None, trusted: Tensor | None) -> Tensor:
        plain = F.cross_entropy(logits, labels, reduction="none")
        if logs is None:
            return plain
        corrected = -(logits.log_softmax(dim=-1) + logs[labels]).logsumexp(dim=-1)
        return corrected if trusted is None else torch.where(trusted, plain, corrected)

    def fit_path(
        self, places: Tensor, labels: Tensor, num_labels: int, held_out: Tensor
    ) -> tuple[LinearHead, float, list[float]]:
        """
        The head of the penalty that explains held-out labels best: from a strong one down, each fit starting from the
        one before, until it gets worse; then fitted on all items.

        Args:
            places, labels (`Tensor` of shape `(n,)`): The items, and their labels.
            num_labels (`int`): K.
            held_out (`Tensor` of shape `(n,)`): Which of them choose the penalty.

        Returns:
            The head, its penalty, and the mean held-out loss of each penalty tried.
        """
        fitted, chosen_by = ~held_out, self.reduce(held_out.sum().double().unsqueeze(0))
        if chosen_by == 0:
            return self.fit(places, labels, num_labels, penalty=_USUAL_PENALTY), _USUAL_PENALTY, []
        best: tuple[float, LinearHead | None, float] = (math.inf, None, _PENALTIES[0])
        head, losses = None, []
        for penalty in _PENALTIES:
            head = self.fit(places[fitted], labels[fitted], num_labels, penalty=penalty, start=head)
            logits = self.logits(head, places[held_out])
            found = F.cross_entropy(logits, labels[held_out], reduction="sum").double()
            losses.append(float(self.reduce(found.unsqueeze(0)) / chosen_by))
            if losses[-1] >= best[0]:
                break
            best = (losses[-1], head, penalty)
        head = self.fit(places, labels, num_labels, penalty=best[2], start=best[1])
        return head, best[2], losses
