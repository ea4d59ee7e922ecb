# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
What a method is: which rows each stage trains on, what is estimated in between, and the loss of the last stage.

A method is one file with one class under [`register`]; the Trainer does the rest. All settings come from `GLCConfig`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
import torch.nn.functional as F

from glc_hf.corruption.column_checks import IGNORED_LABEL as IGNORED


if TYPE_CHECKING:
    from glc_hf.corruption.matrix import CorruptionMatrix
    from glc_hf.methods.between import Between
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
        way (`str`, *optional*, defaults to `"full"`): How much is spent on it; `GLCConfig.stage1` for a first stage.
    """

    items: Items
    min_updates: int = 0
    held_out: float = 0.0
    start: Literal["initial", "previous"] = "initial"
    way: Literal["full", "short", "probe"] = "full"


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

    def earlier_stages(self) -> list[Stage]:
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

    def between(self, run: Between) -> None:
        """Estimates what the last stage needs, from the trained earlier stages and the rows."""

    def refinement_steps(self, total: int) -> tuple[int, ...]:
        """Steps of the last stage, of `total`, after which [`~Method.refine`] is called."""
        return ()

    def refine(self, run: Between) -> None:
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
    losses = F.cross_entropy(flat.float(), labels.reshape(-1), ignore_index=IGNORED, reduction="none")
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
