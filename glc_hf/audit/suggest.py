# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Which rows to check next, and why."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from glc_hf.randomness import random_uint64


# Only this many times n rows, the most uncertain ones, are compared with each other.
_CANDIDATES = 20
_MAX_TRUSTED = 2000


def rows_to_check(
    log_probs: np.ndarray,
    posterior: np.ndarray,
    given: np.ndarray,
    features: np.ndarray | None,
    trusted_features: np.ndarray | None,
    n: int,
    seed: int = 0,
) -> np.ndarray:
    """
    Choose the rows whose labels are worth most for the next model: rows that the model is not sure of, spread over the
    data. Each choice is the row with the largest (1 − (p₁ − p₂)) · d², p₁ and p₂ its two most probable classes, and d
    the distance of its normalized features to the nearest row that is trusted or chosen already.

    Args:
        log_probs (`np.ndarray` of shape `(N, K)`): log p(true label | x) of the model, of rows that are not trusted.
        posterior (`np.ndarray` of shape `(N, K)`): p(true label | x, given label). Not used by this rule.
        given (`np.ndarray` of shape `(N,)`): Given labels; -100 for none. Not used by this rule.
        features (`np.ndarray` of shape `(N, D)`, *optional*): Features of the rows. Without them, rows are ranked by
            their uncertainty.
        trusted_features (`np.ndarray` of shape `(T, D)`, *optional*): Features of the trusted rows.
        n (`int`): How many.
        seed (`int`, *optional*, defaults to 0): Orders rows of equal value, and chooses among many trusted rows.

    Returns:
        `np.ndarray` of shape `(min(n, N),)`: Positions of the rows, best first.
    """
    n = min(n, len(log_probs))
    value = uncertainty(log_probs)
    ties = random_uint64("suggest", seed, np.arange(len(value)))
    candidates = np.lexsort((ties, -value))
    if features is None or n == 0:
        return candidates[:n]
    candidates = candidates[: _CANDIDATES * n]
    value, points = value[candidates], _normalized(features[candidates])
    distance = np.full(len(candidates), 4.0)  # the largest possible one, squared
    if trusted_features is not None and len(trusted_features):
        if len(trusted_features) > _MAX_TRUSTED:
            draws = random_uint64("suggest trusted", seed, np.arange(len(trusted_features)))
            trusted_features = trusted_features[np.argsort(draws, kind="stable")[:_MAX_TRUSTED]]
        distance = np.clip(2 - 2 * (points @ _normalized(trusted_features).T).max(axis=1), 0.0, None)
    chosen = np.empty(n, dtype=np.int64)
    free = np.ones(len(candidates), dtype=bool)
    for place in range(n):
        # Copies of rows that are chosen already come last, by their uncertainty.
        chosen[place] = best = np.where(free, value * (distance + 1e-6), -1.0).argmax()
        free[best] = False
        distance = np.minimum(distance, np.clip(2 - 2 * (points @ points[best]), 0.0, None))
    return candidates[chosen]


def uncertainty(log_probs: np.ndarray) -> np.ndarray:
    """1 − (p₁ − p₂), p₁ and p₂ the probabilities of the two most probable classes: 1 if they are equal."""
    if log_probs.shape[1] < 2:
        return np.zeros(len(log_probs))
    two = np.exp(np.partition(log_probs, -2, axis=1)[:, -2:])
    return 1.0 - (two[:, 1] - two[:, 0])


def reasons(
    log_probs: np.ndarray, posterior: np.ndarray, given: np.ndarray, name_of: Callable[[int], str]
) -> list[str]:
    """
    Say for each row why it should be checked.

    Args:
        log_probs, posterior, given: As in [`rows_to_check`], for the chosen rows.
        name_of (`Callable`): The name of a class.
    """
    lines = []
    for probs, after, label in zip(np.exp(log_probs), posterior, given.tolist(), strict=True):
        first, *rest = np.argsort(-probs, kind="stable")[:2].tolist()
        hesitates = "".join(f" or {name_of(second)} {probs[second]:.0%}" for second in rest)
        line = f"the model predicts {name_of(first)} {probs[first]:.0%}{hesitates}"
        if label < 0:
            line += "; the row has no label"
        elif after.argmax() != label:
            line += f"; {name_of(label)} is probably wrong"
        lines.append(line)
    return lines


def _normalized(features: np.ndarray) -> np.ndarray:
    features = np.asarray(features, dtype=np.float32)
    return features / np.clip(np.linalg.norm(features, axis=1, keepdims=True), 1e-12, None)
