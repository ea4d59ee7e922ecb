# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Which splits of a `DatasetDict` a transform acts on: noise must not get into a test split by accident."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict


def is_splits(dataset: Any) -> bool:
    """Whether this is a dictionary of splits, streamed or not."""
    return isinstance(dataset, (DatasetDict, IterableDatasetDict))


def check_type(dataset: Any) -> None:
    """An error for what is no dataset."""
    if not isinstance(dataset, (Dataset, IterableDataset)):
        raise TypeError(
            f"a datasets.Dataset, DatasetDict or IterableDataset is needed, not {type(dataset).__name__}. "
            "`Dataset.from_dict`, `from_list` and `from_generator` make one."
        )


def on_splits(dataset: Any, chosen: list[str], function: Callable[[Any], Any]) -> Any:
    """The same dictionary with a function applied to some splits."""
    return type(dataset)({name: function(split) if name in chosen else split for name, split in dataset.items()})


def splits_to_mark(dataset: Any) -> list[str]:
    """`train`, or all splits where none is called so."""
    return ["train"] if "train" in dataset else list(dataset)


def splits_to_relabel(dataset: Any, trusted_column: str | None) -> list[str]:
    """The splits that have the flag; without a flag `train`, or the only one."""
    names = ", ".join(map(str, dataset))
    if trusted_column is None:
        if "train" in dataset:
            return ["train"]
        if len(dataset) == 1:
            return list(dataset)
        raise ValueError(
            f"with trusted_column=None it is not clear which of the splits {names} shall have noise: transform that "
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
            f"none of the splits {names} has the column {trusted_column!r}. Make it with `mark_trusted(dataset, "
            "fraction=…)`, which marks the train split, or say trusted_column=None: no row is trusted."
        )
    return chosen
