# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Rows of words and of their labels: one label a word."""

from __future__ import annotations

import pyarrow.compute as pc
from datasets import Dataset

from glc_hf.cli.columns import is_list


def check_words(dataset: Dataset, words: str, label: str, part: str) -> None:
    """
    Refuses rows whose words are missing, or not as many as their labels.

    Args:
        dataset (`Dataset`): Its label column may hold anything: nothing is checked unless both columns hold lists.
        words, label (`str`): The columns.
        part (`str`): What to call the dataset in messages.
    """
    if not (is_list(dataset.features[words]) and is_list(dataset.features[label])):
        return
    table = dataset.select_columns([words, label]).with_format("arrow")[:]
    number_of_words, number_of_labels = (pc.list_value_length(table[name]).to_pylist() for name in (words, label))
    for row, (number, labels) in enumerate(zip(number_of_words, number_of_labels, strict=True)):
        if number is None:
            raise ValueError(f"column {words!r} of {part}, row {row}: there are no words.")
        if labels != number:
            raise ValueError(f"{part}, row {row}: {number} words ({words!r}) have {labels or 0} labels ({label!r}).")
    missing = pc.list_parent_indices(table[words]).filter(pc.list_flatten(table[words]).is_null())
    if len(missing):
        raise ValueError(f"column {words!r} of {part}, row {missing[0]}: a word is missing.")
