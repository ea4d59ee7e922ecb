# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
New columns put into a `Dataset` through its Arrow table.

`Dataset.map` would write all columns anew and `Dataset.add_column` would flatten a shuffled dataset. Here the other
columns stay where they are (memory-mapped files included), and so do the order, the format and the split.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glc_hf.corruption.columns import stored_rows
from glc_hf.corruption.stored_column import is_list


if TYPE_CHECKING:
    from datasets import Dataset
    from datasets.table import Table

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
    if is_list(array.type):
        yield pc.list_value_length(array).to_numpy()
        array = array.flatten()
        yield from _content(array)
    else:
        yield np.ascontiguousarray(array.to_numpy(zero_copy_only=False))
