# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Several methods on the same data, noise and initial weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from glc_hf.methods import get_method
from glc_hf.methods.base import Stage
from glc_hf.training.stages import FinishedStage
from glc_hf.training.trainer import GLCTrainer


def compare_methods(
    methods: Sequence[str],
    make_trainer: Callable[[str], GLCTrainer],
    shared: dict[Stage, FinishedStage] | None = None,
    resume: bool = False,
) -> Iterator[tuple[GLCTrainer, dict[str, Any]]]:
    """
    Trains one method after the other; those whose first stages are the same share one training of it.

    Args:
        methods (`Sequence[str]`): Names of methods.
        make_trainer (`Callable`):
            Makes the trainer of a method. It has to give each the same rows and a model with the same initial weights
            (a deep copy of one, or `model_init`), and an `eval_dataset`.
        shared (`dict`, *optional*): Stages trained before on the same rows and weights; those trained here are added.
        resume (`bool`, *optional*, defaults to `False`):
            Go on from the last checkpoint in each trainer's `output_dir`, where there is one.

    Yields:
        `(GLCTrainer, dict)`: The trainer when it is done, and `method`, the evaluation's metrics, those of the earlier
        stages (`stage1_…`) and `shared_stages`, how many trainings it had from another method.
    """
    for name in methods:
        get_method(name)  # a wrong name is an error before the first training, not after hours
    shared = {} if shared is None else shared
    for name in methods:
        trainer = make_trainer(name)
        trainer.shared_stages = shared
        stages = trainer.method.first_stages()
        had = sum(stage in shared for stage in stages)
        trained = trainer.train(resume_from_checkpoint=resume).metrics
        metrics = {key: value for key, value in trained.items() if key.startswith("stage")}
        yield trainer, {"method": name, "shared_stages": had, **metrics, **trainer.evaluate()}
