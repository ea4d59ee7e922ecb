# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The user's collator, with flags and row numbers carried past it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from transformers import DefaultDataCollator, default_data_collator
from transformers.trainer_utils import RemoveColumnsCollator

from glc_hf.training.rows import ROW_KEY, FlaggedBatch


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
            flags = [as_flags(flag, self.trusted_column) for flag in flags]
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


def as_flags(flag: Any, column: str) -> np.ndarray:
    """The flag of a row, or those of its tokens, as booleans; an error where they are anything else."""
    found = np.asarray(flag)
    numbers = np.issubdtype(found.dtype, np.integer) and np.isin(found, (0, 1)).all()
    if found.dtype != bool and found.size and not numbers:
        raise ValueError(
            f"a row has {flag!r} in {column!r}: flags are booleans, True for a row that is labelled with care and "
            "False for any other."
        )
    return found.astype(bool, copy=False)


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
