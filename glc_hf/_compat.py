# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Versions of other libraries, and the private APIs of theirs that this library uses."""

from __future__ import annotations

import copy
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from glc_hf import __version__


if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from accelerate import Accelerator
    from datasets import Dataset, DatasetInfo, IterableDataset
    from datasets.table import Table
    from transformers import TrainingArguments


PACKAGES = ("torch", "transformers", "datasets", "accelerate", "timm", "peft", "huggingface_hub", "numpy")
# Private methods of `transformers.Trainer` that `training/` and `hub/` override. Python would not notice if a release
# renamed one: the override would never be called.
OVERRIDDEN_TRAINER_METHODS = (
    "_get_dataloader", "_get_train_sampler", "_get_collator_with_removed_columns", "_set_signature_columns_if_needed",
    "_get_num_items_in_batch", "_save", "_save_checkpoint", "_save_rng_state", "_init_training_state",
    "_load_callback_state", "_run_epoch", "_push_from_checkpoint",
)  # fmt: skip
# Private methods of `Trainer` that are called.
CALLED_TRAINER_METHODS = (
    "_get_output_dir", "_get_train_sampler", "_remove_unused_columns", "_prepare_inputs", "_move_model_to_device",
    "_hp_search_setup", "_finish_current_push",
)  # fmt: skip
# Private functions of `torch.cpu` that say whether the CPU has instructions for bf16; taken as false where missing.
_BF16_INSTRUCTIONS = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")


def versions() -> dict[str, str]:
    """Versions of this library, of Python, and of the packages it builds on (`"not installed"` if missing), without
    importing them."""
    result = {"glc_hf": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            result[package] = version(package)
        except PackageNotFoundError:
            result[package] = "not installed"
    return result


@cache
def has_fast_bf16(device_type: str) -> bool:
    """Whether a kind of device computes faster in bf16 than in float32. Without instructions for it, a CPU takes twice
    as long."""
    import torch

    if device_type == "cpu":
        return any(getattr(torch.cpu, name, bool)() for name in _BF16_INSTRUCTIONS)
    return device_type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


def is_installed(package: str) -> bool:
    """Whether an optional package can be imported, without importing it."""
    return find_spec(package) is not None


# ---------------------------------------------------------------------- transformers
@contextmanager
def without_rotation() -> Iterator[None]:
    """Keep `Trainer._save_checkpoint` from removing older checkpoints, which it finds by the times of files."""
    from transformers import trainer

    rotate = trainer.rotate_checkpoints
    trainer.rotate_checkpoints = lambda *args, **kwargs: None
    try:
        yield
    finally:
        trainer.rotate_checkpoints = rotate


@contextmanager
def own_weight_names(model: Any) -> Iterator[None]:
    """Save weights under the names that they have in the model, so that `Trainer` finds them when it resumes.
    `save_pretrained` would use the names in the file that the model was loaded from, such as `LayerNorm.gamma` in old
    files of BERT, and before transformers 5.6 also if that file has the names of the model."""
    attributes: dict[str, Any] = vars(model)
    conversions = attributes.get("_weight_conversions")
    attributes["_weight_conversions"] = []
    try:
        yield
    finally:
        del attributes["_weight_conversions"]
        if conversions is not None:
            attributes["_weight_conversions"] = conversions


def check_trainer(trainer_class: type) -> None:
    """Raise if a release of transformers no longer has a private method that this library overrides or calls."""
    missing = [
        name for name in (*OVERRIDDEN_TRAINER_METHODS, *CALLED_TRAINER_METHODS) if not hasattr(trainer_class, name)
    ]
    if missing:
        raise ImportError(
            f"transformers {version('transformers')} has no Trainer.{', Trainer.'.join(missing)}, which glc_hf "
            f"{__version__} relies on. Install a version listed in glc_hf's constraints.txt, or a newer glc_hf."
        )


def signature_columns(trainer: Any) -> list[str]:
    """The columns that `Trainer` keeps, in place, after it has found them."""
    return trainer._signature_columns


def unused_arguments(args: TrainingArguments) -> set[str]:
    """Arguments whose value has no effect. transformers 5.3 fills `fsdp_config` also without FSDP."""
    return set() if args.fsdp else {"fsdp_config"}


def save_whole_fsdp_models(args: TrainingArguments) -> None:
    """Let `save_model` write a whole model with FSDP, unless `fsdp_config` asks for shards. transformers 5.3 leaves
    the choice to accelerate, whose default with FSDP 2 is shards, and then `save_model` writes nothing."""
    if args.fsdp_plugin_args is not None and isinstance(args.fsdp_config, dict):
        args.fsdp_plugin_args.setdefault("state_dict_type", args.fsdp_config.get("state_dict_type", "FULL_STATE_DICT"))


@contextmanager
def stage_groups() -> Iterator[None]:
    """Name the metrics of first stages `stage1/loss`, not `train/stage1_loss`, in the integrations of transformers
    (TensorBoard, W&B, trackio, …), so that each stage is a group."""
    from transformers.integrations import integration_utils

    rewrite = integration_utils.rewrite_logs

    def with_groups(logs: dict[str, Any]) -> dict[str, Any]:
        return {re.sub(r"^train/(stage\d+)_", r"\1/", name): value for name, value in rewrite(logs).items()}

    integration_utils.rewrite_logs = with_groups
    try:
        yield
    finally:
        integration_utils.rewrite_logs = rewrite


# ---------------------------------------------------------------------- datasets
def fingerprint_of(dataset: Dataset) -> str:
    """The fingerprint on which the caches of `datasets` depend."""
    return dataset._fingerprint


def indices_table(dataset: Dataset) -> Table | None:
    """The table of row numbers of a dataset that was shuffled or selected from; `None` otherwise."""
    return dataset._indices


def table_blocks(table: Table) -> list[tuple[int, int]] | None:
    """First row and number of rows of each block of a concatenated table; `None` for other tables."""
    from datasets.table import ConcatenationTable

    return table._slices if isinstance(table, ConcatenationTable) else None


def copy_format(source: Dataset, target: Dataset, columns: list[str] | None) -> Dataset:
    """Give a dataset the format of another, with these columns formatted. `Dataset.with_format` can't set a transform
    with its columns in one step."""
    target._format_type = source._format_type
    target._format_kwargs = copy.copy(source._format_kwargs)
    target._format_columns = columns
    target._output_all_columns = source._output_all_columns
    return target


def with_transform(dataset: Dataset, transform: Callable[[dict], dict]) -> Dataset:
    """Give a dataset a transform, in place. `Dataset.set_transform` would pickle the transform, and with it all that
    it holds, for the fingerprint."""
    dataset._format_type, dataset._format_kwargs = "custom", {"transform": transform}
    return dataset


def examples_iterable() -> type:
    """The base class of what an `IterableDataset` iterates over."""
    from datasets.iterable_dataset import _BaseExamplesIterable

    return _BaseExamplesIterable


def stream_source(stream: IterableDataset) -> Any:
    """The examples iterable of a stream."""
    return stream._ex_iterable


def with_stream_source(stream: IterableDataset, source: Any, info: DatasetInfo) -> IterableDataset:
    """The same stream over another examples iterable."""
    from datasets import IterableDataset

    return IterableDataset(
        ex_iterable=source,
        info=info,
        split=stream._split,
        formatting=stream._formatting,
        distributed=stream._distributed,
        token_per_repo_id=stream._token_per_repo_id,
    )


# ---------------------------------------------------------------------- torch and accelerate
def functorch_check() -> Callable[[], bool]:
    """A function that tells whether a transform of `torch.func` is active."""
    import torch

    return torch._C._are_functorch_transforms_active


def forward_mode_check() -> Callable[[], bool]:
    """A function that tells whether forward-mode differentiation is active. It takes less time than unpacking a
    tensor."""
    from torch.autograd import forward_ad

    return lambda: forward_ad._current_level >= 0


def direct_apply(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """`function.apply` for positional arguments and without transforms of `torch.func`, which it looks for first."""
    import torch

    return super(torch.autograd.Function, function).apply  # type: ignore[misc]  # the base class has no public name


def without_compiler(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that runs eagerly inside `torch.compile`. Unlike `torch.compiler.disable` it imports the compiler,
    which takes seconds, only when it is called."""
    from torch._compile import _disable_dynamo

    return _disable_dynamo(function)


@cache
def let_torch_load_on_numbered_cpu() -> None:
    """Let `torch.load` take `cpu:0`, accelerate's name for the processor in several processes. transformers 5.6 and
    older versions load the state of the optimizer to that device."""
    import torch

    def restore(storage: Any, location: str) -> Any:
        return storage if re.fullmatch(r"cpu:\d+", location) else None

    torch.serialization.register_package(11, lambda storage: None, restore)


@contextmanager
def without_division(accelerator: Accelerator) -> Iterator[None]:
    """Keep `Accelerator.backward` from dividing a loss by the number of accumulation steps. Before transformers 5.6 it
    does, also if the loss is divided by the items of all these steps."""
    steps = accelerator.gradient_accumulation_steps
    accelerator.gradient_accumulation_steps = 1
    try:
        yield
    finally:
        accelerator.gradient_accumulation_steps = steps


def rows_in_last_batch(accelerator: Accelerator) -> int:
    """
    The rows of all processes in the last batch of an epoch, without those that accelerate repeats to fill it. 0 if it
    repeats none, or if the batch is not the last one.

    The loader that continues an epoch at its middle doesn't know the size of its batches, and so has no `remainder`.
    """
    from accelerate.data_loader import SkipBatchSampler

    state = accelerator.gradient_state
    if not state.end_of_dataloader:
        return 0
    loader = state.active_dataloader
    skipping = getattr(loader, "batch_sampler", None)
    if state.remainder >= 0 or not isinstance(skipping, SkipBatchSampler):
        return max(state.remainder, 0)
    shard = skipping.batch_sampler
    size = getattr(shard, "batch_size", None)
    if size is None or getattr(shard, "drop_last", False):
        return 0
    return len(loader.dataset) % (size if getattr(shard, "split_batches", False) else size * accelerator.num_processes)


def has_prepared_models(accelerator: Accelerator) -> bool:
    """Whether an accelerator holds models that it has prepared."""
    return bool(accelerator._models)


def undo_preparation(model: torch.nn.Module) -> None:
    """
    Restore the original forward of a model that accelerate has prepared (for example in `evaluate`), so that it can be
    deep-copied: a copy of a prepared model calls the forward of the original. `Accelerator.unwrap_model` would also
    remove the decorators of the class.
    """
    model.__dict__.pop("_is_accelerate_prepared", None)  # otherwise it would not be prepared again
    original = model.__dict__.pop("_original_forward", None)
    if original is None:
        return
    if getattr(original, "__func__", None) is type(model).forward:
        del model.forward
    else:
        model.forward = original
