# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Row functions applied to datasets and streams, and the splits of a `DatasetDict` that they apply to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict

from glc_hf.labels.reading import read_index, require_column
from glc_hf.labels.row_batch import DatasetBatch, RowFunction
from glc_hf.labels.row_index import RowIndex
from glc_hf.labels.storage import with_columns, with_distinct_rows
from glc_hf.labels.streams import add_to_stream


# Rows read at once if a stream gives Python objects, so that more than one row is computed at a time.
READ_AHEAD = 32


def add_columns(
    dataset: Any,
    function: RowFunction,
    transform: str,
    arguments: dict[str, Any],
    index_column: str | None = None,
    needs_index: bool = True,
    read_ahead: int = READ_AHEAD,
) -> Any:
    """
    Return a `Dataset` or `IterableDataset` with the columns of a row function.

    Arguments as in [`~glc_hf.labels.storage.with_columns`] and [`~glc_hf.labels.streams.add_to_stream`].
    """
    if index_column is not None and dataset.column_names is not None:
        require_column(list(dataset.column_names), index_column, "index_column")
    if isinstance(dataset, IterableDataset):
        return add_to_stream(dataset, function, index_column, needs_index, read_ahead)
    index = RowIndex()
    if needs_index:
        index = read_index(dataset, index_column)
        dataset = with_distinct_rows(dataset)
    columns = function(DatasetBatch(dataset, index))
    for name in set(columns) & set(dataset.column_names):
        before = dataset.data.column(name)
        if columns[name].type != before.type:  # only empty lists, which have no type
            columns[name] = before
    columns = {name: column for name, column in columns.items() if name not in function.copies}
    features = function.update_features(dataset.features)
    return with_columns(dataset, columns, features, function.copies, transform, arguments)


def is_splits(dataset: Any) -> bool:
    """Whether this is a dictionary of splits, streamed or not."""
    return isinstance(dataset, (DatasetDict, IterableDatasetDict))


def check_type(dataset: Any) -> None:
    """Raise if this is not a dataset."""
    if not isinstance(dataset, (Dataset, IterableDataset)):
        raise TypeError(
            f"a datasets.Dataset, DatasetDict or IterableDataset is needed, not {type(dataset).__name__}. Create one "
            "with `Dataset.from_dict`, `from_list` or `from_generator`."
        )


def on_splits(dataset: Any, chosen: list[str], function: Callable[[Any], Any]) -> Any:
    """Apply a function to some splits of a dictionary."""
    return type(dataset)({name: function(split) if name in chosen else split for name, split in dataset.items()})


def splits_to_relabel(dataset: Any, trusted_column: str | None) -> list[str]:
    """
    Return the splits that get noise: those with the flag; without a flag `train`, or the only one.

    Noise must not get into a test split by accident.
    """
    names = ", ".join(map(str, dataset))
    if trusted_column is None:
        if "train" in dataset or len(dataset) == 1:
            return ["train"] if "train" in dataset else list(dataset)
        raise ValueError(
            f"with trusted_column=None it is not clear which of the splits {names} should have noise: transform that "
            "split alone, `dataset[name] = …(dataset[name])`."
        )
    unknown = [name for name, split in dataset.items() if split.column_names is None]
    if unknown:
        raise ValueError(
            f"the columns of split {unknown[0]!r} are not known (`map` on a stream forgets them without `features=`), "
            "so it is not clear which splits have the flag: transform one split alone, "
            "`dataset[name] = …(dataset[name])`."
        )
    chosen = [name for name, split in dataset.items() if trusted_column in split.column_names]
    if not chosen:
        raise ValueError(
            f"none of the splits {names} has the column {trusted_column!r}. Add it with `mark_trusted(dataset, "
            "fraction=…)`, which marks the train split, or set trusted_column=None: no row is trusted."
        )
    return chosen
