# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Probability that each label is wrong, from logits and the corruption matrix, and the suggested label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from datasets import ClassLabel, Dataset, List, Value

from glc_hf.audit.given_labels import GivenLabels
from glc_hf.correction.likelihood import posterior_over_true_labels
from glc_hf.correction.sources import SourceModel
from glc_hf.labels.reading import IGNORED_LABEL
from glc_hf.labels.storage import with_format_of
from glc_hf.labels.votes import Votes
from glc_hf.matrix import CorruptionMatrix


COLUMNS = GIVEN, SUGGESTED, P_WRONG = "given_label", "suggested_label", "p_wrong"


class Verdicts(NamedTuple):
    """Per label: the most probable true label, and the probability that the given label is wrong."""

    suggested: np.ndarray
    p_wrong: np.ndarray


def verdicts_on(
    logits: torch.Tensor, given: torch.Tensor, matrix: CorruptionMatrix, trusted: torch.Tensor | None = None
) -> Verdicts:
    """
    Return the most probable true label and p_wrong = 1 − p(true = given | x, given), where
    p(true = y | x, given) ∝ g(x)_y · C[y, given].

    Args:
        logits (`Tensor` of shape `(N, K)`): Logits of the classifier of true labels.
        given (`Tensor` of shape `(N,)`): Labels in the dataset.
        matrix ([`CorruptionMatrix`]): `C[i, j] = p(noisy = j | true = i)`.
        trusted (`Tensor` of shape `(N,)`, *optional*): Flags of correct labels. Their suggested label is the given
            one, and their p_wrong is 0.
    """
    return _verdicts(posterior_over_true_labels(logits.double(), given, matrix), given, trusted)


def verdicts_by_votes(
    logits: torch.Tensor, given: torch.Tensor, sources: SourceModel, votes: Votes, trusted: torch.Tensor | None = None
) -> Verdicts:
    """
    Return the most probable true label and p_wrong = 1 − p(true = given | x, votes), where
    p(true = y | x, votes) ∝ g(x)_y · Π_s p(vote_s | y).

    Args:
        logits (`Tensor` of shape `(N, K)`): Logits of the classifier of true labels.
        given (`Tensor` of shape `(N,)`): Labels that follow from the votes.
        sources ([`SourceModel`]): What the votes of each source say.
        votes ([`Votes`]): The votes on the N items, of the same sources.
        trusted (`Tensor` of shape `(N,)`, *optional*): As in [`verdicts_on`].
    """
    posterior = sources.posterior(votes, torch.log_softmax(logits.double(), dim=-1).numpy())
    return _verdicts(torch.from_numpy(posterior), given, trusted)


def _verdicts(posterior: torch.Tensor, given: torch.Tensor, trusted: torch.Tensor | None) -> Verdicts:
    # In float64 and as a sum over the other classes: rows with p_wrong close to 0 or 1 keep their order.
    suggested = posterior.argmax(dim=-1)
    p_wrong = posterior.scatter(1, given.unsqueeze(1), 0.0).sum(dim=1)
    if trusted is not None:
        suggested, p_wrong = torch.where(trusted, given, suggested), p_wrong.masked_fill(trusted, 0.0)
    return Verdicts(suggested.numpy(), p_wrong.numpy())


def check_audit_columns(dataset: Dataset) -> None:
    """Raise if the dataset already has a column with the name of an audit column."""
    for name in COLUMNS:
        if name in dataset.column_names:
            raise ValueError(f"the dataset already has a column {name!r} from another audit: remove or rename it.")


def add_audit_columns(
    dataset: Dataset, labels: GivenLabels, logits: torch.Tensor, label_names: list[str] | None
) -> Dataset:
    """
    Return the dataset with the columns `given_label`, `suggested_label` and `p_wrong`.

    A label of -100 is kept and has p_wrong 0. If the labels are lists, the columns are lists too. A row without a
    label (no vote, not trusted) gets the given label -100, p_wrong 0, and the prediction of the model as suggestion.

    Args:
        dataset (`Dataset`): The audited rows.
        labels ([`GivenLabels`]): Their labels and votes.
        logits (`Tensor` of shape `(N, K)`): One row per label that is not -100, in the order of the labels.
        label_names (`list[str]`, *optional*): Names of the classes.
    """
    values, offsets = labels.rows.labels
    given = values.astype(np.int64)
    counted = given != IGNORED_LABEL
    suggested, p_wrong = given.copy(), np.zeros(len(given))
    own, trusted = torch.from_numpy(given[counted]), torch.from_numpy(labels.rows.trusted[counted])
    if labels.votes is None:
        suggested[counted], p_wrong[counted] = verdicts_on(logits, own, labels.matrix, trusted)
    else:
        suggested[counted], p_wrong[counted] = verdicts_by_votes(logits, own, labels.sources, labels.votes, trusted)
    missing = labels.missing
    given[missing], suggested[missing], p_wrong[missing] = IGNORED_LABEL, logits[missing].argmax(dim=-1), 0.0
    classes = ClassLabel(names=label_names) if label_names is not None else Value("int64")
    audited = dataset.with_format(None)
    for name, values, feature in zip(
        COLUMNS, (given, suggested, p_wrong), (classes, classes, Value("float64")), strict=True
    ):
        column = values.tolist()
        if offsets is not None:
            column, feature = [part.tolist() for part in np.split(values, offsets[1:-1])], List(feature)
        audited = audited.add_column(name, column, feature=feature)
    return with_format_of(dataset, audited)


@dataclass
class Findings:
    """
    Result of an audit, one entry per label. Labels without a verdict (-100, truncated words) are left out.

    Attributes:
        matrix: The corruption matrix, with the names of the classes. For votes, the mean of those of the sources.
        row: Row of the label, starting at 0.
        word: Position in the row if rows contain lists, else `None`.
        given, suggested: Classes.
        p_wrong: Probability that `given` is wrong.
    """

    matrix: CorruptionMatrix
    row: np.ndarray
    word: np.ndarray | None
    given: np.ndarray
    suggested: np.ndarray
    p_wrong: np.ndarray

    @classmethod
    def of(cls, audited: Dataset, matrix: CorruptionMatrix) -> Findings:
        """Return the findings of a dataset with the audit columns."""
        table = audited.select_columns(list(COLUMNS)).with_format("arrow")[:]
        given, suggested, p_wrong = (table.column(name).to_pylist() for name in COLUMNS)
        if not given or not isinstance(given[0], list):
            rows = np.flatnonzero(np.asarray(given) != IGNORED_LABEL)
            given, suggested = (np.asarray(column)[rows] for column in (given, suggested))
            return cls(matrix, rows, None, given, suggested, np.asarray(p_wrong, dtype=np.float64)[rows])
        entries = [
            (row, word, *entry)
            for row, lists in enumerate(zip(given, suggested, p_wrong, strict=True))
            for word, entry in enumerate(zip(*lists, strict=True))
            if entry[0] != IGNORED_LABEL and entry[2] is not None
        ]
        *columns, p_wrong = map(np.asarray, zip(*entries, strict=True)) if entries else [np.empty(0, int)] * 5
        return cls(matrix, *columns, p_wrong.astype(np.float64))

    def __len__(self) -> int:
        return len(self.given)

    @property
    def suspect(self) -> np.ndarray:
        """Whether each label is more likely wrong than right."""
        return self.p_wrong > 0.5

    def most_suspect(self, number: int) -> np.ndarray:
        """Return the positions of the labels with the largest p_wrong, in descending order."""
        return np.argsort(-self.p_wrong, kind="stable")[:number]

    def corrections(self, number: int = 3) -> list[tuple[str, str, int]]:
        """Return the most frequent (given, suggested, count) among suspect labels."""
        size = self.matrix.num_labels
        counts = np.bincount(self.given[self.suspect] * size + self.suggested[self.suspect], minlength=size * size)
        return [
            (self.matrix.name_of(pair // size), self.matrix.name_of(pair % size), int(counts[pair]))
            for pair in np.argsort(-counts, kind="stable")[:number].tolist()
            if counts[pair]
        ]
