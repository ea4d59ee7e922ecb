# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Rows of the corruption matrix for classes of which no trusted row, or hardly one, is at hand."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor


MISSING_ROWS = {
    "average": "the mean diagonal of the other classes, and the rest spread evenly",
    "identity": "the row of the identity: their labels are taken as right",
    "uniform": "the uniform row: their labels are taken as saying nothing",
}
_MOST_NAMED = 20
# Rows that let any class speak for itself, and how likely luck alone may make one class or other look rare.
_ENOUGH_FOR_ANY = 5
_LUCK = 0.05


def fill_missing_rows(
    probs: Tensor, counts: Tensor, missing: str = "average", label_names: Sequence[str] | None = None
) -> Tensor:
    """
    A copy of the estimate in which each class without trusted rows has a row, after one warning that lists them.

    Args:
        probs (`Tensor` of shape `(K, K)`): The estimate; its rows for unseen classes are not read.
        counts (`Tensor` of shape `(K,)`): Number of trusted rows of each class.
        missing (`str`, *optional*, defaults to `"average"`):
            `"average"`: C[k, k] is the mean diagonal d of the classes seen, and the other entries (1 − d)/(K − 1), as
            if the class were as noisy as the average one. `"identity"`: C[k, k] = 1. `"uniform"`: 1/K everywhere.
        label_names (`Sequence[str]`, *optional*): For the warning.
    """
    if missing not in MISSING_ROWS:
        raise ValueError(f"missing must be one of {', '.join(map(repr, MISSING_ROWS))}, got {missing!r}.")
    unseen = (counts == 0).nonzero().squeeze(-1)
    num_labels = len(probs)
    if len(unseen) == num_labels:
        raise ValueError("the corruption matrix can't be estimated: no class has a trusted row.")
    if len(unseen) == 0:
        return probs
    named = [str(label_names[k]) if label_names is not None else str(k) for k in unseen.tolist()]
    listed = ", ".join(named[:_MOST_NAMED]) + (
        f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    )
    warnings.warn(
        f"no trusted row for {len(named)} of {num_labels} classes: {listed}. Their rows of the corruption matrix are "
        f"{MISSING_ROWS[missing]} (missing={missing!r}).",
        stacklevel=3,
    )
    if missing == "identity":
        stay = 1.0
    elif missing == "uniform":
        stay = 1.0 / num_labels
    else:
        stay = float(probs.diagonal()[counts > 0].mean())
    filled = probs.clone()
    filled[unseen] = even_rows(num_labels, stay)[unseen].to(probs)
    return filled


def even_rows(num_labels: int, stay: float) -> Tensor:
    """Every label is right with the probability `stay`, and any other one as often as the next."""
    rows = torch.full((num_labels, num_labels), (1 - stay) / max(num_labels - 1, 1), dtype=torch.float64)
    return rows.fill_diagonal_(stay)


def enough_rows(counts: Tensor) -> int:
    """
    How many trusted rows a class needs to speak for itself: five, or as many as luck can explain if fewer.

    Were all classes as frequent as the median one, the rows of each would follow Poisson's distribution about its
    count. A class has too few to be one of those if any of the K would have so few with a probability below 5 %.
    """
    typical = counts.double().quantile(0.5)
    fewest = torch.arange(_ENOUGH_FOR_ANY, dtype=torch.float64)
    at_most = torch.special.gammaincc(fewest + 1, typical.cpu().expand_as(fewest))  # P(rows ≤ n) for n = 0…4
    return int((len(counts) * at_most < _LUCK).sum())


def lean_scarce_rows(probs: Tensor, counts: Tensor) -> Tensor:
    """
    A copy of the estimate in which the rows of very rare classes lean on the other classes' rows.

    A class that is rare among the trusted rows, more than luck explains, is rare among the untrusted ones too: stage 1
    has hardly learned it, and the mean of its softmax over one or two rows can be far off. With n of the m =
    [`enough_rows`] rows that a class should have, its own estimate counts n/m, and the rest is a class as noisy as the
    average one: its diagonal is the mean of the classes with enough rows, and the other entries are even. Where
    trusted rows are few for all classes alike, nothing changes: their rows are all there is to go by.

    Args:
        probs (`Tensor` of shape `(K, K)`): The estimate.
        counts (`Tensor` of shape `(K,)`): Number of trusted rows of each class; rows of classes without any are kept.
    """
    enough = enough_rows(counts)
    scarce = (counts > 0) & (counts < enough)
    if not scarce.any():
        return probs
    own = (counts.double() / enough).unsqueeze(1).to(probs)
    stay = float(probs.diagonal()[counts >= enough].mean())
    return torch.where(scarce.unsqueeze(1), own * probs + (1 - own) * even_rows(len(probs), stay).to(probs), probs)


def most_likely_matrix(
    probs: Tensor,
    labels: Tensor,
    estimate: Tensor,
    counts: Tensor,
    *,
    iterations: int = 200,
    tolerance: float = 1e-5,
    reduce: Callable[[Tensor], Tensor] = lambda tensor: tensor,
) -> Tensor:
    """
    Refines an estimate Ĉ₀ by the noisy labels of rows whose true class a model knows more or less:

        max_C  Σ_x log Σ_i g(x)_i · C[i, label(x)]  +  Σ_i n_i Σ_j Ĉ₀[i, j] · log C[i, j]

    g is the model's softmax, and the second part counts row i of Ĉ₀ as n_i observations. This is concave in C, so what
    EM climbs to is the maximum:

        q(x)_i ∝ g(x)_i · C[i, label(x)],    C[i, j] ∝ n_i · Ĉ₀[i, j] + Σ_{x labelled j} q(x)_i

    Args:
        probs (`Tensor` of shape `(N, K)`): g, of this process's rows.
        labels (`Tensor` of shape `(N,)`): The noisy labels of these rows.
        estimate (`Tensor` of shape `(K, K)`): Ĉ₀.
        counts (`Tensor` of shape `(K,)`): n, how many trusted rows of each class Ĉ₀ comes from.
        iterations (`int`, *optional*, defaults to 200): At most so many steps of EM.
        tolerance (`float`, *optional*, defaults to 1e-5): It ends when no entry moves by more.
        reduce (`Callable`, *optional*): The sum of a tensor over processes; each process calls it equally often.

    Returns:
        `Tensor` of shape `(K, K)` in float64.
    """
    probs, estimate = probs.double(), estimate.double()
    # A class without trusted rows still has a row in Ĉ₀: it counts as one observation.
    prior = estimate * counts.double().clamp(min=1.0).unsqueeze(1)
    matrix = estimate
    for _ in range(iterations):
        joint = probs * matrix.t()[labels]
        joint /= joint.sum(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
        by_label = torch.zeros_like(estimate).index_add_(0, labels, joint)
        observed = reduce(by_label).t() + prior
        updated = observed / observed.sum(dim=1, keepdim=True)
        moved = (updated - matrix).abs().max()
        matrix = updated
        if moved <= tolerance:
            break
    return matrix
