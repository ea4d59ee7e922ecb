# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`merge_trusted`: one dataset with the flag, from a trusted and an untrusted one."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from datasets import Dataset, Features, IterableDataset, Value, concatenate_datasets

from glc_hf.corruption.batches import Batch
from glc_hf.corruption.column_checks import class_names
from glc_hf.corruption.splits import check_type, is_splits
from glc_hf.corruption.streams import add_to_stream
from glc_hf.corruption.tables import block_boundaries, with_columns


AnyDataset = TypeVar("AnyDataset")


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
        """See [`~glc_hf.corruption.streams.RowFunction`]."""
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
