# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The cells of an experiment: rows with flags and noise, and one cell after the other on `GLCTrainer`."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from glc_hf.corruption.matrix import CorruptionMatrix
from glc_hf.corruption.noise import corrupt_labels
from glc_hf.corruption.trusted import mark_trusted
from glc_hf.training.compare import compare_methods
from glc_hf.training.config import GLCConfig
from glc_hf.training.earlier import FinishedStage
from glc_hf.training.trainer import GLCTrainer
from glc_hf.training.weak import label_by_weak_classifier


if TYPE_CHECKING:
    import datasets
    import torch

    from glc_hf.experiments.preset import PreparedData, Preset
    from glc_hf.methods.base import Stage

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
