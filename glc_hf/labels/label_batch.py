# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Labels as objects: those of a batch, and the soft labels and the votes of several sources of a training set."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F

from glc_hf.labels.reading import IGNORED_LABEL


# The column of a stream, and the key in its batches, of the log-likelihood of the votes on each item: K numbers.
VOTES_KEY = "__votes__"


@dataclass
class LabelBatch:
    """
    Labels of a batch with one class per item. An item is a row, or a token of a row.

    A further kind of label is a subclass that overrides the properties and methods below; [`label_batch`] chooses
    between them.

    Args:
        labels (`torch.Tensor` of shape `(rows,)` or `(rows, tokens)`): Classes; -100 carries no loss.
        trusted (`torch.Tensor`, *optional*): Whether each item is trusted, in the shape of the items.
        items (`torch.Tensor`, *optional*):
            The number of each item among all counted items of the training set, for methods that need it.
        log_likelihood (`torch.Tensor` of shape `(..., K)`, *optional*):
            Of the votes of several sources on each item, given each class. In streams, whose items have no numbers.
    """

    labels: torch.Tensor
    trusted: torch.Tensor | None = None
    items: torch.Tensor | None = None
    log_likelihood: torch.Tensor | None = None

    @property
    def shape(self) -> torch.Size:
        """Shape of the items."""
        return self.labels.shape

    @property
    def counted(self) -> torch.Tensor:
        """Which items carry loss, in the shape of the items."""
        return self.labels != IGNORED_LABEL

    def ignoring(self, mask: torch.Tensor) -> LabelBatch:
        """The same batch without loss where `mask` is true."""
        return dataclasses.replace(self, labels=self.labels.masked_fill(mask, IGNORED_LABEL))

    def cross_entropy(self, logits: torch.Tensor) -> torch.Tensor:
        """Plain cross-entropy of each item in fp32, `(..., K)` → `(...)`; 0 where an item carries no loss."""
        flat = logits.reshape(-1, logits.shape[-1]).float()
        losses = F.cross_entropy(flat, self.labels.reshape(-1), ignore_index=IGNORED_LABEL, reduction="none")
        return losses.view(self.shape)


class SoftLabelBatch(LabelBatch):
    """Labels that are probabilities over the classes, of shape `(..., K)`; a row of zeros carries no loss.
    `corrected_cross_entropy` takes them too."""

    @property
    def shape(self) -> torch.Size:
        return self.labels.shape[:-1]

    @property
    def counted(self) -> torch.Tensor:
        return self.labels.sum(dim=-1) > 0

    def ignoring(self, mask: torch.Tensor) -> LabelBatch:
        return dataclasses.replace(self, labels=self.labels.masked_fill(mask.unsqueeze(-1), 0.0))

    def cross_entropy(self, logits: torch.Tensor) -> torch.Tensor:
        return -(self.labels * logits.float().log_softmax(dim=-1)).sum(dim=-1)


def label_batch(
    labels: torch.Tensor,
    trusted: torch.Tensor | None = None,
    items: torch.Tensor | None = None,
    log_likelihood: torch.Tensor | None = None,
) -> LabelBatch:
    """The labels of a batch as an object: floats of shape `(..., K)` are probabilities, integers are classes."""
    kind = SoftLabelBatch if labels.is_floating_point() and labels.dim() > 1 else LabelBatch
    return kind(labels, trusted, items, log_likelihood)


@dataclass(frozen=True, eq=False)
class SoftLabels:
    """
    The soft labels of a training set.

    Args:
        targets (`torch.Tensor` of shape `(items, K)`):
            Probabilities of each item, by its number; one-hot for trusted items and for items without probabilities.
            float32, on the CPU.
        labels (`torch.Tensor` of shape `(items,)`):
            The hard label of each item: the given one of trusted items, and otherwise the most probable class.
        trusted (`torch.Tensor` of shape `(items,)`): Whether each item is trusted.
    """

    targets: torch.Tensor
    labels: torch.Tensor
    trusted: torch.Tensor

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the probabilities."""
        return hashlib.blake2b(np.ascontiguousarray(self.targets.numpy()).tobytes(), digest_size=16).hexdigest()

    def batch(self, hard: LabelBatch, numbers: torch.Tensor) -> SoftLabelBatch:
        """The same items with their soft labels; `numbers` are those of the items."""
        targets = self.targets[numbers.cpu()].to(hard.labels.device)
        return SoftLabelBatch(targets.masked_fill(~hard.counted.unsqueeze(-1), 0.0), hard.trusted, hard.items)

    def given_hard_label(self) -> torch.Tensor:
        """The mean soft label of the untrusted items with each hard label, `(K, K)` in float64; one-hot for a class
        that is the hard label of none."""
        num_labels = self.targets.shape[1]
        labels, targets = self.labels[~self.trusted], self.targets[~self.trusted].double()
        sums = torch.zeros(num_labels, num_labels, dtype=torch.float64).index_add_(0, labels, targets)
        counts = torch.bincount(labels, minlength=num_labels)
        sums[counts == 0] = torch.eye(num_labels, dtype=torch.float64)[counts == 0]
        return sums / sums.sum(dim=1, keepdim=True)


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
