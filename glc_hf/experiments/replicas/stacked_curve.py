# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Every stage of every method of a curve, all strengths at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from glc_hf.experiments.replicas.stacked_networks import StackedNetwork, column_order, stack
from glc_hf.experiments.replicas.stacked_training import PlainLoss, last_stage_loss, predict, train_stage
from glc_hf.matrix import CorruptionMatrix
from glc_hf.methods import get_method
from glc_hf.methods.base import Inferred, Items, Method, Part, Stage
from glc_hf.training.training_data import LabelledRows


if TYPE_CHECKING:
    import datasets

    from glc_hf.experiments.presets.base import PreparedData, Preset
    from glc_hf.training.config import GLCConfig


class CurveResult(NamedTuple):
    """What one method made of a curve: for each replica, the percent error, the matrix and the weights."""

    method: str
    errors: list[float]
    matrices: list[CorruptionMatrix | None]
    states: list[dict[str, Tensor]]


class StackedCurve:
    """
    The cells of one curve: the same rows, flags and initial weights, and noisy labels of their own.

    Args:
        preset ([`Preset`]): The experiment.
        data ([`PreparedData`]): Its rows; the labels of `data.train` are not looked at.
        replicas (`Sequence[datasets.Dataset]`): The training set of each replica, flagged and corrupted.
        true_matrices (`Sequence[CorruptionMatrix]`): What corrupted each.
        make_args (`Callable`): The settings for a method by its name.
        seed (`int`): Of the initial weights.
        tick (`Callable`, *optional*): Told now and then how many stages are done, as a number with a fraction.
    """

    def __init__(
        self,
        preset: Preset,
        data: PreparedData,
        replicas: Sequence[datasets.Dataset],
        true_matrices: Sequence[CorruptionMatrix],
        make_args: Callable[[str], GLCConfig],
        seed: int,
        tick: Callable[[float], None] | None = None,
    ) -> None:
        self.preset, self.data, self.true_matrices, self.make_args = preset, data, true_matrices, make_args
        self.num_labels = len(data.label_names)
        self.rows = [
            LabelledRows(one, data.label_column, "trusted", self.num_labels, "sweep", needs_flags=True)
            for one in replicas
        ]
        # The inputs are the same in all: of the other replicas the labels alone are read, one a row.
        tensors, labels = preset.tensors(replicas[0])
        self.labels = torch.stack([torch.from_numpy(rows.item_labels("all")) for rows in self.rows])
        if not torch.equal(self.labels[0], labels):
            raise ValueError(f"preset {preset.name!r} has rows with several labels or none: it can't be stacked.")
        self.trusted = torch.zeros(len(labels), dtype=torch.bool)
        self.trusted[self.rows[0].rows_with("trusted")] = True
        self.model = preset.make_model(data, seed)
        self._order = column_order(self.model, tensors)
        self.inputs = self._network(1).inputs(tensors)
        test_tensors, self.test_labels = preset.tensors(data.test)
        self.test_inputs = self._network(1).inputs(test_tensors)
        self.tick, self._stages_done = tick, 0
        self._trained: dict[Stage, StackedNetwork] = {}
        self._logits: dict[Stage, Tensor] = {}
        self._few_logits: tuple[Stage, Tensor, Tensor] | None = None

    def run(self, methods: Sequence[str]) -> Iterator[CurveResult]:
        """Trains one method after the other; equal earlier stages are trained once."""
        for name in methods:
            yield self._run_method(name)

    def number_of_stages(self, methods: Sequence[str]) -> int:
        """How many trainings [`~StackedCurve.run`] takes for these methods."""
        stages: set[Stage | str] = set()
        for name in methods:
            method = get_method(name)(self.make_args(name), self.num_labels, self._given(name, 0))
            stages |= {*method.first_stages(), method.plain_last_stage() or name}
        return len(stages)

    def _run_method(self, name: str) -> CurveResult:
        args = self.make_args(name)
        kind = get_method(name)
        methods = [kind(args, self.num_labels, self._given(name, r)) for r in range(len(self.rows))]
        for stage in methods[0].first_stages():
            self._train_earlier(stage, args)
        stages = methods[0].first_stages()
        for replica, method in enumerate(methods):
            method.estimate(_ReplicaRun(self, replica, stages))
        last = methods[0].last_stage()
        shared = methods[0].plain_last_stage()
        if shared is not None:
            network = self._train_earlier(shared, args)
        else:
            start = self._trained[stages[-1]] if last.start == "previous" else None
            network = self._train(last, args, last_stage_loss(methods, self.labels, self.trusted), start)
        return self._result(name, network, methods)

    def _train_earlier(self, stage: Stage, args: GLCConfig) -> StackedNetwork:
        if stage not in self._trained:
            self._trained[stage] = self._train(stage, args, PlainLoss(self.labels), self._start_of(stage))
        return self._trained[stage]

    def _start_of(self, stage: Stage) -> StackedNetwork | None:
        if stage.start == "previous":
            raise ValueError("an earlier stage that goes on from another one can't be trained in replicas.")
        return None

    def _train(self, stage: Stage, args: GLCConfig, loss: Any, start: StackedNetwork | None) -> StackedNetwork:
        rows = self.rows_of(stage, "trained")
        alike = isinstance(loss, PlainLoss) and start is None and self._same_labels(rows)
        network = self._network(1 if alike else len(self.rows))
        if start is not None:
            for name, parameter in network.parameters.items():
                parameter.data.copy_(start.parameters[name].expand_as(parameter))
        if alike:
            loss = PlainLoss(self.labels[:1])
        train_stage(network, self.inputs, loss, rows, self.preset, args, stage.min_updates, self._tick_within)
        self._stages_done += 1
        return network

    def rows_of(self, stage: Stage, part: Part) -> np.ndarray:
        """The rows a stage trains on, or holds out, as `GLCTrainer` has them."""
        rows = self.rows[0]
        kept, held_out = rows.split(rows.rows_with(stage.items), stage.held_out, self.make_args("glc").seed)
        return kept if part == "trained" else held_out

    def logits_of(self, stage: Stage, replica: int, rows: Tensor) -> Tensor:
        """The logits of a trained stage on some rows. Replicas ask for the same ones in turn, so they are kept: those
        of all rows for good, those of few until others are asked for."""
        if stage in self._logits or len(rows) > self.labels.shape[1] // 4:
            if stage not in self._logits:
                self._logits[stage] = predict(self._trained[stage], self.inputs)
            logits = self._logits[stage]
            return logits[replica if len(logits) > 1 else 0][rows]
        kept = self._few_logits
        if kept is None or kept[0] != stage or not torch.equal(kept[1], rows):
            found = predict(self._trained[stage], tuple(tensor[rows] for tensor in self.inputs))
            kept = self._few_logits = stage, rows, found
        return kept[2][replica if len(kept[2]) > 1 else 0]

    def _same_labels(self, rows: np.ndarray) -> bool:
        chosen = self.labels[:, torch.from_numpy(rows)]
        return bool((chosen == chosen[:1]).all())

    def _network(self, replicas: int) -> StackedNetwork:
        return stack(self.model, replicas, self._order)

    def _given(self, method: str, replica: int) -> CorruptionMatrix | None:
        return self.true_matrices[replica] if method == "true_matrix" else None

    def _result(self, name: str, network: StackedNetwork, methods: list[Method]) -> CurveResult:
        wrong = predict(network, self.test_inputs).argmax(dim=-1) != self.test_labels
        errors = [100.0 * float(share) for share in wrong.double().mean(dim=1)]
        states = [network.state_of(r) for r in range(network.replicas)]
        if network.replicas == 1:
            errors, states = errors * len(methods), states * len(methods)
        return CurveResult(name, errors, [method.matrix for method in methods], states)

    def _tick_within(self, share: float) -> None:
        if self.tick is not None:
            self.tick(self._stages_done + share)


class _ReplicaRun:
    """One replica's run as a method sees it between stages; see [`EstimationRun`]."""

    def __init__(self, curve: StackedCurve, replica: int, stages: list[Stage]) -> None:
        self.curve, self.replica, self.stages = curve, replica, stages
        self.rows = curve.rows[replica]
        self.num_labels = curve.num_labels
        self.label_names = curve.data.label_names

    def infer(self, stage: int, items: Items, part: Part = "all", only: Tensor | None = None) -> Iterator[Inferred]:
        """See [`EstimationRun`]."""
        chosen = self.rows.rows_with(items)
        if part != "all":
            chosen = np.intersect1d(chosen, self.curve.rows_of(self.stages[stage], part))
        if only is not None:
            chosen = np.intersect1d(chosen, only.numpy())
        numbers = torch.from_numpy(chosen)
        logits = self.curve.logits_of(self.stages[stage], self.replica, numbers)
        yield Inferred(logits, self.curve.labels[self.replica][numbers], numbers)

    def probe(self, stage: int) -> None:
        """See [`glc_hf.methods.base.EstimationRun.probe`]: the replicas' first stages are trained in full."""
        return

    def sum_over_processes(self, tensor: Tensor) -> Tensor:
        """There is one process."""
        return tensor

    def gather_objects(self, value: Any) -> list[Any]:
        """There is one process."""
        return [value]

    def item_labels(self, items: Items, column: str | None = None) -> np.ndarray:
        """See [`EstimationRun`]."""
        return self.rows.item_labels(items, column)

    def class_counts(self, items: Items) -> Tensor:
        """See [`EstimationRun`]."""
        counts = np.bincount(self.item_labels(items), minlength=self.num_labels)
        return torch.from_numpy(counts).double()
