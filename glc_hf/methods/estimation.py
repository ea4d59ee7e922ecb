# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The steps from a trained first stage to a corruption matrix, as several methods take them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import torch

from glc_hf.correction.accumulators import ConfusionAccumulator, GoldAccumulator
from glc_hf.correction.base_rates import match_base_rates
from glc_hf.correction.missing import fill_missing_rows
from glc_hf.correction.temperature import TemperatureAccumulator
from glc_hf.corruption.matrix import CorruptionMatrix


if TYPE_CHECKING:
    from glc_hf.methods.between import Between
    from glc_hf.training.config import GLCConfig

_Matrix = TypeVar("_Matrix", GoldAccumulator, ConfusionAccumulator)


def accumulate_trusted(run: Between, accumulator: _Matrix, stage: int = 0, temperature: float = 1.0) -> _Matrix:
    """The stage's softmax on every trusted item, summed up by its true class over all processes."""
    for batch in run.infer(stage, "trusted"):
        accumulator.update_logits(batch.logits, batch.labels, temperature)
    return accumulator.all_reduce(run.sum_over_processes)


def fit_temperature(run: Between, stage: int = 0) -> float:
    """The temperature that calibrates the stage on the noisy labels it held out."""
    accumulator = TemperatureAccumulator()
    for batch in run.infer(stage, "untrusted", part="held_out"):
        accumulator.update(batch.logits, batch.labels)
    return accumulator.all_reduce(run.sum_over_processes).compute()


def finish_matrix(run: Between, args: GLCConfig, probs: torch.Tensor, counts: torch.Tensor) -> CorruptionMatrix:
    """Rows for classes without trusted items, base rates where asked for, names."""
    probs = fill_missing_rows(probs, counts, args.missing_classes, run.label_names)
    if args.match_base_rates:
        noisy = run.class_counts("untrusted")
        probs = match_base_rates(probs, counts / counts.sum(), noisy / noisy.sum(), args.base_rate_weight)
    return CorruptionMatrix(probs, run.label_names)
