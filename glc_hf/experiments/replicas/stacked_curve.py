# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Training all stages and methods of a curve, with all strengths at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from glc_hf.experiments.replicas.stacked_networks import StackedNetwork, column_order, stack
from glc_hf.experiments.replicas.stacked_training import (
    LossGradient,
    last_stage_loss,
    plain_loss,
    predict,
    train_stage,
)
from glc_hf.labels.labeled_rows import LabeledRows
from glc_hf.matrix import CorruptionMatrix
from glc_hf.methods import get_method
from glc_hf.methods.base import Inferred, Items, Method, Part, Stage


if TYPE_CHECKING:
    import datasets

    from glc_hf.experiments.presets.base import PreparedData, Preset
    from glc_hf.training.config import GLCConfig


class CurveResult(NamedTuple):
    """Percent errors, matrices and weights of one method, one of each per replica."""

    method: str
    errors: list[float]
    matrices: list[CorruptionMatrix | None]
    states: list[dict[str, Tensor]]


# The replicas of a stage, in their order: one stack per thread.
Stacks = list[StackedNetwork]


class StackedCurve:
    """
    The runs of one curve, with the same rows, flags and initial weights, and different noisy labels.

    Args:
        preset ([`Preset`]): The experiment.
        data ([`PreparedData`]): Its data; the labels of `data.train` are not read.
        replicas (`Sequence[datasets.Dataset]`): The training set of each replica, flagged and corrupted.
        true_matrices (`Sequence[CorruptionMatrix]`): The matrix of the noise of each replica.
        make_args (`Callable`): Returns the settings of a method, by its name.
        seed (`int`): Seed of the initial weights.
        tick (`Callable`, *optional*): Called from time to time with the number of finished stages, a float.
        threads (`int`, *optional*, defaults to 1): Train this many parts of the replicas at the same time. Another
            number of parts changes the results by rounding only.
    """

    def __init__(
        self,
        preset: Preset,
        data: PreparedData,
        replicas: Sequence[datasets.Dataset],
        true_matrices: Sequence[CorruptionMatrix | None],
        make_args: Callable[[str], GLCConfig],
        seed: int,
        tick: Callable[[float], None] = lambda stages: None,
        threads: int = 1,
    ) -> None:
        self.preset, self.data, self.true_matrices, self.make_args = preset, data, true_matrices, make_args
        self.num_labels = len(data.label_names)
        self.rows = [
            LabeledRows(one, preset.prepared_label_column, "trusted", self.num_labels, "sweep", needs_flags=True)
            for one in replicas
        ]
        # All replicas have the same inputs: only the labels of the others are read, one per row.
        tensors, labels = preset.tensors(replicas[0])
        self.labels = torch.stack([torch.from_numpy(rows.item_labels("all")) for rows in self.rows])
        if not torch.equal(self.labels[0], labels):
            raise ValueError(f"preset {preset.name!r} has rows with several labels or none: it can't be stacked.")
        self.trusted = torch.zeros(len(labels), dtype=torch.bool)
        self.trusted[self.rows[0].rows_with("trusted")] = True
        self.model = preset.make_model(data, seed)
        self._order = column_order(self.model, tensors)
        network = stack(self.model, 1, self._order)
        self.inputs = network.inputs(tensors)
        test_tensors, self.test_labels = preset.tensors(data.test)
        self.test_inputs = network.inputs(test_tensors)
        self.tick, self.threads, self._stages_done = tick, threads, 0
        self._trained: dict[Stage, Stacks] = {}
        self._logits: dict[tuple[Stage, bytes | None], Tensor] = {}

    def run(self, methods: Sequence[str]) -> Iterator[CurveResult]:
        """Train one method after the other; equal stages are trained once."""
        for name in methods:
            yield self._run_method(name)

    def number_of_stages(self, methods: Sequence[str]) -> int:
        """Return the number of stages that [`~StackedCurve.run`] trains for these methods."""
        stages: set[Stage | str] = set()
        for name in methods:
            method = self._method(name, 0)
            stages |= {*method.first_stages(), method.plain_last_stage() or name}
        return len(stages)

    def _method(self, name: str, replica: int) -> Method:
        given = self.true_matrices[replica] if name == "true_matrix" else None
        return get_method(name)(self.make_args(name), self.num_labels, given)

    def _run_method(self, name: str) -> CurveResult:
        args = self.make_args(name)
        methods = [self._method(name, replica) for replica in range(len(self.rows))]
        stages, last = methods[0].first_stages(), methods[0].last_stage()
        for stage in stages:
            self._train_plain(stage, args)
        for replica, method in enumerate(methods):
            method.estimate(_ReplicaRun(self, replica, stages))
        plain = methods[0].plain_last_stage()
        if plain is not None:
            stacks = self._train_plain(plain, args)
        else:
            start = self._trained[stages[-1]] if last.start == "previous" else None

            def make_loss(part: slice) -> LossGradient:
                return last_stage_loss(methods[part], self.labels[part], self.trusted)

            stacks = self._train(last, args, make_loss, start, len(methods))
        wrong = self._predict(stacks, self.test_inputs).argmax(dim=-1) != self.test_labels
        errors = [100.0 * float(share) for share in wrong.double().mean(dim=1)]
        states = [stack.state_of(replica) for stack in stacks for replica in range(stack.replicas)]
        if len(states) == 1:
            errors, states = errors * len(methods), states * len(methods)
        return CurveResult(name, errors, [method.matrix for method in methods], states)

    def _train_plain(self, stage: Stage, args: GLCConfig) -> Stacks:
        """Train a stage with plain cross-entropy, unless another method has trained it."""
        if stage not in self._trained:
            if stage.start == "previous":
                raise ValueError("a first stage that continues another stage can't be trained in replicas.")
            # Replicas with equal labels are trained as one.
            chosen = self.labels[:, torch.from_numpy(self.rows_of(stage, "trained"))]
            labels = self.labels[:1] if bool((chosen == chosen[:1]).all()) else self.labels
            self._trained[stage] = self._train(stage, args, lambda part: plain_loss(labels[part]), None, len(labels))
        return self._trained[stage]

    def _train(
        self,
        stage: Stage,
        args: GLCConfig,
        make_loss: Callable[[slice], LossGradient],
        start: Stacks | None,
        replicas: int,
    ) -> Stacks:
        rows, done, stopped = self.rows_of(stage, "trained"), self._stages_done, threading.Event()
        parts = _parts(replicas, self.threads)
        stacks = [stack(self.model, part.stop - part.start, self._order) for part in parts]

        def train(number: int) -> None:
            network = stacks[number]
            if start is not None:
                before = start[number if len(start) > 1 else 0].parameters
                for name, parameter in network.parameters.items():
                    parameter.data.copy_(before[name].expand_as(parameter))

            def tick(share: float) -> None:
                if stopped.is_set():
                    raise RuntimeError("the training of other replicas was stopped.")
                if number == 0:
                    self.tick(done + share)

            loss = make_loss(parts[number])
            train_stage(network, self.inputs, loss, rows, self.preset, args, stage.min_updates, tick)

        if len(parts) == 1:
            train(0)
        else:
            with ThreadPoolExecutor(len(parts)) as pool:
                running = [pool.submit(train, number) for number in range(len(parts))]
                try:
                    finished, _ = wait(running, return_when=FIRST_EXCEPTION)
                finally:
                    stopped.set()
                for one in finished:
                    one.result()
        self._stages_done += 1
        return stacks

    def _predict(self, stacks: Stacks, inputs: tuple[Tensor, ...]) -> Tensor:
        """Return the logits (R, N, K) of some rows."""
        return torch.cat([predict(network, inputs) for network in stacks])

    def rows_of(self, stage: Stage, part: Part) -> np.ndarray:
        """Return the rows a stage trains on or holds out, as in `GLCTrainer`."""
        rows = self.rows[0]
        kept, held_out = rows.split(rows.rows_with(stage.items), stage.held_out, self.make_args("glc").seed)
        return kept if part == "trained" else held_out

    def logits_of(self, stage: Stage, replica: int, rows: Tensor) -> Tensor:
        """Return the logits of a trained stage on some rows. They are cached for all replicas, which ask for the same
        rows in turn; for many rows the logits of all rows are computed."""
        many = len(rows) > self.labels.shape[1] // 4
        key = stage, None if many else rows.numpy().tobytes()
        if key not in self._logits:
            inputs = self.inputs if many else tuple(tensor[rows] for tensor in self.inputs)
            self._logits[key] = self._predict(self._trained[stage], inputs)
        logits = self._logits[key]
        logits = logits[replica if len(logits) > 1 else 0]
        return logits[rows] if many else logits


def _parts(replicas: int, threads: int) -> list[slice]:
    """Replicas in consecutive parts of (almost) equal size, at most one per thread."""
    bounds = np.linspace(0, replicas, min(threads, replicas) + 1).round().astype(int).tolist()
    return [slice(first, last) for first, last in pairwise(bounds)]


class _ReplicaRun:
    """One replica as a method sees it between stages, see [`EstimationRun`]."""

    def __init__(self, curve: StackedCurve, replica: int, stages: list[Stage]) -> None:
        self.curve, self.replica, self.stages = curve, replica, stages
        self.rows = curve.rows[replica]
        self.num_labels = curve.num_labels
        self.label_names: list[str] | None = curve.data.label_names

    def infer(self, stage: int, items: Items, part: Part = "all", only: Tensor | None = None) -> Iterator[Inferred]:
        chosen = self.rows.rows_with(items)
        if part != "all":
            chosen = np.intersect1d(chosen, self.curve.rows_of(self.stages[stage], part))
        if only is not None:
            chosen = np.intersect1d(chosen, only.numpy())
        numbers = torch.from_numpy(chosen)
        logits = self.curve.logits_of(self.stages[stage], self.replica, numbers)
        yield Inferred(logits, self.curve.labels[self.replica][numbers], numbers)

    def probe(self, stage: int) -> None:
        return  # first stages of replicas are trained in full

    def sum_over_processes(self, tensor: Tensor) -> Tensor:
        return tensor

    def gather_objects(self, value: Any) -> list[Any]:
        return [value]

    def item_numbers(self, items: Items) -> np.ndarray:
        return self.rows.numbers_of(items)

    def item_labels(self, items: Items, column: str | None = None) -> np.ndarray:
        return self.rows.item_labels(items, column)

    def class_counts(self, items: Items) -> Tensor:
        counts = np.bincount(self.item_labels(items), minlength=self.num_labels)
        return torch.from_numpy(counts).double()
