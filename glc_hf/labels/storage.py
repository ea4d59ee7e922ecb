# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Columns of a `Dataset` read from, and put into, its Arrow table; the index of a row, and chunks of rows.

`Dataset.map` would rewrite all columns and `Dataset.add_column` would flatten a shuffled dataset. Here the other
columns stay where they are (memory-mapped files included), and the order, the format and the split are kept.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glc_hf._compat import copy_format, fingerprint_of, indices_table, table_blocks


if TYPE_CHECKING:
    from datasets import Dataset, Features
    from datasets.table import Table


logger = logging.getLogger(__name__)
# Values per chunk of a list column.
_MAX_VALUES = 2**30
# Labels per chunk: their temporary arrays (half a megabyte each) stay in the processor's cache.
CHUNK_SIZE = 65_536


# ---------------------------------------------------------------------- reading
def stored_rows(dataset: Dataset) -> np.ndarray | None:
    """Return the stored row of each row that the user sees, int64; `None` if they are the same."""
    table = indices_table(dataset)
    if table is None:
        return None
    rows = table.column(0).to_numpy()
    return rows.view(np.int64) if rows.dtype == np.uint64 else rows.astype(np.int64)


def column_in_order(dataset: Dataset, name: str) -> pa.ChunkedArray:
    """Return a column in the order that the user sees."""
    column, rows = dataset.data.column(name), stored_rows(dataset)
    return column if rows is None else column.take(pa.array(rows))


def is_list_type(arrow_type: pa.DataType) -> bool:
    """Whether rows of this Arrow type are lists of any of Arrow's kinds."""
    types = pa.types
    return types.is_list(arrow_type) or types.is_large_list(arrow_type) or types.is_fixed_size_list(arrow_type)


def value_type(column: pa.ChunkedArray) -> pa.DataType:
    """Return the Arrow type of a column's values, or of the values in its lists."""
    return column.type.value_type if is_list_type(column.type) else column.type


def typed_if_empty(column: pa.ChunkedArray, type_if_empty: pa.DataType) -> pa.ChunkedArray:
    """Give a type to a column of nulls or of empty lists, which Arrow types as null."""
    if not pa.types.is_null(value_type(column)):
        return column
    return column.cast(pa.list_(type_if_empty) if is_list_type(column.type) else type_if_empty)


def flat_values(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, np.ndarray | None]:
    """Return the values of all rows one after the other, and for lists the offsets of each row (int64)."""
    if not is_list_type(column.type):
        return column, None
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    return pc.list_flatten(column), np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


# ---------------------------------------------------------------------- writing
def with_distinct_rows(dataset: Dataset) -> Dataset:
    """Flatten the dataset if a stored row is selected twice, so that the two can differ."""
    rows = stored_rows(dataset)
    if rows is None:
        return dataset
    seen = np.zeros(dataset.data.num_rows, dtype=bool)
    seen[rows] = True
    if np.count_nonzero(seen) == len(rows):
        return dataset
    logger.info(
        "Some rows are selected more than once and get separate values, so the dataset is rewritten "
        "(`flatten_indices`)."
    )
    # Without its format, or a transform set with `with_transform` would be written into the new file.
    return with_format_of(dataset, dataset.with_format(None).flatten_indices())


def block_boundaries(dataset: Dataset) -> list[int]:
    """Return the stored rows at which a block of the dataset's table begins (usually one block per file)."""
    blocks = table_blocks(dataset.data)
    return [0] if blocks is None else [offset for offset, _ in blocks]


def with_columns(
    dataset: Dataset,
    columns: dict[str, pa.ChunkedArray],
    features: Features,
    copies: dict[str, str],
    transform: str,
    arguments: dict[str, Any],
) -> Dataset:
    """
    Return the dataset with columns replaced (if the name exists) or appended.

    Args:
        dataset (`datasets.Dataset`): Not changed.
        columns (`dict`): Columns made by [`stored_column`].
        features (`datasets.Features`): Features of the result.
        copies (`dict`): New names for existing columns, which are referenced without a copy of their data.
        transform (`str`), arguments (`dict`): Name and arguments of the transform. Together with a digest of the data
            they determine the fingerprint, which the caches of later `map` calls depend on.
    """
    from datasets import Dataset, Features
    from datasets.arrow_dataset import update_metadata_with_features
    from datasets.fingerprint import Hasher, update_fingerprint
    from datasets.table import ConcatenationTable, InMemoryTable

    data = dataset.data
    parts: list[Table] = []
    kept: list[str] = []
    for name in [*data.column_names, None]:
        if name is not None and name not in columns:
            kept.append(name)
            continue
        parts += [_select(data, kept)] if kept else []
        parts += [InMemoryTable(pa.table({name: columns[name]}))] if name is not None else []
        kept = []
    parts += [_select(data, [old]).rename_columns([new]) for new, old in copies.items()]
    added = [name for name in columns if name not in data.column_names]
    parts += [InMemoryTable(pa.table({name: columns[name]})) for name in added]
    table = ConcatenationTable.from_tables(parts, axis=1)

    features = Features({name: features[name] for name in table.column_names})
    chunks = [chunk for name in sorted(columns) for chunk in columns[name].chunks]
    digest = Hasher.hash_bytes([part for chunk in chunks for part in _content(chunk)])
    info = dataset.info.copy()
    info.features = features
    result = Dataset(
        update_metadata_with_features(table, features),
        info=info,
        split=dataset.split,
        indices_table=indices_table(dataset),
        fingerprint=update_fingerprint(fingerprint_of(dataset), transform, {**arguments, "digest": digest}),
    )
    return with_format_of(dataset, result)


def _select(data: Table, names: list[str]) -> Table:
    """Select columns of a table so that each block has all of them."""
    from datasets.table import ConcatenationTable, InMemoryTable

    part = data.select(names)
    slices = table_blocks(data)
    if slices is None:
        return part
    blocks = []
    for (offset, length), row in zip(slices, part.blocks, strict=True):
        # A block without columns loses its number of rows when it is pickled.
        row = [block for block in row if block.num_columns]
        if {name for block in row for name in block.column_names} != set(names):
            row = [InMemoryTable(part.table.slice(offset, length))]  # a block lacks a column, which counts as null
        blocks.append(row)
    return ConcatenationTable(part.table, blocks)


def with_format_of(source: Dataset, dataset: Dataset) -> Dataset:
    """Apply the format of `source` as `datasets` does: columns left out stay out, new ones are included."""
    hidden = set(source.column_names) - set(source.format["columns"])
    columns = [name for name in dataset.column_names if name not in hidden] if hidden else None
    return copy_format(source, dataset, columns)


def _content(array: pa.Array) -> Iterator[np.ndarray]:
    """Yield the values, not Arrow's buffers: bytes beyond their ends and under nulls are arbitrary."""
    if array.null_count:
        yield array.is_null().to_numpy(zero_copy_only=False)
        array = array.drop_null()
    if is_list_type(array.type):
        yield pc.list_value_length(array).to_numpy()
        yield from _content(array.flatten())
    elif pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        encoded = array.dictionary_encode()  # numpy would hold pointers to the texts
        yield np.ascontiguousarray(encoded.indices.to_numpy())
        yield np.frombuffer(repr(encoded.dictionary.to_pylist()).encode(), dtype=np.uint8)
    else:
        yield np.ascontiguousarray(array.to_numpy(zero_copy_only=False))


def stored_column(
    dataset: Dataset, values: np.ndarray, offsets: np.ndarray | None, arrow_type: pa.DataType
) -> pa.ChunkedArray:
    """
    Convert a [`~glc_hf.labels.reading.Column`], in the order that the user sees, to a column in the order in which the
    dataset's rows are stored. Stored rows outside the selection become zero or empty lists.
    """
    rows, num_rows, boundaries = stored_rows(dataset), dataset.data.num_rows, block_boundaries(dataset)
    if rows is None:
        return to_arrow(values, offsets, arrow_type, boundaries)
    positions = rows
    if offsets is not None:
        lengths = np.diff(offsets)
        size = arrow_type.list_size if pa.types.is_fixed_size_list(arrow_type) else 0
        stored_lengths = np.full(num_rows, size)
        stored_lengths[rows] = lengths
        stored_offsets = np.concatenate([[0], np.cumsum(stored_lengths)])
        positions = np.arange(len(values)) + np.repeat(stored_offsets[rows] - offsets[:-1], lengths)
        offsets, num_rows = stored_offsets, int(stored_offsets[-1])
    stored = np.zeros(num_rows, dtype=values.dtype)
    stored[positions] = values
    return to_arrow(stored, offsets, arrow_type, boundaries)


def to_arrow(
    values: np.ndarray, offsets: np.ndarray | None, arrow_type: pa.DataType, boundaries: Sequence[int] = ()
) -> pa.ChunkedArray:
    """
    Convert a [`~glc_hf.labels.reading.Column`] to Arrow, with a new chunk at each row of `boundaries`.

    Each chunk has its own buffer, because pickling a slice of a buffer would write the whole buffer.
    """
    if offsets is None:
        edges = sorted({0, len(values), *boundaries})
        return pa.chunked_array([pa.array(values[i:j], type=arrow_type) for i, j in pairwise(edges)], type=arrow_type)
    # The 32-bit offsets of a chunk can't count more values than this.
    full = np.searchsorted(offsets, np.arange(_MAX_VALUES, len(values), _MAX_VALUES), side="right") - 1
    arrays = []
    for start, stop in pairwise(sorted({0, len(offsets) - 1, *boundaries, *full.tolist()})):
        own = offsets[start : stop + 1]
        flat = pa.array(values[own[0] : own[-1]], type=arrow_type.value_type)
        arrays.append(pa.LargeListArray.from_arrays(pa.array(own - own[0]), flat).cast(arrow_type))
    return pa.chunked_array(arrays, type=arrow_type)


def same_kind_of_list(list_type: pa.DataType, kind: pa.DataType) -> pa.DataType:
    """Return the Arrow type of lists of `kind` that are stored as `list_type` is."""
    if pa.types.is_fixed_size_list(list_type):
        return pa.list_(kind, list_type.list_size)
    return pa.large_list(kind) if pa.types.is_large_list(list_type) else pa.list_(kind)


# ---------------------------------------------------------------------- rows
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
