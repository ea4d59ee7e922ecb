# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The items that the pool of linear models is fitted on, and the names of its members."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from glc_hf.correction.linear import FeatureTable
from glc_hf.correction.pool.discriminant import scatter_root
from glc_hf.correction.sources.voted_items import VotedItems
from glc_hf.labels.label_batch import Votes
from glc_hf.randomness import random_uint64


# The members of the pool, and their weights before any trusted label is seen. `glc` uses both kinds of labels.
MEMBERS = {"plain": 0.1, "trusted": 0.05, "glc": 0.35, "tuned": 0.2, "glc_tuned": 0.25, "stack": 0.05}
# With the votes of several sources.
_VOTES_MEMBERS = {
    "plain": 0.1,
    "trusted": 0.0,
    "votes": 0.5,
    "glc": 0.1,
    "tuned": 0.1,
    "glc_tuned": 0.1,
    "stack": 0.0,
    "majority": 0.05,
    "majority_tuned": 0.05,
}
# Members that are fitted to what the others say, with their weights. The others share the rest. With several sources,
# trusted items tell how much the votes say beside the other members, and `given_discriminant` is the better one.
DISCRIMINANTS = {"discriminant": 0.5, "given_discriminant": 0.3}
_VOTES_DISCRIMINANTS = {"discriminant": 0.2, "given_discriminant": 0.6}
# Strength of these weights, in trusted items: with one source, and with several, which have more members.
_WEIGHT_ITEMS, _VOTES_WEIGHT_ITEMS = 10.0, 20.0
FOLDS = 5
# With fewer trusted items, predictions depend much on which items are in a fold together: they are divided into folds
# several times.
FEW_TRUSTED = 50
_REPEATS = 3
_MAX_TRUSTED, _MAX_UNTRUSTED = 2000, 20_000
_MAX_PRODUCTS = 4 * 10**9  # items × features × classes of one fit


@dataclass
class PoolData:
    """
    The items that the members are fitted on: features, labels and flags of this process, and the folds.

    Attributes:
        table: The features.
        trusted, untrusted: Table rows of the items of each kind that are used.
        labels: `(N,)`, the given label of each table row.
        position: `(len(trusted),)`, the position of each trusted item in `trusted_numbers`.
        trusted_numbers, untrusted_numbers: Numbers of the items of each kind, of all processes, ascending.
        folds: `(R, len(trusted_numbers))`, the fold of each trusted item, R times.
        num_labels: K.
        voted: The votes on the items, if there are several sources of labels.
    """

    table: FeatureTable
    trusted: Tensor
    untrusted: Tensor
    labels: Tensor
    position: Tensor
    trusted_numbers: Tensor
    untrusted_numbers: Tensor
    folds: Tensor
    num_labels: int
    voted: VotedItems | None = None

    @property
    def members(self) -> dict[str, float]:
        """The members of the pool, and their weights before any trusted label is seen."""
        if self.scatter_root is None:
            return self.first_members
        last = DISCRIMINANTS if self.voted is None else _VOTES_DISCRIMINANTS
        rest = 1.0 - sum(last.values())
        return {**{name: rest * weight for name, weight in self.first_members.items()}, **last}

    @property
    def first_members(self) -> dict[str, float]:
        """The same without the discriminants."""
        return MEMBERS if self.voted is None else _VOTES_MEMBERS

    @property
    def weight_items(self) -> float:
        """Strength of the weights of the members, in trusted items."""
        return _WEIGHT_ITEMS if self.voted is None else _VOTES_WEIGHT_ITEMS

    @cached_property
    def scatter_root(self) -> Tensor | None:
        """Of the discriminants; `None` if there are too many features for them."""
        return scatter_root(self.table)

    @property
    def num_trusted(self) -> int:
        """Number of trusted items of all processes."""
        return len(self.trusted_numbers)

    @classmethod
    def of(
        cls,
        table: FeatureTable,
        labels: np.ndarray,
        trusted: np.ndarray,
        untrusted: np.ndarray,
        num_labels: int,
        seed: int,
        votes: Votes | None = None,
    ) -> PoolData:
        """
        Choose the items, the same ones for any number of processes.

        Args:
            table ([`FeatureTable`]): The features of this process's items.
            labels (`np.ndarray`): The given labels of all items of the dataset.
            trusted, untrusted (`np.ndarray`): Numbers of the items of each kind, of all processes.
            num_labels (`int`): K.
            seed (`int`): Chooses the items if there are too many, and the folds.
            votes ([`Votes`], *optional*): The votes of several sources on all items. The labels of untrusted items are
                then those that follow from the votes.
        """
        voted = (
            None if votes is None else VotedItems(votes, num_labels, np.sort(trusted), labels[np.sort(trusted)], seed)
        )
        most = max(2 * num_labels, _MAX_PRODUCTS // (table.features.shape[1] * num_labels))
        trusted = _some("pool trusted", seed, trusted, min(most, _MAX_TRUSTED))
        untrusted = _some("pool untrusted", seed, untrusted, min(most, _MAX_UNTRUSTED))
        folds = np.empty((_REPEATS if len(trusted) < FEW_TRUSTED else 1, len(trusted)), dtype=np.int64)
        for repeat, fold in enumerate(folds):
            # Folds with equal shares of each class: by class, then at random.
            purpose = f"fold {repeat}" if repeat else "fold"
            order = np.lexsort((random_uint64(purpose, seed, trusted), labels[trusted]))
            fold[order] = np.arange(len(trusted)) % min(FOLDS, max(len(trusted), 1))
        rows, others = (_ascending(table, numbers) for numbers in (trusted, untrusted))
        position = torch.from_numpy(np.searchsorted(trusted, table.numbers[rows].numpy()))
        return cls(
            table,
            rows,
            others,
            torch.from_numpy(np.asarray(labels))[table.numbers],
            position,
            torch.from_numpy(trusted),
            torch.from_numpy(untrusted),
            torch.from_numpy(folds),
            num_labels,
            voted,
        )

    @property
    def num_untrusted(self) -> int:
        """Number of untrusted items of all processes."""
        return len(self.untrusted_numbers)

    @property
    def numbers(self) -> np.ndarray:
        """Numbers of all items that are used, of all processes, ascending."""
        return np.sort(np.concatenate([self.trusted_numbers.numpy(), self.untrusted_numbers.numpy()]))

    @property
    def repeats(self) -> int:
        """R, how often the trusted items are divided into folds."""
        return len(self.folds)

    @cached_property
    def splits(self) -> Tensor:
        """`(R · folds, n)`: which trusted items each fold leaves out; empty with fewer than two of them."""
        number = int(self.folds.max()) + 1 if self.folds.numel() else 0
        number = number if number > 1 else 0
        return (self.folds[:, None] == torch.arange(number)[:, None]).flatten(0, 1)

    def division(self, split: int) -> int:
        """In which division into folds a split is."""
        return split * self.repeats // len(self.splits)

    def weight_for(self, share: float, trusted: int) -> float:
        """Weight of each of these trusted items that gives them a share of the loss; at least 1."""
        return max(1.0, share / (1 - share) * self.num_untrusted / max(trusted, 1))


def _ascending(table: FeatureTable, numbers: np.ndarray) -> Tensor:
    """The table rows of these items, in ascending order of their numbers: results are then the same to the last bit
    for any order of the table. The corrected loss has several minima, and small differences could lead to others."""
    rows = table.rows_of(torch.from_numpy(numbers))
    return rows[table.numbers[rows].argsort()]


def _some(purpose: str, seed: int, numbers: np.ndarray, most: int) -> np.ndarray:
    if len(numbers) <= most:
        return np.sort(numbers)
    return np.sort(numbers[np.argsort(random_uint64(purpose, seed, numbers), kind="stable")[:most]])
