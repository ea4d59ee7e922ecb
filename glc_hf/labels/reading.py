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

from glc_hf.labels.row_index import RowIndex, places_of
from glc_hf.labels.storage import StoredColumn, is_list_type, stored_rows


if TYPE_CHECKING:
    from datasets import Dataset


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
    value_type = column.type.value_type if is_list_type(column.type) else column.type
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
    value_type = column.type.value_type if is_list_type(column.type) else column.type
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
    if is_list_type(column.type) and pa.types.is_null(column.type.value_type):
        return column.cast(pa.list_(value_type))
    return column.cast(value_type) if pa.types.is_null(column.type) else column


def _first_value(column: pa.ChunkedArray, index: RowIndex, rows: np.ndarray | None) -> str:
    if len(column) == 0 or (rows is not None and len(rows) == 0):
        return ""
    value = repr(column[0 if rows is None else int(rows[0])].as_py())
    return f", first {index.name(0)}: {value if len(value) <= 60 else value[:57] + '…'}"


# Labels that the loss leaves out: special tokens, and all but the first token of a word.
IGNORED_LABEL = -100


def require_column(names: list[str], name: str, argument: str) -> None:
    """An error where a column is not there."""
    if name not in names:
        raise ValueError(f"there is no {argument} {name!r}; the columns are {', '.join(map(str, names))}.")


def require_flags(names: list[str], trusted_column: str, method: str | None = None) -> None:
    """An error where the flags are not there."""
    if trusted_column in names:
        return
    who = f"method {method!r} needs to know which rows are trusted, but " if method else ""
    raise ValueError(
        f"{who}there is no column {trusted_column!r}; the columns are {', '.join(map(str, names))}. Make it with "
        "`mark_trusted(dataset, fraction=…)` or `merge_trusted(trusted, untrusted)`, or name your own boolean column "
        "with trusted_column=" + ("." if method else " (trusted_column=None: no row is trusted).")
    )


def check_labels(
    values: np.ndarray,
    missing: np.ndarray | None,
    num_labels: int | None,
    in_lists: bool,
    column: str,
    name: Callable[[int], str],
) -> None:
    """An error that names the first label which is no class."""
    bad = values < 0
    if num_labels is not None:
        bad |= values >= num_labels
    if in_lists:
        bad &= values != IGNORED_LABEL
    if missing is not None:
        bad |= missing
    if not bad.any():
        return
    first = int(np.argmax(bad))
    value = None if missing is not None and missing[first] else int(values[first])
    classes = f"0…{num_labels - 1}" if num_labels is not None else "0 or more"
    ignored = f", or {IGNORED_LABEL} for a token without label" if in_lists else ""
    fix = "Drop such rows with `dataset.filter`."
    if num_labels is not None and value is not None and value >= num_labels:
        fix = f"If it is one, give the model as many: num_labels={int(values.max()) + 1}. Otherwise d{fix[1:]}"
    raise ValueError(
        f"label {value} in column {column!r}, {name(first)}, is no class: classes are {classes}{ignored}. {fix}"
    )


def check_num_labels(feature: Any, num_labels: int, column: str, source: str) -> None:
    """An error where the column's own classes are of another number than K."""
    names = class_names(feature)
    if names is not None and len(names) != num_labels:
        raise ValueError(f"{source} has {num_labels} classes, column {column!r} has {len(names)}.")


def class_names(feature: Any) -> list[str] | None:
    """The names of a `ClassLabel` feature, or of a list of them."""
    while hasattr(feature, "feature"):
        feature = feature.feature
    return list(feature.names) if getattr(feature, "_type", None) == "ClassLabel" else None


def check_same_lengths(label_lengths: np.ndarray | None, flag_lengths: np.ndarray | None, name: Any) -> None:
    """An error where flags are lists but not one for each label; `name(row)` names a row."""
    if flag_lengths is None:
        return
    if label_lengths is None:
        raise ValueError("the trusted flags are lists, but a row has one label: one flag a row is needed.")
    wrong = label_lengths != flag_lengths
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"{name(row)} has {label_lengths[row]} labels and {flag_lengths[row]} trusted flags; a list of flags has "
            f"one for each label (False where the label is {IGNORED_LABEL})."
        )


def refuse_missing(missing: np.ndarray | None, column: str, name: Callable[[int], str]) -> None:
    """An error where a value is null."""
    if missing is not None and missing.any():
        raise ValueError(f"column {column!r} has no value (None) in {name(int(np.argmax(missing)))}.")


def refuse_duplicates(values: np.ndarray, column: str) -> None:
    """An error where two rows have the same index."""
    if len(values) < 2:
        return
    low, high = int(values.min()), int(values.max())
    if high - low < 8 * len(values):  # as far as a table of bytes is no larger than the column
        seen = np.zeros(high - low + 1, dtype=bool)
        seen[values - low] = True
        unique = np.count_nonzero(seen) == len(values)
    else:
        ordered = np.sort(values)
        unique = bool((ordered[1:] != ordered[:-1]).all())
    if unique:
        return
    order = np.argsort(values, kind="stable")
    repeated = order[1:][values[order][1:] == values[order][:-1]]
    second = int(repeated.min())
    first = int(np.argmax(values == values[second]))
    raise ValueError(
        f"index_column {column!r} must be unique, but rows {first} and {second} both have {values[second]}: their "
        "noise would be the same."
    )


def flags_of_row(flag: Any, column: str) -> np.ndarray:
    """The flag of a row, or those of its tokens, as booleans; an error where they are anything else."""
    found = np.asarray(flag)
    numbers = np.issubdtype(found.dtype, np.integer) and np.isin(found, (0, 1)).all()
    if found.dtype != bool and found.size and not numbers:
        raise ValueError(
            f"a row has {flag!r} in {column!r}: flags are booleans, True for a row that is labelled with care and "
            "False for any other."
        )
    return found.astype(bool, copy=False)
