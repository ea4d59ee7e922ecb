# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The methods that the paper compares with: `no_correction`, `trusted_only`, `finetune_on_trusted`, `true_matrix` as
an upper bound, a confusion matrix in place of the paper's estimate, and Forward correction (Patrini et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from glc_hf.correction.accumulators import ConfusionAccumulator
from glc_hf.correction.estimators import AnchorFinder
from glc_hf.matrix import CorruptionMatrix
from glc_hf.methods.base import (
    EstimationRun,
    MatrixMethod,
    Method,
    MethodOptions,
    Stage,
    accumulate_trusted,
    finish_matrix,
    register,
)


@register("no_correction")
class NoCorrection(Method):
    """One stage of plain cross-entropy on all rows. The flags are not used."""

    needs_trusted = False
    needs_untrusted = False


@register("trusted_only")
class TrustedOnly(Method):
    """One stage of plain cross-entropy on the trusted rows, for at least `trusted_min_updates` updates."""

    needs_untrusted = False

    def last_stage(self) -> Stage:
        return Stage("trusted", min_updates=self.args.trusted_min_updates)


@register("finetune_on_trusted")
class FinetuneOnTrusted(Method):
    """Plain training on all rows, then on the trusted rows from these weights, with a new optimizer and schedule."""

    def first_stages(self) -> list[Stage]:
        return [Stage("all")]

    def last_stage(self) -> Stage:
        return Stage("trusted", start="previous")


@register("true_matrix")
class TrueMatrix(MatrixMethod):
    """The last stage of Gold Loss Correction with a given matrix: how much a better estimate could gain."""

    def check(self) -> None:
        if self.given_matrix is None:
            raise ValueError(
                "method 'true_matrix' needs the matrix: `GLCTrainer(…, corruption_matrix=CorruptionMatrix(…))`, or "
                "`--corruption-matrix` on the command line. Use method 'auto' or 'glc' to estimate it."
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


_MANY_CLASSES = 100


@dataclass
class ForwardOptions(MethodOptions):
    """Options of `forward` and `forward_gold`."""

    anchor_percentile: float | None = field(
        default=None, metadata={"help": "Percentile of Forward's anchors (default: 97; 100 for 100 or more classes)."}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.anchor_percentile is not None and not 0.0 < self.anchor_percentile <= 100.0:
            raise ValueError(f"anchor_percentile must be in (0, 100], got {self.anchor_percentile!r}.")


@register("forward")
class Forward(MatrixMethod):
    """
    Stage 1 trains on all rows. Ĉ[k] is its softmax at the example whose probability of class k is the highest below
    the 97th percentile (`anchor_percentile`; the maximum for many classes). No label counts as trusted.
    """

    needs_trusted = False
    needs_untrusted = False
    needs_item_numbers = True
    upsamples_trusted = False
    identity_on_trusted = False

    def first_stage(self) -> Stage:
        return Stage("all", mode=self.args.stage1)

    def estimate(self, run: EstimationRun) -> None:
        """Find the example of each class in one pass, and read its probabilities in a second pass over these few."""
        if self.given_matrix is not None:
            return
        percentile = self.args.anchor_percentile or (100.0 if self.num_labels >= _MANY_CLASSES else 97.0)
        finder = AnchorFinder(self.num_labels, len(run.item_labels("all")), percentile)
        for batch in run.infer(0, "all"):
            finder.update(batch.logits.double().softmax(-1), batch.items)
        first, *others = run.gather_objects(finder)
        for other in others:
            first.merge(other)
        anchors = first.anchors()
        probs = torch.zeros(self.num_labels, self.num_labels, dtype=torch.float64)
        for batch in run.infer(0, "all", only=anchors):
            classes, positions = (anchors.unsqueeze(1) == batch.items).nonzero(as_tuple=True)
            probs[classes] = batch.logits[positions].double().softmax(-1)
        self.matrix = CorruptionMatrix(run.sum_over_processes(probs), run.label_names)


@register("forward_gold")
class ForwardGold(Forward):
    """Forward's matrix with plain cross-entropy on trusted rows: what the gold loss adds without GLC's estimate."""

    needs_trusted = True
    upsamples_trusted = True
    identity_on_trusted = True
