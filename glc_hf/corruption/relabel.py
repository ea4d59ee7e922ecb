# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Noise written over the labels of untrusted rows: the walk shared by datasets and batches of streams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from glc_hf.corruption.column_checks import (
    IGNORED_LABEL,
    check_labels,
    check_num_labels,
    check_same_lengths,
    refuse_missing,
)
from glc_hf.corruption.rows import Chunk, RowIndex, chunks, places_of
from glc_hf.corruption.sampling import Noise
from glc_hf.corruption.stored_column import StoredColumn


@dataclass(frozen=True)
class ColumnNames:
    """The columns that a transform reads and writes; `trusted` and `index` may be `None`."""

    label: str
    trusted: str | None
    index: str | None
    clean: str


def relabel(
    labels: StoredColumn,
    flags: StoredColumn | None,
    rows: np.ndarray | None,
    num_rows: int,
    index: RowIndex,
    noise: Noise,
    names: ColumnNames,
    feature: Any,
    examples: Callable[[slice], list[dict[str, Any]]],
) -> None:
    """
    Overwrites `labels.values` of the rows that the user sees, where they are untrusted and no -100.

    Args:
        labels (`StoredColumn`): Read, checked and written in place.
        flags (`StoredColumn`, *optional*): One flag a row or a label; without it no row is trusted.
        rows (`np.ndarray`, *optional*), num_rows (`int`): As in [`~glc_hf.corruption.rows.chunks`].
        index (`RowIndex`): What each row's draw depends on.
        noise (`Noise`): Where noisy labels come from.
        names (`ColumnNames`): For messages.
        feature: The label column's feature, if it is known.
        examples (`Callable`): The rows of a slice, decoded, for noise that looks at them.
    """
    if noise.num_labels is not None:
        _check_classes(labels, noise, feature, names.label)
    noise.begin(num_rows, _num_values(labels, rows, num_rows), labels.offsets is not None)
    for chunk in chunks(num_rows, rows, labels.offsets, noise.chunk_size, noise.rows_only):
        known = noise.num_labels is not None
        prepared = noise.prepare(chunk, examples)
        if not known:
            _check_classes(labels, noise, feature, names.label)
        stored = slice(chunk.start, chunk.stop) if rows is None else rows[chunk.start : chunk.stop]
        name = partial(chunk.name, index=index)
        _refuse_missing_rows(labels, stored, chunk, names.label, index)
        values = labels.values[chunk.places]
        missing = labels.missing[chunk.places] if labels.missing is not None else None
        check_labels(values, missing, noise.num_labels, chunk.lengths is not None, names.label, name)
        wanted = _untrusted(flags, stored, chunk, names.trusted, index)
        true = values
        if chunk.lengths is not None:
            ignored = values == IGNORED_LABEL
            wanted = wanted & ~ignored
            true = np.where(ignored, 0, values)
        row_index = chunk.spread(index.of(chunk.start, chunk.stop))
        noisy = noise.draw(prepared, true, row_index, chunk.position, wanted, name)
        labels.values[chunk.places] = np.where(wanted, noisy, values)


def _untrusted(
    flags: StoredColumn | None, stored: slice | np.ndarray, chunk: Chunk, column: str | None, index: RowIndex
) -> np.ndarray:
    """Which labels of the chunk belong to untrusted rows or tokens."""
    if flags is None:
        return np.ones(chunk.span.stop - chunk.span.start, dtype=bool)
    _refuse_missing_rows(flags, stored, chunk, column, index)
    if flags.offsets is None:
        missing = flags.missing[stored] if flags.missing is not None else None
        refuse_missing(missing, column, lambda row: index.name(chunk.start + row))
        return chunk.spread(~flags.values[stored])
    numbers = np.arange(stored.start, stored.stop) if isinstance(stored, slice) else stored
    places, lengths = places_of(flags.offsets, numbers)
    check_same_lengths(chunk.lengths, lengths, lambda row: index.name(chunk.start + row))
    missing = flags.missing[places] if flags.missing is not None else None
    refuse_missing(missing, column, partial(chunk.name, index=index))
    return ~flags.values[places]


def _refuse_missing_rows(
    column: StoredColumn, stored: slice | np.ndarray, chunk: Chunk, name: str | None, index: RowIndex
) -> None:
    if column.missing_rows is not None and column.missing_rows[stored].any():
        row = chunk.start + int(np.argmax(column.missing_rows[stored]))
        raise ValueError(f"column {name!r} has no list (None) in {index.name(row)}.")


def _check_classes(labels: StoredColumn, noise: Noise, feature: Any, column: str) -> None:
    check_num_labels(feature, noise.num_labels, column, noise.source)
    largest = np.iinfo(labels.values.dtype).max
    if noise.num_labels - 1 > largest:
        raise ValueError(
            f"column {column!r} holds {labels.values.dtype}, which ends at {largest}, but {noise.source} has "
            f'{noise.num_labels} classes: `dataset.cast_column({column!r}, Value("int64"))` first.'
        )


def _num_values(labels: StoredColumn, rows: np.ndarray | None, num_rows: int) -> int:
    if labels.offsets is None:
        return num_rows
    if rows is None:
        return len(labels.values)
    return int((labels.offsets[rows + 1] - labels.offsets[rows]).sum())
