# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Gold Loss Correction, the method of the paper, and the refinement of its matrix."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from transformers.utils import logging

from glc_hf.correction.accumulators import ConfusionAccumulator, GoldAccumulator
from glc_hf.correction.calibration import TemperatureAccumulator
from glc_hf.correction.linear import Prior
from glc_hf.correction.refinement import (
    most_likely_matrix,
    rare_class_threshold,
    refine_with_linear_model,
    shrink_rare_classes,
)
from glc_hf.correction.sources import SourceModel, fit_sources
from glc_hf.correction.sources.vote_counts import vote_numbers, votes_of_rules
from glc_hf.labels.encoding import NO_VOTE
from glc_hf.labels.label_batch import SoftLabels
from glc_hf.matrix import CorruptionMatrix
from glc_hf.methods.base import (
    ONE_SOURCE,
    EstimationRun,
    MatrixMethod,
    MethodOptions,
    Stage,
    accumulate_trusted,
    check_choice,
    finish_matrix,
    register,
)
from glc_hf.randomness import random_uint64


logger = logging.get_logger(__name__)

GOLD_LOSS_CORRECTION = "Gold Loss Correction"
_CALIBRATION_SHARE = 0.05
# Refinement looks at this many untrusted items per class on average, and at no fewer than this in all.
_ITEMS_PER_CLASS = 200
_MIN_ITEMS = 2000
# The fields of a `SourceModel` that a resumed run needs; the names are those of the votes.
_SOURCE_STATE = tuple(f"sources_{field.name}" for field in dataclasses.fields(SourceModel) if field.name != "names")
_MAX_PROBABILITIES = 20_000_000  # items × classes, in float64


@dataclass
class GLCOptions(MethodOptions):
    """Options of `glc`."""

    calibrate: bool = field(
        default=False, metadata={"help": "Calibrate stage 1 with a temperature before estimating the matrix."}
    )
    refine_matrix: bool = field(
        default=True,
        metadata={"help": "Improve the matrix during the last stage, with the untrusted labels (not in the paper)."},
    )
    estimator: str = field(
        default="gold",
        metadata={
            "help": "How the matrix is estimated; paired counts the noisy labels of trusted rows.",
            "choices": ["gold", "paired"],
        },
    )
    noisy_label_column: str | None = field(
        default=None, metadata={"help": "Column with the noisy labels of trusted rows (estimator=paired)."}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("estimator", self.estimator, ("gold", "paired"))


@register("glc")
class GoldLossCorrection(MatrixMethod):
    """
    Stage 1 learns p(noisy label | x) from the untrusted rows. Ĉ[k] is the mean of its softmax over the trusted rows of
    class k. The last stage trains on all rows with the loss corrected by Ĉ.

    - `calibrate`: stage 1 is first calibrated on rows that it did not train on.
    - `match_base_rates`: Ĉ is fitted to the frequencies of the noisy labels.
    - `estimator="paired"`: Ĉ is counted from trusted rows that carry both labels.
    - `stage1="probe"`: stage 1 is a linear head on the features of the pretrained network.
    - `refine_matrix`: the last stage updates Ĉ twice from the untrusted labels, given its own predictions of the true
      labels. Trusted rows are few, but every untrusted label carries information about Ĉ.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.first_estimate: CorruptionMatrix | None = None

    @property
    def counts_votes(self) -> bool:
        return self.votes is not None and self.given_matrix is None

    def check(self) -> None:
        if self.given_matrix is None and self.args.estimator == "paired" and self.args.noisy_label_column is None:
            raise ValueError(
                "estimator='paired' counts which label the noisy source gave to each trusted row: name the column "
                "with these labels, noisy_label_column=…"
            )

    @property
    def title(self) -> str:
        return f"{GOLD_LOSS_CORRECTION} (`glc`)" if self.args.method == "glc" else super().title

    def prepare_model(self, model: torch.nn.Module) -> None:
        if self.counts_votes:
            self.needs_item_numbers = self.numbered  # to find the votes of an item
            self.state_names = (*self.state_names, *_SOURCE_STATE)

    def first_stage(self) -> Stage | None:
        if self.args.estimator == "paired" or self.counts_votes:
            return None
        held_out = _CALIBRATION_SHARE if self.args.calibrate else 0.0
        return Stage("untrusted", held_out=held_out, mode=self.args.stage1)

    def estimate(self, run: EstimationRun) -> None:
        if self.given_matrix is not None:
            return
        if self.counts_votes:
            self._estimate_sources(run)
            return
        # `del` before the matrix is made: each of the sums is K×K in float64.
        if self.args.estimator == "paired":
            probs, counts = self._count_pairs(run).compute()
        else:
            temperature = _fit_temperature(run, self.soft_labels) if self.args.calibrate else 1.0
            sums = GoldAccumulator(self.num_labels)
            probs, counts = accumulate_trusted(run, sums, temperature).compute()
            del sums
        if self._refines:
            probs = shrink_rare_classes(probs, counts)
        self.matrix = finish_matrix(run, self.args, probs, counts)
        if self._refines:
            self.matrix = refine_on_features(run, self.matrix, self.args) or self.matrix
        if self.args.estimator == "paired" or run.probe(0) is not None:
            self.matrix = of_soft_labels(self.matrix, self.soft_labels)

    @property
    def _refines(self) -> bool:
        """A matrix that was given or counted is never changed."""
        given = self.given_matrix is not None or self.args.estimator != "gold"
        if self.counts_votes:
            given = self._voted_by_rules
        return self.args.refine_matrix and not given

    @cached_property
    def _voted_by_rules(self) -> bool:
        """Predictions don't improve the estimate of rules; see `fit_sources`. Cached: each step asks for it."""
        assert self.votes is not None
        return votes_of_rules(vote_numbers(self.votes, self.num_labels))

    def refinement_steps(self, total: int) -> tuple[int, ...]:
        return refinement_steps(total) if self._refines else ()

    def refine(self, run: EstimationRun, progress: float) -> None:
        if self.counts_votes:
            self._refine_sources(run)
            return
        self.first_estimate = self.first_estimate or self.matrix
        soft = self.soft_labels
        assert self.first_estimate is not None
        self.matrix = refine_estimate(run, self.first_estimate, self.args.seed, soft=soft) or self.matrix

    def restore_refined(self, matrices: dict[str, CorruptionMatrix]) -> None:
        self.first_estimate = self.matrix or matrices.get(ONE_SOURCE)
        self.matrices = matrices

    # ------------------------------------------------------------------ votes of several sources
    def _estimate_sources(self, run: EstimationRun) -> None:
        """Count what the votes of each source say on trusted items."""
        if self.stream_sources is not None:
            self.set_sources(self.stream_sources, run.label_names)
            return
        assert self.votes is not None
        numbers, labels = run.item_numbers("trusted"), run.item_labels("trusted")
        sources = fit_sources(self.votes, self.num_labels, numbers, labels, seed=self.args.seed)
        self.set_sources(sources, run.label_names)

    def _refine_sources(self, run: EstimationRun) -> None:
        """Estimate the sources again, with the predictions of the last stage for some of the untrusted items."""
        assert self.votes is not None
        chosen, trusted = _some_untrusted_items(run, self.args.seed), run.item_numbers("trusted")
        untrusted = run.item_numbers("untrusted") if chosen is None else chosen.numpy()
        numbers = np.sort(np.concatenate([untrusted, trusted]))
        probs = torch.zeros(len(numbers), self.num_labels, dtype=torch.float64)
        for batch in run.infer(0, "untrusted", only=chosen):
            places = torch.from_numpy(np.searchsorted(numbers, batch.items.numpy()))
            probs[places] = batch.logits.double().softmax(dim=-1)
        probs = run.sum_over_processes(probs)
        known = np.searchsorted(numbers, trusted)
        probs[torch.from_numpy(known)] = 1.0 / self.num_labels  # their labels are known
        self.set_sources(
            fit_sources(
                self.votes.select(numbers),
                self.num_labels,
                known,
                run.item_labels("trusted"),
                class_probs=probs.numpy(),
                seed=self.args.seed,
            ),
            run.label_names,
        )

    def state(self) -> dict[str, torch.Tensor]:
        if self.sources is None:
            return {}
        fields = self.sources.to_dict()
        # NumPy first: a Python float would become a float32.
        return {name: torch.as_tensor(np.asarray(fields[name.removeprefix("sources_")])) for name in _SOURCE_STATE}

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        if _SOURCE_STATE[0] in state:
            assert self.votes is not None
            fields = {name.removeprefix("sources_"): state[name].numpy() for name in _SOURCE_STATE}
            self.set_sources(SourceModel.from_dict({**fields, "names": self.votes.names}))

    def _count_pairs(self, run: EstimationRun) -> ConfusionAccumulator:
        true = torch.from_numpy(run.item_labels("trusted"))
        noisy = torch.from_numpy(run.item_labels("trusted", self.args.noisy_label_column))
        known = noisy != NO_VOTE
        if not known.any():
            raise ValueError(
                f"no trusted row has a label in column {self.args.noisy_label_column!r}, so estimator='paired' has "
                "nothing to count: use estimator='gold'."
            )
        true, noisy = true[known], noisy[known]
        outside = (noisy < 0) | (noisy >= self.num_labels)
        if outside.any():
            raise ValueError(
                f"column {self.args.noisy_label_column!r} has the label {int(noisy[outside][0])} in a trusted row, "
                f"outside 0…{self.num_labels - 1}."
            )
        pairs = ConfusionAccumulator(self.num_labels, self.args.smoothing)
        pairs.update(torch.nn.functional.one_hot(noisy, self.num_labels).double(), true)
        return pairs


def _fit_temperature(run: EstimationRun, soft: SoftLabels | None) -> float:
    """The temperature that calibrates stage 1 on the noisy labels it held out."""
    accumulator = TemperatureAccumulator()
    for batch in run.infer(0, "untrusted", part="held_out"):
        accumulator.update(batch.logits, batch.labels, None if soft is None else soft.targets[batch.items])
    return accumulator.all_reduce(run.sum_over_processes).compute()


# ---------------------------------------------------------------------- refinement of the matrix
def refinement_steps(total: int) -> tuple[int, ...]:
    """After one third of the steps, when the model knows most classes, and after two thirds."""
    return tuple(sorted({step for step in (total // 3, 2 * total // 3) if step > 0}))


def refine_estimate(
    run: EstimationRun,
    estimate: CorruptionMatrix,
    seed: int,
    most: int | None = None,
    soft: SoftLabels | None = None,
) -> CorruptionMatrix | None:
    """
    The matrix that best explains the untrusted labels, given the predictions of the last stage as it is now and the
    first estimate; see [`~correction.refinement.most_likely_matrix`].

    It uses 200 untrusted items per class on average (at least 2,000, or all if there are fewer), the same ones each
    time, and at most 160 MB of probabilities. Returns `None` if that leaves fewer than ten items per class. `most`
    limits the number of items further. `soft` are labels to use instead of the hard ones.
    """
    classes, chosen = run.num_labels, _some_untrusted_items(run, seed, most)
    if _too_many_classes(classes, len(run.item_numbers("untrusted"))):
        logger.info(f"The matrix is not refined: with {classes:,} classes this would need too much memory.")
        return None
    probs = [torch.empty(0, classes)]
    labels = [torch.empty(0, dtype=torch.int64) if soft is None else torch.empty(0, classes)]
    for batch in run.infer(0, "untrusted", only=chosen):
        probs.append(batch.logits.softmax(dim=-1))
        labels.append(batch.labels if soft is None else soft.targets[batch.items])
    counts = run.class_counts("trusted")
    refined = most_likely_matrix(
        torch.cat(probs),
        torch.cat(labels),
        torch.tensor(estimate.probs),
        counts.clamp(min=rare_class_threshold(counts)),
        reduce=run.sum_over_processes,
    )
    return CorruptionMatrix(refined, estimate.label_names, estimate.trusted_rows)


def refine_on_features(run: EstimationRun, estimate: CorruptionMatrix, args: Any) -> CorruptionMatrix | None:
    """
    Refine the matrix before the last stage, if stage 1 is a linear head on fixed features; `None` otherwise.

    The mean softmax over the trusted rows of a class also contains the head's own errors, which a linear head has many
    of. A linear model of the true labels, with trusted items weighted as in the last stage, corrects it; see
    [`~correction.refinement.refine_with_linear_model`].
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
    # The last stage repeats trusted rows up to their share, and never drops any.
    weight = max(1.0, args.trusted_share / (1 - args.trusted_share) * (len(flags) - number) / number)
    untrusted = (~trusted).nonzero().squeeze(1)
    chosen = _some_untrusted_items(run, args.seed)
    if chosen is not None:
        untrusted = untrusted[torch.isin(table.numbers[untrusted], chosen)]
    matrix, _ = refine_with_linear_model(
        table,
        torch.arange(len(table.numbers)),
        given,
        trusted,
        untrusted,
        torch.tensor(estimate.probs),
        counts,
        prior=Prior(probe.penalty),
        trusted_weight=weight,
    )
    return CorruptionMatrix(matrix, estimate.label_names, estimate.trusted_rows)


def of_soft_labels(matrix: CorruptionMatrix, soft: SoftLabels | None) -> CorruptionMatrix:
    """
    The matrix for soft labels, the mean soft label of each true class, from that of hard labels: Ĉ times the mean soft
    label of each hard one. Linear models are fitted to hard labels, and pairs of labels are hard. Without soft labels
    the matrix stays.
    """
    if soft is None:
        return matrix
    probs = torch.tensor(matrix.probs) @ soft.given_hard_label()
    return CorruptionMatrix(probs, matrix.label_names, matrix.trusted_rows)


def _num_items(classes: int) -> int:
    return min(max(_MIN_ITEMS, _ITEMS_PER_CLASS * classes), _MAX_PROBABILITIES // classes)


def _too_many_classes(classes: int, items: int) -> bool:
    return _num_items(classes) < min(10 * classes, items)


def _some_untrusted_items(run: EstimationRun, seed: int, most: int | None = None) -> torch.Tensor | None:
    """The numbers of the untrusted items that refinement uses, the same ones each time; `None` for all of them."""
    numbers, count = run.item_numbers("untrusted"), _num_items(run.num_labels)
    count = count if most is None else min(count, most)
    if len(numbers) <= count:
        return None
    order = np.argsort(random_uint64("refine", seed, numbers), kind="stable")
    return torch.from_numpy(np.sort(numbers[order[:count]]))
