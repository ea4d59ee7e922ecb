# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Which rows to check next, and why."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from glc_hf.labels.label_batch import Votes
from glc_hf.randomness import random_uint64


# Only this many rows, those of the largest value, are clustered.
_MAX_CANDIDATES = 20_000
_MAX_CLUSTERS = 500
_MAX_TRUSTED = 2000
_ROUNDS = 15
_CHUNK = 4096
# A class with fewer trusted rows is named in the reason.
_FEW_TRUSTED = 5


def value_of_checking(
    log_probs: np.ndarray, trusted_counts: np.ndarray, disagreement: np.ndarray | None = None
) -> np.ndarray:
    """
    The value of checking each row by itself: (1 − (p₁ − p₂)) · (1 + d) · Σ_y p(y | x) / √(1 + n_y), with the
    probabilities p₁ and p₂ of the two most probable classes, the disagreement d of the sources, and the number n_y of
    trusted rows of class y. Rows of classes with few trusted rows, whose row of Ĉ is uncertain, count more.

    Args:
        log_probs (`np.ndarray` of shape `(N, K)`): log p(true label | x).
        trusted_counts (`np.ndarray` of shape `(K,)`): Number of trusted rows of each class.
        disagreement (`np.ndarray` of shape `(N,)`, *optional*): Share of the votes on each row that are not for the
            class with the most votes.
    """
    value = uncertainty(log_probs) * (np.exp(log_probs) @ (1 / np.sqrt(1 + trusted_counts)))
    return value if disagreement is None else value * (1 + disagreement)


def disagreement_of(votes: Votes, num_labels: int) -> np.ndarray:
    """Share of the votes on each item that are not for the class with the most votes; 0 without votes."""
    counts = np.bincount(votes.items * num_labels + votes.labels, minlength=len(votes) * num_labels)
    counts = counts.reshape(len(votes), num_labels)
    total = counts.sum(axis=1)
    return 1.0 - np.where(total > 0, counts.max(axis=1), 1) / np.maximum(total, 1)


def uncertainty(log_probs: np.ndarray) -> np.ndarray:
    """1 − (p₁ − p₂), p₁ and p₂ the probabilities of the two most probable classes: 1 if they are equal."""
    if log_probs.shape[1] < 2:
        return np.zeros(len(log_probs))
    two = np.exp(np.partition(log_probs, -2, axis=1)[:, -2:])
    return 1.0 - (two[:, 1] - two[:, 0])


def rows_to_check(
    value: np.ndarray,
    features_of: Callable[[np.ndarray], np.ndarray],
    trusted_features: np.ndarray | None,
    n: int,
    seed: int = 0,
) -> np.ndarray:
    """
    Choose rows of large value that stand for many others. The rows are grouped by k-means with their values as
    weights, `n` clusters, and the trusted rows as further centers that do not move. The row closest to the center of
    each cluster is chosen, starting with the cluster that has the largest sum of values. The most valuable rows
    without clusters would be hard rows of few kinds, and no better for the next model than random rows.

    Beyond 500 rows, the second row of each cluster follows, and so on. Rows that are closest to a trusted row come
    last, and if there are more than 20,000 rows, those of small value.

    Args:
        value (`np.ndarray` of shape `(N,)`): Of rows that are not trusted; see [`value_of_checking`].
        features_of (`Callable`): Features `(m, D)` of rows, from their positions `(m,)`. Only their directions count.
        trusted_features (`np.ndarray` of shape `(T, D)`, *optional*): Features of the trusted rows.
        n (`int`): How many.
        seed (`int`, *optional*, defaults to 0): Of the first centers; orders rows of equal value.

    Returns:
        `np.ndarray` of shape `(min(n, N),)`: Positions of the rows, best first.
    """
    n = min(n, len(value))
    by_value = np.lexsort((random_uint64("suggest", seed, np.arange(len(value))), -value))
    candidates = by_value[:_MAX_CANDIDATES]
    if n == 0:
        return candidates[:0]
    points = _normalized(features_of(candidates))
    # Rows that the model is sure of have a little weight, so that there is always a row to choose.
    weights = torch.from_numpy(value[candidates] / max(value.max(), 1e-12) + 1e-6).float()
    covered = torch.full((len(points),), 4.0)  # the largest possible squared distance
    if trusted_features is not None and len(trusted_features):
        draws = random_uint64("suggest trusted", seed, np.arange(len(trusted_features)))
        some = np.sort(np.argsort(draws, kind="stable")[:_MAX_TRUSTED])
        covered = _nearest(points, _normalized(trusted_features[some]))[0]
    order = _representatives(points, weights, covered, min(n, _MAX_CLUSTERS), seed).numpy()
    return np.concatenate([candidates[order], by_value[_MAX_CANDIDATES:]])[:n]


def _representatives(points: Tensor, weights: Tensor, covered: Tensor, clusters: int, seed: int) -> Tensor:
    """All points, those closest to the centers of their clusters first. Points that are closer to a fixed center, at
    the squared distance `covered`, than to any other come last, in their order."""
    centers = points[_first_centers(points, weights, covered, clusters, seed)].clone()
    for last in [False] * _ROUNDS + [True]:
        distance, cluster = _nearest(points, centers)
        free = torch.nonzero(distance < covered).squeeze(1)
        mass = torch.zeros(clusters).index_add_(0, cluster[free], weights[free])
        if not last:
            sums = torch.zeros_like(centers).index_add_(0, cluster[free], weights[free, None] * points[free])
            used = mass > 0
            centers[used] = sums[used] / mass[used, None]
    cluster_of, free_points = cluster.numpy(), free.numpy()
    by_cluster = free_points[np.lexsort((distance.numpy()[free_points], cluster_of[free_points]))]
    own = cluster_of[by_cluster]
    rank = np.arange(len(own)) - np.searchsorted(own, own)  # of each point in its cluster
    first = by_cluster[np.lexsort((-mass.numpy()[own], rank))]
    others = np.setdiff1d(np.arange(len(points)), first)
    return torch.from_numpy(np.concatenate([first, others]))


def _first_centers(points: Tensor, weights: Tensor, covered: Tensor, number: int, seed: int) -> Tensor:
    """Draw points one by one, with probabilities proportional to weight · squared distance to the nearest center (the
    start of k-means++)."""
    draws = random_uint64("suggest centers", seed, np.arange(number)) / 2.0**64
    distance, chosen = covered.clone(), torch.empty(number, dtype=torch.int64)
    for place, draw in enumerate(draws.tolist()):
        total = torch.cumsum((weights * (distance + 1e-12)).double(), 0)
        best = min(int(torch.searchsorted(total, draw * total[-1], right=True)), len(points) - 1)
        chosen[place] = best
        distance = torch.minimum(distance, (2 - 2 * (points @ points[best])).clamp(min=0.0))
    return chosen


def _nearest(points: Tensor, centers: Tensor) -> tuple[Tensor, Tensor]:
    """The squared distance of each point to the nearest center, and the number of this center."""
    half = centers.square().sum(dim=1) / 2
    parts = [(some @ centers.t() - half).max(dim=1) for some in points.split(_CHUNK)]
    product, number = (torch.cat(values) for values in zip(*parts, strict=True))
    return (points.square().sum(dim=1) - 2 * product).clamp(min=0.0), number


def _normalized(features: np.ndarray) -> Tensor:
    return torch.nn.functional.normalize(torch.from_numpy(np.asarray(features, dtype=np.float32)), dim=1)


def reasons(
    log_probs: np.ndarray,
    posterior: np.ndarray,
    given: np.ndarray,
    trusted_counts: np.ndarray,
    name_of: Callable[[int], str | None],
    disagreement: np.ndarray | None = None,
) -> list[str]:
    """
    Say for each row why it should be checked.

    Args:
        log_probs, trusted_counts, disagreement: As in [`value_of_checking`], for the chosen rows.
        posterior (`np.ndarray` of shape `(N, K)`): p(true label | x, given label).
        given (`np.ndarray` of shape `(N,)`): Given labels; -100 for none.
        name_of (`Callable`): The name of a class.
    """
    lines = []
    disagreement = np.zeros(len(given)) if disagreement is None else disagreement
    for probs, after, label, others in zip(
        np.exp(log_probs), posterior, given.tolist(), disagreement.tolist(), strict=True
    ):
        first, *rest = np.argsort(-probs, kind="stable")[:2].tolist()
        hesitates = "".join(f" or {name_of(second)} {probs[second]:.0%}" for second in rest)
        line = f"the model predicts {name_of(first)} {probs[first]:.0%}{hesitates}"
        if label < 0:
            line += "; the row has no label"
        elif after.argmax() != label:
            line += f"; {name_of(label)} is probably wrong"
        if others > 0:
            line += "; the sources disagree"
        if trusted_counts[first] < _FEW_TRUSTED:
            line += f"; few trusted rows of {name_of(first)} ({trusted_counts[first]})"
        lines.append(line)
    return lines
