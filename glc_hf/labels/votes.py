# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Votes: the labels that several sources (rules, people, language models) gave to the same items."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Votes:
    """
    Votes of several sources on items, without the missing ones. Item i has the votes `offsets[i]` to `offsets[i + 1]`.

    Args:
        names (`tuple[str, ...]`): Names of the sources.
        offsets (`np.ndarray` of shape `(items + 1,)`): int64.
        sources (`np.ndarray` of shape `(votes,)`): The number of the source of each vote, ascending within an item;
            int64.
        labels (`np.ndarray` of shape `(votes,)`): The class that the source voted for; int64.
    """

    names: tuple[str, ...]
    offsets: np.ndarray
    sources: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def items(self) -> np.ndarray:
        """The number of the item of each vote."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    @classmethod
    def from_dense(cls, votes: np.ndarray, names: tuple[str, ...] | None = None) -> Votes:
        """Votes from an array of shape `(items, sources)` in which negative numbers are missing votes."""
        given = votes >= 0
        items, sources = np.nonzero(given)
        offsets = np.concatenate([[0], np.cumsum(given.sum(axis=1))]).astype(np.int64)
        names = names or tuple(str(source) for source in range(votes.shape[1]))
        return cls(names, offsets, sources.astype(np.int64), votes[items, sources].astype(np.int64))

    def to_dense(self) -> np.ndarray:
        """The votes as an array of shape `(items, sources)`; -1 for missing votes."""
        dense = np.full((len(self), len(self.names)), -1, dtype=np.int64)
        dense[self.items, self.sources] = self.labels
        return dense

    def with_source(self, name: str, labels: np.ndarray) -> Votes:
        """The same votes and those of one more source: a class per item, negative where it does not vote."""
        if name in self.names:
            raise ValueError(f"there are two sources with the name {name!r}: each source needs a name of its own.")
        given = np.flatnonzero(labels >= 0)
        ends = self.offsets[given + 1]
        return Votes(
            (*self.names, name),
            self.offsets + np.concatenate([[0], np.cumsum(labels >= 0)]),
            np.insert(self.sources, ends, len(self.names)),
            np.insert(self.labels, ends, labels[given]),
        )

    @property
    def fingerprint(self) -> str:
        """A hash of the votes and of the names of their sources."""
        digest = hashlib.blake2b(repr(self.names).encode(), digest_size=16)
        for part in (self.offsets, self.sources, self.labels):
            digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()

    def select(self, items: np.ndarray) -> Votes:
        """The votes on these items, in this order."""
        lengths = np.diff(self.offsets)[items]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        places = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - self.offsets[items], lengths)
        return Votes(self.names, offsets, self.sources[places], self.labels[places])

    def of_sources(self, names: Sequence[str]) -> Votes:
        """The votes of these sources, numbered in this order; other votes are left out."""
        number = {name: position for position, name in enumerate(names)}
        renumbered = np.array([number.get(name, -1) for name in self.names], dtype=np.int64)[self.sources]
        kept = np.flatnonzero(renumbered >= 0)
        items, sources = self.items[kept], renumbered[kept]
        order = np.lexsort((sources, items))
        offsets = np.concatenate([[0], np.cumsum(np.bincount(items, minlength=len(self)))]).astype(np.int64)
        return Votes(tuple(names), offsets, sources[order], self.labels[kept][order])

    def counts(self, num_labels: int) -> np.ndarray:
        """Number of votes for each class, `(items, K)`."""
        counted = np.zeros((len(self), num_labels), dtype=np.int64)
        np.add.at(counted, (self.items, self.labels), 1)
        return counted
