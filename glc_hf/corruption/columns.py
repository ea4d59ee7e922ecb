# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Labels, flags and indices of a `Dataset`, read from Arrow and checked. No other column is touched, so nothing is
decoded, whatever format or transform the dataset has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from glc_hf.corruption.column_checks import IGNORED_LABEL as IGNORED_LABEL
from glc_hf.corruption.column_checks import (
    check_labels,
    class_names,
    refuse_duplicates,
    refuse_missing,
    require_column,
    require_flags,
)
from glc_hf.corruption.rows import RowIndex, places_of
from glc_hf.corruption.stored_column import StoredColumn, is_list


if TYPE_CHECKING:
    from datasets import Dataset

USUAL_LABEL_COLUMNS = ("labels", "label", "label_ids")


class Column(NamedTuple):
    """
    A column in the order that the user sees.

    Attributes:
        values: One for each row; for lists, all rows' values one after the other.
        offsets: `None`, or for lists: row i has values offsets[i] to offsets[i + 1], int64.
    """

    values: np.ndarray
    offsets: np.ndarray | None


def read_labels(dataset: Dataset, label_column: str, num_labels: int | None) -> Column:
    """
    The labels, each checked to be a class: 0…K−1, or -100 within a list.

    Args:
        dataset (`datasets.Dataset`): Shuffled, selected, formatted as it may be.
        label_column (`str`): One integer a row, or one list of integers a row.
        num_labels (`int`, *optional*): K; without it any non-negative number is a class.
    """
    column = read_integers(dataset, label_column)
    check_labels(column.values, None, num_labels, column.offsets is not None, label_column, _namer(column))
    return column


def read_flags(dataset: Dataset, trusted_column: str, method: str | None = None) -> Column:
    """
    The trusted flags: one boolean a row, or one list of booleans a row.

    Args:
        dataset (`datasets.Dataset`): As [`read_labels`] takes it.
        trusted_column (`str`): The flags' column.
        method (`str`, *optional*): Who asks, for the message where the column is missing.
    """
    require_flags(dataset.column_names, trusted_column, method)
    stored, rows = stored_flags(dataset, trusted_column)
    column, missing = _as_seen(stored, rows)
    refuse_missing(missing, trusted_column, _namer(column))
    return column


def read_integers(dataset: Dataset, column_name: str) -> Column:
    """Any column of integers, or of lists of integers, none missing."""
    stored, rows = stored_integers(dataset, column_name)
    column, missing = _as_seen(stored, rows)
    refuse_missing(missing, column_name, _namer(column))
    return column


def read_index(dataset: Dataset, index_column: str | None) -> RowIndex:
    """Each row's index: its position, or the value of `index_column`, which must hold unique integers."""
    if index_column is None:
        return RowIndex()
    column = read_integers(dataset, index_column)
    if column.offsets is not None:
        raise ValueError(f"index_column {index_column!r} holds lists; it must hold one unique integer a row.")
    # Beyond the signed 64-bit range numbers wrap round, one to one, which serves as well.
    values = column.values.astype(np.int64, copy=False)
    refuse_duplicates(values, index_column)
    return RowIndex(values=values, column=index_column)


def find_label_column(dataset: Any, label_column: str | None) -> str:
    """
    The column that holds the labels: the one named, or else `labels`, `label` or `label_ids`, or else the only column
    of classes.

    Args:
        dataset: A `Dataset`, or an `IterableDataset` whose columns are known.
        label_column (`str`, *optional*): Its name, checked to be there.
    """
    names = list(dataset.column_names)
    if label_column is not None:
        require_column(names, label_column, "label_column")
        return label_column
    for name in USUAL_LABEL_COLUMNS:
        if name in names:
            return name
    classes = [name for name in names if class_names(dataset.features[name]) is not None] if dataset.features else []
    if len(classes) == 1:
        return classes[0]
    found = f"several columns hold classes ({', '.join(classes)})" if classes else "no column is called `labels`"
    raise ValueError(f"{found}, so say which one holds the labels with label_column=. Columns: {', '.join(names)}.")


def with_usual_label_column(dataset: Any, column: str | None, usual: str = "labels") -> Any:
    """
    The dataset with its labels under a name that collators know, and no other column of such a name beside them.

    Args:
        dataset: A `Dataset` or an `IterableDataset`; left as it is where it has no such column.
        column (`str`, *optional*): The labels' column; without it the dataset is left as it is.
        usual (`str`, *optional*, defaults to `"labels"`): What to call it, if it has not a usual name already.
    """
    names = dataset.column_names
    if column is None:
        return dataset
    if names is not None:
        if column not in names:
            return dataset
        others = [name for name in USUAL_LABEL_COLUMNS if name in names and name != column]
        dataset = dataset.remove_columns(others) if others else dataset
    return dataset if column in (*USUAL_LABEL_COLUMNS, usual) else dataset.rename_column(column, usual)


# ---------------------------------------------------------------------- columns as they are stored
def stored_rows(dataset: Dataset) -> np.ndarray | None:
    """The stored row of each row that the user sees, int64; `None` where they are the same."""
    if dataset._indices is None:
        return None
    rows = dataset._indices.column(0).to_numpy()
    return rows.view(np.int64) if rows.dtype == np.uint64 else rows.astype(np.int64)


def stored_integers(dataset: Dataset, name: str) -> tuple[StoredColumn, np.ndarray | None]:
    """A column of integers with nothing but its type checked, and the order that the user sees it in."""
    require_column(dataset.column_names, name, "column")
    rows = stored_rows(dataset)
    return parse_integers(dataset._data.column(name), name, RowIndex(), rows), rows


def stored_flags(dataset: Dataset, name: str) -> tuple[StoredColumn, np.ndarray | None]:
    """A column of booleans with nothing but its type checked, and the order that the user sees it in."""
    rows = stored_rows(dataset)
    return parse_flags(dataset._data.column(name), name, RowIndex(), rows), rows


def parse_integers(
    column: pa.ChunkedArray, name: str, index: RowIndex, rows: np.ndarray | None = None
) -> StoredColumn:
    """Arrow to numpy, or an error that shows the first value which is no integer."""
    column = typed_if_empty(column, pa.int64())
    value_type = column.type.value_type if is_list(column.type) else column.type
    if not pa.types.is_integer(value_type):
        raise ValueError(
            f"column {name!r} holds {column.type}{_first_value(column, index, rows)}; classes are integers. "
            f"For names use `dataset.class_encode_column({name!r})`, else "
            f'`dataset.cast_column({name!r}, Value("int64"))`.'
        )
    return StoredColumn.from_arrow(column)


def parse_flags(column: pa.ChunkedArray, name: str, index: RowIndex, rows: np.ndarray | None = None) -> StoredColumn:
    """Arrow to numpy, or an error that shows the first value which is no boolean."""
    column = typed_if_empty(column, pa.bool_())
    value_type = column.type.value_type if is_list(column.type) else column.type
    if not pa.types.is_boolean(value_type):
        fix = f'dataset.cast_column({name!r}, Value("bool"))'
        if pa.types.is_string(value_type) or pa.types.is_large_string(value_type):
            made = f"[word == 'yes' for word in dataset[{name!r}]]"
            fix = f"dataset.remove_columns({name!r}).add_column({name!r}, {made})"
        raise ValueError(
            f"column {name!r} holds {column.type}{_first_value(column, index, rows)}; trusted flags are "
            f"booleans. Make them so with `{fix}`, or let `mark_trusted` make the column."
        )
    return StoredColumn.from_arrow(column)


# ---------------------------------------------------------------------- helpers
def _as_seen(stored: StoredColumn, rows: np.ndarray | None) -> tuple[Column, np.ndarray | None]:
    """The column in the user's order, and which values are missing; a missing list is one missing value."""
    values, missing, offsets, missing_rows = stored.values, stored.missing, stored.offsets, stored.missing_rows
    if missing_rows is not None:
        seen = missing_rows if rows is None else missing_rows[rows]
        if seen.any():
            return Column(np.empty(0), None), seen
    if rows is None:
        return Column(values, offsets), missing
    if offsets is None:
        return Column(values[rows], None), missing[rows] if missing is not None else None
    places, lengths = places_of(offsets, rows)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Column(values[places], offsets), missing[places] if missing is not None else None


def _namer(column: Column) -> Callable[[int], str]:
    def name(value: int) -> str:
        if column.offsets is None:
            return RowIndex().name(value)
        row = int(np.searchsorted(column.offsets, value, side="right")) - 1
        return f"{RowIndex().name(row)}, token {value - int(column.offsets[row])}"

    return name


def typed_if_empty(column: pa.ChunkedArray, value_type: pa.DataType) -> pa.ChunkedArray:
    """Batches with nothing but empty lists (or nothing at all) have no type of their own; a null label has none."""
    if is_list(column.type) and pa.types.is_null(column.type.value_type):
        return column.cast(pa.list_(value_type))
    return column.cast(value_type) if pa.types.is_null(column.type) else column


def _first_value(column: pa.ChunkedArray, index: RowIndex, rows: np.ndarray | None) -> str:
    if len(column) == 0 or (rows is not None and len(rows) == 0):
        return ""
    value = repr(column[0 if rows is None else int(rows[0])].as_py())
    return f", first {index.name(0)}: {value if len(value) <= 60 else value[:57] + '…'}"
