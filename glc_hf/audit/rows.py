# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""A trained model and its corruption matrix over labelled rows: which labels are wrong, and what they should be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import datasets
import numpy as np
import torch
from datasets import ClassLabel, List, Value

from glc_hf.correction.posterior import posterior_over_true_labels
from glc_hf.corruption.tables import with_format_of
from glc_hf.training.inference import infer
from glc_hf.training.labels import label_names_of
from glc_hf.training.rows import LabelledRows


if TYPE_CHECKING:
    from glc_hf.corruption.matrix import CorruptionMatrix
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
