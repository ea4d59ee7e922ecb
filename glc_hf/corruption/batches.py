# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Some rows of a stream, as Arrow or as Python objects, under one interface."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from datasets import Features
from datasets.features.features import cast_to_python_objects
from datasets.formatting import PythonFormatter
from datasets.table import cast_array_to_feature

from glc_hf.corruption.column_checks import class_names, require_column
from glc_hf.corruption.columns import parse_integers
from glc_hf.corruption.rows import RowIndex
from glc_hf.corruption.stored_column import is_list


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
        value_type = column.type.value_type if is_list(column.type) else column.type
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
