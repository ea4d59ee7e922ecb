# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""What columns of labels, flags and indices must hold; each message names the first row that does not, and the fix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


# Labels that the loss leaves out: special tokens, and all but the first token of a word.
IGNORED_LABEL = -100


def require_column(names: list[str], name: str, argument: str) -> None:
    """An error where a column is not there."""
    if name not in names:
        raise ValueError(f"there is no {argument} {name!r}; the columns are {', '.join(map(str, names))}.")


def require_flags(names: list[str], trusted_column: str, method: str | None = None) -> None:
    """An error where the flags are not there."""
    if trusted_column in names:
        return
    who = f"method {method!r} needs to know which rows are trusted, but " if method else ""
    raise ValueError(
        f"{who}there is no column {trusted_column!r}; the columns are {', '.join(map(str, names))}. Make it with "
        "`mark_trusted(dataset, fraction=…)` or `merge_trusted(trusted, untrusted)`, or name your own boolean column "
        "with trusted_column=" + ("." if method else " (trusted_column=None: no row is trusted).")
    )


def check_labels(
    values: np.ndarray,
    missing: np.ndarray | None,
    num_labels: int | None,
    in_lists: bool,
    column: str,
    name: Callable[[int], str],
) -> None:
    """An error that names the first label which is no class."""
    bad = values < 0
    if num_labels is not None:
        bad |= values >= num_labels
    if in_lists:
        bad &= values != IGNORED_LABEL
    if missing is not None:
        bad |= missing
    if not bad.any():
        return
    first = int(np.argmax(bad))
    value = None if missing is not None and missing[first] else int(values[first])
    classes = f"0…{num_labels - 1}" if num_labels is not None else "0 or more"
    ignored = f", or {IGNORED_LABEL} for a token without label" if in_lists else ""
    fix = "Drop such rows with `dataset.filter`."
    if num_labels is not None and value is not None and value >= num_labels:
        fix = f"If it is one, give the model as many: num_labels={int(values.max()) + 1}. Otherwise d{fix[1:]}"
    raise ValueError(
        f"label {value} in column {column!r}, {name(first)}, is no class: classes are {classes}{ignored}. {fix}"
    )


def check_num_labels(feature: Any, num_labels: int, column: str, source: str) -> None:
    """An error where the column's own classes are of another number than K."""
    names = class_names(feature)
    if names is not None and len(names) != num_labels:
        raise ValueError(f"{source} has {num_labels} classes, column {column!r} has {len(names)}.")


def class_names(feature: Any) -> list[str] | None:
    """The names of a `ClassLabel` feature, or of a list of them."""
    while hasattr(feature, "feature"):
        feature = feature.feature
    return list(feature.names) if getattr(feature, "_type", None) == "ClassLabel" else None


def check_same_lengths(label_lengths: np.ndarray | None, flag_lengths: np.ndarray | None, name: Any) -> None:
    """An error where flags are lists but not one for each label; `name(row)` names a row."""
    if flag_lengths is None:
        return
    if label_lengths is None:
        raise ValueError("the trusted flags are lists, but a row has one label: one flag a row is needed.")
    wrong = label_lengths != flag_lengths
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"{name(row)} has {label_lengths[row]} labels and {flag_lengths[row]} trusted flags; a list of flags has "
            f"one for each label (False where the label is {IGNORED_LABEL})."
        )


def refuse_missing(missing: np.ndarray | None, column: str, name: Callable[[int], str]) -> None:
    """An error where a value is null."""
    if missing is not None and missing.any():
        raise ValueError(f"column {column!r} has no value (None) in {name(int(np.argmax(missing)))}.")


def refuse_duplicates(values: np.ndarray, column: str) -> None:
    """An error where two rows have the same index."""
    if len(values) < 2:
        return
    low, high = int(values.min()), int(values.max())
    if high - low < 8 * len(values):  # as far as a table of bytes is no larger than the column
        seen = np.zeros(high - low + 1, dtype=bool)
        seen[values - low] = True
        unique = np.count_nonzero(seen) == len(values)
    else:
        ordered = np.sort(values)
        unique = bool((ordered[1:] != ordered[:-1]).all())
    if unique:
        return
    order = np.argsort(values, kind="stable")
    repeated = order[1:][values[order][1:] == values[order][:-1]]
    second = int(repeated.min())
    first = int(np.argmax(values == values[second]))
    raise ValueError(
        f"index_column {column!r} must be unique, but rows {first} and {second} both have {values[second]}: their "
        "noise would be the same."
    )
