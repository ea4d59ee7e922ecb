# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
The training set as the stages see it: labels and flags read once from Arrow, rows chosen and repeated by number.

No row is copied and no image decoded: a stage is a list of row numbers over the user's own dataset.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from glc_hf.corruption.columns import Column, find_label_column, read_flags, read_integers, read_labels
from glc_hf.corruption.counter import random_words
from glc_hf.methods.base import IGNORED, Items


ROW_KEY = "__row__"


class LabelledRows:
    """
    Labels and flags of a training set, one entry an item (a row, or a token of a row).

    Args:
        dataset (`datasets.Dataset`): The training set with its flag column.
        label_column (`str`, *optional*): The labels' column; found by itself when it has a usual name.
        trusted_column (`str`): The flags' column.
        num_labels (`int`, *optional*): K, to check the labels against.
        needs_flags (`bool`): Whether a missing flag column is an error.
        held_out (`np.ndarray`, *optional*): Numbers of rows that no stage and no estimate sees.
    """

    def __init__(
        self,
        dataset: Any,
        label_column: str | None,
        trusted_column: str,
        num_labels: int | None,
        method: str,
        needs_flags: bool = True,
        held_out: np.ndarray | None = None,
    ) -> None:
        self.dataset = dataset
        self.num_rows = len(dataset)
        self.label_column = find_label_column(dataset, label_column)
        self.labels = read_labels(dataset, self.label_column, num_labels)
        if not needs_flags and trusted_column not in dataset.column_names:
            self.flags = Column(np.zeros(self.num_rows, dtype=bool), None)
        else:
            self.flags = read_flags(dataset, trusted_column, method=method)
        if self.flags.offsets is not None and not _same_lengths(self.flags, self.labels):
            raise ValueError(
                f"the flags in {trusted_column!r} are lists, but not of the lengths of the labels in "
                f"{self.label_column!r}: one flag belongs to each label (special tokens, labelled -100, take False)."
            )
        offsets = self.labels.offsets
        lengths = np.diff(offsets) if offsets is not None else np.ones(self.num_rows, dtype=np.int64)
        self._row_of_item = np.repeat(np.arange(self.num_rows), lengths)
        self._trusted_item = (
            self.flags.values if self.flags.offsets is not None else np.repeat(self.flags.values, lengths)
        )
        self._counted = self.labels.values != IGNORED
        self.held_out = np.empty(0, dtype=np.int64) if held_out is None else held_out
        self._counted[np.isin(self._row_of_item, self.held_out)] = False
        # The number of each row's first item, -100 not counted.
        self._first_item = np.concatenate(
            [[0], np.cumsum(np.bincount(self._row_of_item[self._counted], minlength=self.num_rows))]
        )

    def _chosen(self, items: Items) -> np.ndarray:
        if items == "all":
            return self._counted
        return self._counted & (self._trusted_item if items == "trusted" else ~self._trusted_item)

    def counted_items(self) -> tuple[np.ndarray, np.ndarray]:
        """For every label, -100 too: whether it counts, and whether it is trusted."""
        return self._counted, self._trusted_item

    def count(self, items: Items) -> int:
        """How many labels are of that kind; -100 does not count."""
        return int(self._chosen(items).sum())

    def rows_with(self, items: Items) -> np.ndarray:
        """The numbers of the rows that hold at least one such label, ascending."""
        return np.unique(self._row_of_item[self._chosen(items)])

    def item_numbers(self, rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Each label's number among all that are not -100, for a batch of whole rows; meaningless at -100."""
        first = torch.from_numpy(self._first_item)[torch.where(rows < 0, -1 - rows, rows).cpu()]
        if labels.dim() == 1:
            return first
        return first.unsqueeze(1) + ((labels != IGNORED).cumsum(dim=1) - 1).clamp(min=0).cpu()

    def numbers_of(self, items: Items) -> np.ndarray:
        """The numbers of those items, ascending."""
        return np.flatnonzero(self._chosen(items)[self._counted])

    def rows_of_items(self, numbers: np.ndarray) -> np.ndarray:
        """The rows that hold the items of these numbers, ascending, each once."""
        return np.unique(self.row_of(numbers))

    def row_of(self, numbers: np.ndarray) -> np.ndarray:
        """The row that holds each of the items."""
        return np.searchsorted(self._first_item, numbers, side="right") - 1

    def by_length(self, rows: np.ndarray) -> np.ndarray:
        """The same row numbers (−1−i standing for i), texts of one length together; as they are without texts."""
        lengths = self._lengths
        if lengths is None:
            return rows
        return rows[np.argsort(lengths[np.where(rows < 0, -1 - rows, rows)], kind="stable")]

    @cached_property
    def _lengths(self) -> np.ndarray | None:
        """How many tokens each row has, read off Arrow; `None` where rows are no lists of tokens."""
        if "input_ids" not in self.dataset.column_names:
            return None
        column = self.dataset.data.column("input_ids")
        if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
            return None
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
        indices = self.dataset._indices
        return lengths if indices is None else lengths[indices.column(0).to_numpy()]

    def item_labels(self, items: Items, column: str | None = None) -> np.ndarray:
        """The labels of those items as given, or the values of another column for them."""
        chosen = self._chosen(items)
        if column is None:
            return self.labels.values[chosen].astype(np.int64, copy=False)
        # Of the rows asked for alone: elsewhere the column may well be empty.
        rows = self.rows_with(items)
        values = read_integers(self.dataset.select(rows), column).values
        among_them = np.isin(self._row_of_item, rows)
        if len(values) != among_them.sum():
            raise ValueError(f"column {column!r} has not one value for each label of {self.label_column!r}.")
        return values[chosen[among_them]].astype(np.int64, copy=False)

    def upsampled(self, share: float, seed: int) -> np.ndarray:
        """All row numbers, those with trusted labels repeated until they make up `share` of the list. The repetitions
        beyond whole rounds are the rows with the smallest random words: they depend on `seed` and the rows alone."""
        rows = np.setdiff1d(np.arange(self.num_rows), self.held_out)
        trusted = self.rows_with("trusted")
        others = len(rows) - len(trusted)
        wanted = round(share * others / (1.0 - share))
        if len(trusted) == 0 or wanted <= len(trusted):
            return rows
        rounds, rest = divmod(wanted - len(trusted), len(trusted))
        order = np.argsort(random_words("upsample", seed, trusted), kind="stable")
        return np.concatenate([rows, np.tile(trusted, rounds), trusted[np.sort(order[:rest])]])

    def split(self, rows: np.ndarray, held_out: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Parts row numbers into (kept, held out), at least one each where there are two."""
        if held_out <= 0.0 or len(rows) < 2:
            return rows, rows[:0]
        number = min(max(1, round(held_out * len(rows))), len(rows) - 1)
        order = np.argsort(random_words("hold out", seed, rows), kind="stable")
        chosen = np.zeros(len(rows), dtype=bool)
        chosen[order[:number]] = True
        return rows[~chosen], rows[chosen]

    @cached_property
    def fingerprint(self) -> str:
        """Changes when a label, a flag, the number of rows or what is held out does."""
        digest = hashlib.blake2b(digest_size=16)
        for column in (self.labels, self.flags):
            digest.update(np.ascontiguousarray(column.values).astype(np.int64).tobytes())
            digest.update(b"rows" if column.offsets is None else np.ascontiguousarray(column.offsets).tobytes())
        digest.update(self.held_out.tobytes())
        return digest.hexdigest()

    def view(self, rows: np.ndarray, dataset: Any, trusted_column: str) -> FlaggedRows:
        """The chosen rows as a map-style dataset; `dataset` may have lost columns that the model does not take."""
        return FlaggedRows(dataset, rows, self.flags, trusted_column)


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


def _same_lengths(first: Column, second: Column) -> bool:
    if first.offsets is None or second.offsets is None:
        return first.offsets is None and second.offsets is None and len(first.values) == len(second.values)
    return np.array_equal(np.diff(first.offsets), np.diff(second.offsets))
