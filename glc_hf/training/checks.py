# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Argument validation of `GLCTrainer`, before any training."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from types import CodeType, FunctionType
from typing import Any

import datasets
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from transformers import PretrainedConfig, TrainingArguments
from transformers.models.auto import modeling_auto
from transformers.utils import logging

from glc_hf.labels.columns import label_names_of
from glc_hf.labels.reading import read_labels
from glc_hf.matrix import CorruptionMatrix
from glc_hf.training.config import GLCConfig, num_launched_processes


logger = logging.get_logger(__name__)


def check_arguments(args: TrainingArguments | None, optimizers: tuple, compute_loss_func: Any) -> GLCConfig:
    """Return the configuration, or raise if the correction is not defined for these arguments."""
    if args is None:
        args = GLCConfig(output_dir="tmp_trainer")
    if not isinstance(args, GLCConfig):
        raise TypeError(
            f"GLCTrainer needs a GLCConfig, not a {type(args).__name__}: change the class name and keep all arguments "
            "(`from glc_hf import GLCConfig`)."
        )
    check_optimizers(optimizers)
    if compute_loss_func is not None:
        raise ValueError(
            "`compute_loss_func` would replace the corrected loss. Remove it, or write your own method: a subclass of "
            "`glc_hf.methods.Method` with its `item_losses`."
        )
    if args.label_smoothing_factor:
        raise ValueError(
            f"label_smoothing_factor={args.label_smoothing_factor} can't be combined with the correction, which "
            "already models wrong labels. Leave it at 0."
        )
    if getattr(args, "enable_jit_checkpoint", False):
        raise ValueError(
            "enable_jit_checkpoint=True is not supported: only one stage would receive the signal. Use "
            "save_strategy='steps' instead; training resumes exactly from its checkpoints."
        )
    return args


def check_optimizers(optimizers: tuple | None) -> None:
    """Raise if an optimizer or a schedule is given, which would be used by one stage only."""
    optimizer, schedule = (*(optimizers or ()), None, None)[:2]
    fixes = []
    if optimizer is not None:
        fixes.append(
            "name the class of the optimizer with `optimizer_cls_and_kwargs=(torch.optim.SGD, {'lr': 0.1})`, or use "
            "GLCConfig(optim=…)"
        )
    if schedule is not None:
        fixes.append(
            "name the schedule with GLCConfig(lr_scheduler_type='cosine', lr_scheduler_kwargs={…}); one of your own "
            "goes into `create_scheduler` of a subclass of GLCTrainer, which every stage calls with its own optimizer"
        )
    if fixes:
        what = " and ".join(
            name for name, part in (("optimizer", optimizer), ("schedule", schedule)) if part is not None
        )
        raise ValueError(
            f"GLCTrainer does not accept `optimizers`: each stage needs a new optimizer and schedule, and the given "
            f"{what} would serve one of them. Instead, {'; '.join(fixes)}."
        )


def check_optimizer(model: torch.nn.Module, optimizer: Any, folder: str) -> None:
    """Raise if an optimizer, which a subclass may create, trains the parameters of another model."""
    trained = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    if trained.isdisjoint(id(parameter) for parameter in model.parameters()):
        raise ValueError(
            f"the optimizer of the training in {folder} has no parameter of the model that it trains. Each stage has "
            "its own copy of the model: create the optimizer from `self.model` in `create_optimizer`, not before."
        )


def check_devices(args: GLCConfig, accelerator: Accelerator) -> None:
    """Raise for ways of distributing a model that the stages don't support."""
    launched = num_launched_processes()
    if launched > 1 and accelerator.num_processes == 1:
        raise ValueError(
            f"{launched} processes were launched, but they are not connected: each would train on its own and write "
            "to the same folder. Set use_cpu=True to train on the CPU, or launch one process."
        )
    # `accelerate launch --cpu` sets the address for more than one process, and starts one all the same.
    if launched == 1 and os.environ.get("ACCELERATE_USE_CPU", "").lower() == "true" and "MASTER_ADDR" in os.environ:
        raise ValueError(
            "`accelerate launch --cpu` starts one process whatever --num_processes says, so the batches would be "
            "smaller than you expect. Use `torchrun --nproc_per_node N …`, or remove --num_processes (and "
            "MASTER_ADDR from the environment) to train with one process."
        )
    if args.n_gpu > 1:
        raise ValueError(
            f"{args.n_gpu} GPUs in one process means DataParallel, which is not supported. Start one process per GPU "
            "with `accelerate launch` or `torchrun`, or set CUDA_VISIBLE_DEVICES to one of them."
        )
    if accelerator.distributed_type == DistributedType.DEEPSPEED:
        raise ValueError(
            "DeepSpeed is not supported: its engine holds one model and one optimizer, and every stage needs its own. "
            "Use FSDP2, which shards the same tensors: `fsdp=True, fsdp_config={'version': 2}`."
        )
    plugin = getattr(accelerator.state, "fsdp_plugin", None)
    if plugin is not None and accelerator.distributed_type == DistributedType.FSDP and plugin.fsdp_version == 1:
        raise ValueError(
            "FSDP version 1 is not supported: use version 2, `fsdp_config={'version': 2}` (or `fsdp_version: 2` in "
            "accelerate's configuration)."
        )
    if args.stage1 == "probe" and accelerator.distributed_type == DistributedType.FSDP:
        raise ValueError(
            "stage1='probe' runs the whole network in each process, which FSDP avoids: use stage1='short', or data "
            "parallelism."
        )
    if args.fsdp and accelerator.distributed_type != DistributedType.FSDP:
        raise ValueError(
            "fsdp is set, but accelerate does not shard parameters on the CPU and would train full copies: remove "
            "fsdp when you use use_cpu, or train on GPUs."
        )


def check_model(model: torch.nn.Module, dataset: Any = None) -> int | None:
    """
    The number of classes of the model's head; `None` if the model does not say. Raises if the model can't be trained
    as a classifier. A multiple-choice model has as many classes as a row of the dataset has choices.
    """
    config = getattr(model, "config", None)
    check_head(model)
    problem = getattr(config, "problem_type", None)
    if problem in ("multi_label_classification", "regression"):
        raise ValueError(
            f"the model is configured for {problem.replace('_', ' ')}; the correction is defined for one class out of "
            "K. Set `problem_type='single_label_classification'` (or remove it) and the right `num_labels`."
        )
    num_labels = _num_choices(model, dataset)
    if num_labels is None:
        num_labels = getattr(config, "num_labels", None) or getattr(model, "num_classes", None)
    if num_labels == 1:
        raise ValueError(
            "the model has one logit (num_labels=1), which is a regression head. For two classes load it with "
            "`num_labels=2`."
        )
    return num_labels


def name_classes(model: torch.nn.Module, names: Sequence[str]) -> None:
    """Store the classes of labels that are words in the configuration of a model that has no names for its classes.
    Raise if it has other ones, or another number of classes."""
    config: Any = getattr(model, "config", None)
    known = label_names_of(None, "", model)
    number = check_model(model)
    some = ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
    if len(names) == 1:
        raise ValueError(f"every label is the word {names[0]!r}: training needs two classes or more.")
    if number is not None and number != len(names):
        merged = len({" ".join(name.split()).casefold() for name in names})
        spellings = f" Only {merged:,} of them differ in more than case and spaces: merge them with `dataset.map`."
        raise ValueError(
            f"the labels are {len(names):,} words ({some}), but the model has {number:,} classes: load it with "
            f"num_labels={len(names)}, or with label2id={{…}} if some classes have no rows."
            + (spellings if merged < len(names) else "")
        )
    if known is not None and known != list(names):
        raise ValueError(
            f"the labels are the words {some}, and the model of model_init has the classes {', '.join(known[:10])}: "
            "encode the labels in that order with `dataset.cast_column(…, ClassLabel(names=[…]))`."
        )
    if known is None and hasattr(config, "id2label"):
        config.id2label = dict(enumerate(names))
        config.label2id = {name: label for label, name in enumerate(names)}


def check_head(model: torch.nn.Module) -> None:
    """Raise for quantized models, and for networks of transformers without a classifier."""
    name = class_of_network(model)
    if getattr(model, "is_quantized", False):
        method = getattr(getattr(model.config, "quantization_config", None), "quant_method", "its quantizer")
        raise ValueError(
            f"the weights of {name} are quantized ({getattr(method, 'value', method)}), which is not supported: every "
            "stage starts from a copy of the initial weights, and quantized layers can't be copied and restored "
            "exactly. Load the model without `quantization_config`, for example with `dtype=torch.bfloat16`, and "
            "train LoRA adapters to save memory."
        )
    if name in _names_in(modeling_auto.MODEL_MAPPING_NAMES):
        raise ValueError(
            f"{name} returns hidden states, not logits: load it with a classifier, such as "
            "`AutoModelForSequenceClassification.from_pretrained(…, num_labels=…)`."
        )


def class_of_network(model: torch.nn.Module) -> str:
    """The name of the model's class, without the wrapper of PEFT adapters."""
    return type(without_adapter(model)).__name__


def without_adapter(model: torch.nn.Module) -> torch.nn.Module:
    """The network itself, without the wrapper of PEFT adapters."""
    get_base_model: Any = getattr(model, "get_base_model", None)
    return model if get_base_model is None else get_base_model()


def _names_in(mapping: dict[str, Any]) -> set[str]:
    """All class names of a mapping of transformers. Some model types have several."""
    return {name for names in mapping.values() for name in ([names] if isinstance(names, str) else names)}


def _num_choices(model: torch.nn.Module, dataset: Any) -> int | None:
    """How many choices the first row has, if the model is a multiple-choice one. It has one logit per choice, and its
    `config.num_labels` means nothing."""
    if class_of_network(model) not in _names_in(modeling_auto.MODEL_FOR_MULTIPLE_CHOICE_MAPPING_NAMES):
        return None
    row = next(iter(dataset), None) if dataset is not None else None
    choices = row.get(model.main_input_name) if isinstance(row, dict) else None
    return None if choices is None else len(choices)


def use_pad_token(model: torch.nn.Module, processing_class: Any) -> None:
    """Give the tokenizer's pad token to a model without one, as `Trainer.train` does. A probe embeds rows before."""
    config = getattr(model, "config", None)
    pad = getattr(getattr(processing_class, "tokenizer", processing_class), "pad_token_id", None)
    if isinstance(config, PretrainedConfig) and pad is not None and _pad_token(config) is None:
        config.get_text_config().pad_token_id = pad


def _pad_token(config: PretrainedConfig) -> int | None:
    return getattr(config.get_text_config(), "pad_token_id", None)


def check_padding(model: torch.nn.Module, args: GLCConfig, evaluates: bool) -> bool:
    """
    Whether the model takes one row at a time, because it has no pad token to find the last token of a row by. Raises
    if batches are larger.

    Args:
        model (`torch.nn.Module`): Gets two rows of one token if it is a text classifier without a pad token.
        args ([`GLCConfig`]): Has the batch sizes.
        evaluates (`bool`): Whether there are rows to evaluate on.
    """
    config = getattr(model, "config", None)
    if not isinstance(config, PretrainedConfig) or _pad_token(config) is not None or not _refuses_two_rows(model):
        return False
    for name, size in {
        "per_device_train_batch_size": args.train_batch_size,
        "per_device_eval_batch_size": args.eval_batch_size if evaluates else 1,
    }.items():
        if size > 1:
            raise ValueError(
                f"{class_of_network(model)} has no pad token, so it takes one row at a time, but {name} is {size}. "
                "Set `tokenizer.pad_token` (for example to `tokenizer.eos_token`) and pass the tokenizer as "
                f"`processing_class`, or set `model.config.pad_token_id`, or {name}=1."
            )
    return True


def _refuses_two_rows(model: torch.nn.Module) -> bool:
    parameter = next(model.parameters(), None)
    is_classifier = class_of_network(model) in _names_in(modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES)
    if not is_classifier or model.main_input_name != "input_ids" or parameter is None or parameter.is_meta:
        return False
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            model(input_ids=torch.zeros(2, 1, dtype=torch.long, device=parameter.device))
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        return "padding token" in str(error)  # otherwise it needs other inputs
    finally:
        model.train(was_training)
    return False


def check_matrix(matrix: Any, num_labels: int | None) -> CorruptionMatrix | None:
    """A given matrix as a [`CorruptionMatrix`] with the right number of classes."""
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
    """Raise if the classes of a given matrix have another order than those of the dataset."""
    if matrix is None or matrix.label_names is None or class_names is None or matrix.label_names == class_names:
        return
    names = f"{', '.join(matrix.label_names[:5])}, …"
    expected = f"{', '.join(class_names[:5])}, …"
    if sorted(matrix.label_names) == sorted(class_names):
        raise ValueError(
            f"the classes of the given corruption matrix are in another order ({names}) than those of the training "
            f"labels ({expected}): reorder its rows and columns."
        )
    logger.warning(
        f"the given corruption matrix names its classes {names}, the training labels {expected}: they are assumed to "
        "mean the same, in this order."
    )


def check_soft_labels(length: int, num_labels: int | None, column: str) -> None:
    """Raise if soft labels have another number of classes than the model."""
    if num_labels is not None and length != num_labels:
        raise ValueError(
            f"the lists in soft_label_column {column!r} have {length} probabilities, but the model has {num_labels} "
            f"classes: write one probability per class, or load the model with num_labels={length}."
        )


def check_evaluation_labels(eval_dataset: Any, label_column: str | None, num_labels: int | None) -> None:
    """Check the labels of the evaluation sets before training, not after hours of it."""
    parts = eval_dataset if isinstance(eval_dataset, dict) else {"": eval_dataset}
    for name, part in parts.items():
        if label_column is None or not isinstance(part, datasets.Dataset) or label_column not in part.column_names:
            continue
        try:
            read_labels(part, label_column, num_labels)
        except ValueError as error:
            raise ValueError(f"eval_dataset{f' {name!r}' if name else ''}: {error}") from error


def freeze_parameters(model: torch.nn.Module, prefixes: Sequence[str] | None) -> None:
    """Turn off the gradient of parameters by prefixes of their names. Raises if a prefix matches nothing (likely a
    typo)."""
    for prefix in prefixes or ():
        parameters = [parameter for name, parameter in model.named_parameters() if name.startswith(prefix)]
        if not parameters:
            known = sorted({".".join(name.split(".")[:2]) for name, _ in model.named_parameters()})
            raise ValueError(f"freeze: no parameter starts with {prefix!r}; the model has {', '.join(known[:12])}, ….")
        for parameter in parameters:
            parameter.requires_grad_(False)


# Methods that an override in a subclass must call, or replace with one of these, and why.
_MUST_CALL = {
    "compute_loss": (
        "compute_loss",
        "it would replace the corrected loss in the last stage, and ignore which rows each stage trains on. Call it "
        "and change its result, or write your own loss per row as a method: a subclass of `glc_hf.methods.Method` "
        "with its `item_losses` (docs/extending.md)",
    ),
    "get_train_dataloader": (
        "get_train_dataloader or stage_rows",
        "every stage would train on the same rows. Build the loader from `self.stage_rows()`, the rows of the stage "
        "with their flags, and `self.data_collator`, or change the loader that super() returns",
    ),
    "get_batch_samples": (
        "get_batch_samples",
        "labels without loss in a stage would not be left out. Call it and change the batches that it returns",
    ),
}
# What a probe does not do.
_TRAINING_METHODS = ("create_optimizer", "create_scheduler", "compute_loss", "training_step", "get_train_dataloader")


def check_overrides(trainer_class: type, base: type, stage1: str) -> None:
    """
    Raise if an override in a subclass of a trainer can't make sense in every stage. Warn about overrides that a probe
    does not run.

    Args:
        trainer_class (`type`): The user's class.
        base (`type`): The class of this library that it is derived from.
        stage1 (`str`): `GLCConfig.stage1`.
    """
    own = [cls for cls in trainer_class.__mro__ if cls not in base.__mro__]
    overrides = {name: value for cls in reversed(own) for name, value in vars(cls).items()}
    for name, (needed, problem) in _MUST_CALL.items():
        if name in overrides and not any(_mentions(overrides, name, part) for part in needed.split(" or ")):
            raise TypeError(f"{trainer_class.__name__}.{name} does not call super().{name}(): {problem}.")
    skipped = [name for name in _TRAINING_METHODS if name in overrides]
    if skipped and stage1 == "probe":
        logger.warning(
            f"stage1='probe' has no training steps: {', '.join(skipped)} of {trainer_class.__name__} will run in the "
            "last stage only. stage1='short' or 'full' runs them in both."
        )


def _mentions(overrides: dict[str, Any], start: str, name: str) -> bool:
    """Whether an override, or another function of the subclass that it uses, names a method. `True` if its code is
    not Python."""
    waiting, seen = [overrides[start]], []
    while waiting:
        value = waiting.pop()
        value = value.func if isinstance(value, partial) else getattr(value, "__func__", value)
        if not isinstance(value, FunctionType):
            return True
        if value in seen:
            continue
        seen.append(value)
        names = set(_names_of_code(value.__code__))
        if name in names:
            return True
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell.cell_contents is not None]
        waiting += [part for part in cells if isinstance(part, FunctionType)]
        waiting += [overrides[part] for part in names if isinstance(overrides.get(part), FunctionType)]
    return False


def _names_of_code(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_of_code(constant)
        elif isinstance(constant, str):  # as in getattr(super(), "compute_loss")
            yield constant
