# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`compare_methods`: several methods on the same data, noise and initial weights."""

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
    Train one method after the other. Methods with the same first stage share one training of it.

    Args:
        methods (`Sequence[str]`): Names of methods.
        make_trainer (`Callable`):
            Makes the trainer of a method. Each trainer must have the same rows, a model with the same initial weights
            (a deep copy, or `model_init`), and an `eval_dataset`.
        shared (`dict`, *optional*): Stages trained before on the same rows and weights. New ones are added.
        resume (`bool`, *optional*, defaults to `False`):
            Resume from the last checkpoint in each trainer's `output_dir`, if there is one.

    Yields:
        `(GLCTrainer, dict)`: The trainer after training, and its `method`, the metrics of its evaluation and of its
        first stages (`stage1_…`), and `shared_stages`, the number of stages that it reused.
    """
    for name in methods:
        get_method(name)  # an unknown name raises before the first training
    shared = {} if shared is None else shared
    for name in methods:
        trainer = make_trainer(name)
        trainer.shared_stages = shared
        reused = sum(stage in shared for stage in trainer.required_method.first_stages())
        trained = trainer.train(resume_from_checkpoint=resume).metrics
        metrics = {key: value for key, value in trained.items() if key.startswith("stage")}
        yield trainer, {"method": name, "shared_stages": reused, **metrics, **trainer.evaluate()}
