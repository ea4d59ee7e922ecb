# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""How trusted rows are drawn, on numpy arrays: the rows with the smallest random words, of all or of each class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from glc_hf.corruption.sampling import check_seed


@dataclass(frozen=True)
class Draw:
    """What `mark_trusted` was asked for, checked as far as it can be without the data."""

    fraction: float | None
    count: int | None
    indices: Sequence[int] | Any | None
    seed: int
    stratify: bool
    level: Literal["row", "token"]

    def __post_init__(self) -> None:
        if sum(option is not None for option in (self.fraction, self.count, self.indices)) != 1:
            raise ValueError("give exactly one of fraction=, count= and indices=.")
        if self.level not in ("row", "token"):
            raise ValueError(f'level must be "row" or "token", got {self.level!r}.')
        if self.fraction is not None and not 0.0 <= self.fraction <= 1.0:  # NaN fails here too
            raise ValueError(f"fraction must lie in [0, 1], got {self.fraction!r} (for a number of rows use count=).")
        if self.count is not None and (int(self.count) != self.count or self.count < 0):
            raise ValueError(f"count must be a whole number of at least 0, got {self.count!r}.")
        if self.indices is not None and self.level == "token":
            raise ValueError(
                'indices= name rows: with level="token" give fraction= or count=, or add a column of '
                "lists of booleans yourself."
            )
        if self.indices is not None and self.stratify:
            raise ValueError("stratify=True has nothing to draw where indices= name the rows.")
        check_seed(self.seed)

    def number(self, total: int, what: str) -> int:
        """How many of `total` rows (or tokens) to draw."""
        if self.count is not None:
            if self.count > total:
                raise ValueError(f"count={self.count} of {total} {what}: there are not that many.")
            return int(self.count)
        at_least = 1 if self.fraction > 0 and total > 0 else 0
        return max(round(self.fraction * total), at_least)

    def named(self) -> np.ndarray:
        """The indices given, ascending, each once."""
        indices = np.asarray(self.indices)
        if indices.size == 0:
            return np.empty(0, dtype=np.int64)
        if indices.dtype == np.bool_:
            raise ValueError("indices= holds booleans: row numbers are needed, `numpy.flatnonzero(mask)`.")
        if indices.ndim != 1 or indices.dtype.kind not in "iu":
            raise ValueError(f"indices= must be a list of integers, got shape {indices.shape} of {indices.dtype}.")
        return np.unique(indices.astype(np.int64))

    def lucky(self, words: np.ndarray) -> np.ndarray:
        """Each for itself with probability `fraction`: the draw of a stream, whose length nobody knows."""
        return (words >> np.uint64(11)) < np.uint64(round(self.fraction * 2.0**53))


def smallest(words: np.ndarray, number: int, classes: np.ndarray | None = None) -> np.ndarray:
    """
    Chooses exactly `number` by the smallest words, as booleans.

    Args:
        words (`np.ndarray` of uint64): One random word for each candidate.
        number (`int`): How many to choose.
        classes (`np.ndarray` of integers, *optional*): Each candidate's class, to choose from each in proportion.
    """
    chosen = np.zeros(len(words), dtype=bool)
    if number == 0:
        return chosen
    if classes is None:
        chosen[np.argpartition(words, number - 1)[:number]] = True
        return chosen
    _, of_candidate, sizes = np.unique(classes, return_inverse=True, return_counts=True)
    order = np.lexsort((words, of_candidate))  # class by class, by word within a class
    rank = np.arange(len(words)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    chosen[order[rank < np.repeat(quotas(sizes, number), sizes)]] = True
    return chosen


def quotas(sizes: np.ndarray, number: int) -> np.ndarray:
    """
    Shares `number` out among classes in proportion to their sizes, by largest remainder; where `number` is enough for
    one each, no class goes without.

    Args:
        sizes (`np.ndarray` of integers): How many each class has, all above zero.
        number (`int`): At most their sum.
    """
    exact = number * sizes / sizes.sum()
    at_least = 1 if number >= len(sizes) else 0
    shares = np.maximum(np.floor(exact).astype(np.int64), at_least)
    while shares.sum() < number:
        shares[np.argmax(exact - shares)] += 1
    while shares.sum() > number:
        shares[np.argmax(np.where(shares > at_least, shares - exact, -np.inf))] -= 1
    return shares
