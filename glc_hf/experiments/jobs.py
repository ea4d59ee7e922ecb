# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""One job of a sweep: the methods and strengths of one kind of noise, fraction of trusted rows and seed."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from glc_hf.experiments.results import RESULTS_VERSION
from glc_hf.matrix import CorruptionMatrix
from glc_hf.noise.corrupt import corrupt_labels
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


@dataclass(frozen=True)
class Curve:
    """
    Cells that are trained together.

    Args:
        preset, noise, trusted, seed: What they share; `trusted` is a fraction.
        strengths (`tuple[float | None, ...]`): `(None,)` for noise that has none.
        methods (`tuple[str, ...]`): In the order they are trained in.
        data_root (`str`, *optional*): Folder that holds the data, laid out as on the Hub.
        limit (`int`, *optional*): At most so many training and test rows.
        epochs (`float`, *optional*): In place of the preset's.
        trusted_updates (`int`, *optional*): At least so many updates of networks trained on trusted rows alone, in
            place of the paper's 2,000.
        options (`tuple[tuple[str, str], ...]`): What the preset leaves open, by name.
        matrices (`bool`): Whether the estimated matrices are written too.
    """

    preset: str
    noise: str
    trusted: float
    seed: int
    strengths: tuple[float | None, ...]
    methods: tuple[str, ...]
    data_root: str | None = None
    limit: int | None = None
    epochs: float | None = None
    trusted_updates: int | None = None
    options: tuple[tuple[str, str], ...] = ()
    matrices: bool = False

    @property
    def reduced(self) -> str | None:
        """What differs from the paper's run but for the rows, of which the data say it. Of a file that an option
        names, its name: results go from machine to machine."""
        from glc_hf.experiments.presets import preset_class

        told = preset_class(self.preset).tells if self.options else ()
        parts = [f"{name} {PurePath(value).name}" for name, value in self.options if name not in told]
        if self.epochs is not None:
            parts.append(f"{self.epochs:g} epochs")
        if self.trusted_updates is not None:
            parts.append(f"trusted rows alone at least {self.trusted_updates:,} updates")
        return ", ".join(parts) or None

    @property
    def changes(self) -> dict[str, Any]:
        """Settings other than the preset's."""
        changes = {"num_train_epochs": self.epochs, "trusted_min_updates": self.trusted_updates}
        return {name: value for name, value in changes.items() if value is not None}

    def __str__(self) -> str:
        return f"{self.preset}, {self.noise}, {self.trusted:.3%} trusted, seed {self.seed}"


def run_curve(curve: Curve, tick: Callable[[float], None] = lambda share: None) -> Iterator[list[Row]]:
    """
    Trains the cells of a curve.

    Args:
        curve ([`Curve`]): What to train.
        tick (`Callable`, *optional*): Told now and then which share of the work is done.

    Yields:
        `list[dict]`: The lines of the results file that belong together: those of one method.
    """
    from glc_hf.experiments.presets import get_preset
    from glc_hf.experiments.replicas.stacked_training import can_stack
    from glc_hf.methods import get_method

    preset = get_preset(curve.preset, **dict(curve.options))
    data = _prepared(curve.preset, curve.options, curve.data_root, curve.limit)
    stacked = [name for name in curve.methods if preset.stacks and can_stack(get_method(name))]
    alone = [name for name in curve.methods if name not in stacked]
    if stacked:
        yield from _stacked(curve, preset, data, stacked, tick)
    if alone:
        yield from _one_by_one(curve, preset, data, alone, tick)
    tick(1.0)


@lru_cache(maxsize=1)
def _prepared(
    preset: str, options: tuple[tuple[str, str], ...], data_root: str | None, limit: int | None
) -> PreparedData:
    """The curves of one preset that a process runs share its data."""
    from glc_hf.experiments.presets import get_preset

    return get_preset(preset, **dict(options)).prepare(data_root, limit)


def _stacked(
    curve: Curve, preset: Preset, data: PreparedData, methods: list[str], tick: Callable[[float], None]
) -> Iterator[list[Row]]:
    import tempfile

    from glc_hf.experiments.replicas.stacked_curve import StackedCurve

    rows = [noisy_rows(preset, data, curve.noise, curve.trusted, s, curve.seed) for s in curve.strengths]
    truths = [one.matrix for one in rows]
    with tempfile.TemporaryDirectory() as folder:
        make_args = lru_cache(
            partial(_make_arguments, arguments, preset, curve.seed, folder, tuple(curve.changes.items()))
        )
        replicas = StackedCurve(preset, data, [one.train for one in rows], truths, make_args, curve.seed)
        number = replicas.number_of_stages(methods)
        replicas.tick = lambda stages: tick(min(stages / number, 1.0) * len(methods) / len(curve.methods))
        for result in replicas.run(methods):
            cells = zip(curve.strengths, result.errors, result.matrices, truths, strict=True)
            yield [_row(curve, data, result.method, *cell) for cell in cells]


def _make_arguments(arguments: Callable, preset: Preset, seed: int, folder: str, changes: tuple, method: str) -> Any:
    return arguments(preset, method, seed, folder, **dict(changes))


def _one_by_one(
    curve: Curve, preset: Preset, data: PreparedData, methods: list[str], tick: Callable[[float], None]
) -> Iterator[list[Row]]:
    cells = len(curve.strengths) * len(methods)
    before = len(curve.methods) - len(methods)
    done = 0
    # Trusted labels are the same at every strength, and so is what is trained on them alone.
    of_trusted: dict[Stage, FinishedStage] = {}
    trusted_error: float | None = None
    for strength in curve.strengths:
        rows = noisy_rows(preset, data, curve.noise, curve.trusted, strength, curve.seed)
        known = {"trusted_only": trusted_error} if trusted_error is not None else {}
        shared = dict(of_trusted)
        left = [name for name in methods if name not in known]
        trained = run_cells(preset, data, rows, left, curve.seed, shared, **curve.changes)
        for method, error, matrix in chain(((name, error, None) for name, error in known.items()), trained):
            if method == "trusted_only":
                trusted_error = error
            done += 1
            tick((before + len(methods) * done / cells) / len(curve.methods))
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
    reduced = ", ".join(filter(None, (data.reduced, curve.reduced))) or None
    distance = None if matrix is None or truth is None else round(truth.distance(matrix), 6)
    row = {
        "version": RESULTS_VERSION,
        "preset": curve.preset,
        "method": method,
        "noise": curve.noise,
        "trusted": curve.trusted,
        "strength": strength,
        "seed": curve.seed,
        "error": round(error, 6),
        "matrix_distance": distance,
        "reduced": reduced,
    }
    if curve.matrices and matrix is not None:
        row["matrix"] = matrix.probs.round(5).tolist()
        row["true_matrix"] = None if truth is None else truth.probs.round(5).tolist()
        row["label_names"] = data.label_names
    return row


WEAK = "weak"


class NoisyRows(NamedTuple):
    """A training set as a cell sees it, and the matrix behind it (`None`: labels of a weak classifier)."""

    train: datasets.Dataset
    matrix: CorruptionMatrix | None


def noise_matrix(noise: str, strength: float, seed: int, data: PreparedData) -> CorruptionMatrix:
    """The matrix of a kind of noise; which class flips into which depends on the seed alone, not on the strength."""
    number = len(data.label_names)
    if noise == "uniform":
        matrix = CorruptionMatrix.uniform(number, strength)
    elif noise == "flip":
        matrix = CorruptionMatrix.flip(number, strength, seed=seed)
    elif noise == "hierarchical":
        if data.groups is None:
            raise ValueError("hierarchical noise needs classes in groups, and this dataset has none: uniform, flip.")
        matrix = CorruptionMatrix.hierarchical(data.groups, strength)
    else:
        raise ValueError(f"there is no noise {noise!r}; it is one of uniform, flip, hierarchical, {WEAK}.")
    return matrix.with_names(data.label_names)


def noisy_rows(
    preset: Preset, data: PreparedData, noise: str, trusted: float, strength: float | None, seed: int
) -> NoisyRows:
    """The training rows with their flags, and noise in the others."""
    flagged = mark_trusted(data.train, fraction=trusted, seed=seed)
    if noise == WEAK:
        with tempfile.TemporaryDirectory() as folder:
            args = arguments(preset, "no_correction", seed, folder)

            def trainer_of(model: torch.nn.Module, settings: GLCConfig, rows: datasets.Dataset) -> PresetTrainer:
                return make_trainer(preset, data, NoisyRows(rows, None), settings, model)

            noisy, _ = label_by_weak_classifier(
                flagged,
                preset.make_model(data, seed),
                args,
                label_column=data.label_column,
                make_trainer=trainer_of,
            )
        return NoisyRows(noisy, None)
    matrix = noise_matrix(noise, strength, seed, data)
    return NoisyRows(corrupt_labels(flagged, matrix, seed=seed, label_column=data.label_column), matrix)


def arguments(preset: Preset, method: str, seed: int, folder: str, **changes: Any) -> GLCConfig:
    """The settings of a cell: the preset's, nothing saved, nothing reported."""
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
    """A trainer with the preset's weight decay on the parameters that the preset names."""

    preset: Preset

    def get_decay_parameter_names(self, model: torch.nn.Module) -> list[str]:
        """As the preset says."""
        return [name for name, _ in model.named_parameters() if self.preset.decays(name)]


def make_trainer(
    preset: Preset,
    data: PreparedData,
    rows: NoisyRows,
    args: GLCConfig,
    model: torch.nn.Module,
) -> PresetTrainer:
    """The trainer of one cell."""
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


def run_cells(
    preset: Preset,
    data: PreparedData,
    rows: NoisyRows,
    methods: Sequence[str],
    seed: int,
    shared: dict[Stage, FinishedStage] | None = None,
    **changes: Any,
) -> Iterator[tuple[str, float, CorruptionMatrix | None]]:
    """
    Trains methods one after the other on the same rows and initial weights; equal first stages are trained once, and
    so are a plain last stage and a first stage that is equal to it.

    Args:
        preset ([`Preset`]), data ([`PreparedData`]), rows ([`NoisyRows`]): What is trained, and on what.
        methods (`Sequence[str]`): Their names.
        seed (`int`): Of initial weights and training.
        shared (`dict`, *optional*): Stages trained on such rows before; those trained here are added.
        changes: Settings other than the preset's.

    Yields:
        `(str, float, CorruptionMatrix)`: The method, its percent error on the test set, and its matrix if it has one.
    """
    model = preset.make_model(data, seed)
    shared = {} if shared is None else shared
    with tempfile.TemporaryDirectory() as folder:

        def make(method: str) -> PresetTrainer:
            args = arguments(preset, method, seed, folder, **changes)
            return make_trainer(preset, data, rows, args, copy.deepcopy(model))

        for trainer, metrics in compare_methods(methods, make, shared):
            plain = trainer.method.plain_last_stage()
            if plain is not None and plain not in shared:
                shared[plain] = FinishedStage({k: v.clone() for k, v in trainer.model.state_dict().items()}, [])
            yield metrics["method"], 100.0 * (1.0 - metrics["eval_accuracy"]), trainer.corruption_matrix
