# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The corruption matrix that explains the noisy labels best, given what a model says about the true ones."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


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
