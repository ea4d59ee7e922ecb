# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""A dataset as a stream of every kind."""

from __future__ import annotations

from datasets import Dataset, IterableDataset


def same(row: dict) -> dict:
    """What `map` is given to do nothing."""
    return row


def arrow(dataset: Dataset, num_shards: int = 4) -> IterableDataset:
    """Gives Arrow tables."""
    return dataset.to_iterable_dataset(num_shards=num_shards)


def python(dataset: Dataset, num_shards: int = 4) -> IterableDataset:
    """Gives Python objects, and does not know its features."""
    return arrow(dataset, num_shards).map(same)


def typed(dataset: Dataset, num_shards: int = 4) -> IterableDataset:
    """Gives Python objects, and knows its features."""
    return arrow(dataset, num_shards).map(same, features=dataset.features)
