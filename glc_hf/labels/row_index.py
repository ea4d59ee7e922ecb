# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The index that a row's random draws depend on, and chunks of rows that fit into the processor's cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np


# Labels per chunk: their temporary arrays (half a megabyte each) stay in the processor's cache.
CHUNK_SIZE = 65_536


class RowIndex:
    """
    The integer that a row's random draws depend on: its position, or the value of the index column.

    Args:
        first (`int`, *optional*, defaults to 0): Position of row 0; `None` if it is not known.
        values (`np.ndarray` of int64, *optional*): Values of the index column, used instead of positions.
        column (`str`, *optional*): Name of the index column, for messages.
    """

    def __init__(self, first: int | None = 0, values: np.ndarray | None = None, column: str | None = None) -> None:
        self._first = first
        self._values = values
        self._column = column

    def of(self, start: int, stop: int) -> np.ndarray:
        """Return the indices of rows `start` to `stop`, int64."""
        if self._values is not None:
            return self._values[start:stop]
        assert self._first is not None  # unknown only with an index column
        return np.arange(self._first + start, self._first + stop, dtype=np.int64)

    def name(self, row: int) -> str:
        """Return the name of a row for messages."""
        if self._values is None:
            assert self._first is not None
            return f"row {self._first + row}"
        value = f"{self._column}={self._values[row]}"
        return f"the row with {value}" if self._first is None else f"row {self._first + row} ({value})"

    def name_value(self, position: int, offsets: np.ndarray | None) -> str:
        """Return the name of a value for messages; `offsets` as in [`~glc_hf.labels.reading.Column`]."""
        if offsets is None:
            return self.name(position)
        row = int(np.searchsorted(offsets, position, side="right")) - 1
        return f"{self.name(row)}, token {position - int(offsets[row])}"


@dataclass
class Chunk:
    """
    Consecutive rows.

    Attributes:
        start, stop: The rows.
        span: The positions of their values in the flat column.
        lengths: For lists, the number of values per row.
    """

    start: int
    stop: int
    span: slice
    lengths: np.ndarray | None = None

    def spread(self, per_row: np.ndarray) -> np.ndarray:
        """Repeat one number per row for each of the row's values."""
        return per_row if self.lengths is None else np.repeat(per_row, self.lengths)

    @property
    def position(self) -> np.ndarray | None:
        """Position of each value in its row; `None` if each row is one value."""
        if self.lengths is None:
            return None
        starts = np.cumsum(self.lengths) - self.lengths
        return np.arange(self.span.stop - self.span.start) - np.repeat(starts, self.lengths)


def chunks(
    num_rows: int, offsets: np.ndarray | None, size: int | None = None, rows_only: bool = False
) -> Iterator[Chunk]:
    """
    Split rows into chunks, in order.

    Args:
        num_rows (`int`): Number of rows.
        offsets (`np.ndarray` of int64, *optional*): For a column of lists, as in [`~glc_hf.labels.reading.Column`].
        size (`int`, *optional*, defaults to 65,536): Values per chunk; approximate for lists.
        rows_only (`bool`): Whether `size` counts rows even if rows are lists.
    """
    size = size or CHUNK_SIZE
    if offsets is not None and not rows_only:
        size = max(1, int(size / max(1.0, offsets[-1] / max(1, num_rows))))
    for start in range(0, num_rows, size):
        stop = min(start + size, num_rows)
        if offsets is None:
            yield Chunk(start, stop, slice(start, stop))
        else:
            span = slice(int(offsets[start]), int(offsets[stop]))
            yield Chunk(start, stop, span, np.diff(offsets[start : stop + 1]))


def check_unique(values: np.ndarray, column: str) -> None:
    """Raise if two rows have the same index."""
    ordered = np.sort(values)
    if (ordered[1:] != ordered[:-1]).all():
        return
    order = np.argsort(values, kind="stable")
    second = int(order[1:][values[order][1:] == values[order][:-1]].min())
    first = int(np.argmax(values == values[second]))
    raise ValueError(
        f"index_column {column!r} must be unique, but rows {first} and {second} both have {values[second]}: their "
        "noise would be the same."
    )
