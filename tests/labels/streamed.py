# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""A dataset as a stream of each type."""

from __future__ import annotations

from datasets import Dataset, IterableDataset


def same(row: dict) -> dict:
    """Return the row unchanged, for `map`."""
    return row


def arrow(dataset: Dataset, num_shards: int = 4) -> IterableDataset:
    """A stream of Arrow tables."""
    return dataset.to_iterable_dataset(num_shards=num_shards)


def python(dataset: Dataset, num_shards: int = 4) -> IterableDataset:
    """A stream of Python objects with unknown features."""
    return arrow(dataset, num_shards).map(same)


def typed(dataset: Dataset, num_shards: int = 4) -> IterableDataset:
    """A stream of Python objects with known features."""
    return arrow(dataset, num_shards).map(same, features=dataset.features)
