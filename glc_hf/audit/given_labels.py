# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The labels that an audit judges: those in the dataset, or those that follow from the votes of several sources."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from datasets import Dataset

from glc_hf.correction.sources import SourceModel
from glc_hf.labels.columns import find_label_column, label_names_of
from glc_hf.labels.encoding import encode_words
from glc_hf.labels.label_batch import Votes
from glc_hf.labels.labeled_rows import LabeledRows
from glc_hf.labels.reading import IGNORED_LABEL
from glc_hf.matrix import CorruptionMatrix
from glc_hf.voted.voted_rows import has_votes, label_by_probabilities, label_by_votes, label_column_of


class GivenLabels(NamedTuple):
    """
    The labels of the rows to audit.

    Attributes:
        dataset: The rows with these labels.
        rows: Labels and flags.
        matrix: The matrix of the labels, if they are of one source.
        sources, votes: What the votes say, and the votes on each label that is not -100, if they are of several.
        missing: Numbers of the rows that have no label: without votes, and not trusted.
        noisy: `(T, 2)`, the trusted labels and those of the noisy source, for trusted labels that have both.
    """

    dataset: Dataset
    rows: LabeledRows
    matrix: CorruptionMatrix | None
    sources: SourceModel | None
    votes: Votes | None
    missing: np.ndarray
    noisy: np.ndarray


def given_labels(
    dataset: Dataset,
    args: Any,
    model: Any,
    num_labels: int | None,
    matrix: CorruptionMatrix | None,
    sources: SourceModel | None,
) -> GivenLabels:
    """
    Read the labels of the rows to audit. Untrusted rows with votes or soft labels have the class that these make most
    probable.

    Args:
        dataset (`Dataset`): The rows.
        args (`GLCConfig`): Names the columns.
        model (`PreTrainedModel`): Its configuration may have the names of the classes.
        num_labels (`int`): K.
        matrix ([`CorruptionMatrix`], *optional*): The matrix of the labels of a single source.
        sources ([`SourceModel`], *optional*): What the votes of several sources say.
    """
    votes, missing = None, np.empty(0, dtype=np.int64)
    if sources is not None and not has_votes(args):
        raise ValueError(
            f"the model was trained on the votes of {len(sources.names):,} sources: name the columns of the votes "
            "with source_columns or votes_column."
        )
    if has_votes(args):
        names = label_names_of(dataset, label_column_of(dataset, args), model)
        dataset, votes, missing, sources_of_votes = label_by_votes(dataset, args, num_labels, names, sources)
        sources = None if sources is None else sources_of_votes
    elif args.soft_label_column in dataset.column_names:
        dataset = label_by_probabilities(dataset, args, num_labels).dataset
    label_column = label_column_of(dataset, args)
    if votes is None:
        column = label_column or find_label_column(dataset, None, args.trusted_column)
        dataset = encode_words(dataset, column, label_names_of(dataset, column, model), "the dataset")
    rows = LabeledRows(dataset, label_column, args.trusted_column, num_labels, "audit", needs_flags=False)
    known = rows.item_labels("trusted")
    noisy = np.full(len(known), IGNORED_LABEL)
    if sources is None:
        if args.noisy_label_column in dataset.column_names:
            noisy = rows.item_labels("trusted", args.noisy_label_column)
        return GivenLabels(dataset, rows, matrix, None, None, missing, _both(known, noisy))
    assert votes is not None  # there are sources
    votes = votes.select(np.flatnonzero(rows.counted))
    on_known = votes.select(np.flatnonzero(rows.trusted[rows.counted]))
    has_vote = np.isin(np.arange(len(known)), on_known.items)
    noisy = np.where(has_vote, sources.posterior(on_known).argmax(axis=1), noisy)
    return GivenLabels(dataset, rows, None, sources, votes, missing, _both(known, noisy))


def _both(known: np.ndarray, noisy: np.ndarray) -> np.ndarray:
    return np.stack([known, noisy], axis=1)[noisy >= 0]
