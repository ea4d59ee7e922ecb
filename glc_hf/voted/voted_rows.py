# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""A training set with votes of several sources or with soft labels, and the labels that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import datasets
import numpy as np
import pyarrow as pa
from datasets import Features
from transformers.utils import logging

from glc_hf.correction.sources import SourceModel, fit_sources
from glc_hf.correction.sources.fitting import never_voted_on
from glc_hf.labels.columns import USUAL_LABEL_COLUMNS, NoLabelColumn, find_label_column
from glc_hf.labels.label_batch import Votes
from glc_hf.labels.reading import IGNORED_LABEL, Column, check_same_lengths, read_flags, read_soft_labels
from glc_hf.labels.storage import RowIndex, is_list_type, stored_column, with_columns
from glc_hf.labels.vote_columns import fill_labels, read_votes


logger = logging.get_logger(__name__)

UNKNOWN_CLASSES = "the model does not say how many classes it has: set `config.num_labels` (or `num_classes`)."


class VotedRows(NamedTuple):
    """
    Attributes:
        dataset: The training set, with a label for every row that has votes or is trusted.
        votes: The votes on all labels, in their order (those of -100 included).
        unused: Numbers of the rows without votes that are not trusted: nothing is known about their labels.
        model: What the votes say.
    """

    dataset: datasets.Dataset
    votes: Votes
    unused: np.ndarray
    model: SourceModel


class SoftRows(NamedTuple):
    """
    Attributes:
        dataset: The training set with a label for every row, without the column of the soft labels.
        targets: `(rows, K)`, float32: the soft labels, one-hot for trusted rows and for rows without one.
    """

    dataset: datasets.Dataset
    targets: np.ndarray


def has_votes(args: Any) -> bool:
    """Whether the configuration names sources of votes."""
    return args.source_columns is not None or args.votes_column is not None


def label_by_votes(
    dataset: datasets.Dataset,
    args: Any,
    num_labels: int | None,
    label_names: list[str] | None,
    model: SourceModel | None = None,
    held_out: np.ndarray | None = None,
    no_trusted: str = "No label is trusted: the accuracy of the sources is estimated from their agreement.",
) -> VotedRows:
    """
    Read the votes, and replace the labels of untrusted rows by the class that the votes make most probable. The
    accuracy of each source is counted on the trusted rows; without any, or if no source votes on them, it is estimated
    from the agreement of the sources. Soft labels are one more source, which votes for the most probable class.

    Args:
        dataset (`datasets.Dataset`): The training set, or rows to audit.
        args (`GLCConfig`): Names the columns.
        num_labels (`int`, *optional*): K; raises if it is known neither here nor from `model`.
        label_names (`list[str]`, *optional*): Names of the classes, for votes that are names.
        model ([`SourceModel`], *optional*): What the votes of each source say, if it is known from other rows. Its
            sources may be others than those of the dataset; only votes of sources in both are used.
        held_out (`np.ndarray`, *optional*): Numbers of trusted rows that the sources are not compared with.
        no_trusted (`str`, *optional*): Warning if no label is trusted.
    """
    num_labels = model.num_labels if num_labels is None and model is not None else num_labels
    if num_labels is None:
        raise ValueError(UNKNOWN_CLASSES)
    column = label_column_of(dataset, args)
    assert column is not None  # there are votes
    flags = _flags(dataset, args)
    soft = None
    if args.soft_label_column is not None:
        dataset, soft = _without_soft_labels(dataset, args, column, num_labels)
    votes = read_votes(
        dataset,
        args.source_columns,
        args.votes_column,
        label_names,
        num_labels,
        args.source_names,
        column,
        args.trusted_column,
        # Annotators with few answers may have none on these rows.
        require_votes=args.source_columns is not None and model is None,
    )
    if soft is not None:
        if len(votes) != len(soft):
            raise ValueError(
                f"source_columns have one vote per token, but soft_label_column {args.soft_label_column!r} has one "
                "list per row: leave one of them out."
            )
        votes = votes.with_source(args.soft_label_column, _most_probable(soft))
    if model is not None:
        model, votes = _common_sources(model, votes)
    sources = args.source_columns or ()
    filled = fill_labels(dataset, votes, column, flags, num_labels, sources, args.trusted_column)
    values, offsets = filled.labels
    lengths = np.diff(offsets) if offsets is not None else np.ones(len(dataset), dtype=np.int64)
    trusted = flags.values if flags.offsets is not None else np.repeat(flags.values, lengths)
    if model is None:
        compared = np.ones(len(dataset), dtype=bool)
        compared[held_out if held_out is not None else []] = False
        # Without items that are not trained on, such as special tokens, which no source can vote on.
        items = np.flatnonzero((values != IGNORED_LABEL) & (trusted | (np.diff(votes.offsets) > 0)))
        known = np.flatnonzero((trusted & np.repeat(compared, lengths))[items])
        votes_used = votes.select(items)
        if not len(known):
            logger.warning(no_trusted)
        elif never_voted_on(votes_used, known):
            logger.warning(
                f"No source votes on any of the {len(known):,} trusted labels, so the accuracy of the sources is "
                "estimated from their agreement. The loss uses the trusted labels."
            )
        model = fit_sources(votes_used, num_labels, known, values[items[known]], seed=args.seed)
    values, unused = most_probable_labels(filled.labels, trusted, votes, model)
    if len(unused):
        logger.warning(f"{len(unused):,} rows have no vote and are not trusted: they are not used.")
    return VotedRows(_with_labels(dataset, column, values, offsets), votes, unused, model)


def most_probable_labels(
    labels: Column, trusted: np.ndarray, votes: Votes, model: SourceModel
) -> tuple[np.ndarray, np.ndarray]:
    """
    The labels, in which untrusted items with votes have the class that the votes make most probable, and the numbers
    of the rows about whose label nothing is known. Their label is 0; that of such tokens is -100.

    Args:
        labels ([`Column`]): The label of each item.
        trusted (`np.ndarray`): Whether each item is trusted.
        votes ([`Votes`]): The votes on each item.
        model ([`SourceModel`]): What they say.
    """
    values, voted = labels.values.copy(), np.diff(votes.offsets) > 0
    given = np.flatnonzero((values != IGNORED_LABEL) & ~trusted & voted)
    values[given] = model.posterior(votes.select(given)).argmax(axis=1)
    nothing = np.flatnonzero(~trusted & ~voted)
    values[nothing] = 0 if labels.offsets is None else IGNORED_LABEL
    return values, nothing if labels.offsets is None else nothing[:0]


def _common_sources(model: SourceModel, votes: Votes) -> tuple[SourceModel, Votes]:
    """The model and the votes of the sources that both have."""
    if model.names == votes.names:
        return model, votes
    own = set(votes.names)
    names = [name for name in model.names if name in own]
    unknown = [name for name in votes.names if name not in set(model.names)]
    if not names:
        raise ValueError(
            f"none of the sources of these rows ({_named(unknown)}) is known: the model was trained on the votes of "
            f"{_named(model.names)}. Use the same names (source_columns, source_names)."
        )
    if unknown:
        logger.warning(
            f"The votes of {_named(unknown)} are not used: the model was not trained on votes of "
            f"{'this source' if len(unknown) == 1 else 'these sources'}."
        )
    return model.of_sources(names), votes.of_sources(names)


def _named(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")


def label_by_probabilities(dataset: Any, args: Any, num_labels: int | None) -> SoftRows:
    """
    Read the soft labels, and replace the labels of untrusted rows by the most probable class. Trusted rows keep their
    label, and so do untrusted rows without a soft label.

    Args:
        dataset (`datasets.Dataset`): The training set.
        args (`GLCConfig`): Names the columns.
        num_labels (`int`, *optional*): K, if it is known.
    """
    if not isinstance(dataset, datasets.Dataset):
        raise TypeError(f"soft labels need a `datasets.Dataset`, not a {type(dataset).__name__}.")
    column, flags = label_column_of(dataset, args), _flags(dataset, args)
    assert column is not None  # there are soft labels
    dataset, targets = _without_soft_labels(dataset, args, column, num_labels)
    num_labels, trusted = targets.shape[1], flags.values
    check_same_lengths(Column(trusted, None), flags)
    classes = _most_probable(targets)
    votes = Votes.from_dense(classes[:, None], (args.soft_label_column,))
    filled = fill_labels(dataset, votes, column, flags, num_labels, (), args.trusted_column)
    if len(filled.unlabeled):
        raise ValueError(
            f"{RowIndex().name(int(filled.unlabeled[0]))} has neither a soft label in column "
            f"{args.soft_label_column!r} nor a label in {column!r}: write one of them, or drop the row with "
            "`dataset.filter`."
        )
    soft = ~trusted & (classes >= 0)
    labels = np.where(soft, classes, filled.labels.values)
    targets[~soft] = np.eye(num_labels, dtype=targets.dtype)[labels[~soft]]
    return SoftRows(_with_labels(dataset, column, labels, None), targets)


def _flags(dataset: datasets.Dataset, args: Any) -> Column:
    if args.trusted_column not in dataset.column_names:
        return Column(np.zeros(len(dataset), dtype=bool), None)
    return read_flags(dataset, args.trusted_column, method=args.method)


def _without_soft_labels(
    dataset: datasets.Dataset, args: Any, label_column: str, num_labels: int | None
) -> tuple[datasets.Dataset, np.ndarray]:
    """The dataset without the column of the soft labels, which no model takes, and the soft labels."""
    soft = read_soft_labels(dataset, args.soft_label_column, num_labels)
    dataset = dataset.remove_columns(args.soft_label_column)
    if label_column in dataset.column_names and is_list_type(dataset.data.column(label_column).type):
        raise ValueError(
            f"column {label_column!r} has one label per token, but soft_label_column {args.soft_label_column!r} has "
            "one list of probabilities per row: token labels can't be soft."
        )
    return dataset, soft


def _most_probable(soft: np.ndarray) -> np.ndarray:
    """The most probable class of each row; -1 without a soft label."""
    return np.where(soft.any(axis=1), soft.argmax(axis=1), -1)


def label_column_of(dataset: Any, args: Any) -> str | None:
    """The column of the labels, which may be missing if no row is trusted; that of the configuration without votes and
    soft labels. A column of votes is never the label column, whatever its name."""
    votes = (*(args.source_columns or ()), args.votes_column)
    sources = {*votes, args.soft_label_column} - {None}
    known = isinstance(dataset, (datasets.Dataset, datasets.IterableDataset)) and dataset.column_names is not None
    if args.label_column is not None or not known:
        return args.label_column
    if args.label_names and args.label_names[0] in set(dataset.column_names) - sources:
        return args.label_names[0]  # as in `Trainer`: the key of the labels in a batch
    if not sources:
        return None
    rest = dataset.select_columns([name for name in dataset.column_names if name not in sources])
    try:
        return find_label_column(rest, None, args.trusted_column)
    except NoLabelColumn:
        return next(name for name in USUAL_LABEL_COLUMNS if name not in votes)


def _with_labels(
    dataset: datasets.Dataset, name: str, values: np.ndarray, offsets: np.ndarray | None
) -> datasets.Dataset:
    kind: Any = pa.int64()
    feature: Any = datasets.Value("int64")
    if offsets is not None:
        kind, feature = pa.list_(kind), datasets.List(feature)
    if name in dataset.column_names:
        stored = dataset.data.column(name).type
        integers = pa.types.is_integer(stored.value_type if is_list_type(stored) else stored)
        if integers:
            kind, feature = stored, dataset.features[name]
    column = stored_column(dataset, values, offsets, kind)
    features = Features({**dataset.features, name: feature})
    return with_columns(dataset, {name: column}, features, {}, "glc_hf.label_by_votes", {"column": name})
