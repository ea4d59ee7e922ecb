# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""What is refused before any training, and what to do instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import datasets
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from transformers import TrainingArguments
from transformers.utils import logging

from glc_hf.labels.reading import read_labels
from glc_hf.matrix import CorruptionMatrix
from glc_hf.methods.base import Method
from glc_hf.training.config import GLCConfig


logger = logging.get_logger(__name__)


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
    if getattr(args, "enable_jit_checkpoint", False):
        raise ValueError(
            "enable_jit_checkpoint=True is not supported: the signal would be heard by one stage alone. Leave it out; "
            "checkpoints of save_strategy='steps' are gone on from exactly, wherever the process ended."
        )
    return args


def check_devices(args: GLCConfig, accelerator: Accelerator) -> None:
    """Refuses what shares a model out in a way that the stages can't follow."""
    if args.n_gpu > 1:
        raise ValueError(
            f"{args.n_gpu} GPUs in one process means DataParallel, where the correction is not defined. Start one "
            "process a GPU with `accelerate launch` or `torchrun`, or set CUDA_VISIBLE_DEVICES to one of them."
        )
    if accelerator.distributed_type == DistributedType.DEEPSPEED:
        raise ValueError(
            "DeepSpeed is not supported: its engine holds one model and one optimizer, and every stage needs its own. "
            "Use FSDP2, which shares out the same things: `fsdp=True, fsdp_config={'version': 2}`."
        )
    plugin = getattr(accelerator.state, "fsdp_plugin", None)
    if plugin is not None and accelerator.distributed_type == DistributedType.FSDP and plugin.fsdp_version == 1:
        raise ValueError(
            "FSDP in its version 1 is not supported: use version 2, `fsdp_config={'version': 2}` (or "
            "`fsdp_version: 2` in accelerate's configuration)."
        )
    if args.stage1 == "probe" and accelerator.distributed_type == DistributedType.FSDP:
        raise ValueError(
            "stage1='probe' runs the whole network in each process, which FSDP is there to avoid: use stage1='short', "
            "or plain data parallelism."
        )
    if args.fsdp and accelerator.distributed_type != DistributedType.FSDP:
        raise ValueError(
            "fsdp is set, but accelerate shares no parameters out on the CPU and would train whole copies: leave it "
            "out together with use_cpu, or train on GPUs."
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


def check_matrix_names(matrix: CorruptionMatrix | None, class_names: list[str] | None) -> None:
    """Refuses a given matrix whose classes stand in another order than the dataset's."""
    if matrix is None or matrix.label_names is None or class_names is None or matrix.label_names == class_names:
        return
    if sorted(matrix.label_names) == sorted(class_names):
        raise ValueError(
            f"the given corruption matrix has its classes in another order ({', '.join(matrix.label_names[:5])}, …) "
            f"than the training labels ({', '.join(class_names[:5])}, …): bring its rows and columns into their order."
        )
    logger.warning(
        f"the given corruption matrix calls its classes {', '.join(matrix.label_names[:5])}, …, the training labels "
        f"{', '.join(class_names[:5])}, …: they are taken to mean the same, in this order."
    )


def check_evaluation_labels(eval_dataset: Any, label_column: str, num_labels: int | None) -> None:
    """Looks at the labels to evaluate by before training, not after its first hours."""
    parts = eval_dataset if isinstance(eval_dataset, dict) else {"": eval_dataset}
    for name, part in parts.items():
        if not isinstance(part, datasets.Dataset) or label_column not in part.column_names:
            continue
        try:
            read_labels(part, label_column, num_labels)
        except ValueError as error:
            raise ValueError(f"eval_dataset{f' {name!r}' if name else ''}: {error}") from error


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


def freeze_parameters(model: torch.nn.Module, prefixes: Sequence[str] | None) -> None:
    """Switches off the gradient of the parameters whose names start with one of the prefixes; a prefix that fits none
    is an error, because it is a typing mistake."""
    for prefix in prefixes or ():
        parameters = [parameter for name, parameter in model.named_parameters() if name.startswith(prefix)]
        if not parameters:
            known = sorted({".".join(name.split(".")[:2]) for name, _ in model.named_parameters()})
            raise ValueError(f"freeze: no parameter starts with {prefix!r}; the model has {', '.join(known[:12])}, ….")
        for parameter in parameters:
            parameter.requires_grad_(False)
