# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Rows that a transform computes columns for: a whole `Dataset`, or a part of a stream as Arrow or Python objects."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from datasets import Dataset, Features
from datasets.features.features import cast_to_python_objects
from datasets.formatting import PythonFormatter
from datasets.table import cast_array_to_feature

from glc_hf.labels.reading import class_names
from glc_hf.labels.storage import RowIndex, column_in_order, stored_column, to_arrow, value_type


class RowBatch:
    """
    Rows in the order that the user sees, and their index.

    Attributes:
        num_rows: Number of rows.
        names: Names of the columns.
        index: What each row's random draws depend on; set by the reader.
        whole: Whether these are all rows.
    """

    num_rows: int
    names: list[str]
    index = RowIndex()
    whole = False

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a column in Arrow, of its feature's type if the feature is known."""
        raise NotImplementedError

    def examples(self, rows: slice, names: list[str]) -> list[dict[str, Any]]:
        """Return some columns of some rows as the user would see them, decoded."""
        raise NotImplementedError

    def new_column(self, values: np.ndarray, offsets: np.ndarray | None, arrow_type: pa.DataType) -> pa.ChunkedArray:
        """Convert a computed column to Arrow, in the order in which the rows are stored."""
        return to_arrow(values, offsets, arrow_type)


class RowFunction(Protocol):
    """
    Computes columns for a batch of rows. The result for a row must not depend on the batch that it is in.

    `copies` maps the names of new columns to existing ones that they are copies of.
    """

    @property
    def copies(self) -> dict[str, str]: ...

    def __call__(self, batch: RowBatch) -> dict[str, pa.ChunkedArray]:
        """Return the columns to replace or to append, copies included."""
        ...

    def update_features(self, features: Features) -> Features:
        """Return the features after the function, given those before it."""
        ...


class DatasetBatch(RowBatch):
    """All rows of a `Dataset`, with its format or transform for `examples` only."""

    whole = True

    def __init__(self, dataset: Dataset, index: RowIndex) -> None:
        self.dataset = dataset
        self.index = index
        self.num_rows = len(dataset)
        self.names = dataset.column_names
        self._view: Dataset | None = None

    def column(self, name: str) -> pa.ChunkedArray:
        return column_in_order(self.dataset, name)

    def examples(self, rows: slice, names: list[str]) -> list[dict[str, Any]]:
        if self._view is None:
            custom = self.dataset.format["type"] == "custom"
            self._view = self.dataset if custom else self.dataset.select_columns(names)
            if self._view.format["type"] in ("arrow", "pandas", "polars"):
                self._view = self._view.with_format(None)
        columns = self._view[rows]
        return [{name: column[row] for name, column in columns.items()} for row in range(rows.stop - rows.start)]

    def new_column(self, values: np.ndarray, offsets: np.ndarray | None, arrow_type: pa.DataType) -> pa.ChunkedArray:
        return stored_column(self.dataset, values, offsets, arrow_type)


class TableBatch(RowBatch):
    """Rows of a stream as an Arrow table; `features` are those that are not applied yet, if any."""

    def __init__(self, table: pa.Table, features: Features | None) -> None:
        self.table = table
        self.features = features
        self.num_rows = table.num_rows
        self.names = table.column_names

    def column(self, name: str) -> pa.ChunkedArray:
        column = self.table.column(name)
        feature = self.features.get(name) if self.features is not None else None
        if feature is None:
            return column
        arrow_type = Features({name: feature}).arrow_schema.field(0).type
        if pa.types.is_integer(value_type(column)) or pa.types.is_boolean(value_type(column)):
            # Not by the feature's own cast: `ClassLabel` refuses -100 and labels out of range without naming a row.
            return column.cast(arrow_type)
        return pa.chunked_array([cast_array_to_feature(chunk, feature) for chunk in column.chunks], type=arrow_type)

    def examples(self, rows: slice, names: list[str]) -> list[dict[str, Any]]:
        features = None
        if self.features is not None:
            features = Features({name: self.features[name] for name in names if name in self.features})
        table = self.table.select(names).slice(rows.start, rows.stop - rows.start)
        columns = PythonFormatter(features=features).format_batch(table)
        return [{name: columns[name][row] for name in names} for row in range(table.num_rows)]


class ExamplesBatch(RowBatch):
    """Rows of a stream as Python objects, at least one; `features` are those that are not applied yet, if any."""

    def __init__(self, rows: list[dict[str, Any]], features: Features | None) -> None:
        self.rows = rows
        self.features = features
        self.num_rows = len(rows)
        self.names = list(rows[0])

    def column(self, name: str) -> pa.ChunkedArray:
        values = cast_to_python_objects([row.get(name) for row in self.rows])
        feature = self.features.get(name) if self.features is not None else None
        names = class_names(feature)
        if names is not None:
            values = [_encoded(value, names) for value in values]
        arrow_type = Features({name: feature}).arrow_schema.field(0).type if feature is not None else None
        try:
            return pa.chunked_array([pa.array(values, type=arrow_type)])
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            row = next((row for row, value in enumerate(values) if type(value) is not type(values[0])), 0)
            raise ValueError(
                f"column {name!r} holds values of different types: {self.index.name(row)} has {values[row]!r}. Labels "
                "are integers, flags are booleans."
            ) from error

    def examples(self, rows: slice, names: list[str]) -> list[dict[str, Any]]:
        examples = [{name: row.get(name) for name in names} for row in self.rows[rows]]
        if self.features is None:
            return examples
        features = Features({name: self.features[name] for name in names if name in self.features})
        return [features.decode_example(features.encode_example(row)) for row in examples]


def _encoded(value: Any, names: list[str]) -> Any:
    """Convert class names to classes, as the feature would."""
    if isinstance(value, list):
        return [_encoded(item, names) for item in value]
    return names.index(value) if isinstance(value, str) and value in names else value
