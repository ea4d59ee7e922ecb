# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""A trained model and its corruption matrix over labelled rows: which labels are wrong, and what they should be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import datasets
import numpy as np
import torch
from datasets import ClassLabel, Dataset, List, Value

from glc_hf.correction.likelihood import posterior_over_true_labels
from glc_hf.labels.columns import label_names_of
from glc_hf.labels.reading import IGNORED_LABEL
from glc_hf.labels.storage import with_format_of
from glc_hf.matrix import CorruptionMatrix
from glc_hf.training.inference import infer
from glc_hf.training.training_data import LabelledRows


if TYPE_CHECKING:
    from glc_hf.training.trainer import GLCTrainer


GIVEN, SUGGESTED, P_WRONG = "given_label", "suggested_label", "p_wrong"
COLUMNS = (GIVEN, SUGGESTED, P_WRONG)


class Verdicts(NamedTuple):
    """For each label: the most probable true one, and the probability that the given one is wrong."""

    suggested: np.ndarray
    p_wrong: np.ndarray


def verdicts_on(
    logits: torch.Tensor, given: torch.Tensor, matrix: CorruptionMatrix, trusted: torch.Tensor | None = None
) -> Verdicts:
    """
    p_wrong = 1 − p(true = given | x, given), with the posterior ∝ g(x)_y · C[y, given].

    Args:
        logits (`Tensor` of shape `(N, K)`): Of the classifier of true classes.
        given (`Tensor` of shape `(N,)`): The labels as given.
        matrix ([`CorruptionMatrix`]): `C[i, j] = p(noisy = j | true = i)`.
        trusted (`Tensor` of shape `(N,)`, *optional*): Labels that are right: they are suggested themselves, and wrong
            with probability 0.
    """
    # In float64 and as a sum over the other classes: certain rows on either end keep their order.
    posterior = posterior_over_true_labels(logits.double(), given, matrix)
    suggested = posterior.argmax(dim=-1)
    p_wrong = posterior.scatter(1, given.unsqueeze(1), 0.0).sum(dim=1)
    if trusted is not None:
        suggested, p_wrong = torch.where(trusted, given, suggested), p_wrong.masked_fill(trusted, 0.0)
    return Verdicts(suggested.numpy(), p_wrong.numpy())


def audit_rows(trainer: GLCTrainer, dataset: datasets.Dataset) -> datasets.Dataset:
    """
    See [`GLCTrainer.audit`]. With several processes, each goes over all rows and has the whole result.

    Args:
        trainer ([`GLCTrainer`]): Trained, or made with a trained model and its matrix.
        dataset (`datasets.Dataset`): Inputs, labels and, where some are trusted, flags.
    """
    matrix = trainer.corruption_matrix
    if matrix is None:
        raise ValueError(
            f"an audit needs the corruption matrix, and method {trainer.args.method!r} has none (or is not trained "
            "yet): train with 'glc', or give a known one as `GLCTrainer(…, corruption_matrix=…)`."
        )
    if not isinstance(dataset, datasets.Dataset):
        raise TypeError(f"an audit goes over a `datasets.Dataset`, not a {type(dataset).__name__}.")
    if len(dataset) == 0:
        raise ValueError("there are no rows to audit: the dataset is empty.")
    for name in COLUMNS:
        if name in dataset.column_names:
            raise ValueError(f"the dataset has a column {name!r} already, from another audit: remove or rename it.")
    args = trainer.args
    rows = LabelledRows(dataset, args.label_column, args.trusted_column, matrix.num_labels, "audit", needs_flags=False)
    labels = rows.labels
    counted, trusted = rows.counted_items()
    given = torch.from_numpy(labels.values[counted].astype(np.int64))
    logits = _logits(trainer, dataset, rows.label_column)
    if len(logits) != len(given):
        raise ValueError(
            f"the model gave logits for {len(logits):,} labels, and column {rows.label_column!r} has {len(given):,}: "
            "the collator or the transform drops labels."
        )
    verdicts = verdicts_on(logits, given, matrix, torch.from_numpy(trusted[counted]))
    suggested, p_wrong = labels.values.astype(np.int64), np.zeros(len(labels.values))
    suggested[counted], p_wrong[counted] = verdicts
    names = label_names_of(dataset, rows.label_column, trainer.model) or matrix.label_names
    classes = ClassLabel(names=names) if names is not None else Value("int64")
    plain = dataset.with_format(None)
    for name, values, feature in (
        (GIVEN, labels.values.astype(np.int64), classes),
        (SUGGESTED, suggested, classes),
        (P_WRONG, p_wrong, Value("float64")),
    ):
        if labels.offsets is not None:
            values, feature = [part.tolist() for part in np.split(values, labels.offsets[1:-1])], List(feature)
        plain = plain.add_column(name, _column(values), feature=feature)
    return with_format_of(dataset, plain)


def _column(values: Any) -> Any:
    return values.tolist() if isinstance(values, np.ndarray) else values


def _logits(trainer: GLCTrainer, dataset: datasets.Dataset, label_column: str) -> torch.Tensor:
    """Logits of every label that is not -100, in the order of the rows."""
    view = trainer._without_unused_columns(dataset, label_column)
    return torch.cat([batch.logits for batch in infer(trainer, view, "all")])


# A label counts as suspect when it is more probably wrong than right.
SUSPECT = 0.5


@dataclass
class Findings:
    """
    One entry a label; those without a verdict (-100, words cut off) are left out.

    Attributes:
        matrix: The corruption matrix, with the names of the classes.
        row: The row that holds the label, counted from 0.
        word: Its place in the row where rows hold lists, else `None`.
        given, suggested: Classes.
        p_wrong: The probability that `given` is wrong.
        num_rows: Rows in all.
    """

    matrix: CorruptionMatrix
    row: np.ndarray
    word: np.ndarray | None
    given: np.ndarray
    suggested: np.ndarray
    p_wrong: np.ndarray
    num_rows: int

    @classmethod
    def of(cls, audited: Dataset, matrix: CorruptionMatrix) -> Findings:
        """From a dataset with the columns of an audit."""
        columns = audited.select_columns([GIVEN, SUGGESTED, P_WRONG]).with_format("arrow")[:]
        given, suggested, p_wrong = (columns.column(name).to_pylist() for name in (GIVEN, SUGGESTED, P_WRONG))
        if not given or not isinstance(given[0], list):
            every = np.arange(len(given))
            p_wrong = np.asarray(p_wrong, dtype=np.float64)
            return cls(matrix, every, None, np.asarray(given), np.asarray(suggested), p_wrong, len(given))
        flat = [
            (row, word, *entry)
            for row, entries in enumerate(zip(given, suggested, p_wrong, strict=True))
            for word, entry in enumerate(zip(*entries, strict=True))
            if entry[0] != IGNORED_LABEL and entry[2] is not None
        ]
        rows, words, labels, better, wrong = (
            map(np.asarray, zip(*flat, strict=True)) if flat else [np.empty(0, int)] * 5
        )
        return cls(matrix, rows, words, labels, better, wrong.astype(np.float64), len(given))

    def __len__(self) -> int:
        return len(self.given)

    @property
    def suspect(self) -> np.ndarray:
        """Whether each label is more probably wrong than right."""
        return self.p_wrong > SUSPECT

    def most_suspect(self, number: int) -> np.ndarray:
        """Places of the labels that are most probably wrong, in that order."""
        return np.argsort(-self.p_wrong, kind="stable")[:number]

    def corrections(self, number: int = 3) -> list[tuple[str, str, int]]:
        """The commonest (given, suggested, how often) among suspect labels."""
        size = self.matrix.num_labels
        pairs = np.bincount(self.given[self.suspect] * size + self.suggested[self.suspect], minlength=size * size)
        largest = [int(place) for place in np.argsort(-pairs, kind="stable")[:number] if pairs[place]]
        return [
            (self.matrix.name_of(place // size), self.matrix.name_of(place % size), int(pairs[place]))
            for place in largest
        ]
