# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""One pass of a trained stage over rows, shared out among the processes: what estimation is made of."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import datasets
import numpy as np
import torch
from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size
from transformers import TrainerCallback

from glc_hf.audit.findings import add_audit_columns, check_audit_columns
from glc_hf.labels.columns import label_names_of
from glc_hf.labels.reading import IGNORED_LABEL
from glc_hf.methods.base import Inferred, Items, Part, logits_of
from glc_hf.training.batches import ROW_KEY
from glc_hf.training.item_trainer import CorrectedTrainer


if TYPE_CHECKING:
    from accelerate import Accelerator

    from glc_hf.training.probe import ProbeTrainer
    from glc_hf.training.stages import StageTrainer
    from glc_hf.training.trainer import GLCTrainer
    from glc_hf.training.training_data import TrainingData


_TIMES_THE_EVALUATION_BATCH = 8


def share_of_process(rows: np.ndarray, process: int, processes: int) -> np.ndarray:
    """This process's rows. Every process gets equally many, so that none waits for another; rows that only fill up
    come as −1−row and are dropped again after inference."""
    share = math.ceil(len(rows) / processes)
    places = np.arange(process * share, (process + 1) * share)
    chosen = rows[places % len(rows)]
    return np.where(places < len(rows), chosen, -1 - chosen)


def infer(
    trainer: CorrectedTrainer, dataset: Any, items: Items, only: torch.Tensor | None = None
) -> Iterator[Inferred]:
    """
    Runs a trainer's model over a dataset of flagged rows in evaluation mode, batch by batch.

    Args:
        trainer (`CorrectedTrainer`): Its model, device, precision and collator are used.
        dataset: [`FlaggedRows`], or a stream that carries its flags.
        items (`str`): The labels to keep; the others, and -100, are left out of what is yielded.
        only (`torch.Tensor`, *optional*): Numbers of the items to keep.
    """
    args = trainer.args
    forward = LargestBatch(trainer)
    streamed = isinstance(dataset, torch.utils.data.IterableDataset)
    loader = torch.utils.data.DataLoader(
        dataset,
        batch_size=forward.batch_size,
        collate_fn=trainer._get_collator_with_removed_columns(trainer.data_collator, "Estimation"),
        num_workers=0 if streamed else args.dataloader_num_workers,
        pin_memory=args.dataloader_pin_memory and args.device.type == "cuda",
    )
    processes, process = trainer.accelerator.num_processes, trainer.accelerator.process_index
    model = trainer.model
    was_training = model.training
    model.eval()
    try:
        for number, batch in enumerate(loader):
            # A stream can't be divided beforehand: every process reads it, and works on every n-th batch.
            if streamed and processes > 1 and number % processes != process:
                continue
            yield _infer_batch(trainer, forward, batch, items, only)
    finally:
        model.train(was_training)


class LargestBatch:
    """
    Runs a trainer's model without gradients on as many rows at a time as fit.

    Nothing is kept for a backward pass: on an accelerator it begins with several times the batch of `evaluate()`, and
    halves it each time the memory does not suffice. On the CPU larger batches are no faster.
    """

    def __init__(self, trainer: CorrectedTrainer) -> None:
        self.trainer = trainer
        self.batch_size = trainer.args.eval_batch_size
        if trainer.args.device.type != "cpu":
            self.batch_size *= _TIMES_THE_EVALUATION_BATCH
        self._fits = self.batch_size

    def __call__(self, inputs: dict[str, Any]) -> torch.Tensor:
        """The logits of a batch."""
        rows = max((len(value) for value in inputs.values() if isinstance(value, torch.Tensor)), default=0)
        while True:
            parts = _in_parts(inputs, rows, self._fits)
            try:
                found = [logits_of(self.trainer.model(**part)) for part in parts]
                return found[0] if len(found) == 1 else torch.cat(found)
            except RuntimeError as error:
                smaller = max(1, min(self._fits, rows) // 2)
                if not should_reduce_batch_size(error) or len(_in_parts(inputs, rows, smaller)) == len(parts):
                    raise  # something else, or there is nothing to part
                self._fits = smaller
                clear_device_cache(garbage_collection=True)


def _in_parts(inputs: dict[str, Any], rows: int, size: int) -> list[dict[str, Any]]:
    """A batch as several smaller ones, where every input has an entry for each row."""
    whole = all(isinstance(value, torch.Tensor) and len(value) == rows for value in inputs.values())
    if rows <= size or not whole:
        return [inputs]
    return [{name: value[first : first + size] for name, value in inputs.items()} for first in range(0, rows, size)]


def _infer_batch(
    trainer: CorrectedTrainer, forward: LargestBatch, batch: dict[str, Any], items: Items, only: torch.Tensor | None
) -> Inferred:
    labels, rows = batch.pop(trainer._label_name), batch.pop(ROW_KEY, None)
    trusted = batch.pop(trainer.args.trusted_column, None)
    # Not inference mode: a tensor that the model keeps from it could not be trained with, and FSDP's hooks don't run.
    # In the precision of training, whether or not the model was prepared for that.
    with torch.no_grad(), trainer.accelerator.autocast():
        logits = forward(trainer._prepare_inputs(batch))
        kept = labels != IGNORED_LABEL
        if items != "all" and trusted is not None:
            kept &= trusted if items == "trusted" else ~trusted
        numbers = torch.full_like(labels, -1)
        if rows is not None:
            numbers = trainer.training_data.item_numbers(rows, labels)
            kept &= (rows >= 0).view(-1, *[1] * (labels.dim() - 1))
        if only is not None:
            kept &= torch.isin(numbers, only)
        if not kept.all():
            logits, labels, numbers = logits[kept.to(logits.device)], labels[kept], numbers[kept]
        return Inferred(logits.flatten(0, -2).float().cpu(), labels.flatten(), numbers.flatten())


def sum_over_processes(accelerator: Accelerator, tensor: torch.Tensor) -> torch.Tensor:
    """The sum of every process's tensor, on the CPU."""
    if accelerator.num_processes == 1:
        return tensor
    return accelerator.reduce(tensor.to(accelerator.device), reduction="sum").cpu()


class TrainedStages:
    """The trained earlier stages and the rows, as [`glc_hf.methods.base.EstimationRun`] promises them to a method."""

    def __init__(
        self,
        data: TrainingData,
        stages: list[StageTrainer],
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
        """See [`glc_hf.methods.base.EstimationRun.infer`]."""
        trainer, probe = self.stages[stage], self.probe(stage)
        if probe is not None:
            yield from probe.infer_items(items, part, only)
            return
        dataset = self.data.for_inference(trainer, items, part, only, by_length=True)
        if dataset is not None:
            yield from infer(trainer, dataset, items, only)

    def probe(self, stage: int) -> ProbeTrainer | None:
        """See [`glc_hf.methods.base.EstimationRun.probe`]."""
        trainer = self.stages[stage]
        return trainer if hasattr(trainer, "table") else None

    def sum_over_processes(self, tensor: torch.Tensor) -> torch.Tensor:
        """See [`glc_hf.methods.base.EstimationRun.sum_over_processes`]."""
        return sum_over_processes(self.accelerator, tensor)

    def gather_objects(self, value: Any) -> list[Any]:
        """See [`glc_hf.methods.base.EstimationRun.gather_objects`]."""
        from accelerate.utils import gather_object

        return [value] if self.accelerator.num_processes == 1 else gather_object([value])

    def item_numbers(self, items: Items) -> np.ndarray:
        """See [`glc_hf.methods.base.EstimationRun.item_numbers`]."""
        return self.data.numbers_of(items)

    def item_labels(self, items: Items, column: str | None = None) -> np.ndarray:
        """See [`glc_hf.methods.base.EstimationRun.item_labels`]."""
        return self.data.item_labels(items, column)

    def class_counts(self, items: Items) -> torch.Tensor:
        """See [`glc_hf.methods.base.EstimationRun.class_counts`]."""
        return torch.from_numpy(np.bincount(self.item_labels(items), minlength=self.num_labels)).double()


class Refinement(TrainerCallback):
    """
    Lets the method refine its estimate at the steps it asks for.

    That is before the step's checkpoint is written, which holds the matrix: a resumed run goes on with the same one.

    Args:
        trainer ([`GLCTrainer`]): The trainer of the last stage; copies of this callback in earlier stages do nothing.
    """

    def __init__(self, trainer: GLCTrainer) -> None:
        self.trainer = trainer

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """After each optimizer step."""
        trainer = self.trainer
        if state is not trainer.state or not trainer.training_data.numbered:
            return
        if state.global_step not in trainer.method.refinement_steps(state.max_steps):
            return
        trainer.method.refine(
            TrainedStages(
                trainer.training_data, [trainer], trainer.accelerator, trainer.num_labels, trainer.class_names
            )
        )


def audit_rows(trainer: GLCTrainer, dataset: datasets.Dataset) -> datasets.Dataset:
    """Return the dataset with the audit columns; see [`GLCTrainer.audit`]. Every process computes the whole result."""
    from glc_hf.training.training_data import LabelledRows  # `training_data` imports this module

    matrix, args = trainer.corruption_matrix, trainer.args
    if matrix is None:
        raise ValueError(
            f"an audit needs the corruption matrix, and method {args.method!r} has none (or is not trained yet): "
            "train with 'glc', or pass a known matrix as `GLCTrainer(…, corruption_matrix=…)`."
        )
    if not isinstance(dataset, datasets.Dataset):
        raise TypeError(f"an audit needs a `datasets.Dataset`, not a {type(dataset).__name__}.")
    if len(dataset) == 0:
        raise ValueError("there are no rows to audit: the dataset is empty.")
    check_audit_columns(dataset)
    rows = LabelledRows(dataset, args.label_column, args.trusted_column, matrix.num_labels, "audit", needs_flags=False)
    view = trainer._without_unused_columns(dataset, rows.label_column)
    logits = torch.cat([batch.logits for batch in infer(trainer, view, "all")])
    if len(logits) != rows.count("all"):
        raise ValueError(
            f"the model returned logits for {len(logits):,} labels, but column {rows.label_column!r} has "
            f"{rows.count('all'):,}: the collator or the transform drops labels."
        )
    names = label_names_of(dataset, rows.label_column, trainer.model) or matrix.label_names
    return add_audit_columns(dataset, rows.labels, rows.counted_items()[1], logits, matrix, names)
