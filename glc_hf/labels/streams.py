# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
New columns in an `IterableDataset`, computed as it is read.

`IterableDataset.map(with_indices=True)` counts what passes by, whoever reads: after a shuffle, in one of two workers
or on one of two nodes its indices are silently other ones. So row functions sit in an examples iterable of their own,
which knows what they need:

- With an index column they need nothing else, and shuffling, sharding and resharding go through to the source.
- With positions the stream must come in order from its beginning, so it calls itself **one shard** and keeps its
  source as it is. `datasets` then gives all of it to one worker of a `DataLoader`, gives each node every n-th row, and
  shuffles within the buffer only, all of which leave each row with its own index. What can't be made right (a stream
  that was shuffled before) is refused.

Rows are seen before features are applied, so nothing is decoded but what a function asks for.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from datasets import Features, IterableDataset
from datasets.features.features import cast_to_python_objects
from datasets.formatting import PythonFormatter
from datasets.iterable_dataset import _BaseExamplesIterable
from datasets.table import cast_array_to_feature

from glc_hf.labels.reading import class_names, parse_integers, require_column
from glc_hf.labels.row_index import RowIndex
from glc_hf.labels.storage import is_list_type


# Rows that are read ahead where the source gives Python objects, to compute more than one row at a time.
_READ_AHEAD = 32


class RowFunction(Protocol):
    """Computes columns for a batch of rows; the same for a row in whatever batch it comes."""

    def __call__(self, batch: Batch) -> dict[str, pa.ChunkedArray]:
        """The columns to replace or to append."""
        ...

    def update_features(self, features: Features) -> Features:
        """The features after the function, given those before it."""
        ...


def add_to_stream(
    dataset: IterableDataset,
    function: RowFunction,
    index_column: str | None,
    needs_index: bool = True,
    read_ahead: int = _READ_AHEAD,
) -> IterableDataset:
    """
    The stream with a row function's columns.

    Args:
        dataset (`datasets.IterableDataset`): Left as it is.
        function (`RowFunction`): What to compute.
        index_column (`str`, *optional*): The column of unique integers that index rows; positions otherwise.
        needs_index (`bool`): Whether the function looks at the rows' index at all.
        read_ahead (`int`): Rows at a time where the source gives Python objects.
    """
    source = dataset._ex_iterable
    if index_column is not None and dataset.features is not None:
        require_column(list(dataset.features), index_column, "index_column")
    if needs_index and index_column is None:
        _refuse_shuffled(source)
    info = dataset._info.copy()
    if info.features is not None:
        info.features = function.update_features(info.features)
    rows = StreamRows(source, function, dataset.features, index_column, needs_index, read_ahead)
    return IterableDataset(
        ex_iterable=rows,
        info=info,
        split=dataset._split,
        formatting=dataset._formatting,
        distributed=dataset._distributed,
        token_per_repo_id=dataset._token_per_repo_id,
    )


class StreamRows(_BaseExamplesIterable):
    """
    The examples of a source with a row function's columns (see the module).

    Args:
        ex_iterable (`_BaseExamplesIterable`): The source. (The name is what `datasets` looks for.)
        function (`RowFunction`), index_column, needs_index, read_ahead: As in [`add_to_stream`].
        source_features (`datasets.Features`, *optional*): The stream's features before the function, if known.
    """

    def __init__(
        self,
        ex_iterable: _BaseExamplesIterable,
        function: RowFunction,
        source_features: Features | None,
        index_column: str | None,
        needs_index: bool,
        read_ahead: int,
    ) -> None:
        super().__init__()
        self.ex_iterable = ex_iterable
        self.function = function
        self.source_features = source_features
        self.index_column = index_column
        self.needs_index = needs_index
        self.read_ahead = read_ahead

    # ------------------------------------------------------------------ reading
    def __iter__(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        state, to_skip = self._state_dict, 0
        if state and state["previous_state"] is not None:
            # Rows read ahead are lost with the iterator: go back to where the batch began, and skip what was given.
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
            rows = [example for _, example in read]
            batch = ExamplesBatch(rows, self._features_to_apply)
            columns = self._apply(batch, position)
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
            yield key, table.replace_schema_metadata(None)  # it describes the features before

    def _apply(self, batch: Batch, position: int) -> dict[str, pa.ChunkedArray]:
        batch.index = RowIndex(first=position)
        if self.index_column is not None:
            batch.index = RowIndex(None, batch.index_values(self.index_column), self.index_column)
        return self.function(batch)

    @property
    def _features_to_apply(self) -> Features | None:
        """Features that the source's examples do not have yet; a typed source has applied (and decoded) its own."""
        return None if self.ex_iterable.is_typed else self.source_features

    @property
    def iter_arrow(self) -> Callable[[], Iterator[tuple[Any, pa.Table]]] | None:
        """See [`_BaseExamplesIterable`]."""
        return self._iter_arrow if self.ex_iterable.iter_arrow else None

    @property
    def is_typed(self) -> bool:
        """See [`_BaseExamplesIterable`]."""
        return self.ex_iterable.is_typed

    @property
    def features(self) -> Features | None:
        """See [`_BaseExamplesIterable`]."""
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
    @property
    def in_order(self) -> bool:
        """Whether rows are known by their position alone."""
        return self.needs_index and self.index_column is None

    def _over(self, ex_iterable: _BaseExamplesIterable) -> StreamRows:
        return StreamRows(
            ex_iterable, self.function, self.source_features, self.index_column, self.needs_index, self.read_ahead
        )

    @property
    def num_shards(self) -> int:
        """One where order counts: nobody may read a part of it as if it were the whole."""
        return 1 if self.in_order else self.ex_iterable.num_shards

    def shuffle_data_sources(self, generator: np.random.Generator) -> StreamRows:
        """Shuffles the source's shards, unless order counts. Also called for each epoch after the first."""
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
        """Takes some of the source's shards, unless order counts: then the first reader gets all."""
        if not self.in_order:
            return self._over(self.ex_iterable.shard_data_sources(num_shards, index, contiguous=contiguous))
        if index > 0:
            raise ValueError(f"this stream can't be split into {num_shards} shards: {_WHY_IN_ORDER}")
        if num_shards > 1:
            warnings.warn(f"one of {num_shards} readers reads this whole stream: {_WHY_IN_ORDER}", stacklevel=2)
        return self

    def reshard_data_sources(self) -> StreamRows:
        """Splits the source's shards further, unless order counts."""
        return self if self.in_order else self._over(self.ex_iterable.reshard_data_sources())


_WHY_IN_ORDER = (
    "without index_column= a row's noise depends on its position, which only a reader in order can count. Give a "
    "column of unique integers as index_column= to read it in any order."
)


def _refuse_shuffled(source: Any) -> None:
    """Looks for a source of random order, which a new epoch or another worker would change."""
    if hasattr(source, "shift_rngs"):  # what `datasets` gives to those whose generator it moves on
        raise ValueError(
            "this stream was shuffled (or interleaved at random) before, so a row's position changes from epoch to "
            "epoch and from worker to worker, and its noise would change with it. Give a column of unique integers as "
            "index_column=, or shuffle after this transform instead of before it."
        )
    below = [source.ex_iterable] if hasattr(source, "ex_iterable") else getattr(source, "ex_iterables", [])
    for part in below:
        _refuse_shuffled(part)


class Batch(Protocol):
    """Rows with the index of each, set by whoever reads them."""

    num_rows: int
    names: list[str]
    index: RowIndex

    def column(self, name: str) -> pa.ChunkedArray:
        """A column in Arrow, of its feature's type where the feature is known."""
        ...

    def examples(self, names: list[str] | None = None) -> list[dict[str, Any]]:
        """The rows as the user would see them, decoded; of all columns or of some."""
        ...

    def index_values(self, name: str) -> np.ndarray:
        """The index column's values, int64."""
        ...


class _Batch:
    num_rows: int
    names: list[str]
    index = RowIndex()

    def column(self, name: str) -> pa.ChunkedArray:
        raise NotImplementedError

    def index_values(self, name: str) -> np.ndarray:
        require_column(self.names, name, "index_column")
        stored = parse_integers(self.column(name), name, RowIndex())
        if stored.offsets is not None or stored.missing is not None:
            raise ValueError(f"index_column {name!r} must hold one integer in each row; some are lists or missing.")
        return stored.values.astype(np.int64, copy=False)


class TableBatch(_Batch):
    """
    Rows of an Arrow table.

    Args:
        table (`pa.Table`): As the source gives it.
        features (`datasets.Features`, *optional*): Features yet to be applied.
    """

    def __init__(self, table: pa.Table, features: Features | None) -> None:
        self.table = table
        self.features = features
        self.num_rows = table.num_rows
        self.names = table.column_names

    def column(self, name: str) -> pa.ChunkedArray:
        """See [`Batch`]."""
        column = self.table.column(name)
        feature = self.features.get(name) if self.features is not None else None
        if feature is None:
            return column
        arrow_type = Features({name: feature}).arrow_schema.field(0).type
        value_type = column.type.value_type if is_list_type(column.type) else column.type
        if pa.types.is_integer(value_type) or pa.types.is_boolean(value_type):
            # Not by way of the feature: `ClassLabel` objects to -100 and to labels out of range without naming a row.
            return column.cast(arrow_type)
        return pa.chunked_array([cast_array_to_feature(chunk, feature) for chunk in column.chunks], type=arrow_type)

    def examples(self, names: list[str] | None = None) -> list[dict[str, Any]]:
        """See [`Batch`]."""
        names = self.names if names is None else names
        features = None
        if self.features is not None:
            features = Features({name: self.features[name] for name in names if name in self.features})
        columns = PythonFormatter(features=features).format_batch(self.table.select(names))
        return [{name: columns[name][row] for name in names} for row in range(self.num_rows)]


class ExamplesBatch(_Batch):
    """
    Rows as Python objects.

    Args:
        rows (`list` of `dict`): At least one, as the source gives them.
        features (`datasets.Features`, *optional*): Features yet to be applied.
    """

    def __init__(self, rows: list[dict[str, Any]], features: Features | None) -> None:
        self.rows = rows
        self.features = features
        self.num_rows = len(rows)
        self.names = list(rows[0])

    def column(self, name: str) -> pa.ChunkedArray:
        """See [`Batch`]."""
        values = cast_to_python_objects([row.get(name) for row in self.rows])
        feature = self.features.get(name) if self.features is not None else None
        names = class_names(feature)
        if names is not None:
            values = [_encoded(value, names) for value in values]
        if feature is not None:
            arrow_type = Features({name: feature}).arrow_schema.field(0).type
        else:
            arrow_type = None
        try:
            array = pa.array(values, type=arrow_type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            array = self._mixed(values, name)
        return pa.chunked_array([array])

    def _mixed(self, values: list[Any], name: str) -> pa.Array:
        """Values that Arrow finds no common type for: an error that names the first of another type."""
        kind = type(values[0])
        row = next((row for row, value in enumerate(values) if type(value) is not kind), 0)
        raise ValueError(
            f"column {name!r} holds values that are no integers or booleans of one kind: {self.index.name(row)} has "
            f"{values[row]!r}."
        )

    def examples(self, names: list[str] | None = None) -> list[dict[str, Any]]:
        """See [`Batch`]."""
        names = self.names if names is None else names
        rows = [{name: row.get(name) for name in names} for row in self.rows]
        if self.features is None:
            return rows
        features = Features({name: self.features[name] for name in names if name in self.features})
        return [features.decode_example(features.encode_example(row)) for row in rows]


def _encoded(value: Any, names: list[str]) -> Any:
    """Class names to classes, as the feature would encode them."""
    if isinstance(value, list):
        return [_encoded(item, names) for item in value]
    return names.index(value) if isinstance(value, str) and value in names else value
