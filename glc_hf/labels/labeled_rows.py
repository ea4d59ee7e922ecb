# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Labels and flags of the rows of a dataset."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from glc_hf.labels.columns import find_label_column
from glc_hf.labels.reading import IGNORED_LABEL, Column, check_same_lengths, read_flags, read_integers, read_labels
from glc_hf.labels.storage import stored_rows
from glc_hf.randomness import random_uint64


# Which labels: all of them, or those of one kind.
Items = Literal["all", "trusted", "untrusted"]


class LabeledRows:
    """
    Labels and flags of a dataset, read once from Arrow, with one entry per item (a row, or a token of a row). No row
    is copied and no image is decoded.

    Args:
        dataset (`datasets.Dataset`): The dataset with its flag column.
        label_column (`str`, *optional*): The column of the labels (default: found by its usual name).
        trusted_column (`str`): The column of the flags.
        num_labels (`int`, *optional*): K, to check the labels against.
        method (`str`): Name of the method, for error messages.
        needs_flags (`bool`): Whether a missing flag column is an error.
        held_out (`np.ndarray`, *optional*): Numbers of rows that no stage and no estimate uses.
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
        self.label_column = find_label_column(dataset, label_column, trusted_column)
        self.labels = read_labels(dataset, self.label_column, num_labels)
        if not needs_flags and trusted_column not in dataset.column_names:
            self.flags = Column(np.zeros(self.num_rows, dtype=bool), None)
        else:
            self.flags = read_flags(dataset, trusted_column, method=method)
        check_same_lengths(self.labels, self.flags)
        offsets = self.labels.offsets
        lengths = np.diff(offsets) if offsets is not None else np.ones(self.num_rows, dtype=np.int64)
        self._row_of_item = np.repeat(np.arange(self.num_rows), lengths)
        # For every label, those of -100 and of held-out rows included: whether it is trusted, and whether it counts.
        self.trusted = self.flags.values if self.flags.offsets is not None else np.repeat(self.flags.values, lengths)
        self.counted = self.labels.values != IGNORED_LABEL
        self.held_out = np.empty(0, dtype=np.int64) if held_out is None else held_out
        self.counted[np.isin(self._row_of_item, self.held_out)] = False
        # The number of the first counted item of each row.
        self._first_item = np.concatenate(
            [[0], np.cumsum(np.bincount(self._row_of_item[self.counted], minlength=self.num_rows))]
        )

    def _chosen(self, items: Items) -> np.ndarray:
        if items == "all":
            return self.counted
        return self.counted & (self.trusted if items == "trusted" else ~self.trusted)

    def count(self, items: Items) -> int:
        """Number of these items."""
        return int(self._chosen(items).sum())

    def rows_with(self, items: Items) -> np.ndarray:
        """The numbers of the rows with at least one such item, ascending."""
        return np.unique(self._row_of_item[self._chosen(items)])

    def item_numbers(self, rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The number of each item of a batch of whole rows; without meaning where the label is -100."""
        first = torch.from_numpy(self._first_item)[torch.where(rows < 0, -1 - rows, rows).cpu()]
        if labels.dim() == 1:
            return first
        return first.unsqueeze(1) + ((labels != IGNORED_LABEL).cumsum(dim=1) - 1).clamp(min=0).cpu()

    def numbers_of(self, items: Items) -> np.ndarray:
        """The numbers of these items, ascending."""
        return np.flatnonzero(self._chosen(items)[self.counted])

    def row_of(self, numbers: np.ndarray) -> np.ndarray:
        """The row of each of these items."""
        return np.searchsorted(self._first_item, numbers, side="right") - 1

    def sorted_by_length(self, rows: np.ndarray) -> np.ndarray:
        """These row numbers (−1−i is row i) in the order of the texts' lengths; unchanged without texts."""
        lengths = self._lengths
        if lengths is None:
            return rows
        return rows[np.argsort(lengths[np.where(rows < 0, -1 - rows, rows)], kind="stable")]

    @cached_property
    def _lengths(self) -> np.ndarray | None:
        """Number of tokens per row, read from Arrow; `None` if rows have no lists of tokens."""
        if "input_ids" not in self.dataset.column_names:
            return None
        column = self.dataset.data.column("input_ids")
        if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
            return None
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
        rows = stored_rows(self.dataset)
        return lengths if rows is None else lengths[rows]

    def item_labels(self, items: Items, column: str | None = None) -> np.ndarray:
        """The given labels of these items, or their values in another column, -1 where it has none."""
        chosen = self._chosen(items)
        if column is None:
            return self.labels.values[chosen].astype(np.int64, copy=False)
        # Read only these rows: in others the column may be empty.
        rows = self.rows_with(items)
        values = read_integers(self.dataset.select(rows), column, missing=-1).values
        in_rows = np.isin(self._row_of_item, rows)
        if len(values) != in_rows.sum():
            raise ValueError(f"column {column!r} does not have one value per label of {self.label_column!r}.")
        return values[chosen[in_rows]].astype(np.int64, copy=False)

    def upsampled(self, share: float, seed: int) -> np.ndarray:
        """All row numbers, with the rows that have trusted labels repeated until they make up `share` of the list.
        Which rows get the last repetition depends only on `seed` and the rows."""
        rows = np.setdiff1d(np.arange(self.num_rows), self.held_out)
        trusted = self.rows_with("trusted")
        target = round(share * (len(rows) - len(trusted)) / (1.0 - share))
        if len(trusted) == 0 or target <= len(trusted):
            return rows
        rounds, rest = divmod(target - len(trusted), len(trusted))
        order = np.argsort(random_uint64("upsample", seed, trusted), kind="stable")
        return np.concatenate([rows, np.tile(trusted, rounds), trusted[np.sort(order[:rest])]])

    def split(self, rows: np.ndarray, held_out: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Split row numbers into (kept, held out), with at least one in each part if there are two."""
        if held_out <= 0.0 or len(rows) < 2:
            return rows, rows[:0]
        number = min(max(1, round(held_out * len(rows))), len(rows) - 1)
        order = np.argsort(random_uint64("hold out", seed, rows), kind="stable")
        chosen = np.zeros(len(rows), dtype=bool)
        chosen[order[:number]] = True
        return rows[~chosen], rows[chosen]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the labels, the flags, the number of rows, and the rows that are held out."""
        digest = hashlib.blake2b(digest_size=16)
        for column in (self.labels, self.flags):
            digest.update(np.ascontiguousarray(column.values).astype(np.int64).tobytes())
            digest.update(b"rows" if column.offsets is None else np.ascontiguousarray(column.offsets).tobytes())
        digest.update(self.held_out.tobytes())
        return digest.hexdigest()
