# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Inference over rows, shared among the processes: what estimates, refinement and audits are made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size
from transformers import TrainerCallback

from glc_hf._compat import has_fast_bf16
from glc_hf.correction.linear import Probe
from glc_hf.labels.label_batch import VOTES_KEY, label_batch
from glc_hf.methods.base import Inferred, Items, Part, logits_of
from glc_hf.training.batches import ROW_KEY
from glc_hf.training.stage_trainer import StageTrainer
from glc_hf.training.training_data import TrainingData


_BATCH_FACTOR = 8
_FEWEST_BF16_PARAMETERS = 1_000_000


def infer(
    trainer: StageTrainer,
    dataset: Any,
    items: Items,
    only: torch.Tensor | None = None,
    bf16: bool = False,
) -> Iterator[Inferred]:
    """
    Run a trainer's model over flagged rows in evaluation mode, batch by batch.

    Args:
        trainer ([`StageTrainer`]): Its model, device, precision and collator are used.
        dataset: [`FlaggedRows`], or a stream with flags.
        items (`str`): The labels to keep. Others, and -100, are left out.
        only (`torch.Tensor`, *optional*): Numbers of the items to keep.
        bf16 (`bool`, *optional*, defaults to `False`): Whether to compute in bf16 whatever the precision of training.
    """
    args = trainer.args
    forward = LargestBatch(trainer, bf16)
    is_stream = isinstance(dataset, torch.utils.data.IterableDataset)
    loader = torch.utils.data.DataLoader(
        dataset,
        batch_size=forward.batch_size,
        collate_fn=trainer._get_collator_with_removed_columns(trainer.data_collator, "Estimation"),
        num_workers=0 if is_stream else args.dataloader_num_workers,
        pin_memory=args.dataloader_pin_memory and args.device.type == "cuda",
    )
    processes, process = trainer.accelerator.num_processes, trainer.accelerator.process_index
    model = trainer.model
    was_training = model.training
    model.eval()
    try:
        for number, batch in enumerate(loader):
            # A stream can't be divided in advance: every process reads it and works on every n-th batch.
            if is_stream and processes > 1 and number % processes != process:
                continue
            yield _infer_batch(trainer, forward, batch, items, only)
    finally:
        model.train(was_training)


def faster_in_bf16(trainer: StageTrainer) -> bool:
    """
    Whether features, and the predictions of refinement, are computed in bf16 although the network trains in float32:
    about twice as fast where the device has instructions for it, and precise enough for linear models and for a matrix
    that is fitted to thousands of predictions. Small networks would gain nothing.
    """
    parameters = list(trainer.model.parameters())
    return (
        trainer.accelerator.mixed_precision == "no"  # otherwise both have the precision of training
        and has_fast_bf16(trainer.args.device.type)
        and sum(parameter.numel() for parameter in parameters) >= _FEWEST_BF16_PARAMETERS
        and all(parameter.dtype == torch.float32 for parameter in parameters)
    )


class LargestBatch:
    """
    Runs a trainer's model without gradients on as many rows at a time as fit into memory.

    On an accelerator it starts with several times the batch size of `evaluate()`, because nothing is stored for a
    backward pass, and halves it when memory runs out. On the CPU larger batches are not faster.
    `accelerate.utils.find_executable_batch_size` is not used: it restarts the whole function, and batches that were
    already yielded would come twice.

    Args:
        trainer ([`StageTrainer`]): Its model and its precision are used.
        bf16 (`bool`, *optional*, defaults to `False`): Whether to compute in bf16 instead.
    """

    def __init__(self, trainer: StageTrainer, bf16: bool = False) -> None:
        self.trainer = trainer
        self._bf16 = bf16
        self.batch_size = 1 if trainer.single_rows else trainer.args.eval_batch_size
        if trainer.args.device.type != "cpu" and not trainer.single_rows:
            self.batch_size *= _BATCH_FACTOR
        self._largest = self.batch_size

    def autocast(self) -> AbstractContextManager[Any]:
        """The precision, whether or not the model was prepared for it."""
        if self._bf16:
            return torch.autocast(self.trainer.args.device.type, torch.bfloat16)
        return self.trainer.accelerator.autocast()

    def __call__(self, inputs: dict[str, Any]) -> torch.Tensor:
        rows = max((len(value) for value in inputs.values() if isinstance(value, torch.Tensor)), default=0)
        while True:
            parts = _split(inputs, rows, self._largest)
            try:
                logits = [logits_of(self.trainer.model(**part)) for part in parts]
                return logits[0] if len(logits) == 1 else torch.cat(logits)
            except RuntimeError as error:
                smaller = max(1, min(self._largest, rows) // 2)
                if not should_reduce_batch_size(error) or len(_split(inputs, rows, smaller)) == len(parts):
                    raise  # another error, or the batch can't be split further
                self._largest = smaller
                clear_device_cache(garbage_collection=True)


def _split(inputs: dict[str, Any], rows: int, size: int) -> list[dict[str, Any]]:
    """A batch as several smaller ones, if every input has one entry per row."""
    whole = all(isinstance(value, torch.Tensor) and len(value) == rows for value in inputs.values())
    if rows <= size or not whole:
        return [inputs]
    return [{name: value[first : first + size] for name, value in inputs.items()} for first in range(0, rows, size)]


def _infer_batch(
    trainer: StageTrainer, forward: LargestBatch, batch: dict[str, Any], items: Items, only: torch.Tensor | None
) -> Inferred:
    labels, rows = batch.pop(trainer.label_name), batch.pop(ROW_KEY, None)
    trusted, _ = batch.pop(trainer.args.trusted_column, None), batch.pop(VOTES_KEY, None)
    # Not inference mode: the model could not train with a tensor that it keeps from it, and FSDP's hooks don't run.
    with torch.no_grad(), forward.autocast():
        logits = forward(trainer._prepare_inputs(batch))
        kept = label_batch(labels).counted
        if items != "all" and trusted is not None:
            kept &= trusted if items == "trusted" else ~trusted
        numbers = torch.full_like(labels, -1)
        if rows is not None:
            numbers = trainer.required_data.item_numbers(rows, labels)
            kept &= (rows >= 0).view(-1, *[1] * (labels.dim() - 1))
        if only is not None:
            kept &= torch.isin(numbers, only)
        if not kept.all():
            logits, labels, numbers = logits[kept.to(logits.device)], labels[kept], numbers[kept]
        return Inferred(logits.flatten(0, -2).float().cpu(), labels.flatten(), numbers.flatten())


def sum_over_processes(accelerator: Accelerator, tensor: torch.Tensor) -> torch.Tensor:
    """The sum of a tensor over all processes, on the CPU."""
    if accelerator.num_processes == 1:
        return tensor
    return accelerator.reduce(tensor.to(accelerator.device), reduction="sum").cpu()


class TrainedStage:
    """
    A stage trained by gradient descent, as estimates use it.

    Args:
        trainer ([`StageTrainer`]): The trainer of the stage.
        bf16 (`bool`, *optional*, defaults to `False`): Whether to predict in bf16 whatever the precision of training.
    """

    probe: Probe | None = None

    def __init__(self, trainer: StageTrainer, bf16: bool = False) -> None:
        self.trainer = trainer
        self.bf16 = bf16

    def infer(self, items: Items, part: Part = "all", only: torch.Tensor | None = None) -> Iterator[Inferred]:
        """See [`EstimationRun.infer`]."""
        dataset = self.trainer.required_data.for_inference(self.trainer, items, part, only, by_length=True)
        if dataset is not None:
            yield from infer(self.trainer, dataset, items, only, self.bf16)


class TrainedStages:
    """The trained stages and the rows, as [`~methods.base.EstimationRun`] describes them."""

    def __init__(
        self,
        data: TrainingData,
        stages: Sequence[TrainedStage],
        accelerator: Accelerator,
        num_labels: int,
        label_names: list[str] | None,
    ) -> None:
        self.data = data
        self.stages = stages
        self.accelerator = accelerator
        self.num_labels = num_labels
        self.label_names = label_names

    def infer(
        self, stage: int, items: Items, part: Part = "all", only: torch.Tensor | None = None
    ) -> Iterator[Inferred]:
        return self.stages[stage].infer(items, part, only)

    def probe(self, stage: int) -> Probe | None:
        return self.stages[stage].probe

    def sum_over_processes(self, tensor: torch.Tensor) -> torch.Tensor:
        return sum_over_processes(self.accelerator, tensor)

    def gather_objects(self, value: Any) -> list[Any]:
        return [value] if self.accelerator.num_processes == 1 else gather_object([value])

    def item_numbers(self, items: Items) -> np.ndarray:
        return self.data.numbers_of(items)

    def item_labels(self, items: Items, column: str | None = None) -> np.ndarray:
        return self.data.item_labels(items, column)

    def class_counts(self, items: Items) -> torch.Tensor:
        if self.data.soft_labels is not None:
            return self.data.soft_labels.targets[self.item_numbers(items)].sum(dim=0, dtype=torch.float64)
        return torch.from_numpy(np.bincount(self.item_labels(items), minlength=self.num_labels)).double()


class RefinementCallback(TrainerCallback):
    """
    Tells the method the steps of the last stage, and lets it refine its estimate at the steps it asks for. This is
    before the checkpoint of the step, which contains the matrix, so a resumed run continues with the same matrix.

    Args:
        trainer ([`GLCTrainer`]): The trainer of the last stage. Copies of this callback in first stages do nothing.
    """

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state is self.trainer.state:
            self.trainer.method.begin_step(state.global_step, state.max_steps)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        trainer = self.trainer
        if state is not trainer.state or not trainer.training_data.numbered:
            return
        if state.global_step in trainer.method.refinement_steps(state.max_steps):
            progress = state.global_step / state.max_steps
            stage = TrainedStage(trainer, bf16=faster_in_bf16(trainer))
            trainer.method.refine(trainer.estimation_run([stage]), progress)
