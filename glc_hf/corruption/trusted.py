# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`mark_trusted`: which rows, or which tokens, are trusted."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import numpy as np
import pyarrow as pa
from datasets import Dataset, Features, IterableDataset, LargeList, List, Value

from glc_hf.corruption.batches import Batch
from glc_hf.corruption.column_checks import IGNORED_LABEL, check_labels, require_column
from glc_hf.corruption.columns import parse_integers, read_index, read_labels, stored_integers, stored_rows
from glc_hf.corruption.counter import random_words
from glc_hf.corruption.drawing import Draw, smallest
from glc_hf.corruption.merging import merge_trusted as merge_trusted
from glc_hf.corruption.rows import RowIndex, chunks
from glc_hf.corruption.splits import check_type, is_splits, on_splits, splits_to_mark
from glc_hf.corruption.stored_column import StoredColumn
from glc_hf.corruption.streams import add_to_stream
from glc_hf.corruption.tables import block_boundaries, with_columns, with_distinct_rows


AnyDataset = TypeVar("AnyDataset")
_CLEAN_COLUMN = "clean_label"


def mark_trusted(
    dataset: AnyDataset,
    fraction: float | None = None,
    count: int | None = None,
    indices: Sequence[int] | None = None,
    seed: int = 0,
    stratify: bool = False,
    level: Literal["row", "token"] = "row",
    label_column: str = "label",
    trusted_column: str = "trusted",
    index_column: str | None = None,
) -> AnyDataset:
    """
    Adds the boolean column `trusted`. Exactly one of `fraction`, `count` and `indices` is given.

    The rows drawn are those with the smallest random words, a row's word depending on `seed` and the row's index
    alone: so of two fractions the smaller one's rows are among the larger one's (with `stratify`, class by class, but
    for a row more or less where a share is rounded).

    Args:
        dataset (`Dataset`, `DatasetDict` or `IterableDataset`):
            Of a `DatasetDict` the `train` split is marked, or all splits where none is called so. A stream does not
            know how long it is: each of its rows is drawn for itself with probability `fraction` (or named by
            `indices`), and without `index_column` it is read in order by one reader.
        fraction (`float`, *optional*): round(fraction · rows) rows, at least one if it is above zero.
        count (`int`, *optional*): So many rows.
        indices (`Sequence[int]`, *optional*): These rows: positions, or values of `index_column`.
        seed (`int`, defaults to 0): Another seed, other rows.
        stratify (`bool`, defaults to `False`):
            Whether to draw from each class in proportion (by largest remainder), and at least one of each where there
            are enough to draw.
        level (`"row"` or `"token"`, defaults to `"row"`):
            With `"token"`, for lists of labels, tokens are drawn instead of rows, and the flag is a list as long as
            the labels. Labels of -100 are not drawn and never trusted.
        label_column (`str`, defaults to `"label"`): Read only for `stratify` and tokens.
        trusted_column (`str`, defaults to `"trusted"`): The new column.
        index_column (`str`, *optional*): A column of unique integers to use as the rows' index, instead of positions.

    Returns:
        The same kind of dataset, with the flag.
    """
    draw = Draw(fraction, count, indices, seed, stratify, level)
    if is_splits(dataset):
        chosen = splits_to_mark(dataset)
        if indices is not None and len(chosen) > 1:
            raise ValueError(f"indices= name rows of one split, but there are {', '.join(map(str, chosen))}.")
        return on_splits(dataset, chosen, lambda split: _mark(split, draw, label_column, trusted_column, index_column))
    return _mark(dataset, draw, label_column, trusted_column, index_column)


def _mark(dataset: Any, draw: Draw, label_column: str, trusted_column: str, index_column: str | None) -> Any:
    check_type(dataset)
    columns = list(dataset.column_names or [])
    if trusted_column in columns:
        raise ValueError(
            f"there is a column {trusted_column!r} already: drop it with `remove_columns`, or name another with "
            "trusted_column=."
        )
    if _CLEAN_COLUMN in columns:
        warnings.warn(
            f"column {_CLEAN_COLUMN!r} says that labels were corrupted already: rows marked as trusted now carry "
            "noisy labels. Mark first, then corrupt.",
            stacklevel=4,
        )
    if index_column is not None and columns:
        require_column(columns, index_column, "index_column")
    if isinstance(dataset, IterableDataset):
        return _mark_stream(dataset, draw, label_column, trusted_column, index_column)
    index = read_index(dataset, index_column)
    dataset = with_distinct_rows(dataset)
    if draw.level == "token":
        column, feature = _mark_tokens(dataset, draw, label_column, index)
    else:
        column, feature = _mark_rows(dataset, draw, label_column, index, index_column), Value("bool")
    arguments = {"seed": int(draw.seed), "column": trusted_column}
    return with_columns(dataset, {trusted_column: (column, feature)}, {}, "glc_hf.mark_trusted", arguments)


# ---------------------------------------------------------------------- datasets
def _mark_rows(
    dataset: Dataset, draw: Draw, label_column: str, index: RowIndex, index_column: str | None
) -> pa.ChunkedArray:
    if draw.indices is not None:
        chosen = _named_rows(draw.named(), index.of(0, len(dataset)), index_column)
    else:
        classes = None
        if draw.stratify:
            labels = read_labels(dataset, label_column, None)
            if labels.offsets is not None:
                raise ValueError(f'column {label_column!r} holds lists: stratify=True needs level="token".')
            classes = labels.values
        words = random_words("trusted", draw.seed, index.of(0, len(dataset)))
        chosen = smallest(words, draw.number(len(dataset), "rows"), classes)
    rows = stored_rows(dataset)
    if rows is not None:
        flags = np.zeros(dataset._data.num_rows, dtype=bool)
        flags[rows] = chosen
        chosen = flags
    empty = StoredColumn(chosen, None, None, None, pa.bool_(), [])
    return empty.to_arrow(block_boundaries(dataset))


def _named_rows(wanted: np.ndarray, index: np.ndarray, index_column: str | None) -> np.ndarray:
    chosen = np.isin(index, wanted)
    if np.count_nonzero(chosen) < len(wanted):
        absent = int(wanted[np.argmin(np.isin(wanted, index))])
        where = f"column {index_column!r}" if index_column else f"the dataset, whose rows are 0…{len(index) - 1}"
        raise ValueError(f"indices= names {absent}, which is not in {where}.")
    return chosen


def _mark_tokens(dataset: Dataset, draw: Draw, label_column: str, index: RowIndex) -> tuple[pa.ChunkedArray, Any]:
    labels = read_labels(dataset, label_column, None)  # checks them
    feature = _flags_feature(dataset.features[label_column], label_column)
    stored, rows = stored_integers(dataset, label_column)
    walk = list(chunks(len(dataset), rows, stored.offsets))
    counted = labels.values != IGNORED_LABEL
    words = [
        random_words("trusted", draw.seed, chunk.spread(index.of(chunk.start, chunk.stop)), chunk.position)
        for chunk in walk
    ]
    words = np.concatenate(words)[counted] if words else np.empty(0, dtype=np.uint64)
    classes = labels.values[counted] if draw.stratify else None
    chosen = np.zeros(len(labels.values), dtype=bool)
    chosen[counted] = smallest(words, draw.number(len(words), "tokens"), classes)
    flags = np.zeros(len(stored.values), dtype=bool)
    for chunk in walk:
        flags[chunk.places] = chosen[chunk.span]
    return stored.to_arrow(block_boundaries(dataset), flags), feature


def _flags_feature(feature: Any, label_column: str) -> Any:
    if isinstance(feature, LargeList):
        return LargeList(Value("bool"))
    if isinstance(feature, List):
        return List(Value("bool"), length=feature.length)
    raise ValueError(f'level="token" draws from lists of labels, but column {label_column!r} holds {feature}.')


# ---------------------------------------------------------------------- streams
def _mark_stream(
    dataset: IterableDataset, draw: Draw, label_column: str, trusted_column: str, index_column: str | None
) -> IterableDataset:
    if draw.count is not None or draw.stratify:
        asked = f"count={draw.count}" if draw.count is not None else "stratify=True"
        raise ValueError(
            f"{asked} needs to know all rows before the first is given, which a stream can't: give fraction= (each "
            "row is drawn for itself) or indices=, or load the dataset whole."
        )
    if draw.level == "token" and dataset.features is not None:
        require_column(list(dataset.features), label_column, "label_column")
        _flags_feature(dataset.features[label_column], label_column)
    function = _MarkStream(draw, label_column, trusted_column)
    return add_to_stream(dataset, function, index_column)


class _MarkStream:
    """The row function of a stream that gets flags."""

    def __init__(self, draw: Draw, label_column: str, trusted_column: str) -> None:
        self._draw = draw
        self._named = draw.named() if draw.indices is not None else None
        self._label_column = label_column
        self._trusted_column = trusted_column

    def __call__(self, batch: Batch) -> dict[str, pa.ChunkedArray]:
        index = batch.index.of(0, batch.num_rows)
        if self._draw.level == "token":
            return {self._trusted_column: self._tokens(batch)}
        if self._named is not None:
            flags = np.isin(index, self._named)
        else:
            flags = self._draw.lucky(random_words("trusted", self._draw.seed, index))
        return {self._trusted_column: pa.chunked_array([pa.array(flags)])}

    def _tokens(self, batch: Batch) -> pa.ChunkedArray:
        require_column(batch.names, self._label_column, "label_column")
        labels = parse_integers(batch.column(self._label_column), self._label_column, batch.index)
        if labels.offsets is None:
            raise ValueError(f'level="token" draws from lists of labels; column {self._label_column!r} holds none.')
        flags = np.zeros(len(labels.values), dtype=bool)
        for chunk in chunks(batch.num_rows, None, labels.offsets):
            values = labels.values[chunk.places]
            missing = labels.missing[chunk.places] if labels.missing is not None else None
            check_labels(
                values, missing, None, True, self._label_column, lambda value, c=chunk: c.name(value, batch.index)
            )
            row_index = chunk.spread(batch.index.of(chunk.start, chunk.stop))
            words = random_words("trusted", self._draw.seed, row_index, chunk.position)
            flags[chunk.places] = self._draw.lucky(words) & (values != IGNORED_LABEL)
        return labels.to_arrow([0], flags)

    def update_features(self, features: Features) -> Features:
        """See [`~glc_hf.corruption.streams.RowFunction`]."""
        feature: Any = Value("bool")
        if self._draw.level == "token":
            feature = _flags_feature(features[self._label_column], self._label_column)
        return Features({**features, self._trusted_column: feature})
