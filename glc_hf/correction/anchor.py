# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Forward's anchors (Patrini et al.): for each class the row that stands for it, found in one pass over the data."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from glc_hf.correction.rows import as_rows, check_probabilities


class AnchorFinder:
    """
    Finds, for each class k, the row whose probability of k is the highest below the `percentile`-th percentile of that
    column; Forward takes the probabilities at that row for Ĉ[k]. The rule is that of the authors:

        threshold = np.percentile(column, percentile, method="higher")
        anchor    = argmax of column with the values >= threshold set to 0

    and with `percentile=100` the plain argmax. Of equal values the lowest row wins.

    What is kept for each class is the values from the threshold up and the best one below it, not the column: about
    (100 − percentile) % of the rows. Ties at the threshold (many rows with probability 1.0) don't disturb this: what
    may still become the anchor is always among the kept ones.

    Args:
        num_labels (`int`): K.
        num_rows (`int`): How many rows there are in all. Each must be seen once; repeated ones are left out.
        percentile (`float`, *optional*, defaults to 97.0): In (0, 100].

    Example:

    ```python
    finder = AnchorFinder(num_labels=10, num_rows=len(dataset))
    for row_ids, batch in batches:
        finder.update(probs_of(batch), row_ids)
    probs = probs_of(dataset[finder.anchors()])  # Ĉ
    ```
    """

    def __init__(self, num_labels: int, num_rows: int, percentile: float = 97.0) -> None:
        if not 0 < percentile <= 100:
            raise ValueError(f"percentile must lie in (0, 100], got {percentile!r}.")
        if num_rows < 1:
            raise ValueError(f"num_rows must be at least 1, got {num_rows!r}.")
        self.num_labels, self.num_rows, self.percentile = num_labels, num_rows, percentile
        # How many values of a column are at the threshold's place or above it.
        self._above = 0 if percentile == 100 else num_rows - math.ceil((num_rows - 1) * (percentile / 100))
        self._seen = torch.zeros(num_rows, dtype=torch.bool)
        self._values = torch.empty(num_labels, 0)
        self._ids = torch.empty(num_labels, 0, dtype=torch.int64)
        self._pending: list[tuple[Tensor, Tensor]] = []

    def update(self, probs: Tensor, row_ids: Tensor) -> None:
        """
        Args:
            probs (`Tensor` of shape `(n, K)`): Class probabilities of some rows.
            row_ids (`Tensor` of shape `(n,)`): Which rows these are, in 0…num_rows-1.
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
        # Sorting only as many new rows as are kept makes the cost of a row independent of the batch size.
        if sum(len(ids) for _, ids in self._pending) >= max(self._above, 1024):
            self._compact()

    def merge(self, other: AnchorFinder) -> AnchorFinder:
        """Takes in the rows that another finder, made with the same arguments, has seen."""
        for name in ("num_labels", "num_rows", "percentile"):
            if getattr(self, name) != getattr(other, name):
                raise ValueError(
                    f"can't merge: {name} is {getattr(self, name)} here and {getattr(other, name)} there."
                )
        self._compact()
        other._compact()
        self._seen |= other._seen
        self._keep(torch.cat([self._values, other._values], dim=1), torch.cat([self._ids, other._ids], dim=1))
        return self

    def anchors(self) -> Tensor:
        """The K row ids, one for each class, as an int64 tensor."""
        if not bool(self._seen.all()):
            raise ValueError(
                f"{int(self._seen.sum())} of {self.num_rows} rows were seen; row {int((~self._seen).nonzero()[0])} is "
                "the first missing one."
            )
        self._compact()
        best, where = self._values[:, -1], self._ids[:, -1]
        # Where nothing is left but zeros, the authors' argmax gives the first row of all.
        return torch.where(best > 0, where, 0)

    def _compact(self) -> None:
        if not self._pending:
            return
        values = torch.cat([self._values, *(rows.T for rows, _ in self._pending)], dim=1)
        ids = torch.cat([self._ids, *(ids.expand(self.num_labels, -1) for _, ids in self._pending)], dim=1)
        self._pending.clear()
        self._keep(values, ids)

    def _keep(self, values: Tensor, ids: Tensor) -> None:
        """Keeps, of `(K, c)` values, the first `above` in the order (value down, row id up), and as a last column the
        best of those strictly below them (−inf if there is none)."""
        ids, order = ids.sort(dim=1, stable=True)
        values = values.gather(1, order)
        values[:, 1:].masked_fill_(ids[:, 1:] == ids[:, :-1], -math.inf)  # a row that two finders have seen
        values, order = values.sort(dim=1, descending=True, stable=True)
        ids = ids.gather(1, order)
        count = values.shape[1]
        if self._above == 0:
            below = torch.zeros(self.num_labels, 1, dtype=torch.int64)
        elif count < self._above:
            below = torch.full((self.num_labels, 1), count)
        else:
            below = (values >= values[:, self._above - 1 : self._above]).sum(dim=1, keepdim=True)
        none = torch.full((self.num_labels, 1), -math.inf, dtype=values.dtype)
        nobody = torch.full((self.num_labels, 1), self.num_rows)
        best = torch.cat([values, none], dim=1).gather(1, below)
        best_ids = torch.cat([ids, nobody], dim=1).gather(1, below)
        self._values = torch.cat([values[:, : self._above], best], dim=1)
        self._ids = torch.cat([ids[:, : self._above], best_ids], dim=1)
