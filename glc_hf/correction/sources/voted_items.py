# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`VotedItems`: the votes on the items of a feature table, for models that are fitted in folds."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from glc_hf.correction.linear import FeatureTable, LinearHead
from glc_hf.correction.sources.fitting import fit_sources
from glc_hf.correction.sources.source_model import SourceModel
from glc_hf.correction.sources.vote_counts import vote_numbers, votes_of_rules
from glc_hf.labels.label_batch import Votes
from glc_hf.labels.vote_columns import majority_vote


class VotedItems:
    """
    The votes on all items of a dataset, of which some are trusted and some have features.

    Args:
        votes ([`Votes`]): The votes on all items.
        num_labels (`int`): K.
        trusted (`np.ndarray`): Numbers of the trusted items, ascending.
        labels (`np.ndarray`): Their labels.
        seed (`int`): Of the estimate.
    """

    def __init__(self, votes: Votes, num_labels: int, trusted: np.ndarray, labels: np.ndarray, seed: int) -> None:
        self.votes, self.num_labels, self.seed = votes, num_labels, seed
        self.trusted, self.labels = np.asarray(trusted), np.asarray(labels)
        # Whether predictions improve the estimate; see `fit_sources`.
        self.uses_predictions = not votes_of_rules(vote_numbers(votes, num_labels))

    def fit(self, left_out: np.ndarray | None = None) -> SourceModel:
        """What the votes of each source say, counted on the trusted items without those `left_out`."""
        kept = np.ones(len(self.trusted), dtype=bool) if left_out is None else ~np.isin(self.trusted, left_out)
        return fit_sources(
            self.votes, self.num_labels, self.trusted[kept], self.labels[kept], class_probs=None, seed=self.seed
        )

    def refit(
        self, table: FeatureTable, head: LinearHead, numbers: np.ndarray, left_out: np.ndarray | None = None
    ) -> SourceModel:
        """
        The same with the untrusted items, by EM from a model of the true classes. Processes share their predictions.

        Args:
            table ([`FeatureTable`]): The features of this process's items.
            head ([`LinearHead`]): The model.
            numbers (`np.ndarray`): Numbers of the items with features, of all processes, ascending.
            left_out (`np.ndarray`, *optional*): Numbers of the trusted items to leave out.
        """
        probs = table.gather(numbers, self.num_labels, lambda rows: table.logits(head, rows).softmax(dim=-1))
        kept = np.isin(self.trusted, numbers)
        if left_out is not None:
            kept &= ~np.isin(self.trusted, left_out)
        # An item that is left out does not count as an untrusted one: the model is judged on its label.
        used = np.flatnonzero(~np.isin(numbers, self.trusted[~kept]))
        return fit_sources(
            self.votes.select(numbers[used]),
            self.num_labels,
            np.searchsorted(numbers[used], self.trusted[kept]),
            self.labels[kept],
            class_probs=probs[torch.from_numpy(used)].numpy(),
            seed=self.seed,
        )

    def log_likelihood(self, model: SourceModel, numbers: Tensor) -> Tensor:
        """ℓ of the votes on these items, `(n, K)`."""
        return torch.from_numpy(model.log_likelihood(self.votes.select(numbers.numpy()))).float()

    def majority(self, numbers: Tensor) -> Tensor:
        """The class with most votes of each item; see [`~labels.vote_columns.majority_vote`]."""
        return self._majority[numbers]

    @cached_property
    def _majority(self) -> Tensor:
        return torch.from_numpy(majority_vote(self.votes, self.num_labels))
