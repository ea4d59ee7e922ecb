# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`mark_trusted`: which rows, or which tokens, are trusted."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeVar

import numpy as np
import pyarrow as pa
from datasets import Dataset, Features, IterableDataset, LargeList, List, Value, concatenate_datasets

from glc_hf.labels.reading import (
    IGNORED_LABEL,
    check_labels,
    class_names,
    parse_integers,
    read_index,
    read_labels,
    require_column,
    stored_integers,
)
from glc_hf.labels.row_index import RowIndex, chunks
from glc_hf.labels.splits import check_type, is_splits, on_splits, splits_to_mark
from glc_hf.labels.storage import StoredColumn, block_boundaries, stored_rows, with_columns, with_distinct_rows
from glc_hf.labels.streams import Batch, add_to_stream
from glc_hf.noise.sampling import check_seed
from glc_hf.randomness import random_uint64


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
        words = random_uint64("trusted", draw.seed, index.of(0, len(dataset)))
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
        random_uint64("trusted", draw.seed, chunk.spread(index.of(chunk.start, chunk.stop)), chunk.position)
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
            flags = self._draw.lucky(random_uint64("trusted", self._draw.seed, index))
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
            words = random_uint64("trusted", self._draw.seed, row_index, chunk.position)
            flags[chunk.places] = self._draw.lucky(words) & (values != IGNORED_LABEL)
        return labels.to_arrow([0], flags)

    def update_features(self, features: Features) -> Features:
        """See [`~glc_hf.labels.streams.RowFunction`]."""
        feature: Any = Value("bool")
        if self._draw.level == "token":
            feature = _flags_feature(features[self._label_column], self._label_column)
        return Features({**features, self._trusted_column: feature})


@dataclass(frozen=True)
class Draw:
    """What `mark_trusted` was asked for, checked as far as it can be without the data."""

    fraction: float | None
    count: int | None
    indices: Sequence[int] | Any | None
    seed: int
    stratify: bool
    level: Literal["row", "token"]

    def __post_init__(self) -> None:
        if sum(option is not None for option in (self.fraction, self.count, self.indices)) != 1:
            raise ValueError("give exactly one of fraction=, count= and indices=.")
        if self.level not in ("row", "token"):
            raise ValueError(f'level must be "row" or "token", got {self.level!r}.')
        if self.fraction is not None and not 0.0 <= self.fraction <= 1.0:  # NaN fails here too
            raise ValueError(f"fraction must lie in [0, 1], got {self.fraction!r} (for a number of rows use count=).")
        if self.count is not None and (int(self.count) != self.count or self.count < 0):
            raise ValueError(f"count must be a whole number of at least 0, got {self.count!r}.")
        if self.indices is not None and self.level == "token":
            raise ValueError(
                'indices= name rows: with level="token" give fraction= or count=, or add a column of '
                "lists of booleans yourself."
            )
        if self.indices is not None and self.stratify:
            raise ValueError("stratify=True has nothing to draw where indices= name the rows.")
        check_seed(self.seed)

    def number(self, total: int, what: str) -> int:
        """How many of `total` rows (or tokens) to draw."""
        if self.count is not None:
            if self.count > total:
                raise ValueError(f"count={self.count} of {total} {what}: there are not that many.")
            return int(self.count)
        at_least = 1 if self.fraction > 0 and total > 0 else 0
        return max(round(self.fraction * total), at_least)

    def named(self) -> np.ndarray:
        """The indices given, ascending, each once."""
        indices = np.asarray(self.indices)
        if indices.size == 0:
            return np.empty(0, dtype=np.int64)
        if indices.dtype == np.bool_:
            raise ValueError("indices= holds booleans: row numbers are needed, `numpy.flatnonzero(mask)`.")
        if indices.ndim != 1 or indices.dtype.kind not in "iu":
            raise ValueError(f"indices= must be a list of integers, got shape {indices.shape} of {indices.dtype}.")
        return np.unique(indices.astype(np.int64))

    def lucky(self, words: np.ndarray) -> np.ndarray:
        """Each for itself with probability `fraction`: the draw of a stream, whose length nobody knows."""
        return (words >> np.uint64(11)) < np.uint64(round(self.fraction * 2.0**53))


def smallest(words: np.ndarray, number: int, classes: np.ndarray | None = None) -> np.ndarray:
    """
    Chooses exactly `number` by the smallest words, as booleans.

    Args:
        words (`np.ndarray` of uint64): One random word for each candidate.
        number (`int`): How many to choose.
        classes (`np.ndarray` of integers, *optional*): Each candidate's class, to choose from each in proportion.
    """
    chosen = np.zeros(len(words), dtype=bool)
    if number == 0:
        return chosen
    if classes is None:
        chosen[np.argpartition(words, number - 1)[:number]] = True
        return chosen
    _, of_candidate, sizes = np.unique(classes, return_inverse=True, return_counts=True)
    order = np.lexsort((words, of_candidate))  # class by class, by word within a class
    rank = np.arange(len(words)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    chosen[order[rank < np.repeat(quotas(sizes, number), sizes)]] = True
    return chosen


def quotas(sizes: np.ndarray, number: int) -> np.ndarray:
    """
    Shares `number` out among classes in proportion to their sizes, by largest remainder; where `number` is enough for
    one each, no class goes without.

    Args:
        sizes (`np.ndarray` of integers): How many each class has, all above zero.
        number (`int`): At most their sum.
    """
    exact = number * sizes / sizes.sum()
    at_least = 1 if number >= len(sizes) else 0
    shares = np.maximum(np.floor(exact).astype(np.int64), at_least)
    while shares.sum() < number:
        shares[np.argmax(exact - shares)] += 1
    while shares.sum() > number:
        shares[np.argmax(np.where(shares > at_least, shares - exact, -np.inf))] -= 1
    return shares


def merge_trusted(trusted: AnyDataset, untrusted: AnyDataset, trusted_column: str = "trusted") -> AnyDataset:
    """
    One dataset with the flag, from two: the trusted rows first.

    Args:
        trusted (`Dataset` or `IterableDataset`): Rows whose labels are right.
        untrusted (`Dataset` or `IterableDataset`): Rows of the same kind and the same columns, in any order.
        trusted_column (`str`, defaults to `"trusted"`): The new column.

    Returns:
        A dataset of the same kind. Nothing is copied; datasets that are shuffled or memory-mapped stay so.
    """
    for dataset in (trusted, untrusted):
        if is_splits(dataset):
            raise TypeError(
                f"merge_trusted takes single splits, not a {type(dataset).__name__}: "
                '`merge_trusted(trusted["train"], untrusted["train"])`.'
            )
        check_type(dataset)
    if isinstance(trusted, Dataset) != isinstance(untrusted, Dataset):
        raise TypeError(
            f"a {type(trusted).__name__} and an {type(untrusted).__name__} can't be merged: "
            "`dataset.to_iterable_dataset()` makes a stream of the one that is none."
        )
    if isinstance(trusted, IterableDataset):
        trusted, untrusted = trusted._resolve_features(), untrusted._resolve_features()
    _check_features(trusted.features, untrusted.features, trusted_column)
    parts = [_flagged(trusted, True, trusted_column), _flagged(untrusted, False, trusted_column)]
    return concatenate_datasets(parts, split=trusted.split if trusted.split == untrusted.split else None)


def _flagged(dataset: Any, flag: bool, trusted_column: str) -> Any:
    if isinstance(dataset, IterableDataset):
        return add_to_stream(dataset, _Constant(flag, trusted_column), None, needs_index=False)
    edges = sorted({*block_boundaries(dataset), dataset._data.num_rows})
    arrays = [pa.array(np.full(stop - start, flag)) for start, stop in pairwise(edges)]
    column = pa.chunked_array(arrays, type=pa.bool_())
    columns = {trusted_column: (column, Value("bool"))}
    return with_columns(dataset, columns, {}, "glc_hf.merge_trusted", {"column": trusted_column})


class _Constant:
    """The row function of a stream whose rows all have the same flag."""

    def __init__(self, flag: bool, trusted_column: str) -> None:
        self._flag = flag
        self._column = trusted_column

    def __call__(self, batch: Batch) -> dict[str, pa.ChunkedArray]:
        return {self._column: pa.chunked_array([pa.array(np.full(batch.num_rows, self._flag))])}

    def update_features(self, features: Features) -> Features:
        """See [`~glc_hf.labels.streams.RowFunction`]."""
        return Features({**features, self._column: Value("bool")})


def _check_features(trusted: Features, untrusted: Features, trusted_column: str) -> None:
    if trusted_column in trusted or trusted_column in untrusted:
        raise ValueError(
            f"there is a column {trusted_column!r} already: drop it, or name another with trusted_column=."
        )
    problems = [f"{name!r} is in the trusted dataset only" for name in trusted if name not in untrusted]
    problems += [f"{name!r} is in the untrusted dataset only" for name in untrusted if name not in trusted]
    for name in trusted:
        if name in untrusted and trusted[name] != untrusted[name]:
            ours, theirs = class_names(trusted[name]), class_names(untrusted[name])
            if ours is not None and theirs is not None and sorted(ours) == sorted(theirs):
                problems.append(f"{name!r} has its class names in another order: {ours} and {theirs}")
            else:
                problems.append(f"{name!r} is {trusted[name]} in the trusted and {untrusted[name]} in the untrusted")
    if problems:
        raise ValueError(
            f"the datasets can't be merged: {'; '.join(problems)}. `rename_column`, `remove_columns`, `cast_column` "
            "and (for class names) `align_labels_with_mapping` make them the same."
        )
