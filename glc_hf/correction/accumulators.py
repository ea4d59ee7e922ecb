# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Estimates of the corruption matrix that are summed batch by batch.

Each accumulator keeps float64 sums whose size depends only on the number of classes. It never keeps all probabilities
or logits, and the result does not depend on the batch size or on how rows are split over processes.
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
        sums (`list[Tensor]`): The state. The sum over processes is the state of all their rows.
    """

    def __init__(self, ignore_index: int, *sums: Tensor) -> None:
        self.ignore_index = ignore_index
        self.sums = list(sums)
        self._rows_seen = 0

    def all_reduce(self: _Self, reduce: Callable[[Tensor], Tensor]) -> _Self:
        """
        Sum the state over processes.

        Args:
            reduce (`Callable`): Takes a tensor and returns its sum over processes, on any device.
        """
        self.sums = [reduce(mine).to(mine.device) for mine in self.sums]
        return self


class _MatrixAccumulator(Accumulator):
    def __init__(self, num_labels: int, ignore_index: int = -100) -> None:
        super().__init__(ignore_index, torch.zeros(num_labels, num_labels, dtype=torch.float64))
        self.num_labels = num_labels

    def update(self, probs: Tensor, labels: Tensor) -> None:
        """
        Args:
            probs (`Tensor` of shape `(..., K)`): p̂(noisy label | x), each row summing to one.
            labels (`Tensor` of shape `(...)`): True labels. Rows with `ignore_index` are skipped.
        """
        rows, labels, numbers = labelled_rows(probs, labels, self.num_labels, self.ignore_index, self._rows_seen)
        check_probabilities(rows, numbers)
        self._rows_seen += probs.shape[:-1].numel()
        self.add(rows, labels)

    def update_logits(self, logits: Tensor, labels: Tensor, temperature: float = 1.0) -> None:
        """Like `update` with probs = softmax(logits / temperature), computed in float64."""
        logits = logits.detach()
        if temperature != 1.0:
            logits = logits.double() / temperature
        self.update(torch.softmax(logits, dim=-1, dtype=torch.float64), labels)

    def add(self, rows: Tensor, labels: Tensor) -> None:
        """Like `update`, for `(n, K)` rows that are already checked."""
        raise NotImplementedError

    def compute(self) -> tuple[Tensor, Tensor]:
        """Return `(probs, counts)`: the K×K estimate in float64, with zeros in the rows of unseen classes, and the
        number of rows per class."""
        raise NotImplementedError


class GoldAccumulator(_MatrixAccumulator):
    """
    The gold estimate of the paper: Ĉ[k] is the mean of p̂(noisy label | x) over the trusted rows of class k.

    Args:
        num_labels (`int`): K.
        ignore_index (`int`, *optional*, defaults to -100): Rows with this label are skipped.
    """

    def __init__(self, num_labels: int, ignore_index: int = -100) -> None:
        super().__init__(num_labels, ignore_index)
        self.sums.append(torch.zeros(num_labels, dtype=torch.float64))

    def add(self, rows: Tensor, labels: Tensor) -> None:
        probs, counts = self.sums
        labels = labels.cpu()
        probs.index_add_(0, labels, rows.to("cpu", torch.float64))
        counts += torch.bincount(labels, minlength=self.num_labels)

    def compute(self) -> tuple[Tensor, Tensor]:
        probs, counts = self.sums
        # Dividing by the sum, not the count, also normalizes probabilities that don't sum to one exactly.
        return probs / _one_for_zero(probs.sum(dim=1, keepdim=True)), counts.long()


class ConfusionAccumulator(_MatrixAccumulator):
    """
    The confusion matrix estimate: Ĉ[k, j] is the share of trusted rows of class k that the noisy classifier predicts
    as j. Smoothing, (1 − smoothing)·Ĉ + smoothing/K, makes every entry positive.

    Args:
        num_labels (`int`): K.
        smoothing (`float`, *optional*, defaults to 0.01): Weight of the uniform row.
        ignore_index (`int`, *optional*, defaults to -100): Rows with this label are skipped.
    """

    def __init__(self, num_labels: int, smoothing: float = 0.01, ignore_index: int = -100) -> None:
        if not 0 <= smoothing <= 1:
            raise ValueError(f"smoothing must be in [0, 1], got {smoothing!r}.")
        super().__init__(num_labels, ignore_index)
        self.smoothing = smoothing

    def add(self, rows: Tensor, labels: Tensor) -> None:
        # In place: counting the pairs of a batch with `bincount` would take K² numbers for each batch.
        pairs = (labels * self.num_labels + rows.argmax(dim=-1)).cpu()
        self.sums[0].view(-1).index_add_(0, pairs, torch.ones(len(pairs), dtype=torch.float64))

    def compute(self) -> tuple[Tensor, Tensor]:
        counts = self.sums[0].sum(dim=1)
        shares = self.sums[0] / _one_for_zero(counts).unsqueeze(-1)
        smooth = (1 - self.smoothing) * shares + self.smoothing / self.num_labels
        return smooth * (counts > 0).unsqueeze(-1), counts.long()


def _one_for_zero(divisor: Tensor) -> Tensor:
    return torch.where(divisor > 0, divisor, 1)


# Largest deviation of a row's sum from one. 16-bit dtypes can't represent rows that are closer than the second.
_SUM_TOLERANCE = 1e-3
_SUM_TOLERANCE_16_BIT = 3e-2


def as_rows(scores: Tensor, num_labels: int) -> Tensor:
    """`(..., K)` to `(n, K)`, detached."""
    if scores.dim() == 0 or scores.shape[-1] != num_labels:
        raise ValueError(f"expected {num_labels} classes in the last dimension, got the shape {tuple(scores.shape)}.")
    return scores.detach().reshape(-1, num_labels)


def labelled_rows(
    scores: Tensor, labels: Tensor, num_labels: int, ignore_index: int, first_row: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """
    Return the rows that are not ignored, their labels, and their row numbers, counted from `first_row`.

    Args:
        scores (`Tensor` of shape `(..., K)`): Probabilities or logits.
        labels (`Tensor` of shape `(...)`): Integers in 0…K-1, or `ignore_index`.
        num_labels (`int`): K.
        ignore_index (`int`): Rows with this label are skipped.
        first_row (`int`, *optional*, defaults to 0): Number of rows in earlier batches, for messages.
    """
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise TypeError(f"labels must be integers, got {labels.dtype}.")
    if scores.shape[:-1] != labels.shape:
        raise ValueError(
            f"rows of shape {tuple(scores.shape)} need labels of shape {tuple(scores.shape[:-1])}, got "
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
        first = int(bad.nonzero()[0])
        raise ValueError(
            f"the label of row {int(numbers[first])} is {int(labels[first])}; with {num_labels} classes a label must "
            f"be in 0…{num_labels - 1}, or {ignore_index} to be ignored."
        )
    return rows, labels, numbers


def check_probabilities(rows: Tensor, numbers: Tensor) -> None:
    """Raise unless each of the `(n, K)` rows is non-negative and sums to one. The message names the first bad row."""
    tolerance = _SUM_TOLERANCE_16_BIT if rows.dtype in (torch.float16, torch.bfloat16) else _SUM_TOLERANCE
    sums = rows.sum(dim=-1, dtype=torch.float64)
    good = ((sums - 1).abs() <= tolerance) & (rows.amin(dim=-1) >= 0)  # NaN and infinity fail one of them
    if not bool(good.all()):
        first = int(good.logical_not().nonzero()[0])
        raise ValueError(
            f"row {int(numbers[first])} is not a probability distribution: its smallest entry is "
            f"{float(rows[first].min()):.4g} and its sum {float(sums[first]):.4g}. Pass softmax(logits), not logits."
        )
