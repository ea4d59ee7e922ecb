# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The user's collator, with flags and row numbers carried past it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from transformers import DefaultDataCollator, default_data_collator
from transformers.trainer_utils import RemoveColumnsCollator

from glc_hf.labels.reading import Column, flags_of_row


ROW_KEY = "__row__"


class FlaggedRows(torch.utils.data.Dataset):
    """
    Rows of a dataset by number, each with its flag and its row number attached, whatever transform made its columns.

    Args:
        dataset (`datasets.Dataset`): Read a batch at a time.
        rows (`np.ndarray`): Row numbers, repeated ones allowed. A negative number −1−i stands for row i as padding.
        flags (`Column`, *optional*): The flags to attach; those that the dataset itself may have if there are none.
        trusted_column (`str`): The key of the flag in each item.
    """

    def __init__(self, dataset: Any, rows: np.ndarray, flags: Column | None, trusted_column: str) -> None:
        self.dataset = dataset
        self.rows = rows
        self.flags = flags
        self.trusted_column = trusted_column

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> dict[str, Any]:
        return self.__getitems__([place])[0]

    def __getitems__(self, places: Sequence[int]) -> FlaggedBatch:
        numbers = self.rows[np.asarray(places, dtype=np.int64)]
        rows = np.where(numbers < 0, -1 - numbers, numbers)
        columns = dict(self.dataset[rows.tolist()])
        flags = columns.pop(self.trusted_column, None)
        if self.flags is not None:
            values, offsets = self.flags.values, self.flags.offsets
            flags = values[rows] if offsets is None else [values[offsets[row] : offsets[row + 1]] for row in rows]
        return FlaggedBatch(columns, numbers, flags, self.trusted_column)


class FlaggedBatch(Sequence):
    """
    Some rows as the columns they were read in, their flags and row numbers apart. As a sequence it has one `dict` a
    row; a collator that needs no single rows takes the columns whole.

    Args:
        columns (`dict[str, Any]`): The columns, all of one length.
        numbers (`np.ndarray`): The row numbers, as [`FlaggedRows`] has them.
        flags (`Sequence`, *optional*): A flag for each row, or several.
        trusted_column (`str`): The key of the flag in each item.
    """

    def __init__(
        self,
        columns: dict[str, Any],
        numbers: np.ndarray,
        flags: Any,
        trusted_column: str,
    ) -> None:
        self.columns = columns
        self.numbers = numbers
        self.flags = flags
        self.trusted_column = trusted_column
        for name, column in columns.items():
            if len(column) != len(numbers):
                raise ValueError(
                    f"{len(column)} values of {name!r} were read for {len(numbers)} rows: a transform must give "
                    "as many as it gets."
                )

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, place: int) -> dict[str, Any]:  # type: ignore[override]
        item = {name: column[place] for name, column in self.columns.items()}
        item[ROW_KEY] = int(self.numbers[place])
        if self.flags is not None:
            item[self.trusted_column] = self.flags[place]
        return item

    def with_columns(self, columns: dict[str, Any]) -> FlaggedBatch:
        """The same rows with other columns."""
        return FlaggedBatch(columns, self.numbers, self.flags, self.trusted_column)

    def unflagged(self) -> list[dict[str, Any]]:
        """One `dict` a row, without flag and row number."""
        return [{name: column[place] for name, column in self.columns.items()} for place in range(len(self))]


class FlagCollator:
    """
    Takes the flag and the row number out of each feature, lets the user's collator do its work on the rest, and puts
    them into the batch as tensors. Collators that pad labels (token classification) never see a column they can't pad.

    Where the columns were read as tensors and the collator is the default one, which would only stack them again, they
    are the batch: no row is looked at.

    Args:
        collator (`Callable`): The user's collator.
        trusted_column (`str`): The key of the flags, in features and batch.
        label_name (`str`, *optional*, defaults to `"labels"`): The key of the labels in the batch.
    """

    def __init__(self, collator: Callable, trusted_column: str, label_name: str = "labels") -> None:
        self.collator = collator
        self.trusted_column = trusted_column
        self.label_name = label_name

    @property
    def tokenizer(self) -> Any:
        """The wrapped collator's tokenizer, which `Trainer` saves with the model."""
        return getattr(self.collator, "tokenizer", None)

    def __call__(self, features: list[Any]) -> dict[str, Any]:
        if isinstance(features, FlaggedBatch):
            return self._collate_columns(features)
        if not isinstance(features[0], dict) and not hasattr(features[0], "keys"):
            return self.collator(features)
        features = [dict(feature) for feature in features]
        flags = [feature.pop(self.trusted_column, None) for feature in features]
        rows = [feature.pop(ROW_KEY, None) for feature in features]
        batch = self.collator(features)
        labels = batch.get(self.label_name)
        if labels is not None and any(flag is not None for flag in flags):
            batch[self.trusted_column] = self._align(flags, labels)
        if rows[0] is not None:
            batch[ROW_KEY] = torch.tensor(rows)
        return batch

    def _collate_columns(self, features: FlaggedBatch) -> dict[str, Any]:
        stacks = self.collator is default_data_collator or isinstance(self.collator, DefaultDataCollator)
        batch = _stacked(features.columns) if stacks else None
        if batch is None:
            batch = self.collator(features.unflagged())
        labels = batch.get(self.label_name)
        if labels is not None and features.flags is not None:
            batch[self.trusted_column] = self._align(features.flags, labels)
        batch[ROW_KEY] = torch.from_numpy(features.numbers)
        return batch

    def _align(self, flags: list[Any] | np.ndarray, labels: torch.Tensor) -> torch.Tensor:
        """One flag for each label: a row's flag on all its tokens, a token's on its own, False on padding."""
        if len(flags) != len(labels):
            raise ValueError(
                f"the collator made {len(labels)} rows of labels of {len(flags)} rows: one belongs to each (collators "
                "that put several texts into one row can't be used)."
            )
        if not isinstance(flags, np.ndarray):
            flags = [flags_of_row(flag, self.trusted_column) for flag in flags]
        if np.ndim(flags[0]) == 0:
            per_row = torch.as_tensor(np.asarray(flags, dtype=bool))
            return per_row.view(-1, *[1] * (labels.dim() - 1)).expand(labels.shape)
        aligned = torch.zeros(labels.shape, dtype=torch.bool)
        from_left = getattr(self.tokenizer, "padding_side", "right") != "left"
        for place, flag in enumerate(flags):
            length = len(flag)
            if length > labels.shape[1]:
                raise ValueError(
                    f"a row has {length} flags in {self.trusted_column!r} but the collator made {labels.shape[1]} "
                    "labels of it: cut labels and flags together when you tokenize."
                )
            where = slice(0, length) if from_left else slice(labels.shape[1] - length, None)
            aligned[place, where] = torch.as_tensor(flag)
        return aligned


class ColumnDropper:
    """
    Drops the columns that the model does not take, from the columns themselves where the rows come as such.

    Args:
        collator (`RemoveColumnsCollator`): The Trainer's own, which goes through them row by row.
    """

    def __init__(self, collator: RemoveColumnsCollator) -> None:
        self.collator = collator

    def __call__(self, features: Any) -> dict[str, Any]:
        if not isinstance(features, FlaggedBatch):
            return self.collator(features)
        return self.collator.data_collator(features.with_columns(self.collator._remove_columns(features.columns)))


def _stacked(columns: dict[str, Any]) -> dict[str, torch.Tensor] | None:
    """What `default_data_collator` makes of the rows of these columns; `None` where not all of them are tensors."""
    if not all(isinstance(column, torch.Tensor) for column in columns.values()):
        return None
    batch = {}
    if "label" in columns:
        labels = columns["label"]
        if labels.dim() != 1:
            return None
        batch["labels"] = labels.to(torch.float if labels.is_floating_point() else torch.long, copy=True)
    elif "label_ids" in columns:
        batch["labels"] = columns["label_ids"].clone()
    # Copies, as stacking makes them: what a transform keeps must not change with the batch.
    rest = {name: column.clone() for name, column in columns.items() if name not in ("label", "label_ids")}
    return {**batch, **rest}
