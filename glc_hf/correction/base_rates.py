# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Base rates of the noisy labels as a second source on Ĉ (one of the paper's two refinements; it found no gain)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor


def match_base_rates(probs: Any, true_rates: Any, noisy_rates: Any, weight: float | None = None) -> Tensor:
    """
    Moves an estimate Ĉ₀ towards one that turns the true base rates b into the noisy ones b̃:

        Ĉ = argmin_C ‖bᵀC − b̃ᵀ‖² + λ ‖C − Ĉ₀‖²  =  Ĉ₀ + b rᵀ / (λ + ‖b‖²),    r = b̃ − Ĉ₀ᵀ b,

    and then each row to the nearest point of the simplex (the closed form's rows sum to one, but its entries may leave
    [0, 1]). Before that projection a share λ / (λ + ‖b‖²) of the mismatch r is left.

    Args:
        probs (`array` of shape `(K, K)`): The row-stochastic estimate Ĉ₀.
        true_rates (`array` of shape `(K,)`): b, the shares of the true classes (in the trusted rows).
        noisy_rates (`array` of shape `(K,)`): b̃, the shares of the noisy labels.
        weight (`float`, *optional*):
            λ > 0. By default ‖b‖², which meets the base rates half-way. A fixed number could not serve both few and
            many classes: ‖b‖² is 1/K for even classes, so that λ = 1 would change next to nothing beyond K = 100.

    Returns:
        `Tensor` of shape `(K, K)`, float64.
    """
    probs = _as_float64(probs)
    true_rates = _check_rates("true", true_rates, len(probs))
    noisy_rates = _check_rates("noisy", noisy_rates, len(probs))
    squared_norm = float(true_rates.square().sum())
    weight = squared_norm if weight is None else weight
    if not weight > 0:
        raise ValueError(f"the base rate weight λ must be positive, got {weight!r}.")
    mismatch = noisy_rates - true_rates @ probs
    return project_to_simplex(probs + torch.outer(true_rates, mismatch) / (weight + squared_norm))


def project_to_simplex(rows: Tensor) -> Tensor:
    """
    The nearest probability distribution to each row of `(n, K)`: max(row − τ, 0), with the τ that makes it sum to one.

    Of the entries in descending order, the first m stay positive, where m is the last place at which an entry still
    exceeds τ_m = (sum of the first m − 1) / m.
    """
    ordered = rows.sort(dim=-1, descending=True).values
    places = torch.arange(1, rows.shape[-1] + 1, dtype=rows.dtype, device=rows.device)
    shifts = (ordered.cumsum(dim=-1) - 1) / places
    last = (ordered > shifts).sum(dim=-1, keepdim=True) - 1
    return (rows - shifts.gather(-1, last)).clamp(min=0)


def _check_rates(kind: str, rates: Any, num_labels: int) -> Tensor:
    rates = _as_float64(rates)
    if rates.shape != (num_labels,):
        raise ValueError(f"the {kind} base rates have shape {tuple(rates.shape)}; there are {num_labels} classes.")
    if not bool((rates >= 0).all()) or not abs(float(rates.sum()) - 1) <= 1e-3:
        raise ValueError(
            f"the {kind} base rates must be shares: non-negative, with sum 1. Their smallest is "
            f"{float(rates.min()):.4g} and their sum {float(rates.sum()):.4g}; for counts pass counts / counts.sum()."
        )
    return rates / rates.sum()


def _as_float64(values: Any) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach().double().cpu()
    return torch.from_numpy(np.array(values, dtype=np.float64))
