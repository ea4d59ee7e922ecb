# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Gold Loss Correction, the method of the paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from glc_hf.correction.accumulators import ConfusionAccumulator, GoldAccumulator
from glc_hf.correction.missing import lean_scarce_rows
from glc_hf.methods.base import Stage, register
from glc_hf.methods.estimation import accumulate_trusted, finish_matrix, fit_temperature
from glc_hf.methods.matrix_method import MatrixMethod
from glc_hf.methods.refinement import refine_estimate, refine_on_features, refinement_steps


if TYPE_CHECKING:
    from glc_hf.corruption.matrix import CorruptionMatrix
    from glc_hf.methods.between import Between

_HELD_OUT_TO_CALIBRATE = 0.05


@register("glc")
class GoldLossCorrection(MatrixMethod):
    """
    Stage 1 learns p(noisy label | x) from the untrusted rows; Ĉ[k] is its mean over the trusted rows of class k; the
    last stage trains on all rows with the loss corrected by Ĉ.

    With `calibrate`, stage 1 is first calibrated on rows held out of it; with `match_base_rates`, Ĉ is fitted to the
    frequencies of the noisy labels; with `estimator="paired"`, Ĉ is counted from trusted rows that carry both labels.

    With `stage1="probe"`, stage 1 is a linear head on the pretrained network's features.

    With `refine_matrix`, the last stage looks at Ĉ twice more, when its model knows true labels itself: trusted rows
    are few, but each untrusted label says something about Ĉ too.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.first_estimate: CorruptionMatrix | None = None

    def check(self) -> None:
        """The paired estimator needs a column to count."""
        if self.given_matrix is None and self.args.estimator == "paired" and self.args.noisy_label_column is None:
            raise ValueError(
                "estimator='paired' counts which label the noisy source gave to each trusted row: name the column "
                "that holds it with noisy_label_column=…"
            )

    def first_stage(self) -> Stage | None:
        """The untrusted rows; none where both labels are known."""
        if self.args.estimator == "paired":
            return None
        held_out = _HELD_OUT_TO_CALIBRATE if self.args.calibrate else 0.0
        return Stage("untrusted", held_out=held_out, way=self.args.stage1)

    def between(self, run: Between) -> None:
        """Estimates Ĉ."""
        if self.given_matrix is not None:
            return
        # The sums go before the matrix comes: each of them is K×K in float64.
        if self.args.estimator == "paired":
            probs, counts = self._count_pairs(run).compute()
        else:
            temperature = fit_temperature(run) if self.args.calibrate else 1.0
            sums = GoldAccumulator(self.num_labels)
            probs, counts = accumulate_trusted(run, sums, temperature=temperature).compute()
            del sums
        if self._refines:
            probs = lean_scarce_rows(probs, counts)
        self.matrix = finish_matrix(run, self.args, probs, counts)
        if self._refines:
            self.matrix = refine_on_features(run, self.matrix, self.args) or self.matrix

    @property
    def _refines(self) -> bool:
        """Only what is estimated is made better: a matrix that was given or counted is used as it is."""
        return self.args.refine_matrix and self.given_matrix is None and self.args.estimator == "gold"

    def refinement_steps(self, total: int) -> tuple[int, ...]:
        """See [`refinement_steps`]."""
        return refinement_steps(total) if self._refines else ()

    def refine(self, run: Between) -> None:
        """Puts a better Ĉ in place of the one that is there."""
        self.first_estimate = self.first_estimate or self.matrix
        self.matrix = refine_estimate(run, self.first_estimate, self.args.seed) or self.matrix

    def take_refined(self, matrix: CorruptionMatrix) -> None:
        """What an interrupted run had refined its first estimate, which is in place, to."""
        self.first_estimate, self.matrix = self.matrix or matrix, matrix

    def _count_pairs(self, run: Between) -> ConfusionAccumulator:
        true = torch.from_numpy(run.item_labels("trusted"))
        noisy = torch.from_numpy(run.item_labels("trusted", self.args.noisy_label_column))
        outside = (noisy < 0) | (noisy >= self.num_labels)
        if outside.any():
            raise ValueError(
                f"column {self.args.noisy_label_column!r} has the label {int(noisy[outside][0])} in a trusted row, "
                f"outside 0…{self.num_labels - 1}."
            )
        pairs = ConfusionAccumulator(self.num_labels, self.args.smoothing)
        pairs.update(torch.nn.functional.one_hot(noisy, self.num_labels).double(), true)
        return pairs
