# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Labels, soft labels, trusted flags and row indices, read from Arrow and checked; class names of a feature.

Only the named column is read, so nothing is decoded, whatever format or transform the dataset has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glc_hf.labels.storage import (
    RowIndex,
    check_unique,
    column_in_order,
    flat_values,
    is_list_type,
    typed_if_empty,
    value_type,
)


if TYPE_CHECKING:
    from datasets import Dataset


# Label of tokens that the loss leaves out: special tokens, and all but the first token of a word.
IGNORED_LABEL = -100
# One rule for flags in Arrow columns, streams and Python values: booleans, the numbers 1 and 0, and these words in any
# case.
_FLAG_WORDS = {
    **dict.fromkeys(("true", "t", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "0"), False),
}
_FLAG_RULE = "flags are booleans, 1/0 or the words true/false, t/f, yes/no, y/n"
_FLAG_FIX = "Correct it, drop the row with `dataset.filter`, or add the column with `mark_trusted`."
# Probabilities whose sum differs from 1 by at most this are divided by it.
_SUM_TOLERANCE = 1e-3


class Column(NamedTuple):
    """
    A column in the order that the user sees.

    Attributes:
        values: One value per row; for lists, the values of all rows one after the other.
        offsets: For lists: row i has values offsets[i] to offsets[i + 1], int64. `None` otherwise.
    """

    values: np.ndarray
    offsets: np.ndarray | None


def read_labels(dataset: Dataset, label_column: str, num_labels: int | None) -> Column:
    """
    Read labels and check that each is a class: 0…K−1, or -100 within a list.

    Args:
        dataset (`datasets.Dataset`): May be shuffled, selected or formatted.
        label_column (`str`): One integer per row, or one list of integers per row.
        num_labels (`int`, *optional*): K; if not given, every non-negative number is a class.
    """
    labels = read_integers(dataset, label_column)
    check_labels(labels, num_labels, label_column)
    return labels


def read_integers(dataset: Dataset, name: str, missing: int | None = None) -> Column:
    """Read a column of integers, or of lists of integers. A missing value is an error, or becomes `missing`."""
    require_column(dataset.column_names, name, "column")
    return parse_integers(column_in_order(dataset, name), name, missing=missing)


def read_index(dataset: Dataset, index_column: str | None) -> RowIndex:
    """Return the index of each row: its position, or the value of `index_column`, which must be unique."""
    if index_column is None:
        return RowIndex()
    values = parse_index(column_in_order(dataset, index_column), index_column)
    check_unique(values, index_column)
    return RowIndex(values=values, column=index_column)


def parse_integers(
    column: pa.ChunkedArray, name: str, index: RowIndex | None = None, missing: int | None = None
) -> Column:
    """Convert an Arrow column to numpy; `index` names the rows in errors, `missing` replaces missing values."""
    column = typed_if_empty(column, pa.int64())
    index = index or RowIndex()
    if not pa.types.is_integer(value_type(column)):
        raise ValueError(
            f"column {name!r} holds {column.type}{_first_value(column, index)}; classes are integers. For names use "
            f"`dataset.class_encode_column({name!r})`, otherwise "
            f'`dataset.cast_column({name!r}, Value("int64"))`.'
        )
    values, offsets = flat_values(column)
    if missing is not None and values.null_count:
        values = pc.fill_null(values, missing)
        column = values if offsets is None else column
    if column.null_count or values.null_count:
        if column.null_count:  # a missing list, or a missing value
            row = index.name(pc.index(column.is_null(), True).as_py())
        else:
            row = index.name_value(pc.index(values.is_null(), True).as_py(), offsets)
        raise ValueError(f"column {name!r} has no value (None) in {row}. Drop such rows with `dataset.filter`.")
    return Column(np.array(values.to_numpy(), dtype=values.type.to_pandas_dtype()), offsets)


def parse_index(column: pa.ChunkedArray, name: str, index: RowIndex | None = None) -> np.ndarray:
    """Convert an index column to int64."""
    values, offsets = parse_integers(column, name, index)
    if offsets is not None:
        raise ValueError(f"index_column {name!r} holds lists; it must hold one unique integer per row.")
    # Numbers beyond the signed 64-bit range wrap around one to one, so they stay unique.
    return values.astype(np.int64, copy=False)


def _first_value(column: pa.ChunkedArray, index: RowIndex) -> str:
    """Describe the first value of a column for an error about its type."""
    if len(column) == 0:
        return ""
    value = repr(column[0].as_py())
    return f", first {index.name(0)}: {value if len(value) <= 60 else value[:57] + '…'}"


def parse_flag(value: Any) -> bool | None:
    """Return the flag that a Python value stands for; `None` if it is not a flag."""
    if isinstance(value, str):
        return _FLAG_WORDS.get(value.strip().lower())
    return bool(value) if isinstance(value, (bool, int, float)) and value in (0, 1) else None


def read_soft_labels(dataset: Dataset, column: str, num_labels: int | None = None) -> np.ndarray:
    """
    Read a column of lists with one probability per class, and check that each list is a distribution. Sums that differ
    from 1 by at most 0.001 are corrected.

    Args:
        dataset (`datasets.Dataset`): May be shuffled, selected or formatted.
        column (`str`): Lists of K numbers. `None` instead of a list: no soft label.
        num_labels (`int`, *optional*): K; by default the length of the first list.

    Returns:
        `np.ndarray` of shape `(rows, K)`, float32; zeros in rows without a soft label.
    """
    require_column(dataset.column_names, column, "soft_label_column")
    lists, index = column_in_order(dataset, column), RowIndex()
    kind, types = value_type(lists), pa.types
    numbers = types.is_floating(kind) or types.is_integer(kind) or types.is_null(kind)
    if not (is_list_type(lists.type) and numbers) and not types.is_null(lists.type):
        raise ValueError(
            f"column {column!r} holds {lists.type}{_first_value(lists, index)}; soft labels are lists of numbers, one "
            "probability per class. A CSV file can't hold lists: use JSONL or Parquet."
        )
    given = np.flatnonzero(lists.is_valid().to_numpy())
    if len(given) == 0:
        raise ValueError(f"column {column!r} has no soft labels (all rows are None): leave soft_label_column out.")
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()[given]
    classes = int(lengths[0]) if num_labels is None else num_labels
    if (lengths != classes).any():
        first = int(np.argmax(lengths != classes))
        expected = f"{index.name(given[0])} has {classes}" if num_labels is None else f"there are {classes} classes"
        raise ValueError(
            f"{index.name(given[first])} has {lengths[first]} probabilities in column {column!r}, but {expected}: "
            "write one probability per class, 0 for impossible ones, or None in place of the list."
        )
    flat, _ = flat_values(lists)
    if flat.null_count:
        row, place = divmod(pc.index(flat.is_null(), True).as_py(), classes)
        raise ValueError(
            f"{index.name(given[row])} has no probability (None) for class {place} in column {column!r}: write 0 if "
            "the class is impossible, or None in place of the whole list if there is no soft label."
        )
    probs = flat.cast(pa.float64()).to_numpy().reshape(-1, classes)
    sums = probs.sum(axis=1)
    bad = ~((probs >= 0).all(axis=1) & (np.abs(sums - 1.0) <= _SUM_TOLERANCE))
    if bad.any():
        first = int(np.argmax(bad))
        raise _not_a_distribution(probs[first], column, index.name(given[first]))
    result = np.zeros((len(lists), classes), dtype=np.float32)
    result[given] = probs / sums[:, None]
    return result


def _not_a_distribution(probs: np.ndarray, column: str, row: str) -> ValueError:
    values = ", ".join(f"{value:.4g}" for value in probs[:6]) + (", …" if len(probs) > 6 else "")
    if np.isnan(probs).any():
        problem = (
            f"the probability of class {int(np.argmax(np.isnan(probs)))} is NaN. Compute it again, or write None in "
            "place of the list."
        )
    elif (probs <= 0).all() and (probs < 0).any():
        problem = "these look like log-probabilities. Exponentiate them: `np.exp(…)`."
    elif (probs < 0).any():
        place = int(np.argmax(probs < 0))
        problem = (
            f"the value of class {place} is negative ({probs[place]:.4g}). For logits apply softmax; for "
            "log-probabilities exponentiate them."
        )
    else:
        problem = (
            f"they sum to {probs.sum():.4g}. Divide them by their sum, or write None in place of a list that says "
            "nothing."
        )
    return ValueError(f"column {column!r} has [{values}] in {row}, which are not probabilities: {problem}")


def read_flags(dataset: Dataset, trusted_column: str, method: str | None = None) -> Column:
    """
    Read the trusted flags as booleans: one per row, or one list per row.

    Args:
        dataset (`datasets.Dataset`): May be shuffled, selected or formatted.
        trusted_column (`str`): Column of the flags.
        method (`str`, *optional*): Method that needs the flags, named in the error if the column is missing.
    """
    require_flags(dataset.column_names, trusted_column, method)
    return parse_flags(column_in_order(dataset, trusted_column), trusted_column)


def parse_flags(column: pa.ChunkedArray, name: str, index: RowIndex | None = None) -> Column:
    """Convert an Arrow column to booleans; `index` names the rows in errors."""
    column = typed_if_empty(column, pa.bool_())
    index = index or RowIndex()
    kind, types = value_type(column), pa.types
    readable = (types.is_boolean, types.is_integer, types.is_floating, types.is_string, types.is_large_string)
    if not any(is_readable(kind) for is_readable in readable):
        raise ValueError(
            f"column {name!r} holds {column.type}{_first_value(column, index)}; {_FLAG_RULE}. {_FLAG_FIX}"
        )
    given, offsets = flat_values(column)
    flags = given
    if not types.is_boolean(kind):
        distinct = given.unique()
        meanings = pa.array([parse_flag(value) for value in distinct.to_pylist()], type=pa.bool_())
        flags = meanings.take(pc.index_in(given, value_set=distinct))
    if offsets is not None and column.null_count:
        raise _not_a_flag(name, None, index.name(pc.index(column.is_null(), True).as_py()))
    if flags.null_count:
        position = pc.index(flags.is_null(), True).as_py()
        raise _not_a_flag(name, given[position].as_py(), index.name_value(position, offsets))
    return Column(np.array(flags.to_numpy(zero_copy_only=False), dtype=bool), offsets)


def _not_a_flag(name: str, value: Any, row: str) -> ValueError:
    return ValueError(
        f"column {name!r} has {value!r} in {row}, which is not a trusted flag: {_FLAG_RULE}. {_FLAG_FIX}"
    )


def flags_of_row(flag: Any, column: str) -> np.ndarray:
    """Return the flag of a single row, or those of its tokens, as booleans."""
    given = np.asarray(flag)
    if given.dtype == bool or not given.size:
        return given.astype(bool, copy=False)
    flags = [parse_flag(value) for value in given.ravel().tolist()]
    if None in flags:
        raise ValueError(f"a row has {flag!r} in {column!r}: {_FLAG_RULE}. {_FLAG_FIX}")
    return np.array(flags).reshape(given.shape)


def require_flags(names: list[str], trusted_column: str, method: str | None = None) -> None:
    """Raise if the column of the flags does not exist."""
    if trusted_column in names:
        return
    reason = f"method {method!r} needs to know which rows are trusted, but " if method else ""
    # Only simulated noise leaves random rows as they are; in a noisy dataset, a person must have checked them.
    rows = "indices=[…])`, which names the rows that were checked," if method else "fraction=…)`"
    raise ValueError(
        f"{reason}there is no column {trusted_column!r}; the columns are {', '.join(map(str, names))}. Add it with "
        f"`mark_trusted(dataset, {rows} or `merge_trusted(trusted, untrusted)`, or name your own column with "
        "trusted_column=" + ("." if method else " (trusted_column=None: no row is trusted).")
    )


def require_column(names: Sequence[str], name: str, argument: str) -> None:
    """Raise if a column does not exist."""
    if name not in names:
        raise ValueError(f"there is no {argument} {name!r}; the columns are {', '.join(map(str, names))}.")


def check_labels(
    labels: Column,
    num_labels: int | None,
    name: str,
    index: RowIndex | None = None,
    span: slice = slice(0, None),
) -> None:
    """Raise an error that names the first label that is not a class; `span` limits the check to some values."""
    values = labels.values[span]
    bad = values < 0
    if num_labels is not None:
        bad |= values >= num_labels
    if labels.offsets is not None:
        bad &= values != IGNORED_LABEL
    if not bad.any():
        return
    first = int(np.argmax(bad))
    value = int(values[first])
    row = (index or RowIndex()).name_value(span.start + first, labels.offsets)
    classes = f"0…{num_labels - 1}" if num_labels is not None else "0 or more"
    ignored = f", or {IGNORED_LABEL} for a token without label" if labels.offsets is not None else ""
    fix = "Drop such rows with `dataset.filter`."
    if num_labels is not None and value >= num_labels:
        fix = f"If it is a class, set num_labels={int(values.max()) + 1} in the model. Otherwise d{fix[1:]}"
    raise ValueError(f"label {value} in column {name!r}, {row}, is not a class: classes are {classes}{ignored}. {fix}")


def check_same_lengths(labels: Column, flags: Column, index: RowIndex | None = None) -> None:
    """Raise if flags are lists but not one per label."""
    if flags.offsets is None:
        return
    if labels.offsets is None:
        raise ValueError("the trusted flags are lists, but each row has one label: one flag per row is needed.")
    label_lengths, flag_lengths = np.diff(labels.offsets), np.diff(flags.offsets)
    different = label_lengths != flag_lengths
    if different.any():
        row = int(np.argmax(different))
        raise ValueError(
            f"{(index or RowIndex()).name(row)} has {label_lengths[row]} labels and {flag_lengths[row]} trusted "
            f"flags; a list of flags has one per label (False where the label is {IGNORED_LABEL}). If a tokenizer "
            "split words into tokens, `encoded['trusted'] = glc_hf.align_flags(batch, encoded)` aligns the flags of "
            "words."
        )


def class_names(feature: Any) -> list[str] | None:
    """Return the names of a `ClassLabel` feature, or of a list of them; `None` for other features."""
    while hasattr(feature, "feature"):
        feature = feature.feature
    return list(feature.names) if getattr(feature, "_type", None) == "ClassLabel" else None
