# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Columns added to datasets, to the splits of a `DatasetDict` and, while they are read, to streams.

`IterableDataset.map(with_indices=True)` counts the rows that it sees: after a shuffle, in one of two workers or on one
of two nodes its indices are silently different. So row functions run in their own examples iterable, which knows what
they need:

- With an index column they need nothing else: shuffling, sharding and resharding are passed on to the source.
- With positions the stream must be read in order from its beginning, so it reports **one shard** and leaves its source
  unchanged. `datasets` then gives all of it to one worker of a `DataLoader`, gives each node every n-th row, and
  shuffles within the buffer only. In all of these cases each row keeps its index. A stream that was shuffled before is
  refused.

Rows are seen before features are applied, so nothing is decoded unless a function asks for it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Dataset, DatasetDict, Features, IterableDataset, IterableDatasetDict

from glc_hf._compat import examples_iterable, stream_source, with_stream_source
from glc_hf.labels.reading import parse_index, read_index, require_column
from glc_hf.labels.row_batch import DatasetBatch, ExamplesBatch, RowBatch, RowFunction, TableBatch
from glc_hf.labels.storage import RowIndex, with_columns, with_distinct_rows


# Rows read at once if a stream gives Python objects, so that more than one row is computed at a time.
READ_AHEAD = 32
_WHY_IN_ORDER = (
    "without index_column= a row's noise depends on its position, which only a reader in order can count. Give a "
    "column of unique integers as index_column= to read the stream in any order."
)


def add_to_stream(
    dataset: IterableDataset, function: RowFunction, index_column: str | None, needs_index: bool, read_ahead: int
) -> IterableDataset:
    """
    Return the stream with the columns of a row function.

    Args:
        index_column (`str`, *optional*): Column of unique integers that index the rows; positions if not given.
        needs_index (`bool`): Whether the function uses the rows' index.
        read_ahead (`int`): Rows read at once if the source gives Python objects.
    """
    if needs_index and index_column is None:
        _refuse_shuffled(stream_source(dataset))
    info = dataset.info.copy()
    if info.features is not None:
        info.features = function.update_features(info.features)
    in_order = needs_index and index_column is None
    source = StreamRows(stream_source(dataset), function, dataset.features, index_column, in_order, read_ahead)
    return with_stream_source(dataset, source, info)


def batches_of_stream(dataset: IterableDataset) -> Iterator[RowBatch]:
    """The rows of a stream from its beginning, a part at a time. A stream that is split among processes is read as a
    whole."""
    source = stream_source(dataset)
    features = None if source.is_typed else dataset.features
    if source.iter_arrow:
        yield from (TableBatch(table, features) for _, table in source.iter_arrow() if len(table))
        return
    rows = (row for _, row in source)
    while read := list(islice(rows, READ_AHEAD)):
        yield ExamplesBatch(read, features)


def _refuse_shuffled(source: Any) -> None:
    """Raise if a source has a random order, which changes with each epoch and worker."""
    if hasattr(source, "shift_rngs"):  # iterables whose random generator `datasets` advances
        raise ValueError(
            "this stream was shuffled (or interleaved at random) before, so a row's position changes from epoch to "
            "epoch and from worker to worker, and its noise would change with it. Give a column of unique integers as "
            "index_column=, or shuffle after this transform instead of before it."
        )
    for part in [source.ex_iterable] if hasattr(source, "ex_iterable") else getattr(source, "ex_iterables", []):
        _refuse_shuffled(part)


_ExamplesIterable: Any = examples_iterable()


class StreamRows(_ExamplesIterable):
    """
    The examples of a source with the columns of a row function (see the module).

    `datasets` looks for the name `ex_iterable`. With `in_order`, rows are known by their position only.
    """

    def __init__(
        self,
        ex_iterable: Any,
        function: RowFunction,
        source_features: Features | None,
        index_column: str | None,
        in_order: bool,
        read_ahead: int,
    ) -> None:
        super().__init__()
        self.ex_iterable = ex_iterable
        self.function = function
        self.source_features = source_features
        self.index_column = index_column
        self.in_order = in_order
        self.read_ahead = read_ahead

    # ------------------------------------------------------------------ reading
    def __iter__(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        state, to_skip = self._state_dict, 0
        if state and state["previous_state"] is not None:
            # Rows read ahead are lost with the iterator: return to the start of the batch and skip the rows given.
            self.ex_iterable.load_state_dict(state["previous_state"])
            to_skip = state["given"]
        position = state["position"] if state else 0
        examples = iter(self.ex_iterable)
        while True:
            if state:
                state["previous_state"] = self.ex_iterable.state_dict()
                state.update(position=position, given=0)
            read = list(islice(examples, self.read_ahead))
            if not read:
                return
            columns = self._apply(ExamplesBatch([row for _, row in read], self._features_to_apply), position)
            values = {name: column.to_pylist() for name, column in columns.items()}
            for number, (key, example) in enumerate(read):
                if state:
                    state["given"] += 1
                if to_skip:
                    to_skip -= 1
                    continue
                yield key, {**example, **{name: column[number] for name, column in values.items()}}
            position += len(read)

    def _iter_arrow(self) -> Iterator[tuple[Any, pa.Table]]:
        state = self._state_dict
        position = state["position"] if state else 0
        for key, table in self.ex_iterable.iter_arrow():
            columns = self._apply(TableBatch(table, self._features_to_apply), position) if len(table) else {}
            position += len(table)
            if state:
                state["position"] = position
            for name, column in columns.items():
                if name in table.column_names:
                    table = table.set_column(table.column_names.index(name), name, column)
                else:
                    table = table.append_column(name, column)
            yield key, table.replace_schema_metadata(None)  # it describes the features before the function

    def _apply(self, batch: RowBatch, position: int) -> dict[str, pa.ChunkedArray]:
        batch.index = RowIndex(first=position)
        if self.index_column is not None:
            require_column(batch.names, self.index_column, "index_column")
            values = parse_index(batch.column(self.index_column), self.index_column, batch.index)
            batch.index = RowIndex(None, values, self.index_column)
        return self.function(batch)

    @property
    def _features_to_apply(self) -> Features | None:
        """Features that the source's examples do not have yet; a typed source has applied its own."""
        return None if self.ex_iterable.is_typed else self.source_features

    @property
    def iter_arrow(self) -> Callable[[], Iterator[tuple[Any, pa.Table]]] | None:
        return self._iter_arrow if self.ex_iterable.iter_arrow else None

    @property
    def is_typed(self) -> bool:
        return self.ex_iterable.is_typed

    @property
    def features(self) -> Features | None:
        features = self.ex_iterable.features
        return self.function.update_features(features) if features is not None else None

    def _init_state_dict(self) -> dict[str, Any]:
        self._state_dict = {
            "examples_iterable": self.ex_iterable._init_state_dict(),
            "previous_state": None,
            "position": 0,
            "given": 0,
            "type": type(self).__name__,
        }
        return self._state_dict

    # ------------------------------------------------------------------ order and shards
    def _over(self, source: Any) -> StreamRows:
        return StreamRows(
            source, self.function, self.source_features, self.index_column, self.in_order, self.read_ahead
        )

    @property
    def num_shards(self) -> int:
        """One if rows are known by their position: no reader may take a part for the whole."""
        return 1 if self.in_order else self.ex_iterable.num_shards

    def shuffle_data_sources(self, generator: np.random.Generator) -> StreamRows:
        """Shuffle the source's shards, unless order matters. Also called for each epoch after the first."""
        if not self.in_order:
            return self._over(self.ex_iterable.shuffle_data_sources(generator))
        if self.ex_iterable.num_shards > 1:
            warnings.warn(
                f"the {self.ex_iterable.num_shards} shards of this stream keep their order, and rows are shuffled "
                f"within the buffer only: {_WHY_IN_ORDER}",
                stacklevel=2,
            )
        return self

    def shard_data_sources(self, num_shards: int, index: int, contiguous: bool = True) -> StreamRows:
        """Take some of the source's shards, unless order matters: then the first reader gets all."""
        if not self.in_order:
            return self._over(self.ex_iterable.shard_data_sources(num_shards, index, contiguous=contiguous))
        if index > 0:
            raise ValueError(f"this stream can't be split into {num_shards} shards: {_WHY_IN_ORDER}")
        if num_shards > 1:
            warnings.warn(f"one of {num_shards} readers reads this whole stream: {_WHY_IN_ORDER}", stacklevel=2)
        return self

    def reshard_data_sources(self) -> StreamRows:
        return self if self.in_order else self._over(self.ex_iterable.reshard_data_sources())


def add_columns(
    dataset: Any,
    function: RowFunction,
    transform: str,
    arguments: dict[str, Any],
    index_column: str | None = None,
    needs_index: bool = True,
    read_ahead: int = READ_AHEAD,
) -> Any:
    """
    Return a `Dataset` or `IterableDataset` with the columns of a row function.

    Arguments as in [`~glc_hf.labels.storage.with_columns`] and [`~glc_hf.labels.transforms.add_to_stream`].
    """
    if index_column is not None and dataset.column_names is not None:
        require_column(list(dataset.column_names), index_column, "index_column")
    if isinstance(dataset, IterableDataset):
        return add_to_stream(dataset, function, index_column, needs_index, read_ahead)
    index = RowIndex()
    if needs_index:
        index = read_index(dataset, index_column)
        dataset = with_distinct_rows(dataset)
    columns = function(DatasetBatch(dataset, index))
    for name in set(columns) & set(dataset.column_names):
        before = dataset.data.column(name)
        if columns[name].type != before.type:  # only empty lists, which have no type
            columns[name] = before
    columns = {name: column for name, column in columns.items() if name not in function.copies}
    features = function.update_features(dataset.features)
    return with_columns(dataset, columns, features, function.copies, transform, arguments)


def is_splits(dataset: Any) -> bool:
    """Whether this is a dictionary of splits, streamed or not."""
    return isinstance(dataset, (DatasetDict, IterableDatasetDict))


def check_type(dataset: Any) -> None:
    """Raise if this is not a dataset."""
    if not isinstance(dataset, (Dataset, IterableDataset)):
        raise TypeError(
            f"a datasets.Dataset, DatasetDict or IterableDataset is needed, not {type(dataset).__name__}. Create one "
            "with `Dataset.from_dict`, `from_list` or `from_generator`."
        )


def on_splits(dataset: Any, chosen: list[str], function: Callable[[Any], Any]) -> Any:
    """Apply a function to some splits of a dictionary."""
    return type(dataset)({name: function(split) if name in chosen else split for name, split in dataset.items()})
