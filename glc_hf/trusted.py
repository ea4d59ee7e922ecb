# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`mark_trusted`, `merge_trusted` and `align_flags`: datasets and streams with the column of trusted flags."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import pyarrow as pa
from datasets import (
    Dataset,
    DatasetDict,
    Features,
    IterableDataset,
    IterableDatasetDict,
    LargeList,
    List,
    Value,
    concatenate_datasets,
)

from glc_hf.labels.reading import (
    IGNORED_LABEL,
    check_labels,
    class_names,
    flags_of_row,
    parse_integers,
    require_column,
)
from glc_hf.labels.row_batch import RowBatch
from glc_hf.labels.storage import chunks, same_kind_of_list, typed_if_empty
from glc_hf.labels.transforms import add_columns, check_type, is_splits, on_splits
from glc_hf.randomness import check_seed, random_uint64


AnyDataset = TypeVar("AnyDataset", bound=Dataset | DatasetDict | IterableDataset | IterableDatasetDict)
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
    Add the boolean column `trusted`. Give exactly one of `fraction`, `count` and `indices`.

    The rows with the smallest random words are drawn, and a row's word depends only on `seed` and the row's index. So
    the rows of a smaller fraction are among those of a larger one (with `stratify`, per class, up to one row where a
    share is rounded).

    Args:
        dataset (`Dataset`, `DatasetDict` or `IterableDataset`):
            In a `DatasetDict` the `train` split is marked, or all splits if there is no `train`. A stream has no known
            length: each row is drawn independently with probability `fraction` (or named by `indices`), and without
            `index_column` it must be read in order by one reader.
        fraction (`float`, *optional*): Draws round(fraction · rows) rows, at least one if it is above zero.
        count (`int`, *optional*): Number of rows.
        indices (`Sequence[int]`, *optional*): The rows themselves: positions, or values of `index_column`.
        seed (`int`, *optional*, defaults to 0): Seed of the draw.
        stratify (`bool`, *optional*, defaults to `False`):
            Whether to draw from each class in proportion (by largest remainder), and at least one row of each class if
            enough rows are drawn.
        level (`"row"` or `"token"`, *optional*, defaults to `"row"`):
            With `"token"`, for lists of labels, tokens are drawn instead of rows, and the flags are lists as long as
            the labels. Labels of -100 are not drawn and never trusted.
        label_column (`str`, *optional*, defaults to `"label"`): Read only for `stratify` and tokens.
        trusted_column (`str`, *optional*, defaults to `"trusted"`): The new column.
        index_column (`str`, *optional*): Column of unique integers to use as the rows' index instead of positions.

    Returns:
        A dataset of the same type, with the flag.
    """
    draw = Draw(fraction, count, indices, seed, stratify, level)
    if not is_splits(dataset):
        return _mark(dataset, draw, label_column, trusted_column, index_column)
    chosen = ["train"] if "train" in dataset else list(dataset)
    if indices is not None and len(chosen) > 1:
        raise ValueError(f"indices= names rows of one split, but there are {', '.join(map(str, chosen))}.")
    return on_splits(dataset, chosen, lambda split: _mark(split, draw, label_column, trusted_column, index_column))


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
            f"column {_CLEAN_COLUMN!r} shows that labels were corrupted already: rows marked as trusted now have "
            "noisy labels. Mark first, then corrupt.",
            stacklevel=4,
        )
    function = _Mark(draw, label_column, trusted_column, index_column)
    if isinstance(dataset, IterableDataset) and (draw.count is not None or draw.stratify):
        option = f"count={draw.count}" if draw.count is not None else "stratify=True"
        raise ValueError(
            f"{option} needs to know all rows before it gives the first, which a stream can't: give fraction= (each "
            "row is drawn independently) or indices=, or load the whole dataset."
        )
    if dataset.features is not None:
        function.update_features(dataset.features)  # raises if tokens can't be drawn from the labels
    arguments = {"seed": int(draw.seed), "column": trusted_column}
    return add_columns(dataset, function, "glc_hf.mark_trusted", arguments, index_column)


class _Mark:
    """Row function that adds the flags: an exact draw from a whole dataset, independent draws from a stream."""

    copies: ClassVar[dict[str, str]] = {}

    def __init__(self, draw: Draw, label_column: str, trusted_column: str, index_column: str | None) -> None:
        self.draw = draw
        self.label_column = label_column
        self.trusted_column = trusted_column
        self.index_column = index_column

    def __call__(self, batch: RowBatch) -> dict[str, pa.ChunkedArray]:
        draw, tokens = self.draw, self.draw.level == "token"
        if draw.indices is not None:
            flags = self._named_rows(batch)
            return {self.trusted_column: batch.new_column(flags, None, pa.bool_())}
        labels = None
        if tokens or draw.stratify:
            require_column(batch.names, self.label_column, "column")
            column = typed_if_empty(batch.column(self.label_column), pa.int64())
            labels = parse_integers(column, self.label_column, batch.index)
            check_labels(labels, None, self.label_column, batch.index)
            if not tokens and labels.offsets is not None:
                raise ValueError(f'column {self.label_column!r} holds lists: stratify=True needs level="token".')
            if tokens and labels.offsets is None:
                raise ValueError(f'level="token" draws from lists of labels; column {self.label_column!r} holds none.')
        offsets = labels.offsets if labels is not None and tokens else None
        parts = [np.empty(0, dtype=np.uint64)]
        for chunk in chunks(batch.num_rows, offsets):
            index = chunk.spread(batch.index.of(chunk.start, chunk.stop))
            parts.append(random_uint64("trusted", draw.seed, index, chunk.position))
        words = np.concatenate(parts)
        every = np.ones(len(words), dtype=bool)
        candidates = labels.values != IGNORED_LABEL if labels is not None and tokens else every
        flags = np.zeros(len(words), dtype=bool)
        if batch.whole:
            classes = labels.values[candidates] if labels is not None and draw.stratify else None
            number = draw.number(int(candidates.sum()), "tokens" if tokens else "rows")
            flags[candidates] = smallest(words[candidates], number, classes)
        else:  # each with probability `fraction`
            assert draw.fraction is not None  # a stream takes no `count`
            flags = candidates & ((words >> np.uint64(11)) < np.uint64(round(draw.fraction * 2.0**53)))
        arrow_type = same_kind_of_list(column.type, pa.bool_()) if tokens else pa.bool_()
        return {self.trusted_column: batch.new_column(flags, offsets, arrow_type)}

    def _named_rows(self, batch: RowBatch) -> np.ndarray:
        named, index = self.draw.named(), batch.index.of(0, batch.num_rows)
        flags = np.isin(index, named)
        if batch.whole and np.count_nonzero(flags) < len(named):
            absent = int(named[np.argmin(np.isin(named, index))])
            where = f"the dataset, whose rows are 0…{len(index) - 1}"
            where = f"column {self.index_column!r}" if self.index_column else where
            raise ValueError(f"indices= names {absent}, which is not in {where}.")
        return flags

    def update_features(self, features: Features) -> Features:
        flag: Any = Value("bool")
        if self.draw.level == "token":
            require_column(list(features), self.label_column, "label_column")
            feature = features[self.label_column]
            if not isinstance(feature, (List, LargeList)):
                raise ValueError(
                    f'level="token" draws from lists of labels, but column {self.label_column!r} holds {feature}.'
                )
            flag = LargeList(flag) if isinstance(feature, LargeList) else List(flag, length=feature.length)
        return Features({**features, self.trusted_column: flag})


def align_flags(batch: Any, encoded: Any, trusted_column: str = "trusted") -> list[Any]:
    """
    Align the flags of words with the tokens of a tokenizer, as labels are aligned with them.

    ```python
    def tokenize(batch):
        encoded = tokenizer(batch["tokens"], is_split_into_words=True, truncation=True)
        encoded["labels"] = ...
        encoded["trusted"] = align_flags(batch, encoded)
        return encoded
    ```

    Args:
        batch (`Mapping`): The rows that were tokenized: one row, or a batch of rows as in `map(batched=True)`.
        encoded (`BatchEncoding`): What a fast tokenizer returned for them with `is_split_into_words=True`.
        trusted_column (`str`, *optional*, defaults to `"trusted"`):
            The flags: one list per row, or one flag per row. Evaluation sets may have none.

    Returns:
        `list`: For each row, the flag of the word of each token, `False` for special tokens. Flags of whole rows, and
        missing ones (`None`), stay as they are. For a single row, its list.
    """
    ids = encoded["input_ids"]
    is_batch = len(ids) == 0 or not np.isscalar(ids[0])
    flags = batch.get(trusted_column, [None] * len(ids) if is_batch else None)
    aligned: list[Any] = []
    for number, given in enumerate(flags if is_batch else [flags]):
        row = None if given is None else flags_of_row(given, trusted_column)
        if row is None or row.ndim == 0:
            aligned.append(given)
            continue
        words = encoded.word_ids(number)
        last = max((word for word in words if word is not None), default=-1)
        if last >= len(row):
            raise ValueError(
                f"row {number} of the batch has {len(row)} flags in {trusted_column!r} for at least {last + 1} words: "
                "give one flag per word."
            )
        aligned.append([word is not None and bool(row[word]) for word in words])
    return aligned if is_batch else aligned[0]


@dataclass(frozen=True)
class Draw:
    """Arguments of `mark_trusted`, checked as far as possible without the data."""

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
                'indices= names rows: with level="token" give fraction= or count=, or add a column of lists of '
                "booleans yourself."
            )
        if self.indices is not None and self.stratify:
            raise ValueError("stratify=True has nothing to draw if indices= names the rows.")
        check_seed(self.seed)

    def number(self, total: int, what: str) -> int:
        """Return how many of `total` rows (or tokens) to draw."""
        if self.count is not None:
            if self.count > total:
                raise ValueError(f"count={self.count} is more than the {total} {what} of the dataset.")
            return int(self.count)
        assert self.fraction is not None  # one of the two is given
        at_least = 1 if self.fraction > 0 and total > 0 else 0
        return max(round(self.fraction * total), at_least)

    def named(self) -> np.ndarray:
        """Return the given indices, ascending, without duplicates."""
        indices = np.asarray(self.indices)
        if indices.size == 0:
            return np.empty(0, dtype=np.int64)
        if indices.dtype == np.bool_:
            raise ValueError("indices= holds booleans: row numbers are needed, `numpy.flatnonzero(mask)`.")
        if indices.ndim != 1 or indices.dtype.kind not in "iu":
            raise ValueError(f"indices= must be a list of integers, got shape {indices.shape} of {indices.dtype}.")
        return np.unique(indices.astype(np.int64))


def smallest(words: np.ndarray, number: int, classes: np.ndarray | None = None) -> np.ndarray:
    """
    Choose exactly `number` candidates with the smallest words; returns booleans.

    Args:
        words (`np.ndarray` of uint64): One random word per candidate.
        number (`int`): Number of candidates to choose.
        classes (`np.ndarray` of integers, *optional*): Class of each candidate, to choose from each in proportion.
    """
    chosen = np.zeros(len(words), dtype=bool)
    if number == 0:
        return chosen
    if classes is None:
        chosen[np.argpartition(words, number - 1)[:number]] = True
        return chosen
    _, of_candidate, sizes = np.unique(classes, return_inverse=True, return_counts=True)
    order = np.lexsort((words, of_candidate))  # by class, then by word
    rank = np.arange(len(words)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    chosen[order[rank < np.repeat(quotas(sizes, number), sizes)]] = True
    return chosen


def quotas(sizes: np.ndarray, number: int) -> np.ndarray:
    """
    Divide `number` among classes in proportion to their sizes, by largest remainder. If `number` is large enough, each
    class gets at least one.

    Args:
        sizes (`np.ndarray` of integers): Size of each class, above zero.
        number (`int`): At most the sum of the sizes.
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
    Merge two datasets into one with the flag, the trusted rows first.

    Args:
        trusted (`Dataset` or `IterableDataset`): Rows with correct labels.
        untrusted (`Dataset` or `IterableDataset`): Rows with the same columns, in any order.
        trusted_column (`str`, *optional*, defaults to `"trusted"`): The new column.

    Returns:
        A dataset of the same type. Nothing is copied; shuffled or memory-mapped datasets stay so.
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
            f"a {type(trusted).__name__} and an {type(untrusted).__name__} can't be merged: convert the "
            "`Dataset` with `dataset.to_iterable_dataset()`."
        )
    if isinstance(trusted, IterableDataset):
        trusted, untrusted = trusted._resolve_features(), untrusted._resolve_features()
    _check_features(trusted.features, untrusted.features, trusted_column)
    arguments = {"column": trusted_column}
    parts = [
        add_columns(part, _Constant(flag, trusted_column), "glc_hf.merge_trusted", arguments, needs_index=False)
        for part, flag in ((trusted, True), (untrusted, False))
    ]
    return concatenate_datasets(parts, split=trusted.split if trusted.split == untrusted.split else None)


class _Constant:
    """Row function that gives all rows the same flag."""

    copies: ClassVar[dict[str, str]] = {}

    def __init__(self, flag: bool, trusted_column: str) -> None:
        self.flag = flag
        self.column = trusted_column

    def __call__(self, batch: RowBatch) -> dict[str, pa.ChunkedArray]:
        return {self.column: batch.new_column(np.full(batch.num_rows, self.flag), None, pa.bool_())}

    def update_features(self, features: Features) -> Features:
        return Features({**features, self.column: Value("bool")})


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
                problems.append(f"{name!r} has its class names in a different order: {ours} and {theirs}")
            else:
                problems.append(f"{name!r} is {trusted[name]} in the trusted and {untrusted[name]} in the untrusted")
    if problems:
        raise ValueError(
            f"the datasets can't be merged: {'; '.join(problems)}. Make them equal with `rename_column`, "
            "`remove_columns`, `cast_column` or (for class names) `align_labels_with_mapping`."
        )
