# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Estimators of the corruption matrix from the noisy classifier's probabilities."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glc_hf.correction.accumulators import (
    ConfusionAccumulator,
    GoldAccumulator,
    as_rows,
    check_probabilities,
    labelled_rows,
)
from glc_hf.correction.calibration import apply_temperature, match_base_rates
from glc_hf.correction.refinement import fill_missing_rows
from glc_hf.matrix import CorruptionMatrix


METHODS = ("gold", "confusion", "anchor")
_NUMBERS_PER_CHUNK = 2**22


def estimate_corruption_matrix(
    probs: np.ndarray | Tensor,
    labels: np.ndarray | Tensor | Sequence[int] | None,
    method: str = "gold",
    *,
    num_labels: int | None = None,
    label_names: Sequence[str] | None = None,
    temperature: float | None = None,
    base_rates: Any = None,
    base_rate_weight: float | None = None,
    smoothing: float = 0.01,
    percentile: float = 97.0,
    missing: str = "average",
    ignore_index: int = -100,
) -> CorruptionMatrix:
    """
    Estimate C[i, j] = p(noisy label = j | true label = i) from a classifier trained on noisy labels.

    | method | Ĉ[k] | needs |
    | --- | --- | --- |
    | `"gold"` (GLC) | mean of p̂(noisy label \\| x) over the trusted rows of class k | trusted rows |
    | `"confusion"` | share of each predicted class on trusted rows of class k, smoothed | trusted rows |
    | `"anchor"` (Forward) | p̂ at the row whose k-probability is the highest below a percentile | any rows |

    Args:
        probs (`array` of shape `(..., K)`): p̂(noisy label | x): softmax of the noisy classifier, not its logits.
        labels (`array` of shape `(...)`): **True** labels of these rows. Can be `None` for `"anchor"`.
        method (`str`, *optional*, defaults to `"gold"`): One of the methods in the table.
        num_labels (`int`, *optional*): Expected K. Raises if `probs` has another number of classes.
        label_names (`Sequence[str]`, *optional*): The K class names.
        temperature (`float`, *optional*):
            Calibrates p̂ to softmax(log p̂ / temperature); see [`~correction.calibration.fit_temperature`].
        base_rates (`array` of shape `(K,)`, *optional*):
            The shares of the noisy labels in the untrusted rows. The estimate is moved towards a matrix that maps the
            class shares of the trusted rows to them; see [`~correction.calibration.match_base_rates`].
        base_rate_weight (`float`, *optional*): λ, the weight of the first estimate against `base_rates`.
        smoothing (`float`, *optional*, defaults to 0.01): For `"confusion"`: (1 − smoothing)·Ĉ + smoothing/K.
        percentile (`float`, *optional*, defaults to 97.0): For `"anchor"`; 100 takes the plain maximum.
        missing (`str`, *optional*, defaults to `"average"`):
            The row of a class without trusted rows. `"average"`: the mean diagonal of the other classes, and the rest
            spread evenly; `"identity"`; `"uniform"`. One warning lists these classes.
        ignore_index (`int`, *optional*, defaults to -100): Rows with this label are skipped.

    Returns:
        [`CorruptionMatrix`]: The estimate. Except for `"anchor"` it has `trusted_rows`, and so intervals.

    Example:

    ```python
    >>> import numpy as np
    >>> from glc_hf import estimate_corruption_matrix
    >>> probs = np.array([[0.9, 0.1], [0.7, 0.3], [0.4, 0.6]])
    >>> estimate_corruption_matrix(probs, np.array([0, 0, 1])).probs
    array([[0.8, 0.2],
           [0.4, 0.6]])
    ```
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}, got {method!r}.")
    probs = _as_array(probs)
    if probs.ndim < 2:
        raise ValueError(f"probs must have shape (rows, classes), got {tuple(probs.shape)}.")
    if num_labels is not None and probs.shape[-1] != num_labels:
        raise ValueError(
            f"probs have {probs.shape[-1]} classes in their last dimension, but num_labels is {num_labels}."
        )
    if labels is not None:
        labels = _check_labels(_as_array(labels), probs)
    elif method != "anchor":
        raise ValueError(f"method {method!r} needs the true labels of the trusted rows; labels is None.")
    elif base_rates is not None:
        raise ValueError("base_rates need the labels of trusted rows; labels is None.")
    probs = probs.reshape(-1, probs.shape[-1])
    if method == "anchor":
        matrix, counts = _at_anchors(probs, labels, percentile, temperature, ignore_index)
    else:
        num_labels = probs.shape[-1]
        accumulator: GoldAccumulator | ConfusionAccumulator
        if method == "gold":
            accumulator = GoldAccumulator(num_labels, ignore_index)
        else:
            accumulator = ConfusionAccumulator(num_labels, smoothing, ignore_index)
        for rows, chunk_labels, _ in _chunks(probs, labels, temperature, ignore_index):
            accumulator.add(rows, chunk_labels)
        matrix, counts = accumulator.compute()
        matrix = fill_missing_rows(matrix, counts, missing, label_names)
    if base_rates is not None:
        matrix = match_base_rates(matrix, counts / counts.sum(), base_rates, base_rate_weight)
    # Anchors are rows of any kind, so their number says nothing about the estimate.
    return CorruptionMatrix(matrix, label_names, None if method == "anchor" else counts)


def _at_anchors(
    probs: np.ndarray | Tensor,
    labels: np.ndarray | Tensor | None,
    percentile: float,
    temperature: float | None,
    ignore_index: int,
) -> tuple[Tensor, Tensor]:
    num_rows = len(probs) if labels is None else int((labels != ignore_index).sum())
    if num_rows == 0:
        raise ValueError("can't estimate the corruption matrix: there are no rows.")
    num_labels = probs.shape[-1]
    finder = AnchorFinder(num_labels, num_rows, percentile)
    counts = torch.zeros(num_labels, dtype=torch.int64)
    kept: list[Tensor] = []
    for rows, chunk_labels, numbers in _chunks(probs, labels, temperature, ignore_index):
        seen = sum(map(len, kept))
        finder.update(rows, torch.arange(seen, seen + len(rows)))
        counts += torch.bincount(chunk_labels.cpu(), minlength=num_labels)
        kept.append(numbers.cpu())
    anchors = torch.cat(kept)[finder.anchors()]
    rows = torch.stack([_as_tensor(probs[row]) for row in anchors.tolist()]).cpu().double()
    if temperature is not None:
        rows = apply_temperature(rows, temperature)
    return rows / rows.sum(dim=-1, keepdim=True), counts


def _chunks(
    probs: np.ndarray | Tensor, labels: np.ndarray | Tensor | None, temperature: float | None, ignore_index: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield calibrated rows, labels and row numbers in chunks: checked, and without the ignored rows."""
    num_labels = probs.shape[-1]
    size = max(1, _NUMBERS_PER_CHUNK // num_labels)
    for start in range(0, len(probs), size):
        rows = as_rows(_as_tensor(probs[start : start + size]), num_labels)
        if labels is None:
            chunk_labels = torch.zeros(len(rows), dtype=torch.int64)
            numbers = torch.arange(start, start + len(rows))
        else:
            chunk_labels = _as_tensor(labels[start : start + size])
            rows, chunk_labels, numbers = labelled_rows(rows, chunk_labels, num_labels, ignore_index, start)
        check_probabilities(rows, numbers)
        if temperature is not None:
            rows = apply_temperature(rows.double(), temperature)
        yield rows, chunk_labels, numbers


def _check_labels(labels: np.ndarray | Tensor, probs: np.ndarray | Tensor) -> np.ndarray | Tensor:
    if isinstance(labels, np.ndarray) and labels.dtype.kind not in "iu":
        raise TypeError(f"labels must be integers, got {labels.dtype}.")
    if tuple(labels.shape) != tuple(probs.shape[:-1]):
        raise ValueError(
            f"probs of shape {tuple(probs.shape)} need labels of shape {tuple(probs.shape[:-1])}, got "
            f"{tuple(labels.shape)}."
        )
    return labels.reshape(-1)


def _as_array(values: Any) -> np.ndarray | Tensor:
    return values if isinstance(values, Tensor) else np.asarray(values)


def _as_tensor(values: np.ndarray | Tensor) -> Tensor:
    # Arrays are copied: they may be read-only or memory-mapped.
    return values if isinstance(values, Tensor) else torch.from_numpy(np.array(values))


class AnchorFinder:
    """
    Finds, for each class k, the row whose probability of k is the highest below the `percentile`-th percentile of that
    column. Forward uses the probabilities of that row as Ĉ[k]. The rule is the authors':

        threshold = np.percentile(column, percentile, method="higher")
        anchor    = argmax of column with the values >= threshold set to 0

    `percentile=100` takes the plain argmax. Ties go to the lowest row.

    Per class, only the values from the threshold up and the best one below it are kept, about (100 − percentile) % of
    the rows. This stays exact with ties at the threshold (many rows with probability 1.0).

    Args:
        num_labels (`int`): K.
        num_rows (`int`): Total number of rows. Each must be seen; repeated rows are skipped.
        percentile (`float`, *optional*, defaults to 97.0): In (0, 100].

    Example:

    ```python
    finder = AnchorFinder(num_labels=10, num_rows=len(dataset))
    for row_ids, batch in batches:
        finder.update(predict_probs(batch), row_ids)
    probs = predict_probs(dataset[finder.anchors()])  # Ĉ
    ```
    """

    def __init__(self, num_labels: int, num_rows: int, percentile: float = 97.0) -> None:
        if not 0 < percentile <= 100:
            raise ValueError(f"percentile must be in (0, 100], got {percentile!r}.")
        if num_rows < 1:
            raise ValueError(f"num_rows must be at least 1, got {num_rows!r}.")
        self.num_labels, self.num_rows, self.percentile = num_labels, num_rows, percentile
        # Number of values per column at the threshold's rank or above.
        self._above = 0 if percentile == 100 else num_rows - math.ceil((num_rows - 1) * (percentile / 100))
        self._seen = torch.zeros(num_rows, dtype=torch.bool)
        self._values = torch.empty(num_labels, 0)
        self._ids = torch.empty(num_labels, 0, dtype=torch.int64)
        self._pending: list[tuple[Tensor, Tensor]] = []

    def update(self, probs: Tensor, row_ids: Tensor) -> None:
        """
        Args:
            probs (`Tensor` of shape `(n, K)`): Class probabilities of some rows.
            row_ids (`Tensor` of shape `(n,)`): The ids of these rows, in 0…num_rows-1.
        """
        rows, ids = as_rows(probs, self.num_labels).cpu(), row_ids.detach().reshape(-1).long().cpu()
        if len(rows) != len(ids):
            raise ValueError(f"{len(rows)} rows of probabilities with {len(ids)} row ids.")
        bad = (ids < 0) | (ids >= self.num_rows)
        if bool(bad.any()):
            raise ValueError(
                f"row id {int(ids[bad][0])} is not in 0…{self.num_rows - 1}: num_rows is {self.num_rows}."
            )
        check_probabilities(rows, ids)
        new = ~self._seen[ids]
        rows, ids = rows[new], ids[new]
        self._seen[ids] = True
        self._pending.append((rows if rows.dtype == torch.float64 else rows.float(), ids))
        # Sorting only once per `above` new rows makes the cost per row independent of the batch size.
        if sum(len(ids) for _, ids in self._pending) >= max(self._above, 1024):
            self._compact()

    def merge(self, other: AnchorFinder) -> AnchorFinder:
        """Add the rows that another finder, created with the same arguments, has seen."""
        for name in ("num_labels", "num_rows", "percentile"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise ValueError(f"can't merge: {name} is {mine} here and {theirs} there.")
        self._compact()
        other._compact()
        self._seen |= other._seen
        self._keep(torch.cat([self._values, other._values], dim=1), torch.cat([self._ids, other._ids], dim=1))
        return self

    def anchors(self) -> Tensor:
        """Return the K row ids, one per class, as an int64 tensor."""
        if not bool(self._seen.all()):
            raise ValueError(
                f"{int(self._seen.sum())} of {self.num_rows} rows were seen; the first missing one is row "
                f"{int((~self._seen).nonzero()[0])}."
            )
        self._compact()
        # If only zeros are left, the authors' argmax returns the first row.
        return torch.where(self._values[:, -1] > 0, self._ids[:, -1], 0)

    def _compact(self) -> None:
        if not self._pending:
            return
        values = torch.cat([self._values, *(rows.T for rows, _ in self._pending)], dim=1)
        ids = torch.cat([self._ids, *(ids.expand(self.num_labels, -1) for _, ids in self._pending)], dim=1)
        self._pending.clear()
        self._keep(values, ids)

    def _keep(self, values: Tensor, ids: Tensor) -> None:
        """Keep, of `(K, c)` values, the first `above` in the order (value descending, row id ascending), and in a last
        column the best of those strictly below them (−inf if there is none)."""
        ids, order = ids.sort(dim=1, stable=True)
        values = values.gather(1, order)
        values[:, 1:].masked_fill_(ids[:, 1:] == ids[:, :-1], -math.inf)  # a row that both finders have seen
        values, order = values.sort(dim=1, descending=True, stable=True)
        ids = ids.gather(1, order)
        count = values.shape[1]
        if self._above == 0:
            below = torch.zeros(self.num_labels, 1, dtype=torch.int64)
        elif count < self._above:
            below = torch.full((self.num_labels, 1), count)
        else:
            below = (values >= values[:, self._above - 1 : self._above]).sum(dim=1, keepdim=True)
        no_value = torch.full((self.num_labels, 1), -math.inf, dtype=values.dtype)
        no_id = torch.full((self.num_labels, 1), self.num_rows)
        best = torch.cat([values, no_value], dim=1).gather(1, below)
        best_ids = torch.cat([ids, no_id], dim=1).gather(1, below)
        self._values = torch.cat([values[:, : self._above], best], dim=1)
        self._ids = torch.cat([ids[:, : self._above], best_ids], dim=1)
