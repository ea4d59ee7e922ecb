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


# How far from one a row of probabilities may sum. Rows of the 16-bit dtypes can't come closer than the second.
_SUM_TOLERANCE = 1e-3
_SUM_TOLERANCE_16_BIT = 3e-2


def as_rows(scores: Tensor, num_labels: int) -> Tensor:
    """`(..., K)` to `(n, K)`, without a graph."""
    if scores.dim() == 0 or scores.shape[-1] != num_labels:
        raise ValueError(f"expected {num_labels} classes in the last dimension, got the shape {tuple(scores.shape)}.")
    return scores.detach().reshape(-1, num_labels)


def labelled_rows(
    scores: Tensor, labels: Tensor, num_labels: int, ignore_index: int, first_row: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """
    The rows that are not ignored, their labels, and their numbers, which count on from `first_row`.

    Args:
        scores (`Tensor` of shape `(..., K)`): Probabilities or logits.
        labels (`Tensor` of shape `(...)`): Integers in 0…K-1, or `ignore_index`.
        num_labels (`int`): K.
        ignore_index (`int`): Rows with this label are left out.
        first_row (`int`, *optional*, defaults to 0): Number of rows in earlier batches, for messages.
    """
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise TypeError(f"labels must be integers, got {labels.dtype}.")
    if scores.shape[:-1] != labels.shape:
        raise ValueError(
            f"rows of shape {tuple(scores.shape)} need labels of shape {tuple(scores.shape[:-1])}; these have shape "
            f"{tuple(labels.shape)}."
        )
    rows = as_rows(scores, num_labels)
    labels = labels.detach().reshape(-1).long().to(rows.device)
    numbers = torch.arange(first_row, first_row + len(labels), device=rows.device)
    kept = labels != ignore_index
    if not bool(kept.all()):
        rows, labels, numbers = rows[kept], labels[kept], numbers[kept]
    bad = (labels < 0) | (labels >= num_labels)
    if bool(bad.any()):
        at = int(bad.nonzero()[0])
        raise ValueError(
            f"the label of row {int(numbers[at])} is {int(labels[at])}; with {num_labels} classes a label lies in "
            f"0…{num_labels - 1}, or is {ignore_index} to be ignored."
        )
    return rows, labels, numbers


def check_probabilities(rows: Tensor, numbers: Tensor) -> None:
    """Raises, naming the first bad row, unless each of the `(n, K)` rows is non-negative and sums to one."""
    tolerance = _SUM_TOLERANCE_16_BIT if rows.dtype in (torch.float16, torch.bfloat16) else _SUM_TOLERANCE
    sums = rows.sum(dim=-1, dtype=torch.float64)
    good = ((sums - 1).abs() <= tolerance) & (rows.amin(dim=-1) >= 0)  # NaN and infinity fail one of them
    if not bool(good.all()):
        at = int(good.logical_not().nonzero()[0])
        raise ValueError(
            f"row {int(numbers[at])} is no probability distribution: its smallest entry is "
            f"{float(rows[at].min()):.4g} and its sum {float(sums[at]):.4g}. Pass softmax(logits), not logits."
        )
