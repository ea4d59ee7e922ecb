# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""One column of integers or booleans, or of lists of them, out of Arrow and back, in the order it is stored in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa


def is_list(arrow_type: pa.DataType) -> bool:
    """Whether rows of this Arrow type are lists, of whichever of Arrow's kinds."""
    types = pa.types
    return types.is_list(arrow_type) or types.is_large_list(arrow_type) or types.is_fixed_size_list(arrow_type)


@dataclass
class StoredColumn:
    """
    A column as flat numpy arrays.

    Rows outside a selection may hold anything, nulls included: nothing is checked here, and `to_arrow` gives all that
    was there back.

    Attributes:
        values: All values one after the other, a copy to write to. Nulls stand as zero.
        missing: Which values are null; `None` if none is.
        offsets: For lists: row i has values offsets[i] to offsets[i + 1], int64.
        missing_rows: Which rows are null instead of a list; `None` if none is.
        arrow_type: The column's Arrow type.
        chunk_rows: The rows of each Arrow chunk.
    """

    values: np.ndarray
    missing: np.ndarray | None
    offsets: np.ndarray | None
    missing_rows: np.ndarray | None
    arrow_type: pa.DataType
    chunk_rows: list[int]

    @classmethod
    def from_arrow(cls, column: pa.ChunkedArray) -> StoredColumn:
        """Reads integers or booleans (see `is_list`); the caller has looked at the type."""
        rows_of = [len(chunk) for chunk in column.chunks]
        if not is_list(column.type):
            values, missing = _to_numpy(column.chunks, column.type)
            return cls(values, missing, None, None, column.type, rows_of)
        parts = [_list_parts(chunk) for chunk in column.chunks]
        values, missing = _to_numpy([part for part, _ in parts], column.type.value_type)
        lengths = [lengths for _, lengths in parts]
        offsets = np.zeros(sum(rows_of) + 1, dtype=np.int64)
        np.cumsum(np.concatenate(lengths) if lengths else [], out=offsets[1:])
        return cls(values, missing, offsets, _nulls(column.chunks), column.type, rows_of)

    @property
    def num_rows(self) -> int:
        """How many rows are stored, selected or not."""
        return len(self.values) if self.offsets is None else len(self.offsets) - 1

    def to_arrow(self, boundaries: Sequence[int], values: np.ndarray | None = None) -> pa.ChunkedArray:
        """
        The column with its values as they are now, or with `values` (of any type) in their place, without a copy.

        Args:
            boundaries (`Sequence[int]`): The rows at which a new chunk begins, at least. A chunk is a buffer of its
                own, and pickling a slice of one would write the whole buffer.
            values (`np.ndarray`, *optional*): As many values, none of them null.
        """
        missing = self.missing if values is None else None
        values = self.values if values is None else values
        value_type = self.arrow_type.value_type if self.offsets is not None else self.arrow_type
        if values.dtype == np.bool_:
            value_type = pa.bool_()
        if self.offsets is None:
            edges = sorted({0, self.num_rows, *boundaries})
            arrays = [_from_numpy(values, missing, slice(*edge), value_type) for edge in pairwise(edges)]
            return pa.chunked_array(arrays, type=value_type)
        # Lists keep their chunks: 32-bit offsets could not count the tokens of all of them at once.
        edges = sorted({*np.cumsum([0, *self.chunk_rows]).tolist(), *boundaries})
        list_type = _same_kind_of_list(self.arrow_type, value_type)
        arrays = [self._lists(slice(*edge), values, missing, list_type) for edge in pairwise(edges)]
        return pa.chunked_array(arrays, type=list_type)

    def _lists(self, rows: slice, values: np.ndarray, missing: np.ndarray | None, list_type: pa.DataType) -> pa.Array:
        offsets = self.offsets[rows.start : rows.stop + 1]
        flat = _from_numpy(values, missing, slice(int(offsets[0]), int(offsets[-1])), list_type.value_type)
        mask = pa.array(self.missing_rows[rows]) if self.missing_rows is not None else None
        if pa.types.is_fixed_size_list(list_type):
            return pa.FixedSizeListArray.from_arrays(flat, type=list_type, mask=mask)
        array, width = (pa.LargeListArray, np.int64) if pa.types.is_large_list(list_type) else (pa.ListArray, np.int32)
        return array.from_arrays(pa.array((offsets - offsets[0]).astype(width)), flat, type=list_type, mask=mask)


def _same_kind_of_list(list_type: pa.DataType, value_type: pa.DataType) -> pa.DataType:
    if pa.types.is_fixed_size_list(list_type):
        return pa.list_(value_type, list_type.list_size)
    return pa.large_list(value_type) if pa.types.is_large_list(list_type) else pa.list_(value_type)


def _list_parts(chunk: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """The values of a chunk's rows, and how many each row has."""
    if pa.types.is_fixed_size_list(chunk.type):
        size = chunk.type.list_size
        return chunk.values.slice(chunk.offset * size, len(chunk) * size), np.full(len(chunk), size)
    offsets = chunk.offsets.to_numpy()
    return chunk.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0])), np.diff(offsets)


def _nulls(arrays: list[pa.Array]) -> np.ndarray | None:
    if not any(array.null_count for array in arrays):
        return None
    return np.concatenate([array.is_null().to_numpy(zero_copy_only=False) for array in arrays])


def _to_numpy(arrays: list[pa.Array], arrow_type: pa.DataType) -> tuple[np.ndarray, np.ndarray | None]:
    values = np.empty(sum(len(array) for array in arrays), dtype=arrow_type.to_pandas_dtype())
    start = 0
    for array in arrays:
        filled = array.fill_null(pa.scalar(0, pa.int8()).cast(arrow_type)) if array.null_count else array
        values[start : start + len(array)] = filled.to_numpy(zero_copy_only=False)
        start += len(array)
    return values, _nulls(arrays)


def _from_numpy(values: np.ndarray, missing: np.ndarray | None, places: slice, arrow_type: pa.DataType) -> pa.Array:
    mask = missing[places] if missing is not None else None
    return pa.array(values[places], type=arrow_type, mask=mask)
