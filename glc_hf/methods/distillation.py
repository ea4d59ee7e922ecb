# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Distillation from a network trained on trusted rows (Li et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from glc_hf.correction.accumulators import ConfusionAccumulator, GoldAccumulator
from glc_hf.labels.label_batch import LabelBatch
from glc_hf.methods.base import (
    EstimationRun,
    Method,
    MethodOptions,
    Stage,
    accumulate_trusted,
    finish_matrix,
    register,
)


_VALIDATION_SHARE = 0.25


@dataclass
class DistillationOptions(MethodOptions):
    """Options of `distillation`."""

    distillation_lambda: str = field(
        default="auto", metadata={"help": "Weight of the given label: a number in [0, 1], auto or paper_code."}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.distillation_lambda = value = str(self.distillation_lambda)
        try:
            valid = value in ("auto", "paper_code") or 0.0 <= float(value) <= 1.0
        except ValueError:
            valid = False
        if not valid:
            raise ValueError(f"distillation_lambda must be a number in [0, 1], 'auto' or 'paper_code'; got {value!r}.")


@register("distillation")
class Distillation(Method):
    """
    A network trained on three quarters of the trusted rows gives soft targets s(x) for the untrusted rows. The target
    of the last stage is λ·onehot(given label) + (1 − λ)·s(x) on untrusted rows, and the label on trusted rows.

    λ is `distillation_lambda`: a number, or computed from two mean precisions: c of the clean network on the remaining
    quarter, and n of the given labels, from Ĉ by Bayes' rule: p(true = k | given = k) = Ĉ[k, k]·b_k / b̃_k. `"auto"` is
    n / (n + c), so that the more precise one has more weight. `"paper_code"` is c / (n + c), as in the authors' code.
    """

    needs_item_numbers = True
    takes_soft_labels = True
    state_names = ("soft_targets", "weight")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.weight: float | None = None
        self.soft_targets: torch.Tensor | None = None

    @property
    def _fixed_weight(self) -> float | None:
        value = self.args.distillation_lambda
        return None if value in ("auto", "paper_code") else float(value)

    def first_stages(self) -> list[Stage]:
        """The noisy network if λ is computed (the same stage as in `glc`, so they can share it); the clean network."""
        clean = Stage("trusted", min_updates=self.args.trusted_min_updates, held_out=_VALIDATION_SHARE)
        return [clean] if self._fixed_weight is not None else [Stage("untrusted", mode=self.args.stage1), clean]

    def estimate(self, run: EstimationRun) -> None:
        """Compute λ and the soft target of every untrusted item."""
        clean = len(self.first_stages()) - 1
        targets = torch.zeros(len(run.item_labels("all")), self.num_labels)
        for batch in run.infer(clean, "untrusted"):
            targets[batch.items] = batch.logits.softmax(-1)
        self.soft_targets = run.sum_over_processes(targets)
        self.weight = self._fixed_weight if self._fixed_weight is not None else self._compute_weight(run, clean)

    def _compute_weight(self, run: EstimationRun, clean: int) -> float:
        estimate = accumulate_trusted(run, GoldAccumulator(self.num_labels))
        matrix = finish_matrix(run, self.args, *estimate.compute())
        true, given = run.class_counts("trusted"), run.class_counts("untrusted")
        noisy_precision = precision_of_labels(torch.tensor(matrix.probs), true / true.sum(), given / given.sum())
        confusion = ConfusionAccumulator(self.num_labels, smoothing=0.0)
        for batch in run.infer(clean, "trusted", part="held_out"):
            confusion.update_logits(batch.logits, batch.labels)
        confusion.all_reduce(run.sum_over_processes)
        return weight_of_given_label(
            precision_of_network(confusion.sums[0]), noisy_precision, self.args.distillation_lambda
        )

    def item_losses(self, logits: torch.Tensor, batch: LabelBatch) -> torch.Tensor:
        """λ·CE(given label) + (1 − λ)·CE(soft target) on untrusted items, CE(label) on trusted items."""
        assert self.weight is not None
        assert self.soft_targets is not None
        assert batch.trusted is not None
        given = batch.cross_entropy(logits)
        targets = self.soft_targets[batch.items].to(logits.device)
        soft = -(targets * logits.float().log_softmax(-1)).sum(-1)
        mixed = self.weight * given + (1.0 - self.weight) * soft
        return torch.where(batch.trusted, given, mixed.masked_fill(~batch.counted, 0.0))

    def state(self) -> dict[str, torch.Tensor]:
        assert self.soft_targets is not None
        return {"soft_targets": self.soft_targets, "weight": torch.tensor(self.weight, dtype=torch.float64)}

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        self.soft_targets, self.weight = state["soft_targets"], float(state["weight"])


def precision_of_network(confusion: torch.Tensor) -> float:
    """Mean over classes of p(true = k | predicted = k), from counts by (true, predicted); 0 if never predicted."""
    predicted = confusion.sum(dim=0)
    return float((confusion.diagonal() / predicted.clamp(min=1.0)).mean())


def precision_of_labels(matrix: torch.Tensor, true_rates: torch.Tensor, given_rates: torch.Tensor) -> float:
    """Mean over classes of p(true = k | given = k) = C[k, k]·b_k / b̃_k, at most 1; 0 for a class never given."""
    joint = matrix.diagonal() * true_rates
    precision = torch.where(given_rates > 0, joint / given_rates.clamp(min=1e-12), torch.zeros_like(joint))
    return float(precision.clamp(max=1.0).mean())


def weight_of_given_label(clean_precision: float, noisy_precision: float, choice: str) -> float:
    """λ from the two precisions; 0.5 if both are zero."""
    total = clean_precision + noisy_precision
    if total <= 0.0:
        return 0.5
    return (clean_precision if choice == "paper_code" else noisy_precision) / total
