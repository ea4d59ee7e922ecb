# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Checks of inputs: empty and repeated ones, which are compared by their hashes, and images that can't be decoded."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset
from xxhash import xxh3_64_intdigest

from glc_hf.labels.storage import stored_rows


_TEXTS_PER_BATCH, _IMAGES_PER_BATCH = 20_000, 64
_ODD = np.uint64(0x9E3779B97F4A7C15)  # keeps pairs (a, b) and (b, a) apart


class Inputs(NamedTuple):
    """
    The inputs of a dataset.

    Attributes:
        hashes: One per row, uint64. Texts that differ only in white space have the same hash.
        empty: Rows whose text is missing or blank; for pairs of texts, if both are.
    """

    hashes: np.ndarray
    empty: np.ndarray


class Repeated(NamedTuple):
    """
    Rows with the same input.

    Attributes:
        later: Rows that repeat an earlier one, in order.
        disagreeing: Rows whose input occurs with several labels, in order.
        num_disagreeing: Number of such inputs.
        pair: The first such row, and the first row that repeats it with another label.
    """

    later: np.ndarray
    disagreeing: np.ndarray
    num_disagreeing: int
    pair: tuple[int, int] | None


def read_inputs(dataset: Dataset, columns: Sequence[str], task: str) -> Inputs:
    """
    Hash the inputs of all rows, a batch at a time.

    Args:
        dataset (`datasets.Dataset`): May be shuffled, selected or formatted.
        columns (`Sequence[str]`): Column of the input; two for pairs of texts.
        task (`str`): `"text"`, `"token"` or `"image"`. Images are compared by their bytes, or by their paths.
    """
    size = _IMAGES_PER_BATCH if task == "image" else _TEXTS_PER_BATCH
    rows, stored = stored_rows(dataset), dataset.data.num_rows
    if rows is not None and len(rows) < stored // 4:
        batches: Iterable[Any] = dataset.select_columns(list(columns)).with_format("arrow").iter(batch_size=size)
        rows, stored = None, len(dataset)
    else:  # stored rows in their own order, which is faster than to gather them
        batches = dataset.data.table.select(list(columns)).to_batches(max_chunksize=size)
    hashes = np.zeros(stored, dtype=np.uint64)
    empty = np.ones(stored, dtype=bool)
    start = 0
    for batch in batches:
        stop = start + batch.num_rows
        for name in columns:
            own, own_empty = _hash_images(batch[name]) if task == "image" else _hash_texts(batch[name])
            hashes[start:stop] = hashes[start:stop] * _ODD + own
            empty[start:stop] &= own_empty
        start = stop
    if rows is not None:
        hashes, empty = hashes[rows], empty[rows]
    return Inputs(hashes, np.flatnonzero(empty))


def find_repeated(inputs: Inputs, labels: np.ndarray, rows: np.ndarray | None = None) -> Repeated:
    """
    Find rows with the same input, and those of them with different labels.

    Args:
        inputs ([`Inputs`]): The inputs. Empty ones are left out.
        labels (`np.ndarray`): One label per row; negative if it is missing.
        rows (`np.ndarray`, *optional*): The rows to compare. By default all.
    """
    rows = np.arange(len(inputs.hashes)) if rows is None else rows
    rows = np.setdiff1d(rows, inputs.empty, assume_unique=True)
    none = np.empty(0, dtype=np.int64)
    if len(rows) == 0:
        return Repeated(none, none, 0, None)
    order = rows[np.argsort(inputs.hashes[rows], kind="stable")]  # the same input one after the other, in row order
    hashes = inputs.hashes[order]
    same = np.concatenate([[False], hashes[1:] == hashes[:-1]])
    starts = np.flatnonzero(~same)
    given = labels[order]
    largest = np.maximum.reduceat(given, starts)
    smallest = np.minimum.reduceat(np.where(given >= 0, given, np.iinfo(np.int64).max), starts)
    differ = np.repeat((smallest < largest), np.diff([*starts, len(order)])) & (given >= 0)
    disagreeing = np.sort(order[differ])
    pair = None
    if len(disagreeing):
        first = disagreeing[0]
        copies = disagreeing[inputs.hashes[disagreeing] == inputs.hashes[first]]
        pair = int(first), int(copies[np.argmax(labels[copies] != labels[first])])
    return Repeated(np.sort(order[same]), disagreeing, int((smallest < largest).sum()), pair)


def rows_in_both(inputs: Inputs, others: Sequence[Inputs]) -> np.ndarray:
    """Return the rows whose input also occurs in other datasets, in order; empty inputs are left out."""
    found = np.zeros(len(inputs.hashes), dtype=bool)
    for other in others:
        found |= np.isin(inputs.hashes, np.delete(other.hashes, other.empty))
    return np.flatnonzero(found)


def _hash_texts(column: pa.Array | pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the hash of each text, or list of words, and whether it is empty."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        if not hasattr(column.type, "value_type"):
            column = column.cast(pa.string())  # numbers in a column of texts
        else:
            kind = pa.large_list(pa.large_string())
            # Not a space, which the words "a", "b" and the word "a b" would have in common.
            column = pc.binary_join(pc.cast(column, kind), pa.scalar("\0", pa.large_string()))
    texts = [" ".join(text.split()).encode() if text is not None else b"" for text in column.to_pylist()]
    hashes = np.fromiter(map(xxh3_64_intdigest, texts), dtype=np.uint64, count=len(texts))
    return hashes, np.fromiter((not text for text in texts), dtype=bool, count=len(texts))


def _hash_images(column: pa.Array | pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    hashes, empty = [], []
    for value in column:
        value = value.as_py()
        content = (value.get("bytes") or value.get("path")) if isinstance(value, dict) else value
        empty.append(content is None)
        hashes.append(xxh3_64_intdigest(content if isinstance(content, bytes) else repr(content).encode()))
    return np.array(hashes, dtype=np.uint64), np.array(empty, dtype=bool)


def find_unreadable_images(dataset: Dataset, column: str, at_most: int | None = None) -> list[tuple[int, str]]:
    """
    Decode images and return the rows and the errors of those that can't be read, in order.

    JPEG files are decoded at an eighth of their size, which reads all of the file. Images that have to be downloaded
    are not read.

    Args:
        dataset (`datasets.Dataset`): May be shuffled, selected or formatted.
        column (`str`): Column of the images, or of their paths.
        at_most (`int`, *optional*): Number of images to decode, spread over the dataset. By default all.
    """
    rows = np.arange(len(dataset))
    if at_most is not None and at_most < len(rows):
        rows = np.linspace(0, len(dataset) - 1, at_most).astype(np.int64)
        dataset = dataset.select(rows)
    found = []
    start = 0
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for table in dataset.select_columns([column]).with_format("arrow").iter(batch_size=_IMAGES_PER_BATCH):
            problems = pool.map(_problem, table[column].to_pylist())
            found += [(int(rows[start + row]), problem) for row, problem in enumerate(problems) if problem]
            start += table.num_rows
    return found


def _problem(value: Any) -> str | None:
    """Return why an image can't be read; `None` if it can."""
    from PIL import Image

    content, path = (value.get("bytes"), value.get("path")) if isinstance(value, dict) else (None, value)
    if content is None and path is None:
        return "there is no image"
    if content is None and (not isinstance(path, str) or "://" in path):
        return None
    file: Any = path if content is None else io.BytesIO(content)
    try:
        with Image.open(file) as image:
            image.draft("RGB", (1, 1))
            image.load()
    except Exception as error:  # Pillow raises many kinds, SyntaxError among them
        name = f" {path}" if path else ""
        reason = "cannot be identified" if "cannot identify" in str(error) else str(error)
        return f"image{name}: {reason or type(error).__name__}"
    return None
