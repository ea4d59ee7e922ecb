# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Estimates of the corruption matrix that grow batch by batch.

Each accumulator holds sums in float64 whose size depends on the number of classes alone, so neither all probabilities
nor all logits are ever kept, and the result depends neither on the batch size nor on how rows are split over processes
(`merge`, `all_reduce`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from glc_hf.correction.rows import check_probabilities, labelled_rows


_Self = TypeVar("_Self", bound="Accumulator")


class Accumulator:
    """
    A state made of sums over rows.

    Attributes:
        sums (`list[Tensor]`): The state. Adding it up over processes gives the state of all their rows together.
    """

    def __init__(self, *sums: Tensor) -> None:
        self.sums = list(sums)

    def merge(self: _Self, other: _Self) -> _Self:
        """Takes in the rows that another accumulator has seen."""
        if type(other) is not type(self) or [s.shape for s in other.sums] != [s.shape for s in self.sums]:
            raise ValueError(f"can't merge a {type(self).__name__} with another kind or another number of classes.")
        for mine, theirs in zip(self.sums, other.sums, strict=True):
            mine += theirs.to(mine.device)
        return self

    def all_reduce(self: _Self, reduce: Callable[[Tensor], Tensor]) -> _Self:
        """
        Sums the state over processes.

        Args:
            reduce (`Callable`): Takes a tensor and returns its sum over processes, on any device.
        """
        self.sums = [reduce(mine).to(mine.device) for mine in self.sums]
        return self


class _MatrixAccumulator(Accumulator):
    def __init__(self, num_labels: int, ignore_index: int = -100, device: torch.device | str = "cpu") -> None:
        self.num_labels, self.ignore_index = num_labels, ignore_index
        self._rows_seen = 0
        super().__init__(torch.zeros(num_labels, num_labels, dtype=torch.float64, device=device))

    def update(self, probs: Tensor, labels: Tensor) -> None:
        """
        Args:
            probs (`Tensor` of shape `(..., K)`): p̂(noisy label | x), each row summing to one.
            labels (`Tensor` of shape `(...)`): True labels. Rows with `ignore_index` don't count.
        """
        rows, labels, numbers = labelled_rows(probs, labels, self.num_labels, self.ignore_index, self._rows_seen)
        check_probabilities(rows, numbers)
        self._rows_seen += probs.shape[:-1].numel()
        self._add(rows, labels)

    def update_logits(self, logits: Tensor, labels: Tensor, temperature: float = 1.0) -> None:
        """The same with probs = softmax(logits / temperature), computed in float64."""
        logits = logits.detach()
        if temperature != 1.0:
            logits = logits.double() / temperature
        self.update(torch.softmax(logits, dim=-1, dtype=torch.float64), labels)

    def _add(self, rows: Tensor, labels: Tensor) -> None:
        raise NotImplementedError


class GoldAccumulator(_MatrixAccumulator):
    """
    The gold estimate of the paper: Ĉ[k] is the mean of p̂(noisy label | x) over the trusted rows of class k.

    Args:
        num_labels (`int`): K.
        ignore_index (`int`, *optional*, defaults to -100): Label of rows that don't count.
        device (`torch.device`, *optional*, defaults to `"cpu"`): Where the K×K sums are kept.
    """

    def __init__(self, num_labels: int, ignore_index: int = -100, device: torch.device | str = "cpu") -> None:
        super().__init__(num_labels, ignore_index, device)
        self.sums.append(torch.zeros(num_labels, dtype=torch.float64, device=device))

    def _add(self, rows: Tensor, labels: Tensor) -> None:
        probs, counts = self.sums
        labels = labels.to(probs.device)
        probs.index_add_(0, labels, rows.to(probs.device, torch.float64))
        counts += torch.bincount(labels, minlength=self.num_labels)

    def compute(self) -> tuple[Tensor, Tensor]:
        """`(probs, counts)`: the K×K estimate in float64, zero in the rows of unseen classes, and how many rows each
        class had."""
        probs, counts = self.sums
        # Divided by its sum, not by its count: the same but for rows of probabilities that don't sum to one exactly.
        return probs / _one_for_zero(probs.sum(dim=1, keepdim=True)), counts.long()


class ConfusionAccumulator(_MatrixAccumulator):
    """
    The confusion matrix estimate: Ĉ[k, j] is how often the noisy classifier's first choice is j on trusted rows of
    class k, then (1 − smoothing)·Ĉ + smoothing/K, so that no entry is zero.

    Args:
        num_labels (`int`): K.
        smoothing (`float`, *optional*, defaults to 0.01): Weight of the uniform row.
        ignore_index (`int`, *optional*, defaults to -100): Label of rows that don't count.
        device (`torch.device`, *optional*, defaults to `"cpu"`): Where the K×K counts are kept.
    """

    def __init__(
        self,
        num_labels: int,
        smoothing: float = 0.01,
        ignore_index: int = -100,
        device: torch.device | str = "cpu",
    ) -> None:
        if not 0 <= smoothing <= 1:
            raise ValueError(f"smoothing must lie in [0, 1], got {smoothing!r}.")
        super().__init__(num_labels, ignore_index, device)
        self.smoothing = smoothing

    def _add(self, rows: Tensor, labels: Tensor) -> None:
        cells = labels * self.num_labels + rows.argmax(dim=-1)
        counted = torch.bincount(cells, minlength=self.num_labels**2).reshape(self.num_labels, self.num_labels)
        self.sums[0] += counted.to(self.sums[0].device)

    def compute(self) -> tuple[Tensor, Tensor]:
        """`(probs, counts)`: the K×K estimate in float64, zero in the rows of unseen classes, and how many rows each
        class had."""
        counts = self.sums[0].sum(dim=1)
        shares = self.sums[0] / _one_for_zero(counts).unsqueeze(-1)
        smooth = (1 - self.smoothing) * shares + self.smoothing / self.num_labels
        return smooth * (counts > 0).unsqueeze(-1), counts.long()


def _one_for_zero(divisor: Tensor) -> Tensor:
    return torch.where(divisor > 0, divisor, 1)
