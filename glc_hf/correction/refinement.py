# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Refinement of an estimated matrix: rows of missing and rare classes, and maximum likelihood on the noisy labels."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from glc_hf.correction.linear import FeatureTable, LinearHead, Prior
from glc_hf.correction.pool.pool_data import PoolData


MISSING_ROWS = {
    "average": "the mean diagonal of the other classes, and the rest spread evenly",
    "identity": "the row of the identity: their labels are assumed to be correct",
    "uniform": "the uniform row: their labels are assumed to carry no information",
}
_MAX_NAMED = 20
# A class with this many trusted rows is never rare.
_ALWAYS_ENOUGH = 5
# Largest accepted probability that chance alone makes any class look rare.
_SIGNIFICANCE = 0.05
_TRUSTED_SHARE = 0.15  # of the loss of a linear model


def fill_missing_rows(
    probs: Tensor, counts: Tensor, missing: str = "average", label_names: Sequence[str] | None = None
) -> Tensor:
    """
    Return a copy of the estimate with a row for each class without trusted rows. One warning lists these classes.

    Args:
        probs (`Tensor` of shape `(K, K)`): The estimate. Its rows for unseen classes are ignored.
        counts (`Tensor` of shape `(K,)`): Number of trusted rows per class.
        missing (`str`, *optional*, defaults to `"average"`):
            `"average"`: C[k, k] is the mean diagonal d of the seen classes, and the other entries are (1 − d)/(K − 1),
            as if the class had average noise. `"identity"`: C[k, k] = 1. `"uniform"`: 1/K everywhere.
        label_names (`Sequence[str]`, *optional*): Used in the warning.
    """
    if missing not in MISSING_ROWS:
        raise ValueError(f"missing must be one of {', '.join(map(repr, MISSING_ROWS))}, got {missing!r}.")
    unseen = (counts == 0).nonzero().squeeze(-1)
    num_labels = len(probs)
    if len(unseen) == num_labels:
        raise ValueError("can't estimate the corruption matrix: no class has a trusted row.")
    if len(unseen) == 0:
        return probs
    names = [str(label_names[k]) if label_names is not None else str(k) for k in unseen.tolist()]
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    warnings.warn(
        f"no trusted row for {len(names)} of {num_labels} classes: {', '.join(names[:_MAX_NAMED])}{more}. Their rows "
        f"of the corruption matrix are {MISSING_ROWS[missing]} (missing={missing!r}).",
        stacklevel=3,
    )
    if missing == "average":
        diagonal = float(probs.diagonal()[counts > 0].mean())
    else:
        diagonal = 1.0 if missing == "identity" else 1.0 / num_labels
    filled = probs.clone()
    filled[unseen] = symmetric_noise(num_labels, diagonal)[unseen].to(probs)
    return filled


def symmetric_noise(num_labels: int, diagonal: float) -> Tensor:
    """K×K float64 matrix with `diagonal` on the diagonal and (1 − diagonal)/(K − 1) elsewhere."""
    rows = torch.full((num_labels, num_labels), (1 - diagonal) / max(num_labels - 1, 1), dtype=torch.float64)
    return rows.fill_diagonal_(diagonal)


def rare_class_threshold(counts: Tensor) -> int:
    """
    Number of trusted rows below which a class is rare: five, or fewer if small counts can be due to chance.

    If all classes were as frequent as the median class, the count of each would be Poisson distributed around the
    median count. A class is rare if the probability that any of the K classes has so few rows is below 5 %.
    """
    median = counts.double().quantile(0.5)
    fewest = torch.arange(_ALWAYS_ENOUGH, dtype=torch.float64)
    at_most = torch.special.gammaincc(fewest + 1, median.cpu().expand_as(fewest))  # P(rows ≤ n) for n = 0…4
    return int((len(counts) * at_most < _SIGNIFICANCE).sum())


def shrink_rare_classes(probs: Tensor, counts: Tensor) -> Tensor:
    """
    Return a copy of the estimate in which the rows of rare classes are shrunk towards average noise.

    A class that is rare among the trusted rows, beyond chance, is also rare among the untrusted ones. Stage 1 has
    hardly learned it, and the mean of its softmax over one or two rows can be far off. With n trusted rows and the
    threshold m = [`rare_class_threshold`], the row of the estimate gets the weight n/m, and the rest goes to a row of
    average noise: the mean diagonal of the classes that are not rare, and even entries elsewhere. If all classes have
    few trusted rows, nothing changes.

    Args:
        probs (`Tensor` of shape `(K, K)`): The estimate.
        counts (`Tensor` of shape `(K,)`): Number of trusted rows per class. Rows of classes without any are kept.
    """
    threshold = rare_class_threshold(counts)
    rare = (counts > 0) & (counts < threshold)
    if not rare.any():
        return probs
    weight = (counts.double() / threshold).unsqueeze(1).to(probs)
    average = symmetric_noise(len(probs), float(probs.diagonal()[counts >= threshold].mean())).to(probs)
    return torch.where(rare.unsqueeze(1), weight * probs + (1 - weight) * average, probs)


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
    Refine an estimate Ĉ₀ with the noisy labels of rows for which a model predicts the true class:

        max_C  Σ_x log Σ_i g(x)_i · C[i, label(x)]  +  Σ_i n_i Σ_j Ĉ₀[i, j] · log C[i, j]

    g is the model's softmax. The second term counts row i of Ĉ₀ as n_i observations. The objective is concave in C, so
    EM converges to the maximum:

        q(x)_i ∝ g(x)_i · C[i, label(x)],    C[i, j] ∝ n_i · Ĉ₀[i, j] + Σ_{x labelled j} q(x)_i

    Args:
        probs (`Tensor` of shape `(N, K)`): g for the rows of this process.
        labels (`Tensor` of shape `(N,)` or `(N, K)`):
            The noisy labels of these rows, or their probabilities (floats). Row x with the probabilities t(x) counts
            as t(x)_j rows labelled j.
        estimate (`Tensor` of shape `(K, K)`): Ĉ₀.
        counts (`Tensor` of shape `(K,)`): n, the number of trusted rows per class behind Ĉ₀.
        iterations (`int`, *optional*, defaults to 200): Maximum number of EM steps.
        tolerance (`float`, *optional*, defaults to 1e-5): Stop when no entry changes by more than this.
        reduce (`Callable`, *optional*): Sum of a tensor over processes; every process calls it equally often.

    Returns:
        `Tensor` of shape `(K, K)` in float64.
    """
    probs, estimate = probs.double(), estimate.double()
    # The row of a class without trusted rows counts as one observation.
    prior = estimate * counts.double().clamp(min=1.0).unsqueeze(1)
    matrix = estimate
    for _ in range(iterations):
        observed = reduce(_expected_counts(probs, labels, matrix)).t() + prior
        updated = observed / observed.sum(dim=1, keepdim=True)
        change = (updated - matrix).abs().max()
        matrix = updated
        if change <= tolerance:
            break
    return matrix


def _expected_counts(probs: Tensor, labels: Tensor, matrix: Tensor) -> Tensor:
    """The expected number of rows by (label, true class), given the matrix."""
    tiny = torch.finfo(torch.float64).tiny
    if labels.is_floating_point():
        likelihood = probs @ matrix
        return matrix.t() * (torch.where(likelihood > tiny, labels.double() / likelihood, 0.0).t() @ probs)
    joint = probs * matrix.t()[labels]
    joint /= joint.sum(dim=1, keepdim=True).clamp(min=tiny)
    return torch.zeros_like(matrix).index_add_(0, labels, joint)


# ---------------------------------------------------------------------- with linear models
def smoothed_estimate(sums: Tensor, counts: Tensor) -> Tensor:
    """
    The gold estimate with one more row per class: a row of average noise, so that classes with few trusted items, or
    none, are close to it.

    Args:
        sums (`Tensor` of shape `(K, K)`): Sums of p̂(noisy label | x) over the trusted items of each class.
        counts (`Tensor` of shape `(K,)`): Number of these items.
    """
    sums, counts = sums.double(), counts.double()
    seen = counts > 0
    diagonal = float((sums.diagonal()[seen] / counts[seen]).mean()) if seen.any() else 1.0
    smoothed = sums + symmetric_noise(len(sums), diagonal).to(sums)
    return smoothed / smoothed.sum(dim=1, keepdim=True)


def refine_with_linear_model(
    table: FeatureTable,
    rows: Tensor,
    labels: Tensor,
    trusted: Tensor,
    untrusted: Tensor,
    estimate: Tensor,
    counts: Tensor,
    *,
    prior: Prior,
    trusted_weight: float,
    rounds: int = 2,
) -> tuple[Tensor, LinearHead]:
    """
    Refine a matrix with a linear model of the true labels. The model is fitted with the loss corrected by the current
    matrix, and the matrix becomes the most likely one given the model; see
    [`most_likely_matrix`]. After two rounds it hardly changes.

    Args:
        table ([`FeatureTable`]): The features.
        rows (`Tensor` of shape `(n,)`): Table rows to fit on.
        labels (`Tensor` of shape `(N,)`): The given label of each table row.
        trusted (`Tensor` of shape `(n,)`): Flags of `rows`.
        untrusted (`Tensor`): Table rows of the untrusted items that the matrix should explain.
        estimate (`Tensor` of shape `(K, K)`): The first estimate.
        counts (`Tensor` of shape `(K,)`): Number of trusted items behind each of its rows.
        prior ([`Prior`]): Of the model.
        trusted_weight (`float`): Weight of each trusted item.
        rounds (`int`, *optional*, defaults to 2): How often.

    Returns:
        The matrix, and the head of the last round.
    """
    matrix, head = estimate, None
    for _ in range(rounds):
        head = table.fit(
            rows,
            labels[rows],
            len(estimate),
            penalty=prior.penalty,
            matrix=matrix,
            trusted=trusted,
            trusted_weight=trusted_weight,
            start=head,
            prior=prior.root,
        )
        matrix = most_likely_matrix(
            table.logits(head, untrusted).softmax(dim=-1),
            labels[untrusted],
            estimate,
            counts.clamp(min=rare_class_threshold(counts)),
            reduce=table.reduce,
        )
    assert head is not None  # there is at least one round
    return matrix, head


def fit_with_matrix(
    data: PoolData, noisy: LinearHead, trusted: Tensor, untrusted: Tensor, prior: Prior, rounds: int
) -> tuple[Tensor, LinearHead]:
    """
    Estimate a matrix, and a linear model of the true labels with it; see [`refine_with_linear_model`]. Trusted items
    have 15 % of the loss if all untrusted items are fitted, and more if some are held out.

    Args:
        data ([`PoolData`]): The items.
        noisy ([`LinearHead`]): The model of the noisy labels, which gives the first estimate.
        trusted, untrusted (`Tensor`): Table rows to fit on.
        prior ([`Prior`]): Of the model.
        rounds (`int`): How often.
    """
    table, labels, rows = data.table, data.labels, torch.cat([trusted, untrusted])
    sums = torch.zeros(data.num_labels, data.num_labels + 1, dtype=torch.float64)
    probs = torch.nn.functional.pad(table.logits(noisy, trusted).double().softmax(dim=-1), (0, 1), value=1.0)
    sums = table.reduce(sums.index_add_(0, labels[trusted], probs))
    counts = sums[:, -1]
    return refine_with_linear_model(
        table,
        rows,
        labels,
        torch.arange(len(rows)) < len(trusted),
        untrusted,
        smoothed_estimate(sums[:, :-1], counts),
        counts,
        prior=prior,
        trusted_weight=data.weight_for(_TRUSTED_SHARE, int(counts.sum())),
        rounds=rounds,
    )
