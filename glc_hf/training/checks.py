# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""What is refused before any training, and what to do instead."""

from __future__ import annotations

from typing import Any

import torch
from transformers import TrainingArguments

from glc_hf.corruption.matrix import CorruptionMatrix
from glc_hf.methods.base import Method
from glc_hf.training.config import GLCConfig


def check_arguments(args: TrainingArguments | None, optimizers: tuple, compute_loss_func: Any) -> GLCConfig:
    """The configuration, if the correction is defined under it."""
    if args is None:
        args = GLCConfig(output_dir="tmp_trainer")
    if not isinstance(args, GLCConfig):
        raise TypeError(
            f"GLCTrainer takes a GLCConfig, not a {type(args).__name__}: change the class name, every argument stays "
            "(`from glc_hf import GLCConfig`)."
        )
    if any(part is not None for part in optimizers or ()):
        raise ValueError(
            "`optimizers` can't be given to GLCTrainer: each stage needs a fresh optimizer and schedule. Pass the "
            "class with `optimizer_cls_and_kwargs=(torch.optim.SGD, {'lr': 0.1})`, or use `optim` and "
            "`lr_scheduler_type`."
        )
    if compute_loss_func is not None:
        raise ValueError(
            "`compute_loss_func` would replace the corrected loss. Leave it out, or write a method of your own: a "
            "class under `glc_hf.methods.base.register` with its `item_losses`."
        )
    if args.label_smoothing_factor:
        raise ValueError(
            f"label_smoothing_factor={args.label_smoothing_factor} can't be combined with the correction, which "
            "already models wrong labels. Leave it at 0."
        )
    return args


def check_devices(args: GLCConfig) -> None:
    """Refuses DataParallel, in which one process sees several devices' batches."""
    if args.n_gpu > 1:
        raise ValueError(
            f"{args.n_gpu} GPUs in one process means DataParallel, where the correction is not defined. Start one "
            "process a GPU with `accelerate launch` or `torchrun`, or set CUDA_VISIBLE_DEVICES to one of them."
        )


def check_model(model: torch.nn.Module) -> int | None:
    """The number of classes of the model's head, `None` where it can't be told."""
    config = getattr(model, "config", None)
    problem = getattr(config, "problem_type", None)
    if problem in ("multi_label_classification", "regression"):
        raise ValueError(
            f"the model is set up for {problem.replace('_', ' ')}; the correction is defined for one class out of K. "
            "Set `problem_type='single_label_classification'` (or leave it out) and the right `num_labels`."
        )
    num_labels = getattr(config, "num_labels", None) or getattr(model, "num_classes", None)
    if num_labels == 1:
        raise ValueError(
            "the model has one logit (num_labels=1), which is a regression head. For two classes load it with "
            "`num_labels=2`."
        )
    return num_labels


def check_matrix(matrix: Any, num_labels: int | None) -> CorruptionMatrix | None:
    """A given matrix as a [`CorruptionMatrix`] of the right size."""
    if matrix is None:
        return None
    if not isinstance(matrix, CorruptionMatrix):
        matrix = CorruptionMatrix(matrix)
    if num_labels is not None and matrix.num_labels != num_labels:
        raise ValueError(
            f"the given corruption matrix has {matrix.num_labels} classes, the model's head has {num_labels}."
        )
    return matrix


def check_items(method: Method, trusted: int, untrusted: int, trusted_column: str) -> None:
    """Both kinds of rows, where the method needs both."""
    if method.needs_trusted and trusted == 0:
        raise ValueError(
            f"method {method.name!r} needs trusted rows, and none is marked in column {trusted_column!r}. Mark the "
            "carefully labelled rows with `mark_trusted(dataset, indices=…)`, or use method 'no_correction'."
        )
    if method.needs_untrusted and untrusted == 0:
        raise ValueError(
            f"method {method.name!r} needs untrusted rows, and every row is marked in column {trusted_column!r}. With "
            "all labels trusted there is nothing to correct: use method 'trusted_only', or mark fewer rows with "
            "`mark_trusted`."
        )
