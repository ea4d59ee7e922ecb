# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Class names that differ only in case or blanks: found, and merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import ClassLabel, Dataset, List, Value

from glc_hf.data.label_values import is_missing
from glc_hf.labels.reading import class_names
from glc_hf.labels.storage import column_in_order, flat_values


def spelling_key(name: str) -> str:
    """Return what spellings of a class have in common: its words, in lower case."""
    return " ".join(name.split()).casefold()


def different_spellings(counts: Mapping[str, int]) -> list[list[str]]:
    """Return the groups of names that differ only in case or blanks, each with its most frequent spelling first."""
    groups: dict[str, list[str]] = {}
    for name in sorted(counts, key=lambda name: (-counts[name], name)):
        groups.setdefault(spelling_key(name), []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def normalize_labels(
    parts: dict[str, Dataset], columns: Sequence[str], names: list[str] | None = None
) -> tuple[dict[str, Dataset], int, int]:
    """
    Merge class names that differ only in case or blanks: each class gets its most frequent spelling in the first
    column (else in any), without blanks at its ends and with single blanks within.

    Args:
        parts (`dict[str, Dataset]`): The datasets, which have the same classes.
        columns (`Sequence[str]`): Columns of labels and of votes, of names or lists of names. Numbers are not changed.
        names (`list[str]`, *optional*): The spellings to use, for example those of a trained model.

    Returns:
        The parts, the number of spellings, and the number of classes that remain.
    """
    targets = [(part, column) for part, data in parts.items() for column in columns if column in data.column_names]
    counts: dict[str, np.ndarray] = {}  # in the first column, and in all
    for part, column in targets:
        for name, count in _name_counts(parts[part], column).items():
            counts.setdefault(name, np.zeros(2, dtype=np.int64))
            counts[name] += [count if column == columns[0] else 0, count]
    clean: dict[str, dict[str, np.ndarray]] = {}
    for name, both in counts.items():
        spellings, spelling = clean.setdefault(spelling_key(name), {}), " ".join(name.split())
        spellings[spelling] = spellings[spelling] + both if spelling in spellings else both
    chosen = {
        key: min(spellings, key=lambda spelling: (*-spellings[spelling], spelling)) for key, spellings in clean.items()
    }
    chosen.update({spelling_key(name): name for name in names or ()})
    spelling_of = {name: chosen[spelling_key(name)] for name in counts}
    parts = dict(parts)
    if any(name != spelling for name, spelling in spelling_of.items()):
        for part, column in targets:
            parts[part] = _respell(parts[part], column, spelling_of)
    return parts, len(counts), len(set(spelling_of.values()))


def _name_counts(dataset: Dataset, column: str) -> dict[str, int]:
    """Return how often each name occurs; nothing for numbers. All names of a `ClassLabel` are included."""
    values, _ = flat_values(column_in_order(dataset, column))
    known = class_names(dataset.features[column])
    if known is None and not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return {}
    counts = dict.fromkeys(known or (), 0)
    for entry in pc.value_counts(values).to_pylist():
        value, count = entry["values"], entry["counts"]
        if known is not None and value is not None and 0 <= value < len(known):
            counts[known[value]] += count
        elif known is None and not is_missing(value):
            counts[value] = count
    return counts


def _respell(dataset: Dataset, column: str, spelling_of: dict[str, str]) -> Dataset:
    known = class_names(dataset.features[column])
    values, offsets = flat_values(arrow := column_in_order(dataset, column))
    if known is None:
        if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
            return dataset
        distinct = values.unique()
        new = pa.array([spelling_of.get(value, value) for value in distinct.to_pylist()], pa.string())
        feature: Any = Value("string")
    else:
        merged = list(dict.fromkeys(spelling_of.get(name, name) for name in known))
        number_of = {number: merged.index(spelling_of.get(name, name)) for number, name in enumerate(known)}
        distinct = values.unique()
        new = pa.array([number_of.get(value, value) for value in distinct.to_pylist()], pa.int64())
        feature = ClassLabel(names=merged)
    result: Any = new.take(pc.index_in(values, value_set=distinct))
    if offsets is not None:
        feature = List(feature)
        result = _lists(result, offsets, arrow, new.type)
    # The new column first: a dataset without columns forgets its number of rows.
    dataset = dataset.add_column("__spelled__", result, feature=feature)
    order = dataset.column_names[:-1]
    return dataset.remove_columns(column).rename_column("__spelled__", column).select_columns(order)


def _lists(values: Any, offsets: np.ndarray, like: pa.ChunkedArray, kind: pa.DataType) -> Any:
    """Return lists of the values, `None` where `like` has none."""
    flat = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    mask = pa.array(like.is_null().to_numpy())
    lists = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), flat, mask=mask)
    return lists.cast(pa.list_(kind))
