# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Rows of a training set with their flags and row numbers, and the collators that keep both through batching."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from transformers import DefaultDataCollator, default_data_collator
from transformers.trainer_utils import RemoveColumnsCollator

from glc_hf.labels.columns import USUAL_LABEL_COLUMNS
from glc_hf.labels.label_batch import VOTES_KEY, label_batch
from glc_hf.labels.reading import Column, flags_of_row
from glc_hf.randomness import random_uint64


ROW_KEY = "__row__"


class FlaggedRows(torch.utils.data.Dataset):
    """
    Rows of a dataset by number, each with its flag and its row number, whatever transform the dataset has.

    Args:
        dataset (`datasets.Dataset`): Read one batch at a time.
        rows (`np.ndarray`): Row numbers; they may repeat. A negative number −1−i is row i as padding.
        flags (`Column`, *optional*): The flags to attach. By default those in the dataset, if there are any.
        trusted_column (`str`): The key of the flag in each item.
    """

    # Set if a sampler decides how many rows an epoch has.
    total_dataset_length: int

    def __init__(self, dataset: Any, rows: np.ndarray, flags: Column | None, trusted_column: str) -> None:
        self.dataset = dataset
        self.rows = rows
        self.flags = flags
        self.trusted_column = trusted_column

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> FlaggedBatch:
        numbers = self.rows[np.asarray(indices, dtype=np.int64)]
        rows = np.where(numbers < 0, -1 - numbers, numbers)
        columns = dict(self.dataset[rows.tolist()])
        flags = columns.pop(self.trusted_column, None)
        if self.flags is not None:
            values, offsets = self.flags.values, self.flags.offsets
            flags = values[rows] if offsets is None else [values[offsets[row] : offsets[row + 1]] for row in rows]
        return FlaggedBatch(columns, numbers, flags, self.trusted_column)


class MixedSampler(torch.utils.data.Sampler):
    """
    Positions of one epoch in which trusted rows have a fixed share. Rows of each kind are drawn in random order
    without repetition until all of them were drawn, across epochs. An epoch depends only on the seed and its number.

    Args:
        trusted (`np.ndarray` of bool): Whether each position of the dataset is a trusted row.
        share (`float`): Share of trusted rows.
        size (`int`): Number of rows in an epoch.
        seed (`int`): The seed.
        mixed (`int`, *optional*): Number of rows, over all epochs, after which only trusted rows are drawn.
    """

    def __init__(self, trusted: np.ndarray, share: float, size: int, seed: int, mixed: int | None = None) -> None:
        self.positions = [np.flatnonzero(trusted), np.flatnonzero(~trusted)]
        self.share = share if len(self.positions[1]) else 1.0
        self.size = size
        self.seed = seed
        self.mixed = mixed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        first, last = self.epoch * self.size, (self.epoch + 1) * self.size
        middle = last if self.mixed is None else min(max(self.mixed, first), last)
        parts = [self._draw(first, middle), self._draw(middle, last)]
        return iter(np.concatenate(parts).tolist())

    def _draw(self, first: int, last: int) -> np.ndarray:
        """Rows [first, last) of the training, in random order."""
        trusted = [self._trusted_before(row) for row in (first, last)]
        drawn = np.concatenate(
            [self._draw_kind(0, *trusted), self._draw_kind(1, first - trusted[0], last - trusted[1])]
        )
        order = np.argsort(random_uint64("mix order", self.seed, np.arange(len(drawn)), _same(self.epoch, drawn)))
        return drawn[order]

    def _trusted_before(self, row: int) -> int:
        """How many of the rows before this one are trusted."""
        mixed = row if self.mixed is None else min(row, self.mixed)
        epochs, rest = divmod(mixed, self.size)
        return epochs * round(self.share * self.size) + round(self.share * rest) + row - mixed

    def _draw_kind(self, kind: int, first: int, last: int) -> np.ndarray:
        """Entries [first, last) of an endless list of permutations of the rows of one kind."""
        positions = self.positions[kind]
        if first == last:
            return positions[:0]
        rounds = range(first // len(positions), (last - 1) // len(positions) + 1)
        listed = [
            positions[np.argsort(random_uint64(f"mix {kind}", self.seed, positions, _same(number, positions)))]
            for number in rounds
        ]
        return np.concatenate(listed)[first - rounds[0] * len(positions) :][: last - first]


def _same(number: int, like: np.ndarray) -> np.ndarray:
    return np.full(len(like), number)


class FlaggedBatch(Sequence):
    """
    Rows as the columns they were read in, with flags and row numbers kept separately. As a sequence it has one `dict`
    per row; a collator that does not need single rows can use the columns.

    Args:
        columns (`dict[str, Any]`): The columns, all of one length.
        numbers (`np.ndarray`): The row numbers, as in [`FlaggedRows`].
        flags (`Sequence`, *optional*): One flag per row, or a list of flags per row.
        trusted_column (`str`): The key of the flag in each item.
    """

    def __init__(self, columns: dict[str, Any], numbers: np.ndarray, flags: Any, trusted_column: str) -> None:
        self.columns = columns
        self.numbers = numbers
        self.flags = flags
        self.trusted_column = trusted_column
        for name, column in columns.items():
            if len(column) != len(numbers):
                raise ValueError(
                    f"the dataset returned {len(column)} values of {name!r} for {len(numbers)} rows: a transform must "
                    "return one value per row."
                )

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> dict[str, Any]:  # type: ignore[override]  # a batch is a list of rows
        item = {name: column[index] for name, column in self.columns.items()}
        item[ROW_KEY] = int(self.numbers[index])
        if self.flags is not None:
            item[self.trusted_column] = self.flags[index]
        return item

    def with_columns(self, columns: dict[str, Any]) -> FlaggedBatch:
        """The same rows with other columns."""
        return FlaggedBatch(columns, self.numbers, self.flags, self.trusted_column)

    def without_flags(self) -> list[dict[str, Any]]:
        """One `dict` per row, without flag and row number."""
        return [{name: column[index] for name, column in self.columns.items()} for index in range(len(self))]


class FlagCollator:
    """
    Takes flags, row numbers and likelihoods of votes out of the features, calls the user's collator on the rest, and
    adds them to the batch as tensors. Collators that pad labels (token classification) never see a column that they
    can't pad.

    If the columns are tensors already and the collator is the default one, which would only stack them, they become
    the batch directly.

    Args:
        collator (`Callable`): The user's collator.
        trusted_column (`str`): The key of the flags, in features and batch.
        label_name (`str`, *optional*, defaults to `"labels"`): The key of the labels in the batch.
        soft_label_column (`str`, *optional*): A column that evaluation sets may have, and that no model takes.
    """

    def __init__(
        self,
        collator: Callable,
        trusted_column: str,
        label_name: str = "labels",
        soft_label_column: str | None = None,
    ) -> None:
        self.collator = collator
        self.trusted_column = trusted_column
        self.label_name = label_name
        self.dropped = None if soft_label_column in (label_name, *USUAL_LABEL_COLUMNS) else soft_label_column
        self.keeps_flags = True

    def without_flags(self) -> FlagCollator:
        """The same collator for evaluation, which ignores flags: they may be missing there."""
        collator = copy.copy(self)
        collator.keeps_flags = False
        return collator

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of the wrapped collator, which `Trainer` saves with the model."""
        return getattr(self.collator, "tokenizer", None)

    def __call__(self, features: list[Any]) -> dict[str, Any]:
        if isinstance(features, FlaggedBatch):
            return self._collate_columns(features)
        if not isinstance(features[0], dict) and not hasattr(features[0], "keys"):
            return self.collator(features)
        features = [{name: feature[name] for name in feature if name != self.dropped} for feature in features]
        flags = [feature.pop(self.trusted_column, None) for feature in features]
        rows = [feature.pop(ROW_KEY, None) for feature in features]
        votes = [feature.pop(VOTES_KEY, None) for feature in features]
        batch = self.collator(features)
        labels = batch.get(self.label_name)
        if labels is not None and self.keeps_flags and any(flag is not None for flag in flags):
            batch[self.trusted_column] = self._align(flags, labels)
        if labels is not None and votes[0] is not None:
            batch[VOTES_KEY] = self._align_votes(votes, labels)
        if rows[0] is not None:
            batch[ROW_KEY] = torch.tensor(rows)
        return batch

    def _collate_columns(self, features: FlaggedBatch) -> dict[str, Any]:
        if self.dropped in features.columns:
            columns = {name: column for name, column in features.columns.items() if name != self.dropped}
            features = features.with_columns(columns)
        is_default = self.collator is default_data_collator or isinstance(self.collator, DefaultDataCollator)
        batch = _stacked(features.columns) if is_default else None
        if batch is None:
            batch = self.collator(features.without_flags())
        labels = batch.get(self.label_name)
        if labels is not None and self.keeps_flags and features.flags is not None:
            batch[self.trusted_column] = self._align(features.flags, labels)
        batch[ROW_KEY] = torch.from_numpy(features.numbers)
        return batch

    def _align(self, flags: list[Any] | np.ndarray, labels: torch.Tensor) -> torch.Tensor:
        """One flag per label: the flag of a row for all its tokens, the flag of a token for itself, False for
        padding."""
        shape = label_batch(labels).shape
        if len(flags) != len(labels):
            raise ValueError(
                f"the collator returned {len(labels)} rows of labels for {len(flags)} rows: one per row is needed "
                "(collators that pack several texts into one row are not supported)."
            )
        if not isinstance(flags, np.ndarray) or flags.dtype != bool:
            flags = [flags_of_row(flag, self.trusted_column) for flag in flags]
        if np.ndim(flags[0]) == 0:
            per_row = torch.as_tensor(np.asarray(flags, dtype=bool))
            return per_row.view(-1, *[1] * (len(shape) - 1)).expand(shape)
        aligned = torch.zeros(shape, dtype=torch.bool)
        for row, flag in enumerate(flags):
            aligned[row, self._tokens(len(flag), shape[1], f"flags in {self.trusted_column!r}")] = torch.as_tensor(
                flag
            )
        return aligned

    def _align_votes(self, votes: list[Any], labels: torch.Tensor) -> torch.Tensor:
        """The log-likelihood of the votes on each label, `(..., K)`; 0 for padding."""
        arrays = [torch.as_tensor(vote, dtype=torch.float32) for vote in votes]
        if labels.dim() == 1:
            return torch.stack(arrays)
        num_labels = max(array.shape[-1] for array in arrays if array.numel())
        aligned = torch.zeros(*labels.shape, num_labels)
        for row, array in enumerate(arrays):
            aligned[row, self._tokens(len(array), labels.shape[1], "tokens with votes")] = array.view(-1, num_labels)
        return aligned

    def _tokens(self, length: int, padded: int, what: str) -> slice:
        """The places of the tokens of a row among the padded labels."""
        if length > padded:
            raise ValueError(
                f"a row has {length} {what}, but the collator returned {padded} labels for it: truncate labels and "
                f"{what.split()[0]} together when you tokenize."
            )
        pads_right = getattr(self.tokenizer, "padding_side", "right") != "left"
        return slice(0, length) if pads_right else slice(padded - length, None)


class ColumnDropper:
    """Wraps `Trainer`'s collator that drops unused columns, so that it works on whole columns as well as on rows."""

    def __init__(self, collator: RemoveColumnsCollator) -> None:
        self.collator = collator

    def __call__(self, features: Any) -> dict[str, Any]:
        if not isinstance(features, FlaggedBatch):
            return self.collator(features)
        return self.collator.data_collator(features.with_columns(self.collator._remove_columns(features.columns)))


def _stacked(columns: dict[str, Any]) -> dict[str, torch.Tensor] | None:
    """What `default_data_collator` returns for the rows of these columns; `None` if not all of them are tensors."""
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
    # Copies, as stacking makes them: changing the batch must not change what a transform keeps.
    rest = {name: column.clone() for name, column in columns.items() if name not in ("label", "label_ids")}
    return {**batch, **rest}
