# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""What an estimator takes in: rows of class probabilities or logits with their labels, checked, one row a line."""

from __future__ import annotations

import torch
from torch import Tensor


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
