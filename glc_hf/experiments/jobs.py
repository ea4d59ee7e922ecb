# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Jobs of a sweep: training the methods and strengths of one noise, fraction of trusted rows and seed."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from glc_hf.experiments.presets import get_preset, preset_class
from glc_hf.experiments.results import RESULTS_VERSION
from glc_hf.matrix import CorruptionMatrix
from glc_hf.methods import get_method
from glc_hf.noise.corrupt import corrupt_labels
from glc_hf.noise.families import WEAK, noise_matrix
from glc_hf.training.compare import compare_methods
from glc_hf.training.config import GLCConfig
from glc_hf.training.stages import FinishedStage
from glc_hf.training.trainer import GLCTrainer
from glc_hf.training.weak_training import label_by_weak_classifier
from glc_hf.trusted import mark_trusted


if TYPE_CHECKING:
    import datasets
    import torch

    from glc_hf.experiments.presets.base import PreparedData, Preset
    from glc_hf.methods.base import Stage


Row = dict[str, Any]
Tick = Callable[[float], None]


@dataclass(frozen=True)
class Curve:
    """A job: runs that are trained together."""

    preset: str
    noise: str
    trusted: float  # a fraction
    seed: int
    strengths: tuple[float | None, ...]  # `(None,)` for noise without a strength
    methods: tuple[str, ...]  # in training order
    data_root: str | None = None  # folder that holds the data, laid out as on the Hub
    limit: int | None = None  # maximum number of training rows and of test rows
    epochs: float | None = None  # replaces the preset's
    trusted_updates: int | None = None  # minimum of networks trained on trusted rows alone (paper: 2,000)
    options: tuple[tuple[str, str], ...] = ()  # options of the preset, by name
    matrices: bool = False  # whether to write the estimated matrices

    @property
    def size(self) -> int:
        """Number of runs."""
        return len(self.methods) * len(self.strengths)

    @property
    def reduced(self) -> str | None:
        """What differs from the paper's run besides the data (see [`PreparedData`]). Files in options appear without
        their folder, because results are moved between machines."""
        reported = preset_class(self.preset).reported_options if self.options else ()
        return join_reduced(
            *(f"{name} {PurePath(value).name}" for name, value in self.options if name not in reported),
            None if self.epochs is None else f"{self.epochs:g} epochs",
            None if self.trusted_updates is None else f"trusted rows alone at least {self.trusted_updates:,} updates",
        )

    @property
    def changes(self) -> dict[str, Any]:
        """Settings that replace the preset's."""
        changes = {"num_train_epochs": self.epochs, "trusted_min_updates": self.trusted_updates}
        return {name: value for name, value in changes.items() if value is not None}

    def __str__(self) -> str:
        return f"{self.preset}, {self.noise}, {self.trusted:.3%} trusted, seed {self.seed}"


def join_reduced(*parts: str | None) -> str | None:
    """Join descriptions of what was reduced; `None` if there are none."""
    return ", ".join(filter(None, parts)) or None


def run_curve(curve: Curve, tick: Tick = lambda share: None, threads: int = 1) -> Iterator[list[Row]]:
    """Train the runs of a job, and yield the lines of the results file that belong together: those of one method.
    `tick` is called from time to time with the share of the work that is done. Stacked strengths use so many
    threads."""
    from glc_hf.experiments.replicas.stacked_training import can_stack

    preset = get_preset(curve.preset, **dict(curve.options))
    data = _prepared(curve.preset, curve.options, curve.data_root, curve.limit)
    stacked = [name for name in curve.methods if preset.stacks and can_stack(get_method(name))]
    alone = [name for name in curve.methods if name not in stacked]
    if stacked:
        yield from _stacked(curve, preset, data, stacked, tick, threads)
    if alone:
        yield from _one_by_one(curve, preset, data, alone, tick)
    tick(1.0)


@lru_cache(maxsize=1)  # the jobs of one process share the data
def _prepared(
    preset: str, options: tuple[tuple[str, str], ...], data_root: str | None, limit: int | None
) -> PreparedData:
    return get_preset(preset, **dict(options)).prepare(data_root, limit)


def _stacked(
    curve: Curve, preset: Preset, data: PreparedData, methods: list[str], tick: Tick, threads: int
) -> Iterator[list[Row]]:
    from glc_hf.experiments.replicas.stacked_curve import StackedCurve

    rows = [noisy_rows(preset, data, curve.noise, curve.trusted, s, curve.seed) for s in curve.strengths]
    truths = [one.matrix for one in rows]
    with tempfile.TemporaryDirectory() as folder:
        make_args = cache(lambda method: arguments(preset, method, curve.seed, folder, **curve.changes))
        trains = [one.train for one in rows]
        replicas = StackedCurve(preset, data, trains, truths, make_args, curve.seed, threads=threads)
        number = replicas.number_of_stages(methods)
        replicas.tick = lambda stages: tick(min(stages / number, 1.0) * len(methods) / len(curve.methods))
        for result in replicas.run(methods):
            runs = zip(curve.strengths, result.errors, result.matrices, truths, strict=True)
            yield [_row(curve, data, result.method, *run) for run in runs]


def _one_by_one(
    curve: Curve, preset: Preset, data: PreparedData, methods: list[str], tick: Tick
) -> Iterator[list[Row]]:
    done = (len(curve.methods) - len(methods)) * len(curve.strengths)
    # Trusted labels are equal at all strengths, so stages trained on them alone are shared between strengths.
    of_trusted: dict[Stage, FinishedStage] = {}
    trusted_error: float | None = None
    for strength in curve.strengths:
        rows = noisy_rows(preset, data, curve.noise, curve.trusted, strength, curve.seed)
        left = methods
        if trusted_error is not None:
            left = [name for name in methods if name != "trusted_only"]
            done += 1
            yield [_row(curve, data, "trusted_only", strength, trusted_error, None, rows.matrix)]
        shared = dict(of_trusted)
        for method, error, matrix in run_methods(preset, data, rows, left, curve.seed, shared, **curve.changes):
            if method == "trusted_only":
                trusted_error = error
            done += 1
            tick(done / curve.size)
            yield [_row(curve, data, method, strength, error, matrix, rows.matrix)]
        of_trusted = {stage: finished for stage, finished in shared.items() if stage.items == "trusted"}


def _row(
    curve: Curve,
    data: PreparedData,
    method: str,
    strength: float | None,
    error: float,
    matrix: CorruptionMatrix | None,
    truth: CorruptionMatrix | None,
) -> Row:
    row = {
        "version": RESULTS_VERSION,
        "preset": curve.preset,
        "method": method,
        "noise": curve.noise,
        "trusted": curve.trusted,
        "strength": strength,
        "seed": curve.seed,
        "error": round(error, 6),
        "matrix_distance": None if matrix is None or truth is None else round(truth.distance(matrix), 6),
        "reduced": join_reduced(data.reduced, curve.reduced),
    }
    if curve.matrices and matrix is not None:
        row["matrix"] = matrix.probs.round(5).tolist()
        row["true_matrix"] = None if truth is None else truth.probs.round(5).tolist()
        row["label_names"] = data.label_names
    return row


class NoisyRows(NamedTuple):
    """The training set of a run, and the matrix behind its noise (`None` for labels of a weak classifier)."""

    train: datasets.Dataset
    matrix: CorruptionMatrix | None


def noisy_rows(
    preset: Preset, data: PreparedData, noise: str, trusted: float, strength: float | None, seed: int
) -> NoisyRows:
    """Flag a fraction of the training rows as trusted, and corrupt the labels of the others."""
    flagged = mark_trusted(data.train, fraction=trusted, seed=seed)
    if noise != WEAK:
        names = data.label_names
        assert strength is not None  # only weak labels have none
        matrix = noise_matrix(noise, len(names), strength, seed=seed, groups=data.groups, label_names=names)
        return NoisyRows(corrupt_labels(flagged, matrix, seed=seed, label_column=preset.prepared_label_column), matrix)
    with tempfile.TemporaryDirectory() as folder:
        noisy, _ = label_by_weak_classifier(
            flagged,
            preset.make_model(data, seed),
            arguments(preset, "no_correction", seed, folder),
            label_column=preset.prepared_label_column,
            make_trainer=lambda model, args, rows: make_trainer(preset, data, NoisyRows(rows, None), args, model),
        )
    return NoisyRows(noisy, None)


def arguments(preset: Preset, method: str, seed: int, folder: str, **changes: Any) -> GLCConfig:
    """Return the settings of a run: the preset's with `changes`, without saving or reporting."""
    settings = {
        "eval_strategy": "no",
        "save_strategy": "no",
        "logging_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "evaluate_stages": False,
        **preset.settings(),
        **changes,
    }
    return GLCConfig(output_dir=folder, method=method, seed=seed, **settings)


class PresetTrainer(GLCTrainer):
    """A trainer that applies weight decay to the parameters that the preset names."""

    preset: Preset

    def get_decay_parameter_names(self, model: torch.nn.Module) -> list[str]:
        return [name for name, _ in model.named_parameters() if self.preset.decays(name)]


def make_trainer(
    preset: Preset, data: PreparedData, rows: NoisyRows, args: GLCConfig, model: torch.nn.Module
) -> PresetTrainer:
    """Return the trainer of one run."""
    trainer = PresetTrainer(
        model,
        args,
        train_dataset=rows.train,
        eval_dataset=data.test,
        data_collator=data.data_collator,
        processing_class=data.processing_class,
        optimizer_cls_and_kwargs=preset.optimizer(),
        corruption_matrix=rows.matrix if args.method == "true_matrix" else None,
    )
    trainer.preset = preset
    return trainer


def run_methods(
    preset: Preset,
    data: PreparedData,
    rows: NoisyRows,
    methods: Sequence[str],
    seed: int,
    shared: dict[Stage, FinishedStage],
    **changes: Any,
) -> Iterator[tuple[str, float, CorruptionMatrix | None]]:
    """
    Train methods one after the other on the same rows and initial weights, and yield for each its percent error on the
    test set and its matrix, if it has one.

    Equal stages are trained once: first stages, and plain last stages that are another method's first stage. `shared`
    holds stages already trained on these rows; newly trained ones are added. `changes` replace the preset's settings.
    """
    model = preset.make_model(data, seed)
    with tempfile.TemporaryDirectory() as folder:

        def make(method: str) -> PresetTrainer:
            args = arguments(preset, method, seed, folder, **changes)
            return make_trainer(preset, data, rows, args, copy.deepcopy(model))

        for trainer, metrics in compare_methods(methods, make, shared):
            plain = trainer.required_method.plain_last_stage()
            if plain is not None and plain not in shared:
                shared[plain] = FinishedStage({k: v.clone() for k, v in trainer.model.state_dict().items()}, [])
            yield metrics["method"], 100.0 * (1.0 - metrics["eval_accuracy"]), trainer.corruption_matrix
