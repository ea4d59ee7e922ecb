# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Rows as the transforms walk over them: each with the index that its randomness depends on, some at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np


# Labels handled at once: their temporaries (half a megabyte each) stay in the processor's cache.
CHUNK_SIZE = 65_536


class RowIndex:
    """
    The integer that a row's randomness depends on: its position, or the value of the index column.

    Args:
        first (`int`, *optional*, defaults to 0): The position of row 0; `None` where nobody knows it.
        values (`np.ndarray` of int64, *optional*): The index column's values instead.
        column (`str`, *optional*): Its name, for messages.
    """

    def __init__(self, first: int | None = 0, values: np.ndarray | None = None, column: str | None = None) -> None:
        self._first = first
        self._values = values
        self._column = column

    def of(self, start: int, stop: int) -> np.ndarray:
        """The indices of rows `start` to `stop`, int64."""
        if self._values is not None:
            return self._values[start:stop]
        return np.arange(self._first + start, self._first + stop, dtype=np.int64)

    def name(self, row: int) -> str:
        """What messages call the row."""
        if self._values is None:
            return f"row {self._first + row}"
        value = f"{self._column}={self._values[row]}"
        return f"the row with {value}" if self._first is None else f"row {self._first + row} ({value})"


@dataclass
class Chunk:
    """
    Some consecutive rows, as the user sees them.

    Attributes:
        start, stop: The rows.
        places: Where the rows' values stand in the column: a slice, or an array where the dataset is shuffled.
        span: Which of all values these are, counted in the user's order.
        lengths: For lists, how many values each row has.
    """

    start: int
    stop: int
    places: slice | np.ndarray
    span: slice
    lengths: np.ndarray | None = None

    def spread(self, per_row: np.ndarray) -> np.ndarray:
        """A number for each row, repeated for each of its values."""
        return per_row if self.lengths is None else np.repeat(per_row, self.lengths)

    @property
    def position(self) -> np.ndarray | None:
        """The place of each value within its row; `None` where a row is one value."""
        if self.lengths is None:
            return None
        return np.arange(self.span.stop - self.span.start) - np.repeat(_starts(self.lengths), self.lengths)

    def name(self, value: int, index: RowIndex) -> str:
        """What messages call the n-th value of the chunk."""
        if self.lengths is None:
            return index.name(self.start + value)
        row = int(np.searchsorted(np.cumsum(self.lengths), value, side="right"))
        return f"{index.name(self.start + row)}, token {value - int(_starts(self.lengths)[row])}"


def places_of(offsets: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the values of some list rows stand, one row after the other, and each row's number of values."""
    begin = offsets[rows]
    lengths = offsets[rows + 1] - begin
    return np.arange(lengths.sum()) + np.repeat(begin - _starts(lengths), lengths), lengths


def chunks(
    num_rows: int,
    rows: np.ndarray | None,
    offsets: np.ndarray | None,
    size: int | None = None,
    rows_only: bool = False,
) -> Iterator[Chunk]:
    """
    Walks over all rows in the user's order.

    Args:
        num_rows (`int`): How many rows the user sees.
        rows (`np.ndarray` of int64, *optional*): The stored row of each of them, where the dataset is shuffled.
        offsets (`np.ndarray` of int64, *optional*): For a column of lists: stored row i has values offsets[i] to
            offsets[i + 1].
        size (`int`, *optional*, defaults to 65,536): Values a chunk, roughly for lists.
        rows_only (`bool`): Whether `size` counts rows even where rows are lists.
    """
    size = size or CHUNK_SIZE
    if offsets is not None and not rows_only:
        mean_length = (offsets[-1] - offsets[0]) / max(1, len(offsets) - 1)
        size = max(1, int(size / max(1.0, mean_length)))
    seen = 0
    for start in range(0, num_rows, size):
        stop = min(start + size, num_rows)
        if offsets is None:
            yield Chunk(start, stop, slice(start, stop) if rows is None else rows[start:stop], slice(start, stop))
            continue
        if rows is None:
            places: slice | np.ndarray = slice(int(offsets[start]), int(offsets[stop]))
            lengths = np.diff(offsets[start : stop + 1])
        else:
            places, lengths = places_of(offsets, rows[start:stop])
        count = int(lengths.sum())
        yield Chunk(start, stop, places, slice(seen, seen + count), lengths)
        seen += count


def _starts(lengths: np.ndarray) -> np.ndarray:
    return np.cumsum(lengths) - lengths
