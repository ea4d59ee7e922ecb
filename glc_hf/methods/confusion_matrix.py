# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Loss correction with a confusion matrix instead of the paper's estimate."""

from __future__ import annotations

from dataclasses import dataclass, field

from glc_hf.correction.accumulators import ConfusionAccumulator
from glc_hf.methods.base import (
    EstimationRun,
    MatrixMethod,
    MethodOptions,
    Stage,
    accumulate_trusted,
    finish_matrix,
    register,
)


@dataclass
class ConfusionMatrixOptions(MethodOptions):
    """Options of matrices that are counted: `confusion_matrix`, and `glc` with `estimator="paired"`."""

    smoothing: float = field(default=0.01, metadata={"help": "Weight of the uniform row in counted matrices."})

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.smoothing <= 1.0:
            raise ValueError(f"smoothing must be in [0, 1], got {self.smoothing!r}.")


@register("confusion_matrix")
class ConfusionMatrix(MatrixMethod):
    """
    As `glc`, but Ĉ[k] counts the classes that stage 1 predicts for trusted rows of class k, smoothed by `smoothing`.
    Taking the predicted class instead of the probabilities is biased: flip noise above one half looks total.
    """

    def first_stage(self) -> Stage:
        return Stage("untrusted", mode=self.args.stage1)

    def estimate(self, run: EstimationRun) -> None:
        if self.given_matrix is None:
            counts = accumulate_trusted(run, ConfusionAccumulator(self.num_labels, self.args.smoothing))
            self.matrix = finish_matrix(run, self.args, *counts.compute())
