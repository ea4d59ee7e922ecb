# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Streams with votes of several sources.

The votes on the first rows are counted before training. While the stream is read, each row then gets the label that
its votes make most probable, and their log-likelihood given each class, which the loss needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from datasets import Dataset, DatasetInfo, Features, IterableDataset, List, Value
from transformers.utils import logging

from glc_hf.correction.sources import SourceModel
from glc_hf.labels.columns import USUAL_LABEL_COLUMNS, label_names_of
from glc_hf.labels.label_batch import VOTES_KEY, Votes
from glc_hf.labels.reading import Column, parse_flags
from glc_hf.labels.row_batch import RowBatch
from glc_hf.labels.storage import RowIndex, to_arrow
from glc_hf.labels.transforms import READ_AHEAD, add_to_stream, batches_of_stream
from glc_hf.labels.vote_columns import check_source_columns, fill_labels, integers_are_names, read_votes
from glc_hf.voted.voted_rows import VotedRows, label_by_votes, label_column_of, most_probable_labels


logger = logging.get_logger(__name__)

# Rows of a stream that are read before training, to count their votes.
MAX_ROWS = 100_000


class VotedStream(NamedTuple):
    """
    Attributes:
        dataset: The stream with labels, flags and the likelihoods of the votes. Rows without a vote that are not
            trusted are left out.
        read: The rows on which the votes were counted.
    """

    dataset: IterableDataset
    read: VotedRows

    @property
    def model(self) -> SourceModel:
        """What the votes say."""
        return self.read.model


def label_training_set(
    dataset: Any, args: Any, num_labels: int | None, network: Any, held_out: np.ndarray | None = None
) -> VotedRows | VotedStream:
    """
    Label the rows of a training set by their votes.

    Args:
        dataset (`Dataset` or `IterableDataset`): The training set.
        args (`GLCConfig`): Names the columns.
        num_labels (`int`, *optional*): K.
        network: The model, whose configuration may have the names of the classes.
        held_out (`np.ndarray`, *optional*): Numbers of trusted rows that the sources are not compared with.
    """
    if isinstance(dataset, IterableDataset):
        return label_stream_by_votes(dataset, args, num_labels, network)
    if not isinstance(dataset, Dataset):
        raise TypeError(
            "votes of several sources need a `datasets.Dataset` or a `datasets.IterableDataset`, not a "
            f"{type(dataset).__name__}."
        )
    names = label_names_of(dataset, label_column_of(dataset, args), network)
    return label_by_votes(dataset, args, num_labels, names, held_out=held_out)


def label_stream_by_votes(dataset: IterableDataset, args: Any, num_labels: int | None, network: Any) -> VotedStream:
    """
    Count the votes on the first 100,000 rows of a stream, and label the stream by its votes as
    [`~glc_hf.voted.voted_rows.label_by_votes`] labels a `Dataset`.

    Args:
        dataset (`IterableDataset`): It is read from its beginning here, and again in training.
        args (`GLCConfig`): Names the columns.
        num_labels (`int`, *optional*): K.
        network: The model, whose configuration may have the names of the classes.
    """
    if args.soft_label_column is not None:
        raise TypeError("soft labels need a `datasets.Dataset`, not an IterableDataset: leave soft_label_column out.")
    first = _first_rows(dataset, args)
    column = label_column_of(first, args)
    assert column is not None  # there are votes
    names = label_names_of(first, column, network)
    no_trusted = (
        f"None of the first {len(first):,} rows of the stream is trusted: the accuracy of the sources is estimated "
        "from their agreement. Put trusted rows first if there are any."
    )
    read = label_by_votes(first, args, num_labels, names, no_trusted=no_trusted)
    function = _LabelByVotes(args, column, read, first.features, names)
    labeled = add_to_stream(dataset, function, None, needs_index=False, read_ahead=READ_AHEAD)
    labeled = labeled.filter(_is_known, input_columns=[VOTES_KEY])
    # A source with such a name would be taken as the labels if the columns of the stream are not known.
    names_of_labels = [name for name in args.source_columns or () if name in USUAL_LABEL_COLUMNS]
    return VotedStream(labeled.remove_columns(names_of_labels) if names_of_labels else labeled, read)


def _is_known(likelihood: Any) -> bool:
    return likelihood is not None


def _first_rows(dataset: IterableDataset, args: Any) -> Dataset:
    """The columns of votes, labels and flags of the first rows."""
    tables: list[pa.Table] = []
    rows, names = 0, list[str]()
    for batch in batches_of_stream(dataset):
        if not tables:
            names = _columns(dataset, args, batch.names)
        tables.append(_table(batch, names).slice(0, MAX_ROWS - rows))
        rows += len(tables[-1])
        if rows == MAX_ROWS:
            break
    if not tables:
        raise ValueError("the stream has no rows: there are no votes to count.")
    try:
        table = pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueError(
            f"the first {rows:,} rows of the stream have votes, labels or flags of different types ({error}): write "
            "all votes of a source as class numbers, or all as class names."
        ) from error
    return _dataset(table, dataset.features)


def _columns(dataset: IterableDataset, args: Any, found: Sequence[str]) -> list[str]:
    """The columns of votes, labels and flags among those found in the stream."""
    others = {"label_column": args.label_column, "trusted_column": args.trusted_column}
    names = check_source_columns(found, args.source_columns, args.votes_column, others)
    known = dataset if dataset.column_names is not None else Dataset.from_dict({name: [] for name in found})
    wanted = (label_column_of(known, args), args.trusted_column)
    return [*names, *(name for name in wanted if name is not None and name in found)]


def _table(batch: RowBatch, names: Sequence[str]) -> pa.Table:
    return pa.table({name: batch.column(name) for name in names})


def _dataset(table: pa.Table, features: Features | None, index: RowIndex | None = None) -> Dataset:
    """A table as a dataset. Columns without a known feature have one of their type. `index` names rows in errors."""
    found = Features.from_arrow_schema(table.schema)
    features = Features({name: (features or {}).get(name, feature) for name, feature in found.items()})
    for position, field in enumerate(features.arrow_schema):
        try:
            table = table.set_column(position, field, table.column(position).cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise ValueError(
                f"column {field.name!r} holds {field.type} in the first rows of the stream, and "
                f"{table.column(position).type} from {(index or RowIndex()).name(0)} on ({error}): write all of its "
                "values with the same type."
            ) from error
    return Dataset(table, info=DatasetInfo(features=features), fingerprint="votes")


class _LabelByVotes:
    """
    Row function that labels rows by their votes, and adds the flags if there are none.

    Args:
        args (`GLCConfig`): Names the columns.
        column (`str`): Column of the labels.
        read ([`VotedRows`]): The first rows, with what the votes say.
        features (`Features`): Of the columns as they were read.
        names (`list[str]`, *optional*): Names of the classes.
    """

    copies: ClassVar[dict[str, str]] = {}

    def __init__(self, args: Any, column: str, read: VotedRows, features: Features, names: list[str] | None) -> None:
        self.sources = None if args.source_columns is None else list(args.source_columns)
        self.votes_column, self.trusted_column, self.column = args.votes_column, args.trusted_column, column
        self.names, self.model = names, read.model
        # Types as in the first rows: a few rows may all be without a vote.
        self.features = features
        columns = self.sources or [self.votes_column]
        # Decided by all rows that were read: a few of them may only have numbers that are names too.
        self.by_name = integers_are_names(read.dataset, columns, names)
        self.label_feature = read.dataset.features[column]
        self.per_token = hasattr(self.label_feature, "feature")
        self.table = read.model.vote_table()

    def __call__(self, batch: RowBatch) -> dict[str, pa.ChunkedArray]:
        index, trusted_column = batch.index, self.trusted_column
        rows = _dataset(_table(batch, [name for name in self.features if name in batch.names]), self.features, index)
        votes = self._votes(rows, index)
        flags = Column(np.zeros(batch.num_rows, dtype=bool), None)
        if trusted_column in batch.names:
            flags = parse_flags(rows.data.column(trusted_column), trusted_column, index)
        filled = fill_labels(
            rows, votes, self.column, flags, self.model.num_labels, self.sources or (), trusted_column, index
        )
        labels, trusted = filled.labels, flags.values
        if labels.offsets is not None and flags.offsets is None:
            trusted = np.repeat(trusted, np.diff(labels.offsets))
        values, unused = most_probable_labels(labels, trusted, votes, self.model)
        columns = {
            self.column: to_arrow(values, labels.offsets, _arrow_type(self.label_feature)),
            VOTES_KEY: self._likelihood(votes, labels.offsets, unused),
        }
        if trusted_column not in batch.names:
            columns[trusted_column] = pa.chunked_array([pa.array(flags.values)])
        return columns

    def _votes(self, rows: Dataset, index: RowIndex) -> Votes:
        if self.votes_column is not None and rows.data.column(self.votes_column).null_count == len(rows):
            return Votes.from_dense(np.full((len(rows), len(self.model.names)), -1), self.model.names)
        return read_votes(
            rows,
            self.sources,
            self.votes_column,
            self.names,
            self.model.num_labels,
            self.model.names,
            self.column,
            self.trusted_column,
            require_votes=False,
            by_name=self.by_name,
            index=index,
        )

    def _likelihood(self, votes: Votes, offsets: np.ndarray | None, unused: np.ndarray) -> pa.ChunkedArray:
        """The log-likelihood of the votes on each item; `None` for rows that are not used."""
        found = self.table.of_votes(votes).numpy()
        mask = np.zeros(len(votes), dtype=bool)
        mask[unused] = True
        values = pa.FixedSizeListArray.from_arrays(pa.array(found.ravel()), found.shape[1], mask=pa.array(mask))
        if offsets is not None:
            values = pa.ListArray.from_arrays(pa.array(offsets, type=pa.int32()), values)
        return pa.chunked_array([values])

    def update_features(self, features: Features) -> Features:
        likelihood = List(Value("float32"), length=self.model.num_labels)
        flags = {} if self.trusted_column in features else {self.trusted_column: Value("bool")}
        votes = List(likelihood) if self.per_token else likelihood
        return Features({**features, self.column: self.label_feature, VOTES_KEY: votes, **flags})


def _arrow_type(feature: Any) -> pa.DataType:
    return Features({"column": feature}).arrow_schema.field(0).type
