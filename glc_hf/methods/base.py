# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
What a method is: which rows each stage trains on, what is estimated in between, and the loss of the last stage.

A method is one file with one class under [`register`]; the Trainer does the rest. All settings come from `GLCConfig`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
import torch.nn.functional as F

from glc_hf.correction.accumulators import ConfusionAccumulator, GoldAccumulator
from glc_hf.correction.calibration import TemperatureAccumulator, match_base_rates
from glc_hf.correction.linear import FeatureTable
from glc_hf.correction.loss import corrected_cross_entropy
from glc_hf.correction.refinement import fill_missing_rows
from glc_hf.labels.reading import IGNORED_LABEL as IGNORED_LABEL
from glc_hf.matrix import CorruptionMatrix


if TYPE_CHECKING:
    from glc_hf.training.config import GLCConfig


Items = Literal["all", "trusted", "untrusted"]


@dataclass(frozen=True)
class Stage:
    """
    One training from start to end. Two methods whose first stages are equal can share one training of it.

    Args:
        items (`str`): The labels that carry loss: `"all"`, `"trusted"` or `"untrusted"` ones. Rows with none are left
            out.
        min_updates (`int`, *optional*, defaults to 0): At least this many optimizer steps, so that few rows don't mean
            few steps.
        held_out (`float`, *optional*, defaults to 0.0): Share of these rows kept out of the training and given to the
            method afterwards.
        start (`str`, *optional*, defaults to `"initial"`): `"initial"` for the initial weights, `"previous"` to go on
            from the stage before.
        mode (`str`, *optional*, defaults to `"full"`): How much is spent on it; `GLCConfig.stage1` for a first stage.
    """

    items: Items
    min_updates: int = 0
    held_out: float = 0.0
    start: Literal["initial", "previous"] = "initial"
    mode: Literal["full", "short", "probe"] = "full"


@dataclass
class Batch:
    """What a loss may look at: `labels` and `trusted` of one shape (rows, or rows × tokens), and for methods that need
    them the items' numbers among all labels of the training set that are not -100, in that shape too."""

    labels: torch.Tensor
    trusted: torch.Tensor | None = None
    items: torch.Tensor | None = None


class Method:
    """Base class: plain cross-entropy on all rows in one stage. Subclasses override what is special about them."""

    name: ClassVar[str]
    needs_trusted: ClassVar[bool] = True
    needs_untrusted: ClassVar[bool] = True
    # Whether a corruption matrix is part of it; one that is given to any other method is a mistake.
    uses_matrix: ClassVar[bool] = False
    # Whether the last stage honours `GLCConfig.trusted_share`; baselines take the rows as they are.
    upsamples_trusted: ClassVar[bool] = False
    # What the method keeps beside its matrix for a resumed run.
    state_names: ClassVar[tuple[str, ...]] = ()
    # Whether items must be known by number (soft targets, trusted batches), which a stream can't serve.
    needs_item_numbers: ClassVar[bool] = False

    def __init__(self, args: GLCConfig, num_labels: int, given_matrix: CorruptionMatrix | None = None) -> None:
        self.args = args
        self.num_labels = num_labels
        self.given_matrix = given_matrix
        self.matrix: CorruptionMatrix | None = given_matrix
        if given_matrix is not None and not self.uses_matrix:
            raise ValueError(
                f"method {self.name!r} uses no corruption matrix, and one is given: leave it out, or use "
                "'true_matrix'."
            )
        self.check()

    def check(self) -> None:
        """Raises for settings this method can't work with, before any training."""

    def prepare_model(self, model: torch.nn.Module) -> None:
        """Raises for models this method can't train, and sets up the others, before any training."""

    def first_stages(self) -> list[Stage]:
        """The stages before the last, in order; each is trained by a trainer of its own."""
        return []

    def last_stage(self) -> Stage:
        """The stage that makes the model."""
        return Stage("all")

    def plain_last_stage(self) -> Stage | None:
        """The last stage where it is plain training from the initial weights, which another method may have for its
        first."""
        kind, last = type(self), self.last_stage()
        plain = kind.item_losses is Method.item_losses and kind.item_weights is Method.item_weights
        return last if plain and last.start == "initial" else None

    def estimate(self, run: EstimationRun) -> None:
        """Estimates what the last stage needs, from the trained earlier stages and the rows."""

    def refinement_steps(self, total: int) -> tuple[int, ...]:
        """Steps of the last stage, of `total`, after which [`~Method.refine`] is called."""
        return ()

    def refine(self, run: EstimationRun) -> None:
        """Looks again at what was estimated; `run` has the last stage alone, as it is now, at place 0."""

    def take_refined(self, matrix: CorruptionMatrix) -> None:
        """Takes back what [`~Method.refine`] had made of the estimate, in a resumed last stage."""

    def item_losses(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """The last stage's loss of each item, in the shape of `batch.labels`; 0 where the label is -100."""
        return plain_cross_entropy(logits, batch.labels)

    def item_weights(self, trainer: Any, model: torch.nn.Module, inputs: dict, batch: Batch) -> torch.Tensor | None:
        """Weights of the items' losses in this step, or `None` for all one."""
        return None

    def state(self) -> dict[str, torch.Tensor]:
        """Tensors (beside the matrix) that a resumed last stage needs, under `state_names`."""
        return {}

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        """Takes back what [`~Method.state`] gave."""


def plain_cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of each item in fp32, (..., K) × (...) → (...); 0 where the label is -100."""
    flat = logits.reshape(-1, logits.shape[-1])
    losses = F.cross_entropy(flat.float(), labels.reshape(-1), ignore_index=IGNORED_LABEL, reduction="none")
    return losses.view(labels.shape)


_METHODS: dict[str, type[Method]] = {}


def register(name: str) -> Callable[[type[Method]], type[Method]]:
    """Makes a method known under the name that `GLCConfig(method=…)` and `--method` take."""

    def add(cls: type[Method]) -> type[Method]:
        if name in _METHODS and _METHODS[name].__qualname__ != cls.__qualname__:
            raise ValueError(f"two methods are called {name!r}: {_METHODS[name]} and {cls}.")
        cls.name = name
        _METHODS[name] = cls
        return cls

    return add


def registered() -> dict[str, type[Method]]:
    """The methods registered so far, by name."""
    return _METHODS


Part = Literal["all", "trained", "held_out"]


class Inferred(NamedTuple):
    """One batch of a stage's model on this process's share of the rows, flattened to items; -100 is left out.

    `logits` (n, K) float32 on the CPU, `labels` (n,), and `items` (n,): each item's number among all labels of the
    training set that are not -100, in order (-1 in streams)."""

    logits: torch.Tensor
    labels: torch.Tensor
    items: torch.Tensor


class Probe(Protocol):
    """A stage that is a linear head on fixed features."""

    table: FeatureTable
    penalty: float


class EstimationRun(Protocol):
    """The run as a method sees it between stages. Every process calls the same things in the same order."""

    num_labels: int
    label_names: list[str] | None

    def infer(
        self, stage: int, items: Items, part: Part = "all", only: torch.Tensor | None = None
    ) -> Iterator[Inferred]:
        """Runs the model of an earlier stage (by its place in `first_stages()`) over the rows, in evaluation mode,
        once; each process gets its own share. `part` says which of the rows of that stage: those it was trained on,
        those it held out, or all rows of the dataset whatever the stage saw. `only` picks items by their numbers."""
        ...

    def probe(self, stage: int) -> Probe | None:
        """An earlier stage as a linear head on fixed features, if it is one."""
        ...

    def sum_over_processes(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum of every process's tensor."""
        ...

    def gather_objects(self, value: Any) -> list[Any]:
        """Every process's value, in the order of the processes."""
        ...

    def item_numbers(self, items: Items) -> np.ndarray:
        """The numbers of the chosen items, ascending; a stream has none."""
        ...

    def item_labels(self, items: Items, column: str | None = None) -> np.ndarray:
        """The labels of the chosen items as given (or another column's values for the same items), -100 left out, from
        the dataset alone."""
        ...

    def class_counts(self, items: Items) -> torch.Tensor:
        """How many items of each class there are, by the labels as given: (K,) float64."""
        ...


class MatrixMethod(Method):
    """
    Trains on all rows with `-log Σ_i softmax(logits)_i · C[i, label]`, plain cross-entropy on trusted ones. A given
    matrix is used as it is, with no first stage; otherwise a subclass estimates it.
    """

    uses_matrix = True
    upsamples_trusted = True
    # Whether trusted labels are known to be right (the gold part), or corrected like any other.
    identity_on_trusted = True

    def first_stage(self) -> Stage | None:
        """What is trained to estimate the matrix, if anything."""
        return None

    def first_stages(self) -> list[Stage]:
        """The first stage, unless the matrix is given."""
        stage = self.first_stage() if self.given_matrix is None else None
        return [stage] if stage is not None else []

    def last_stage(self) -> Stage:
        """All rows, from the initial weights or (`stage2_start="continue"`) the first stage's."""
        continues = self.args.stage2_start == "continue" and self.first_stages()
        return Stage("all", start="previous" if continues else "initial")

    def item_losses(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """The corrected cross-entropy of each item."""
        trusted = batch.trusted if self.identity_on_trusted else None
        return corrected_cross_entropy(logits, batch.labels, self.matrix, trusted, reduction="none")


_Matrix = TypeVar("_Matrix", GoldAccumulator, ConfusionAccumulator)


def accumulate_trusted(run: EstimationRun, accumulator: _Matrix, stage: int = 0, temperature: float = 1.0) -> _Matrix:
    """The stage's softmax on every trusted item, summed up by its true class over all processes."""
    for batch in run.infer(stage, "trusted"):
        accumulator.update_logits(batch.logits, batch.labels, temperature)
    return accumulator.all_reduce(run.sum_over_processes)


def fit_stage_temperature(run: EstimationRun, stage: int = 0) -> float:
    """The temperature that calibrates the stage on the noisy labels it held out."""
    accumulator = TemperatureAccumulator()
    for batch in run.infer(stage, "untrusted", part="held_out"):
        accumulator.update(batch.logits, batch.labels)
    return accumulator.all_reduce(run.sum_over_processes).compute()


def finish_matrix(run: EstimationRun, args: GLCConfig, probs: torch.Tensor, counts: torch.Tensor) -> CorruptionMatrix:
    """Rows for classes without trusted items, base rates where asked for, names."""
    probs = fill_missing_rows(probs, counts, args.missing_classes, run.label_names)
    if args.match_base_rates:
        noisy = run.class_counts("untrusted")
        probs = match_base_rates(probs, counts / counts.sum(), noisy / noisy.sum(), args.base_rate_weight)
    return CorruptionMatrix(probs, run.label_names)


def logits_of(outputs: Any) -> torch.Tensor:
    """The logits of a model called without labels: `.logits`, the first of a tuple, or the tensor itself."""
    if isinstance(outputs, torch.Tensor):
        return outputs
    if hasattr(outputs, "logits"):
        return outputs.logits
    return outputs["logits"] if isinstance(outputs, dict) else outputs[0]
