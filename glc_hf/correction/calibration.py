# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Calibration of the noisy classifier by temperature (one of the paper's two refinements of Ĉ; it found no gain).

The temperature T minimises the mean negative log-likelihood of the **noisy** labels under softmax(logits / T). Fit it
on rows that the classifier was not trained on.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glc_hf.correction.accumulators import Accumulator, labelled_rows


LOWEST_TEMPERATURE, HIGHEST_TEMPERATURE = 0.05, 20.0
_GRID_SIZE = 64  # neighbours differ by 10 %
_NUMBERS_A_CHUNK = 2**22


class TemperatureAccumulator(Accumulator):
    """
    Sums the negative log-likelihood at 64 temperatures from 0.05 to 20, in one pass over the logits; what it holds
    depends neither on the number of rows nor on that of classes.

    Args:
        ignore_index (`int`, *optional*, defaults to -100): Label of rows that don't count.
    """

    def __init__(self, ignore_index: int = -100) -> None:
        super().__init__(torch.zeros(_GRID_SIZE, dtype=torch.float64), torch.zeros(1, dtype=torch.float64))
        self.ignore_index = ignore_index
        self._log_grid = torch.linspace(
            math.log(LOWEST_TEMPERATURE), math.log(HIGHEST_TEMPERATURE), _GRID_SIZE, dtype=torch.float64
        )
        self._rows_seen = 0

    def update(self, logits: Tensor, noisy_labels: Tensor) -> None:
        """
        Args:
            logits (`Tensor` of shape `(..., K)`): Logits of the noisy classifier.
            noisy_labels (`Tensor` of shape `(...)`): The labels as given. Rows with `ignore_index` don't count.
        """
        rows, labels, numbers = labelled_rows(
            logits, noisy_labels, logits.shape[-1], self.ignore_index, self._rows_seen
        )
        finite = rows.isfinite().all(dim=-1)
        if not bool(finite.all()):
            raise ValueError(f"the logits of row {int(numbers[~finite][0])} have NaN or infinite entries.")
        self._rows_seen += logits.shape[:-1].numel()
        if len(rows) == 0:
            return
        rows = rows if rows.dtype == torch.float64 else rows.float()
        rows = rows - rows.amax(dim=-1, keepdim=True)
        chosen = rows.gather(1, labels.unsqueeze(-1)).double().sum()
        scaled, losses = torch.empty_like(rows), []
        for inverse in self._log_grid.neg().exp().tolist():
            log_sums = torch.mul(rows, inverse, out=scaled).exp_().sum(dim=-1).log_()
            losses.append(log_sums.sum(dtype=torch.float64) - chosen * inverse)
        total, count = self.sums
        total += torch.stack(losses).to(total.device)
        count += len(rows)

    def compute(self) -> float:
        """The best temperature: the vertex of the parabola, in log T, through the best point of the grid and its two
        neighbours."""
        total, count = self.sums
        if not count.item():
            raise ValueError("no temperature can be fitted: there was no row with a label.")
        best = int(total.argmin())
        if best in (0, _GRID_SIZE - 1):
            end = (LOWEST_TEMPERATURE, HIGHEST_TEMPERATURE)[best > 0]
            warnings.warn(
                f"the best temperature lies outside {LOWEST_TEMPERATURE}…{HIGHEST_TEMPERATURE}; {end} is used. The "
                "classifier's logits may carry no information on these labels, or fit them perfectly.",
                stacklevel=2,
            )
            return end
        before, here, after = (total[best - 1 : best + 2] / count).tolist()
        curvature = before - 2 * here + after
        step = 0.5 * (before - after) / curvature if curvature > 0 else 0.0
        spacing = float(self._log_grid[1] - self._log_grid[0])
        return math.exp(float(self._log_grid[best]) + step * spacing)


def fit_temperature(logits: Tensor, noisy_labels: Tensor, ignore_index: int = -100) -> float:
    """
    The temperature that calibrates `softmax(logits / temperature)` on noisy labels.

    Args:
        logits (`Tensor` of shape `(..., K)`): Logits of the noisy classifier.
        noisy_labels (`Tensor` of shape `(...)`): The labels as given.
        ignore_index (`int`, *optional*, defaults to -100): Label of rows that don't count.
    """
    if logits.shape[:-1] != noisy_labels.shape:
        raise ValueError(
            f"logits of shape {tuple(logits.shape)} need labels of shape {tuple(logits.shape[:-1])}; these have shape "
            f"{tuple(noisy_labels.shape)}."
        )
    rows, labels = logits.reshape(-1, logits.shape[-1]), noisy_labels.reshape(-1)
    size = max(1, _NUMBERS_A_CHUNK // logits.shape[-1])
    accumulator = TemperatureAccumulator(ignore_index)
    for start in range(0, len(rows), size):
        accumulator.update(rows[start : start + size], labels[start : start + size])
    return accumulator.compute()


def apply_temperature(probs: Tensor, temperature: float) -> Tensor:
    """softmax(log(probs) / temperature) along the last dimension: what dividing the logits by it would have given."""
    if not (temperature > 0 and math.isfinite(temperature)):
        raise ValueError(f"temperature must be positive and finite, got {temperature!r}.")
    powers = (probs / probs.amax(dim=-1, keepdim=True)) ** (1 / temperature)
    return powers / powers.sum(dim=-1, keepdim=True)


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
