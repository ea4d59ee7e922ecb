# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""What a method may ask for between the stages; the Trainer answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch

from glc_hf.correction.linear import FeatureTable
from glc_hf.methods.base import Items


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


class Between(Protocol):
    """The run as a method sees it between stages. Every process calls the same things in the same order."""

    num_labels: int
    label_names: list[str] | None

    def infer(
        self, stage: int, items: Items, part: Part = "all", only: torch.Tensor | None = None
    ) -> Iterator[Inferred]:
        """Runs the model of an earlier stage (by its place in `earlier_stages()`) over the rows, in evaluation mode,
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
