# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Gold Loss Correction, the method of the paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers.utils import logging

from glc_hf.correction.accumulators import ConfusionAccumulator, GoldAccumulator
from glc_hf.correction.refinement import most_likely_matrix, rare_class_threshold, shrink_rare_classes
from glc_hf.matrix import CorruptionMatrix
from glc_hf.methods.base import MatrixMethod, Stage, accumulate_trusted, finish_matrix, fit_stage_temperature, register
from glc_hf.randomness import random_uint64


if TYPE_CHECKING:
    from glc_hf.methods.base import EstimationRun
    from glc_hf.training.config import GLCConfig


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
        return Stage("untrusted", held_out=held_out, mode=self.args.stage1)

    def estimate(self, run: EstimationRun) -> None:
        """Estimates Ĉ."""
        if self.given_matrix is not None:
            return
        # The sums go before the matrix comes: each of them is K×K in float64.
        if self.args.estimator == "paired":
            probs, counts = self._count_pairs(run).compute()
        else:
            temperature = fit_stage_temperature(run) if self.args.calibrate else 1.0
            sums = GoldAccumulator(self.num_labels)
            probs, counts = accumulate_trusted(run, sums, temperature=temperature).compute()
            del sums
        if self._refines:
            probs = shrink_rare_classes(probs, counts)
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

    def refine(self, run: EstimationRun) -> None:
        """Puts a better Ĉ in place of the one that is there."""
        self.first_estimate = self.first_estimate or self.matrix
        self.matrix = refine_estimate(run, self.first_estimate, self.args.seed) or self.matrix

    def take_refined(self, matrix: CorruptionMatrix) -> None:
        """What an interrupted run had refined its first estimate, which is in place, to."""
        self.first_estimate, self.matrix = self.matrix or matrix, matrix

    def _count_pairs(self, run: EstimationRun) -> ConfusionAccumulator:
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


logger = logging.get_logger(__name__)
_ITEMS_A_CLASS = 200
_FEWEST_ITEMS = 2000
_NUMBERS_AT_ONCE = 20_000_000  # items × classes, in float64


def refinement_steps(total: int) -> tuple[int, ...]:
    """After a third of the steps, when the model knows most classes, and after two thirds."""
    return tuple(sorted({step for step in (total // 3, 2 * total // 3) if step > 0}))


def refine_on_features(run: EstimationRun, estimate: CorruptionMatrix, args: GLCConfig) -> CorruptionMatrix | None:
    """
    A better matrix before the last stage begins, where stage 1 is a linear head on fixed features: a linear model of
    the true labels is fitted on all items with the loss corrected by the matrix so far, trusted ones counting as in
    the last stage, and the matrix becomes the most likely one given this model. Twice: after that it hardly moves.

    The mean softmax over a class's trusted rows mixes in what the head takes for other classes, which a linear one
    does often; here that is part of the model. `None` where stage 1 is no such head.
    """
    probe, classes = run.probe(0), run.num_labels
    if probe is None or _too_many_classes(classes, len(run.item_numbers("untrusted"))):
        return None
    table = probe.table
    flags = torch.zeros(len(run.item_labels("all")), dtype=torch.bool)
    flags[torch.from_numpy(run.item_numbers("trusted"))] = True
    given = torch.from_numpy(np.asarray(run.item_labels("all")))[table.numbers]
    trusted = flags[table.numbers]
    counts = run.class_counts("trusted")
    number = float(counts.sum())
    # As the last stage repeats them: to their share, and never below what they are.
    weight = max(1.0, args.trusted_share / (1 - args.trusted_share) * (len(flags) - number) / number)
    everything = torch.arange(len(table.numbers))
    looked_at = (~trusted).nonzero().squeeze(1)
    chosen = _some_items(run, args.seed)
    if chosen is not None:
        looked_at = looked_at[torch.isin(table.numbers[looked_at], chosen)]
    first, matrix, head = torch.tensor(estimate.probs), torch.tensor(estimate.probs), None
    for _ in range(2):
        head = table.fit(
            everything,
            given,
            classes,
            penalty=probe.penalty,
            matrix=matrix,
            trusted=trusted,
            trusted_weight=weight,
            start=head,
        )
        matrix = most_likely_matrix(
            table.logits(head, looked_at).softmax(dim=-1),
            given[looked_at],
            first,
            counts.clamp(min=rare_class_threshold(counts)),
            reduce=run.sum_over_processes,
        )
    return CorruptionMatrix(matrix, estimate.label_names)


def refine_estimate(run: EstimationRun, estimate: CorruptionMatrix, seed: int) -> CorruptionMatrix | None:
    """
    The matrix that explains the untrusted labels best, given the last stage's model as it is now and the first
    estimate; see [`~correction.refine.most_likely_matrix`].

    It looks at 200 untrusted items a class on the average (2,000 at least, all where there are fewer), the same ones
    each time, and never at more than 160 MB of probabilities; with so many classes that this leaves fewer than ten
    items a class it gives `None`.
    """
    classes, chosen = run.num_labels, _some_items(run, seed)
    if _too_many_classes(classes, len(run.item_numbers("untrusted"))):
        logger.info(f"The matrix is not refined: with {classes:,} classes it would take too much memory.")
        return None
    probs, labels = [torch.empty(0, classes)], [torch.empty(0, dtype=torch.int64)]
    for batch in run.infer(0, "untrusted", only=chosen):
        probs.append(batch.logits.softmax(dim=-1))
        labels.append(batch.labels)
    counts = run.class_counts("trusted")
    refined = most_likely_matrix(
        torch.cat(probs),
        torch.cat(labels),
        torch.tensor(estimate.probs),
        counts.clamp(min=rare_class_threshold(counts)),
        reduce=run.sum_over_processes,
    )
    return CorruptionMatrix(refined, estimate.label_names)


def _wanted_items(classes: int) -> int:
    return min(max(_FEWEST_ITEMS, _ITEMS_A_CLASS * classes), _NUMBERS_AT_ONCE // classes)


def _too_many_classes(classes: int, items: int) -> bool:
    return _wanted_items(classes) < min(10 * classes, items)


def _some_items(run: EstimationRun, seed: int) -> torch.Tensor | None:
    """The numbers of the untrusted items to look at, the same ones each time; `None` for all of them."""
    numbers, wanted = run.item_numbers("untrusted"), _wanted_items(run.num_labels)
    if len(numbers) <= wanted:
        return None
    order = np.argsort(random_uint64("refine", seed, numbers), kind="stable")
    return torch.from_numpy(np.sort(numbers[order[:wanted]]))
