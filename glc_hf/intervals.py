# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Intervals of shares such as accuracies and noise rates, from the number of rows behind them."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any, overload

import numpy as np


# Level of the intervals of accuracies, and of matrices and their noise rates.
ACCURACY_LEVEL = 0.9
MATRIX_LEVEL = 0.95
_BISECTIONS = 40


@overload
def wilson_interval(share: float, rows: float, level: float) -> tuple[float, float]: ...
@overload
def wilson_interval(share: np.ndarray, rows: np.ndarray | float, level: float) -> tuple[np.ndarray, np.ndarray]: ...
def wilson_interval(share: Any, rows: Any, level: float) -> tuple[Any, Any]:
    """
    Wilson score interval of a share p measured on n rows, `(low, high)`:

        (p + z²/2n ± z·√(p(1 − p)/n + z²/4n²)) / (1 + z²/n)

    It stays within 0 and 1, and has a positive width at p = 0 and p = 1. Without rows it is (0, 1).

    Args:
        share (`float` or `array`): p. The number of hits, n·p, does not have to be an integer.
        rows (`float` or `array`): n, in a shape that broadcasts with `share`.
        level (`float`): Probability, in (0, 1), that the interval contains the true share, such as 0.9.
    """
    share, rows = np.broadcast_arrays(np.asarray(share, dtype=np.float64), np.asarray(rows, dtype=np.float64))
    if not ((share >= 0) & (share <= 1)).all():  # NaN fails too
        raise ValueError(f"a share is in [0, 1], got {share[~((share >= 0) & (share <= 1))].flat[0]}.")
    if not (rows >= 0).all():
        raise ValueError(f"the number of rows can't be negative, got {rows[~(rows >= 0)].flat[0]}.")
    square = normal_quantile(level) ** 2
    # Multiplied by n, so that n = 0 needs no special case: the interval becomes (0, 1).
    center = share * rows + square / 2
    half = np.sqrt(square * (share * (1 - share) * rows + square / 4))
    low, high = (center - half) / (rows + square), (center + half) / (rows + square)
    # Rounding must not move the bounds past the share or its limits.
    low, high = np.clip(low, 0.0, share), np.clip(high, share, 1.0)
    return np.where(share == 0, 0.0, low)[()], np.where(share == 1, 1.0, high)[()]


def mean_interval(shares: Any, low: Any, high: Any) -> tuple[float, float]:
    """
    Interval of the mean of independent shares p_k with the intervals (l_k, u_k), at the same level:

        mean(p) − √(Σ (p_k − l_k)²)/K,  mean(p) + √(Σ (u_k − p_k)²)/K
    """
    shares, low, high = (np.asarray(values, dtype=np.float64) for values in (shares, low, high))
    mean, below, above = shares.mean(), np.linalg.norm(shares - low), np.linalg.norm(high - shares)
    return float(max(mean - below / len(shares), 0.0)), float(min(mean + above / len(shares), 1.0))


def accuracies_differ(first: float, second: float, rows: float, level: float = ACCURACY_LEVEL) -> bool:
    """
    Whether two accuracies, each measured on `rows` rows, differ by more than chance: the interval of their difference
    (Newcombe's, from the two Wilson intervals) does not contain 0.

    The rows count as two independent samples, because it is not known which rows both models got right. For two models
    on the same rows this is conservative: a difference that is called chance here may be real.
    """
    better, worse = max(first, second), min(first, second)
    below = better - wilson_interval(better, rows, level)[0]
    above = wilson_interval(worse, rows, level)[1] - worse
    return bool(better - worse > math.hypot(below, above))


def smallest_difference(accuracy: float, rows: float, level: float = ACCURACY_LEVEL) -> float:
    """How far another accuracy on as many rows must be below `accuracy` to differ by more than chance; see
    [`accuracies_differ`]. Infinite if even 0 is not far enough."""
    if not accuracies_differ(accuracy, 0.0, rows, level):
        return math.inf
    chance, different = 0.0, accuracy
    for _ in range(_BISECTIONS):
        middle = (chance + different) / 2
        if accuracies_differ(accuracy, accuracy - middle, rows, level):
            different = middle
        else:
            chance = middle
    return different


# ---------------------------------------------------------------------- text
def format_accuracy(accuracy: float, rows: int | None, unit: str = "rows", level: float = ACCURACY_LEVEL) -> str:
    """Format an accuracy with its interval, such as `86.0% (82.4 to 89.0 on 300 rows)`; without the interval if the
    number of rows is not known."""
    if not rows:
        return f"{accuracy:.1%}"
    interval = format_interval(*wilson_interval(accuracy, rows, level))
    return f"{accuracy:.1%} ({interval} on {format_count(rows, unit)})"


def format_interval(low: float, high: float, digits: int = 1) -> str:
    """Format an interval of a share in percent, without the sign, such as `82.4 to 89.0`."""
    return f"{100 * low:.{digits}f} to {100 * high:.{digits}f}"


def format_count(number: int, unit: str = "rows") -> str:
    """Format a number of rows or labels, such as `1,200 rows` and `1 row`."""
    return f"{number:,} {unit if number != 1 else unit.removesuffix('s')}"


def format_level(level: float) -> str:
    """Format a level, such as `90%`."""
    return f"{100 * level:g}%"


def normal_quantile(level: float) -> float:
    """How many standard errors the interval of a level extends to each side."""
    if not 0 < level < 1:
        raise ValueError(f"level must be in (0, 1), got {level!r}.")
    return NormalDist().inv_cdf(0.5 + level / 2)
