# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Training sets that are Python objects (lists of dicts, torch datasets, data frames), as `datasets`."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import torch

from glc_hf._compat import with_transform
from glc_hf.labels.columns import USUAL_LABEL_COLUMNS


# A column of the index of a torch dataset: the number of each item, and a hash of its content.
_ITEM, _CONTENT = "__item__", "__content__"
# Options that need columns which only a `Dataset` has.
_COLUMN_OPTIONS = ("source_columns", "votes_column", "soft_label_column", "noisy_label_column")


def as_dataset(rows: Any, args: Any) -> Any:
    """
    Return a training set as a `Dataset` or an `IterableDataset`.

    - A list of dicts and a data frame become a `Dataset`.
    - A `Subset` of a `Dataset` becomes a selection of it.
    - Of another torch dataset every item is read once, for its label and its flag. Training reads the items again, so
      random transforms stay random.
    - A torch `IterableDataset` becomes a stream.

    Args:
        rows: The training set. `None`, dictionaries of splits, `Dataset` and `IterableDataset` are returned as they
            are.
        args (`GLCConfig`): Names the columns.
    """
    if rows is None or isinstance(rows, (datasets.Dataset, datasets.IterableDataset, dict)):
        return rows
    if isinstance(rows, torch.utils.data.IterableDataset):
        return _as_stream(rows, args)
    if type(rows).__module__.split(".")[0] == "pandas":
        return datasets.Dataset.from_pandas(rows, preserve_index=False)
    if isinstance(rows, torch.utils.data.Subset):
        inner: Any = rows.dataset
        if isinstance(inner, (list, tuple)):
            inner = as_dataset(inner, args)
        if isinstance(inner, torch.utils.data.Subset):
            inner = as_dataset(inner, args)
        if isinstance(inner, datasets.Dataset):
            return inner.select(list(rows.indices))
    if not (hasattr(rows, "__len__") and hasattr(rows, "__getitem__")):
        raise TypeError(
            f"train_dataset is a {type(rows).__name__}; GLCTrainer takes a `datasets.Dataset` or `IterableDataset`, a "
            "torch dataset, or a list of dicts. `IterableDataset.from_generator(…)` wraps a generator."
        )
    if len(rows) == 0:
        raise ValueError("train_dataset has no rows.")
    if isinstance(rows, (list, tuple)):
        for number, row in enumerate(rows):
            _check_item(row, number, rows)
        names = dict.fromkeys(name for row in rows for name in row)
        try:
            return datasets.Dataset.from_dict({name: [_plain(row.get(name)) for row in rows] for name in names})
        except (pa.ArrowException, TypeError, ValueError):
            pass  # values that Arrow can't hold: read like the items of a torch dataset
    return _index_of(rows, args)


def _plain(value: Any) -> Any:
    """A tensor as an array, or as a number."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().cpu().numpy() if value.dim() else value.item()


# ---------------------------------------------------------------------- torch datasets
class ItemReader:
    """The transform of an index: reads the items with these numbers. It is never copied, because a copy of it would
    copy the user's dataset."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __deepcopy__(self, memo: Any) -> ItemReader:
        return self

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        numbers = batch[_ITEM]
        if hasattr(self.rows, "__getitems__"):
            items = self.rows.__getitems__(numbers)
        else:
            items = [self.rows[number] for number in numbers]
        names = dict.fromkeys(name for item in items for name in item)
        for number, item in zip(numbers, items, strict=True):
            missing = [name for name in names if name not in item]
            if missing:
                raise ValueError(f"item {number} of the training set has no {missing[0]!r}, which other items have.")
        return {name: [item[name] for item in items] for name in names}


def _index_of(rows: Any, args: Any) -> datasets.Dataset:
    """A `Dataset` with the labels and flags of a torch dataset, which reads its items when rows are asked for."""
    options = [name for name in _COLUMN_OPTIONS if getattr(args, name, None)]
    if options:
        raise TypeError(
            f"{options[0]} needs the columns of a `datasets.Dataset`, and train_dataset is a {type(rows).__name__}: "
            "`Dataset.from_list(list(rows))` makes one."
        )
    columns: dict[str, list[Any]] = {_ITEM: list(range(len(rows))), _CONTENT: []}
    label = flag = None
    for number in range(len(rows)):
        item = rows[number]
        _check_item(item, number, rows)
        if number == 0:
            usual = (*(args.label_names or ()), *USUAL_LABEL_COLUMNS)
            label = args.label_column or next((name for name in usual if name in item), None)
            flag = args.trusted_column if args.trusted_column in item else None
            columns.update({name: [] for name in (label, flag) if name is not None})
        for name in (label, flag):
            if name is not None:
                if name not in item:
                    raise ValueError(f"item {number} of train_dataset has no {name!r} (its keys: {', '.join(item)}).")
                columns[name].append(_values(item[name]))
        columns[_CONTENT].append(_digest(item))
    return with_transform(datasets.Dataset.from_dict(columns), ItemReader(rows))


def _check_item(item: Any, number: int, rows: Any) -> None:
    if not hasattr(item, "keys"):
        raise TypeError(
            f"item {number} of train_dataset (a {type(rows).__name__}) is a {type(item).__name__}; items are dicts "
            "with the inputs of the model, a label and a flag, such as {'pixel_values': …, 'labels': 3, 'trusted': "
            "True}."
        )


def _values(value: Any) -> Any:
    value = _plain(value)
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def _digest(item: Any) -> str:
    """A hash of an item, so that features of other items are never taken for its own."""
    digest = hashlib.blake2b(digest_size=16)
    for name in item:
        value = _plain(item[name])
        digest.update(name.encode())
        if isinstance(value, np.ndarray) and value.dtype != object:
            digest.update(f"{value.dtype}{value.shape}".encode())
            digest.update(np.ascontiguousarray(value).data)
        else:
            digest.update(pickle.dumps(value))
    return digest.hexdigest()


# ---------------------------------------------------------------------- streams
def _as_stream(rows: torch.utils.data.IterableDataset, args: Any) -> datasets.IterableDataset:
    if args.dataloader_num_workers > 1:
        raise ValueError(
            f"train_dataset is a torch IterableDataset ({type(rows).__name__}), which has one shard, and "
            f"dataloader_num_workers={args.dataloader_num_workers} would read parts of it only or several times: use "
            "at most 1 worker, or a `datasets.IterableDataset` with several shards."
        )
    return datasets.IterableDataset.from_generator(_Items(rows))


class _Items:
    """A generator of the items of a torch `IterableDataset`."""

    def __init__(self, rows: torch.utils.data.IterableDataset) -> None:
        self.rows = rows

    def __deepcopy__(self, memo: Any) -> _Items:
        return self

    def __call__(self) -> Iterator[dict[str, Any]]:
        for number, item in enumerate(self.rows):
            _check_item(item, number, self.rows)
            yield dict(item)
