# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
The two refinements of Ĉ that the paper tried: calibration of the noisy classifier by temperature, and base rates.

The temperature T minimizes the mean negative log-likelihood of the **noisy** labels under softmax(logits / T). Fit it
on rows that the classifier was not trained on. The paper found no gain from calibration.
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
_GRID_SIZE = 64  # neighbors differ by 10 %
_NUMBERS_PER_CHUNK = 2**22


class TemperatureAccumulator(Accumulator):
    """
    Sums the negative log-likelihood at 64 temperatures from 0.05 to 20, in one pass over the logits. The size of its
    state depends neither on the number of rows nor on the number of classes.

    Args:
        ignore_index (`int`, *optional*, defaults to -100): Rows with this label are skipped.
    """

    def __init__(self, ignore_index: int = -100) -> None:
        super().__init__(
            ignore_index, torch.zeros(_GRID_SIZE, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
        )
        self._log_grid = torch.linspace(
            math.log(LOWEST_TEMPERATURE), math.log(HIGHEST_TEMPERATURE), _GRID_SIZE, dtype=torch.float64
        )

    def update(self, logits: Tensor, noisy_labels: Tensor, soft_labels: Tensor | None = None) -> None:
        """
        Args:
            logits (`Tensor` of shape `(..., K)`): Logits of the noisy classifier.
            noisy_labels (`Tensor` of shape `(...)`): The given labels. Rows with `ignore_index` are skipped.
            soft_labels (`Tensor` of shape `(N, K)`, *optional*):
                Probabilities to use instead of the labels, one row per label that is not skipped.
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
        at_labels = rows.gather(1, labels.unsqueeze(-1)) if soft_labels is None else rows * soft_labels.to(rows)
        at_labels = at_labels.double().sum()
        scaled, losses = torch.empty_like(rows), []
        for inverse in self._log_grid.neg().exp().tolist():
            log_sums = torch.mul(rows, inverse, out=scaled).exp_().sum(dim=-1).log_()
            losses.append(log_sums.sum(dtype=torch.float64) - at_labels * inverse)
        total, count = self.sums
        total += torch.stack(losses).to(total.device)
        count += len(rows)

    def compute(self) -> float:
        """Return the best temperature: the vertex of the parabola, in log T, through the best grid point and its two
        neighbors."""
        total, count = self.sums
        if not count.item():
            raise ValueError("can't fit a temperature: there is no row with a label.")
        best = int(total.argmin())
        if best in (0, _GRID_SIZE - 1):
            end = (LOWEST_TEMPERATURE, HIGHEST_TEMPERATURE)[best > 0]
            warnings.warn(
                f"the best temperature is outside {LOWEST_TEMPERATURE}…{HIGHEST_TEMPERATURE}; {end} is used. The "
                "classifier's logits may carry no information about these labels, or fit them perfectly.",
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
    Fit the temperature that calibrates `softmax(logits / temperature)` on noisy labels.

    Args:
        logits (`Tensor` of shape `(..., K)`): Logits of the noisy classifier.
        noisy_labels (`Tensor` of shape `(...)`): The given labels.
        ignore_index (`int`, *optional*, defaults to -100): Rows with this label are skipped.
    """
    if logits.shape[:-1] != noisy_labels.shape:
        raise ValueError(
            f"logits of shape {tuple(logits.shape)} need labels of shape {tuple(logits.shape[:-1])}, got "
            f"{tuple(noisy_labels.shape)}."
        )
    size = max(1, _NUMBERS_PER_CHUNK // logits.shape[-1])
    accumulator = TemperatureAccumulator(ignore_index)
    rows, labels = logits.reshape(-1, logits.shape[-1]).split(size), noisy_labels.reshape(-1).split(size)
    for chunk, chunk_labels in zip(rows, labels, strict=True):
        accumulator.update(chunk, chunk_labels)
    return accumulator.compute()


def apply_temperature(probs: Tensor, temperature: float) -> Tensor:
    """softmax(log(probs) / temperature) along the last dimension, which equals softmax(logits / temperature)."""
    if not (temperature > 0 and math.isfinite(temperature)):
        raise ValueError(f"temperature must be positive and finite, got {temperature!r}.")
    powers = (probs / probs.amax(dim=-1, keepdim=True)) ** (1 / temperature)
    return powers / powers.sum(dim=-1, keepdim=True)


def match_base_rates(probs: Any, true_rates: Any, noisy_rates: Any, weight: float | None = None) -> Tensor:
    """
    Move an estimate Ĉ₀ towards a matrix that maps the true base rates b to the noisy ones b̃:

        Ĉ = argmin_C ‖bᵀC − b̃ᵀ‖² + λ ‖C − Ĉ₀‖²  =  Ĉ₀ + b rᵀ / (λ + ‖b‖²),    r = b̃ − Ĉ₀ᵀ b,

    then project each row to the nearest point of the simplex (the rows of the closed form sum to one, but entries may
    be outside [0, 1]). Before the projection a share λ / (λ + ‖b‖²) of the mismatch r remains.

    Args:
        probs (`array` of shape `(K, K)`): The row-stochastic estimate Ĉ₀.
        true_rates (`array` of shape `(K,)`): b, the shares of the true classes (in the trusted rows).
        noisy_rates (`array` of shape `(K,)`): b̃, the shares of the noisy labels.
        weight (`float`, *optional*):
            λ > 0, by default ‖b‖², which removes half of the mismatch. A fixed default would not suit both few and
            many classes: ‖b‖² is 1/K for balanced classes, so λ = 1 has almost no effect above K = 100.

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
    Project each row of `(n, K)` to the nearest probability distribution: max(row − τ, 0) with the τ that makes the sum
    one.

    With the entries in descending order, τ = (sum of the first m entries − 1) / m for the largest m at which entry m
    exceeds this value. The first m entries stay positive.
    """
    ordered = rows.sort(dim=-1, descending=True).values
    ranks = torch.arange(1, rows.shape[-1] + 1, dtype=rows.dtype, device=rows.device)
    shifts = (ordered.cumsum(dim=-1) - 1) / ranks
    last = (ordered > shifts).sum(dim=-1, keepdim=True) - 1
    return (rows - shifts.gather(-1, last)).clamp(min=0)


def _check_rates(name: str, rates: Any, num_labels: int) -> Tensor:
    rates = _as_float64(rates)
    if rates.shape != (num_labels,):
        raise ValueError(f"the {name} base rates have shape {tuple(rates.shape)}; there are {num_labels} classes.")
    if not bool((rates >= 0).all()) or not abs(float(rates.sum()) - 1) <= 1e-3:
        raise ValueError(
            f"the {name} base rates must be non-negative and sum to 1. The smallest is {float(rates.min()):.4g} and "
            f"the sum {float(rates.sum()):.4g}; for counts pass counts / counts.sum()."
        )
    return rates / rates.sum()


def _as_float64(values: Any) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach().double().cpu()
    return torch.from_numpy(np.array(values, dtype=np.float64))
