# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The confusion matrix in place of the paper's estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glc_hf.correction.accumulators import ConfusionAccumulator
from glc_hf.methods.base import MatrixMethod, Stage, accumulate_trusted, finish_matrix, register


if TYPE_CHECKING:
    from glc_hf.methods.base import EstimationRun


@register("confusion_matrix")
class ConfusionMatrix(MatrixMethod):
    """As `glc`, but Ĉ[k] says how often each class was stage 1's first choice on trusted rows of class k, smoothed by
    `smoothing`. Taking the first choice instead of the probabilities biases it: flip noise above one half looks
    total."""

    def first_stage(self) -> Stage:
        """The untrusted rows, as in `glc`."""
        return Stage("untrusted", mode=self.args.stage1)

    def estimate(self, run: EstimationRun) -> None:
        """Counts Ĉ."""
        if self.given_matrix is None:
            counted = accumulate_trusted(run, ConfusionAccumulator(self.num_labels, self.args.smoothing))
            self.matrix = finish_matrix(run, self.args, *counted.compute())
