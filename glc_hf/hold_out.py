# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Trusted rows held out of training and of the estimated matrix, to evaluate on."""

from __future__ import annotations

from typing import Any

import numpy as np
from datasets import Dataset

from glc_hf.labels.columns import find_label_column
from glc_hf.labels.reading import (
    IGNORED_LABEL,
    check_labels,
    check_same_lengths,
    parse_integers,
    read_flags,
    read_labels,
)
from glc_hf.labels.storage import RowIndex, column_in_order, stored_column, with_columns
from glc_hf.randomness import random_uint64
from glc_hf.trusted import smallest


# Name of the held-out rows next to other evaluation sets.
TRUSTED_SET = "trusted"


class TooFewTrustedRows(ValueError):
    """Raised if holding rows out would leave a class without trusted rows."""


def held_out_trusted_rows(
    dataset: Any, fraction: float, *, label_column: str | None = None, trusted_column: str = "trusted", seed: int = 0
) -> np.ndarray:
    """
    Return the numbers of the trusted rows to hold out, ascending.

    They depend only on the seed and the rows. If each row has one label, they are drawn from each class in proportion,
    and each class keeps at least one row to estimate from. (`Dataset.train_test_split(stratify_by_column=…)` needs a
    `ClassLabel`, and its draws do not depend on seed and row only.)

    Args:
        dataset (`Dataset`): If `None` or a dictionary of splits, no row is held out.
        fraction (`float`): Share of the trusted rows; 0 holds none out.
        label_column (`str`, *optional*): Column of the labels; found by its usual names if not given.
        trusted_column (`str`, *optional*, defaults to `"trusted"`): Column of the flags.
        seed (`int`, *optional*, defaults to 0): Seed of the draw.
    """
    if fraction == 0.0 or dataset is None or isinstance(dataset, dict):
        return np.empty(0, dtype=np.int64)
    if not isinstance(dataset, Dataset):
        raise ValueError(
            f"trusted_eval_fraction={fraction} holds rows out, which a stream can't: use a `Dataset`, or give an "
            "eval_dataset of trusted rows that are not in the stream."
        )
    name = find_label_column(dataset, label_column, trusted_column)
    trusted = trusted_rows(dataset, trusted_column)
    # Only trusted rows: others may have votes or soft labels instead of a label.
    index = RowIndex(None, trusted, "number")
    labels = parse_integers(column_in_order(dataset.select(trusted), name), name, index)
    check_labels(labels, None, name, index)
    classes = labels.values if labels.offsets is None else np.zeros(len(trusted))
    words = random_uint64("trusted evaluation", seed, trusted)
    _, of_row = np.unique(classes, return_inverse=True)
    order = np.lexsort((words, of_row))
    kept = np.zeros(len(trusted), dtype=bool)
    kept[order[np.unique(of_row[order], return_index=True)[1]]] = True  # the first row of each class
    number = max(round(fraction * len(trusted)), 1)
    if number > len(trusted) - kept.sum():
        raise TooFewTrustedRows(
            f"trusted_eval_fraction={fraction} would hold out {number} of {len(trusted)} trusted rows, and each class "
            "needs one to be estimated from: lower it, or mark more rows."
        )
    chosen = smallest(words[~kept], number, classes[~kept] if labels.offsets is None else None)
    return np.sort(trusted[~kept][chosen])


def trusted_rows(dataset: Dataset, trusted_column: str) -> np.ndarray:
    """Return the numbers of the rows that are trusted or have a trusted token, ascending."""
    flags = read_flags(dataset, trusted_column)
    trusted = np.flatnonzero(flags.values)
    return trusted if flags.offsets is None else np.unique(np.searchsorted(flags.offsets, trusted, side="right") - 1)


def trusted_part(
    dataset: Dataset, rows: np.ndarray, label_column: str | None = None, trusted_column: str = "trusted"
) -> Dataset:
    """Select held-out rows. If they have one flag per token, labels of untrusted tokens become -100."""
    part = dataset.select(rows)
    flags = read_flags(part, trusted_column)
    if flags.offsets is None:
        return part
    name = find_label_column(part, label_column)
    labels = read_labels(part, name, None)
    check_same_lengths(labels, flags)
    values = np.where(flags.values, labels.values, IGNORED_LABEL)
    column = stored_column(part, values, labels.offsets, part.data.column(name).type)
    return with_columns(part, {name: column}, part.features, {}, "glc_hf.hold_out", {"column": name})


def evaluation_sets(
    eval_dataset: Any,
    train_dataset: Any,
    rows: np.ndarray,
    label_column: str | None = None,
    trusted_column: str = "trusted",
) -> tuple[Any, Any]:
    """
    Return what to evaluate on: `(eval_dataset, trusted)`.

    Without an `eval_dataset` the held-out rows replace it; a dictionary gets them under the name `"trusted"`; next to
    a single dataset they come second.
    """
    if len(rows) == 0:
        return eval_dataset, None
    trusted = trusted_part(train_dataset, rows, label_column, trusted_column)
    if eval_dataset is None:
        return trusted, None
    if not isinstance(eval_dataset, dict):
        return eval_dataset, trusted
    if TRUSTED_SET in eval_dataset:
        raise ValueError(
            f"eval_dataset has a set called {TRUSTED_SET!r}, the name of the rows that trusted_eval_fraction holds "
            "out: rename yours."
        )
    return {**eval_dataset, TRUSTED_SET: trusted}, None
