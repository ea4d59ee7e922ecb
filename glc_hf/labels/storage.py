# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
New columns put into a `Dataset` through its Arrow table.

`Dataset.map` would write all columns anew and `Dataset.add_column` would flatten a shuffled dataset. Here the other
columns stay where they are (memory-mapped files included), and so do the order, the format and the split.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


if TYPE_CHECKING:
    from datasets import Dataset
    from datasets.table import Table


# ---------------------------------------------------------------------- columns as they are stored
def stored_rows(dataset: Dataset) -> np.ndarray | None:
    """The stored row of each row that the user sees, int64; `None` where they are the same."""
    if dataset._indices is None:
        return None
    rows = dataset._indices.column(0).to_numpy()
    return rows.view(np.int64) if rows.dtype == np.uint64 else rows.astype(np.int64)


logger = logging.getLogger(__name__)


def with_distinct_rows(dataset: Dataset) -> Dataset:
    """The same dataset, flattened if a stored row is seen twice: the two can then differ."""
    rows = stored_rows(dataset)
    if rows is None:
        return dataset
    seen = np.zeros(dataset._data.num_rows, dtype=bool)
    seen[rows] = True
    if np.count_nonzero(seen) == len(rows):
        return dataset
    logger.info(
        "Some rows are selected more than once and get labels of their own, so the dataset is written anew "
        "(`flatten_indices`)."
    )
    # Without its format, or a transform set with `with_transform` would be written into the new file.
    flat = dataset.with_format(None).flatten_indices()
    return with_format_of(dataset, flat)


def block_boundaries(dataset: Dataset) -> list[int]:
    """The stored rows at which a block of the dataset's table begins (one block a file, mostly)."""
    from datasets.table import ConcatenationTable

    if not isinstance(dataset._data, ConcatenationTable):
        return [0]
    return [offset for offset, _ in dataset._data._slices]


def with_columns(
    dataset: Dataset,
    columns: dict[str, tuple[pa.ChunkedArray, Any]],
    copies: dict[str, str],
    transform: str,
    arguments: dict[str, Any],
) -> Dataset:
    """
    The dataset with columns replaced (where the name is there) or appended.

    Args:
        dataset (`datasets.Dataset`): Left as it is.
        columns (`dict`): Arrow data in stored order, with chunks at least at [`block_boundaries`], and its feature.
        copies (`dict`): New names for columns that are kept as they are, without a copy of their data.
        transform (`str`), arguments (`dict`): What made them. With the data itself they make the fingerprint, on which
            the caches of later `map` calls depend.
    """
    from datasets import Dataset, Features
    from datasets.arrow_dataset import update_metadata_with_features
    from datasets.fingerprint import update_fingerprint
    from datasets.table import ConcatenationTable, InMemoryTable

    data = dataset._data
    parts: list[Table] = []
    kept: list[str] = []
    for name in data.column_names:
        if name not in columns:
            kept.append(name)
            continue
        parts += [_part(data, kept)] if kept else []
        parts.append(InMemoryTable(pa.table({name: columns[name][0]})))
        kept = []
    parts += [_part(data, kept)] if kept else []
    parts += [_part(data, [old]).rename_columns([new]) for new, old in copies.items()]
    added = [name for name in columns if name not in data.column_names]
    parts += [InMemoryTable(pa.table({name: columns[name][0]})) for name in added]
    table = ConcatenationTable.from_tables(parts, axis=1)

    features = Features(dataset.features)
    features.update({name: feature for name, (_, feature) in columns.items()})
    features.update({new: dataset.features[old] for new, old in copies.items()})
    features = Features({name: features[name] for name in table.column_names})
    digest = _digest(columns[name][0] for name in sorted(columns))
    fingerprint = update_fingerprint(dataset._fingerprint, transform, {**arguments, "digest": digest})
    info = dataset.info.copy()
    info.features = features
    result = Dataset(
        update_metadata_with_features(table, features),
        info=info,
        split=dataset.split,
        indices_table=dataset._indices,
        fingerprint=fingerprint,
    )
    return with_format_of(dataset, result)


def _part(data: Table, names: list[str]) -> Table:
    """Some columns of a table, block by block, each of which has all of them."""
    from datasets.table import ConcatenationTable, InMemoryTable

    part = data.select(names)
    if not isinstance(data, ConcatenationTable):
        return part
    blocks = []
    for (offset, length), row in zip(data._slices, part.blocks, strict=True):
        # A block without columns forgets its number of rows when it is pickled.
        row = [block for block in row if block.num_columns]
        if {name for block in row for name in block.column_names} != set(names):
            row = [InMemoryTable(part.table.slice(offset, length))]  # a block lacks a column, which counts as null
        blocks.append(row)
    return ConcatenationTable(part.table, blocks)


def with_format_of(source: Dataset, dataset: Dataset) -> Dataset:
    """Transmits the format as `datasets` does: columns that were left out stay out, new ones come in."""
    columns = source._format_columns
    if columns is not None:
        hidden = set(source.column_names) - set(columns)
        columns = [name for name in dataset.column_names if name not in hidden]
    dataset._format_type = source._format_type
    dataset._format_kwargs = copy.copy(source._format_kwargs)
    dataset._format_columns = columns
    dataset._output_all_columns = source._output_all_columns
    return dataset


def _digest(columns: Iterable[pa.ChunkedArray]) -> str:
    from datasets.fingerprint import Hasher

    return Hasher.hash_bytes([part for column in columns for chunk in column.chunks for part in _content(chunk)])


def _content(array: pa.Array) -> Iterator[np.ndarray]:
    """The values, not Arrow's buffers: what lies beyond their ends and under nulls is arbitrary."""
    if array.null_count:
        yield array.is_null().to_numpy(zero_copy_only=False)
        array = array.drop_null()
    if is_list_type(array.type):
        yield pc.list_value_length(array).to_numpy()
        array = array.flatten()
        yield from _content(array)
    else:
        yield np.ascontiguousarray(array.to_numpy(zero_copy_only=False))


def is_list_type(arrow_type: pa.DataType) -> bool:
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
        """Reads integers or booleans (see `is_list_type`); the caller has looked at the type."""
        rows_of = [len(chunk) for chunk in column.chunks]
        if not is_list_type(column.type):
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
