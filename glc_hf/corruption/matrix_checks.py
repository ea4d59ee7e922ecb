# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""What a corruption matrix and the arguments of its families must be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


_ROW_SUM_TOLERANCE = 1e-5


def to_float64(probs: Any) -> np.ndarray:
    """A float64 copy of anything that holds numbers."""
    if hasattr(probs, "detach"):  # a torch tensor, perhaps bfloat16 or on another device
        probs = probs.detach().cpu().double().numpy()
    if isinstance(probs, (list, tuple)):
        for row, entries in enumerate(probs):
            length = len(entries) if hasattr(entries, "__len__") else 1
            if length != len(probs):
                raise ValueError(_not_square(len(probs), row, length))
    return np.array(probs, dtype=np.float64, copy=True)


def check_probs(probs: np.ndarray) -> None:
    """Square, finite, non-negative, rows that sum to one; the message names the row."""
    if probs.ndim != 2 or probs.shape[0] == 0:
        raise ValueError(f"a corruption matrix is square, (K, K); this one has shape {probs.shape}.")
    if probs.shape[0] != probs.shape[1]:
        raise ValueError(_not_square(len(probs), 0, probs.shape[1]))
    # By the extremes of each row, NaN if there is one: a K×K array of truth values would be memory for nothing.
    lowest, highest = probs.min(axis=1), probs.max(axis=1)
    for problem, bad in (
        ("has an entry that is NaN or infinite", ~(np.isfinite(lowest) & np.isfinite(highest))),
        ("has a negative entry", lowest < 0),
    ):
        if bad.any():
            row = int(np.argmax(bad))
            raise ValueError(f"row {row} of the corruption matrix {problem}: {_shorten(probs[row])}.")
    sums = probs.sum(axis=1)
    off = np.abs(sums - 1) > _ROW_SUM_TOLERANCE
    if off.any():
        row = int(np.argmax(off))
        raise ValueError(
            f"row {row} of the corruption matrix sums to {sums[row]:.6g}, not 1. Row i holds "
            "p(noisy label | true label = i); divide each row by its sum (and check that it is not transposed)."
        )


def _not_square(num_rows: int, row: int, length: int) -> str:
    return f"a corruption matrix is square, (K, K); this one has {num_rows} rows, and row {row} has {length} entries."


def _shorten(row: np.ndarray) -> str:
    return np.array2string(row, threshold=8, edgeitems=3, precision=4)


def check_names(label_names: Sequence[str] | None, num_labels: int) -> tuple[str, ...] | None:
    """As many names as classes, or none at all."""
    if label_names is None:
        return None
    names = tuple(str(name) for name in label_names)
    if len(names) != num_labels:
        raise ValueError(f"{len(names)} label names for a corruption matrix of {num_labels} classes.")
    return names


def check_num_labels(num_labels: int) -> int:
    """A whole number of at least 1."""
    if int(num_labels) != num_labels or num_labels < 1:
        raise ValueError(f"num_labels must be a whole number of at least 1, got {num_labels!r}.")
    return int(num_labels)


def check_strength(strength: float) -> float:
    """A probability."""
    if not 0.0 <= strength <= 1.0:  # NaN fails here too
        raise ValueError(f"corruption strength must lie in [0, 1], got {strength!r}.")
    return float(strength)


def group_of_each_class(groups: Sequence[Any]) -> np.ndarray:
    """Both ways to write groups down as one: the number of each class's group."""
    groups = list(groups)
    nested = [isinstance(group, (list, tuple, set, np.ndarray)) for group in groups]
    if not any(nested):
        numbers: dict[Any, int] = {}
        return np.array([numbers.setdefault(group, len(numbers)) for group in groups], dtype=np.int64)
    if not all(nested):
        raise ValueError(
            f"groups= mixes groups of classes with single values ({groups[nested.index(False)]!r}): give either the "
            "group of each class, [0, 0, 1], or the classes of each group, [[0, 1], [2]]."
        )
    classes = [int(member) for group in groups for member in group]
    if sorted(classes) != list(range(len(classes))):
        raise ValueError(
            f"the groups must hold each class 0…{len(classes) - 1} exactly once; they hold {sorted(classes)}."
        )
    group_of = np.empty(len(classes), dtype=np.int64)
    for number, group in enumerate(groups):
        group_of[[int(member) for member in group]] = number
    return group_of
