# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`SourceModel`: what the votes of each source say about the true class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glc_hf.correction.votes_loss import VoteTable
from glc_hf.labels.label_batch import Votes
from glc_hf.matrix import CorruptionMatrix


_NUMBERS_PER_CHUNK = 2**22


@dataclass(frozen=True, eq=False)
class SourceModel:
    """
    What the votes of each source say about the true class.

    Args:
        names (`tuple[str, ...]`): Names of the S sources.
        given_vote (`np.ndarray` of shape `(S, K, K)`):
            `given_vote[s, v, y] = p(vote v | true class y, s votes)`. The true class is the last dimension.
        coverage (`np.ndarray` of shape `(S, K)`): `coverage[s, y] = p(s votes | true class y)`.
        weights (`np.ndarray` of shape `(S,)`): Exponent of each source: 1, or less if others vote like it.
        temperature (`float`): Exponent of all sources. Below 1 if their votes are less reliable together than alone.
        class_rates (`np.ndarray` of shape `(K,)`): Frequencies of the true classes.
        trusted_votes (`np.ndarray` of shape `(S, K)`): Number of trusted items of each class that the source voted on.
        held_out (`np.ndarray` of shape `(trusted items, K)`):
            Log-likelihood of the votes of each trusted item, from tables counted without this item. In the order of
            `trusted_items`.
    """

    names: tuple[str, ...]
    given_vote: np.ndarray
    coverage: np.ndarray
    weights: np.ndarray
    temperature: float
    class_rates: np.ndarray
    trusted_votes: np.ndarray
    held_out: np.ndarray

    @property
    def num_labels(self) -> int:
        """K."""
        return self.given_vote.shape[2]

    def matrices(self, label_names: list[str] | None = None) -> dict[str, CorruptionMatrix]:
        """The corruption matrix of each source, given that it votes. `trusted_rows` counts the trusted items with a
        vote of the source."""
        return {
            name: CorruptionMatrix(self.given_vote[source].T, label_names, self.trusted_votes[source])
            for source, name in enumerate(self.names)
        }

    def mean_matrix(self, label_names: list[str] | None = None) -> CorruptionMatrix:
        """p(vote | true class) of a vote of any source, from how often each source votes on the class."""
        votes = np.einsum("svy,sy->yv", self.given_vote, self.coverage)
        return CorruptionMatrix(votes / votes.sum(axis=1, keepdims=True), label_names)

    def of_sources(self, names: Sequence[str]) -> SourceModel:
        """The model of some of the sources, in this order. Unlike a source without a vote, one that is left out says
        nothing about the class."""
        number = {name: position for position, name in enumerate(self.names)}
        chosen = [number[name] for name in names]
        parts = {name: getattr(self, name)[chosen] for name in ("given_vote", "coverage", "weights", "trusted_votes")}
        return replace(self, names=tuple(names), held_out=self.held_out[:0], **parts)

    def vote_table(self, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> VoteTable:
        """The table that the loss uses."""
        return VoteTable.of(self.given_vote, self.coverage, self.weights, self.temperature, device=device, dtype=dtype)

    def log_likelihood(self, votes: Votes) -> np.ndarray:
        """t Σ_s w_s log J_s[y, vote_s] of each item, `(items, K)`, in float64. `votes` has the same sources."""
        if votes.names != self.names:
            raise ValueError(
                f"the votes are of {_shortened(votes.names)}, but the model was fitted on {_shortened(self.names)}."
            )
        check_votes(votes, self.num_labels)
        rows = torch.from_numpy(self.given_vote).reshape(-1, self.num_labels)
        coverage, weights = torch.from_numpy(self.coverage), torch.from_numpy(self.weights)
        return self.temperature * log_likelihood(votes, lambda index: rows[index], coverage, weights).numpy()

    def posterior(self, votes: Votes, log_probs: np.ndarray | None = None) -> np.ndarray:
        """
        p(true class | votes) of each item, `(items, K)`.

        Args:
            votes ([`Votes`]): Votes of the same sources.
            log_probs (`np.ndarray` of shape `(items, K)`, *optional*):
                log p(true class | x) of a model of the inputs. Without it, the frequencies of the classes.
        """
        prior = np.log(self.class_rates) if log_probs is None else np.asarray(log_probs, dtype=np.float64)
        return torch.softmax(torch.from_numpy(self.log_likelihood(votes) + prior), dim=-1).numpy()

    def to_dict(self) -> dict[str, Any]:
        """The fields: a list of names, a number, and arrays."""
        return {field.name: getattr(self, field.name) for field in fields(self)} | {"names": list(self.names)}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> SourceModel:
        """The model from what [`~SourceModel.to_dict`] returned; arrays may be nested lists."""
        values: dict[str, Any] = {field.name: np.asarray(content[field.name]) for field in fields(cls)}
        num_labels = values["coverage"].shape[1]
        values["held_out"] = values["held_out"].reshape(-1, num_labels)
        return cls(**values | {"names": tuple(content["names"]), "temperature": float(content["temperature"])})


def log_likelihood(votes: Votes, given_vote: Callable[[Tensor], Tensor], coverage: Tensor, weights: Tensor) -> Tensor:
    """Σ_s w_s log J_s[y, vote_s] of each item, `(items, K)`; like [`VoteTable`], but without a table of logarithms."""
    num_labels = coverage.shape[1]
    silent = 1.0 - coverage
    log_silent = torch.where(silent <= 0, 0.0, silent.log())
    of_vote = weights.unsqueeze(1) * (coverage.log() - log_silent)
    result = (weights @ log_silent).repeat(len(votes), 1)
    items, sources = torch.from_numpy(votes.items), torch.from_numpy(votes.sources)
    index = sources * num_labels + torch.from_numpy(votes.labels)
    for part in torch.arange(len(index)).split(max(1, _NUMBERS_PER_CHUNK // num_labels)):
        source = sources[part]
        rows = given_vote(index[part]).log_() * weights[source].unsqueeze(1) + of_vote[source]
        result.index_add_(0, items[part], rows)
    return result


def check_votes(votes: Votes, num_labels: int) -> None:
    bad = (votes.labels < 0) | (votes.labels >= num_labels)
    if bad.any():
        vote = int(np.argmax(bad))
        item = int(np.searchsorted(votes.offsets, vote, side="right")) - 1
        raise ValueError(
            f"the vote of source {votes.names[votes.sources[vote]]!r} on item {item} is {votes.labels[vote]}; with "
            f"{num_labels} classes it must be in 0…{num_labels - 1}. Leave missing votes out."
        )


def _shortened(names: tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
