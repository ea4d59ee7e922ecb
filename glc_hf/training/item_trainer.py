# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""What the trainers of all stages share: columns, flags, counting, loss, evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import datasets
import numpy as np
import torch
from transformers import EvalPrediction
from transformers.trainer_utils import has_length
from transformers.utils import logging

from glc_hf.hold_out import TRUSTED_SET
from glc_hf.labels.columns import with_usual_label_column
from glc_hf.labels.reading import IGNORED_LABEL
from glc_hf.methods import get_method
from glc_hf.methods.base import Batch, Items, logits_of, plain_cross_entropy
from glc_hf.training.batches import ROW_KEY, ColumnDropper, FlagCollator, FlaggedRows
from glc_hf.training.config import NothingToPickle, write_arguments
from glc_hf.training.resume import CheckpointedTrainer, write_record


logger = logging.get_logger(__name__)


class CorrectedTrainer(CheckpointedTrainer):
    """
    A `Trainer` that trains on flagged rows with a loss per item and divides by its own count of items.

    Subclasses say what the stage is: `stage_name`, `stage_items` (which labels carry loss), `_training_data()` and
    `_item_losses()`.
    """

    # compute_loss divides by the items of the whole accumulated batch, so the Trainer must not divide again.
    loss_is_scaled_for_ga = True
    stage_name = "training"
    stage_items: Items = "all"
    # Held-out trusted rows to evaluate on beside the `eval_dataset`.
    trusted_eval_dataset: datasets.Dataset | None = None
    _evaluates_trusted = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Items are counted here for every model: heads that take **kwargs often swallow the count without using it,
        # and heads that take none would get no count at all.
        self.model_accepts_loss_kwargs = True
        # A module whose forward takes no labels has them all the same: they never reach it.
        self.label_names = self.label_names or ["labels"]
        self._label_name = self.label_names[0]
        self.data_collator = FlagCollator(self.data_collator, self.args.trusted_column, self._label_name)
        self._default_metrics = self.compute_metrics is None
        if self._default_metrics:
            self.compute_metrics = Accuracy()

    # ------------------------------------------------------------------ data
    def _training_data(self) -> Any:
        """The dataset of this stage: [`FlaggedRows`] or a stream."""
        raise NotImplementedError

    def _item_losses(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        return plain_cross_entropy(logits, batch.labels)

    def _item_numbers(self, rows: torch.Tensor | None, labels: torch.Tensor) -> torch.Tensor | None:
        return None

    def _item_weights(self, model: torch.nn.Module, inputs: dict, batch: Batch) -> torch.Tensor | None:
        return None

    def get_train_dataloader(self) -> torch.utils.data.DataLoader:
        """The loader of this stage's rows, each with its flag."""
        if self.train_dataset is None:
            raise ValueError("training needs a train_dataset.")
        dataset = self._training_data()
        batch = self._train_batch_size * self.accelerator.num_processes
        if self.args.dataloader_drop_last and has_length(dataset) and len(dataset) < batch:
            raise ValueError(
                f"{self.stage_name} has {len(dataset)} rows, fewer than one batch of {batch}: dataloader_drop_last "
                "would drop all of them. Use smaller batches, or leave it out."
            )
        return self._get_dataloader(
            dataset=dataset,
            description="Training",
            batch_size=self._train_batch_size,
            sampler_fn=self._get_train_sampler,
            is_training=True,
        )

    def _get_dataloader(self, dataset: Any, *args: Any, **kwargs: Any) -> torch.utils.data.DataLoader:
        if isinstance(dataset, datasets.Dataset):
            if _has_transform(dataset):
                # It needs the columns that the model does not take: drop those after it, in the collator.
                dataset = FlaggedRows(dataset, np.arange(len(dataset)), None, self.args.trusted_column)
            else:
                dataset = with_usual_label_column(dataset, self.label_column, self._label_name)
        return super()._get_dataloader(dataset, *args, **kwargs)

    def _get_collator_with_removed_columns(self, data_collator: Any, description: str | None = None) -> Any:
        collator = super()._get_collator_with_removed_columns(data_collator, description)
        return ColumnDropper(collator) if collator is not data_collator else collator

    @property
    def label_column(self) -> str | None:
        """The column of the labels, where it is known. What a transform gives has its own names."""
        data = getattr(self, "training_data", None)
        return self.args.label_column if data is None else data.label_column

    def _without_unused_columns(self, dataset: Any, label_column: str | None = None) -> Any:
        if isinstance(dataset, datasets.Dataset) and not _has_transform(dataset):
            dataset = with_usual_label_column(dataset, label_column or self.label_column, self._label_name)
            return self._remove_unused_columns(dataset, description="Training")
        return dataset

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        for column in (self.args.trusted_column, ROW_KEY):
            if column not in self._signature_columns:
                self._signature_columns.append(column)

    def get_batch_samples(
        self, epoch_iterator: Iterator, num_batches: int, device: torch.device
    ) -> tuple[list, torch.Tensor | int | None]:
        """The batches of one optimizer step, labels that carry no loss in this stage set to -100 before counting."""
        batches = []
        for _ in range(num_batches):
            try:
                batch = next(epoch_iterator)
            except StopIteration:
                break
            batches.append(self._with_masked_labels(batch))
        return batches, self._get_num_items_in_batch(batches, device)

    def _with_masked_labels(self, batch: dict[str, Any]) -> dict[str, Any]:
        labels, trusted = batch.get(self._label_name), batch.get(self.args.trusted_column)
        if labels is None:
            raise ValueError(
                f"a training batch has no {self._label_name!r}: the dataset or its transform gives no labels "
                f"(its keys: {', '.join(map(str, batch))})."
            )
        if trusted is None and get_method(self.args.method).needs_trusted:
            raise ValueError(
                f"a training batch has no {self.args.trusted_column!r}, and the method needs to know which rows are "
                "trusted: the stream or its transform gives no flags."
            )
        if self.stage_items != "all" and trusted is not None:
            dropped = trusted if self.stage_items == "untrusted" else ~trusted
            labels = labels.masked_fill(dropped, IGNORED_LABEL)
        repeated = self._repeated_rows(len(labels))
        if repeated:
            labels = labels.clone()
            labels[len(labels) - repeated :] = IGNORED_LABEL
        if labels is not batch[self._label_name]:
            batch = {**batch, self._label_name: labels}
        return batch

    def _repeated_rows(self, batch_size: int) -> int:
        """How many rows at the end of this process's batch accelerate repeated to even out the last global batch."""
        state = self.accelerator.gradient_state
        if self.accelerator.num_processes == 1 or not state.end_of_dataloader or state.remainder <= 0:
            return 0
        real = state.remainder - self.accelerator.process_index * batch_size
        return batch_size - min(max(real, 0), batch_size)

    # ------------------------------------------------------------------ loss
    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, Any]:
        """The stage's loss in training, plain cross-entropy against the labels as given in evaluation. Labels, flags
        and row numbers never reach the model, so its own loss is never computed."""
        inputs = dict(inputs)
        labels = inputs.pop(self._label_name)
        trusted, rows = inputs.pop(self.args.trusted_column, None), inputs.pop(ROW_KEY, None)
        batch = Batch(labels, trusted, self._item_numbers(rows, labels))
        training = model.training
        weights = self._item_weights(model, inputs, batch) if training else None
        outputs = model(**inputs)
        logits = logits_of(outputs)
        if not training:
            total = plain_cross_entropy(logits, labels).sum()
            loss = total / (labels != IGNORED_LABEL).sum().clamp(min=1)
            return (loss, _with_loss(outputs, loss, self._default_metrics)) if return_outputs else loss
        if logits.shape[:-1] != labels.shape:
            raise ValueError(
                f"the model gives logits of shape {tuple(logits.shape)} for labels of shape {tuple(labels.shape)}: "
                "one row of logits belongs to each label."
            )
        losses = self._item_losses(logits, batch)
        if weights is not None:
            losses = losses * weights
        total = losses.sum()
        if not torch.isfinite(total):
            raise FloatingPointError(self._explain_non_finite(logits))
        if num_items_in_batch is None:
            num_items_in_batch = (labels != IGNORED_LABEL).sum()
        loss = total / torch.as_tensor(num_items_in_batch, device=total.device).clamp(min=1)
        if self.args.average_tokens_across_devices:
            # The gradient is averaged over processes, but the count is of all of them.
            loss = loss * self.accelerator.num_processes
        return (loss, _with_loss(outputs, loss, self._default_metrics)) if return_outputs else loss

    def _explain_non_finite(self, logits: torch.Tensor) -> str:
        kind = "NaN" if torch.isnan(logits).any() else "infinite values"
        where = "logits" if not torch.isfinite(logits).all() else "loss"
        saves = self.args.save_strategy != "no"
        intact = f", and the last checkpoint in {self.args.output_dir} is intact" if saves else ""
        return (
            f"the {where} hold {kind} at step {self.state.global_step} of {self.stage_name}; training stopped{intact}."
            " A lower learning rate, a warm-up or fp32 usually helps; look also for bad values in the inputs."
        )

    def _get_num_items_in_batch(self, batch_samples: list, device: torch.device) -> torch.Tensor | int | None:
        if self._label_name != "labels":
            batch_samples = [
                {"labels": batch[self._label_name]} for batch in batch_samples if self._label_name in batch
            ]
        return super()._get_num_items_in_batch(batch_samples, device)

    # ------------------------------------------------------------------ evaluation
    def prediction_step(self, model: torch.nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> tuple:
        """As `Trainer`'s, without flags: evaluation is against the labels as given, whoever gave them."""
        hidden = (self.args.trusted_column, ROW_KEY)
        return super().prediction_step(model, {k: v for k, v in inputs.items() if k not in hidden}, *args, **kwargs)

    def evaluate(self, eval_dataset: Any = None, *args: Any, **kwargs: Any) -> dict[str, float]:
        """As `Trainer`'s; without a dataset named, held-out trusted rows come second, as `eval_trusted_…`."""
        self._evaluates_trusted = eval_dataset is None and self.trusted_eval_dataset is not None
        try:
            return super().evaluate(eval_dataset, *args, **kwargs)
        finally:
            self._evaluates_trusted = False

    def evaluation_loop(self, dataloader: Any, description: str, *args: Any, **kwargs: Any) -> Any:
        """As `Trainer`'s; the metrics of held-out trusted rows come along where there are such."""
        output = self._evaluation_loop(dataloader, description, *args, **kwargs)
        if self._evaluates_trusted:
            kwargs["metric_key_prefix"] = f"{kwargs.get('metric_key_prefix', 'eval')}_{TRUSTED_SET}"
            trusted = self.get_test_dataloader(self.trusted_eval_dataset)
            output.metrics.update(self._evaluation_loop(trusted, description, *args, **kwargs).metrics)
        return output

    def _evaluation_loop(self, dataloader: Any, description: str, *args: Any, **kwargs: Any) -> Any:
        """For the built-in accuracy only the predicted classes are gathered, not the logits."""
        if not self._default_metrics or description != "Evaluation" or self.preprocess_logits_for_metrics is not None:
            return super().evaluation_loop(dataloader, description, *args, **kwargs)
        self.preprocess_logits_for_metrics = _predicted_classes
        try:
            return super().evaluation_loop(dataloader, description, *args, **kwargs)
        finally:
            self.preprocess_logits_for_metrics = None

    # ------------------------------------------------------------------ saving
    def run_record(self) -> dict[str, Any]:
        """What a checkpoint of this trainer belongs to."""
        raise NotImplementedError

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        """As `Trainer`, with the arguments as redacted JSON in place of a pickle; in checkpoints, the run's record."""
        args = self.args
        try:
            # `Trainer` pickles them here: what a crash right after it would leave behind holds nothing.
            self.args = NothingToPickle(args)
            super()._save(output_dir, state_dict)
        finally:
            self.args = args
        if self.args.should_save:
            folder = output_dir if output_dir is not None else self.args.output_dir
            write_arguments(folder, self.args)
            if self.is_in_train:
                write_record(folder, self.run_record())


def _with_loss(outputs: Any, loss: torch.Tensor, logits_first: bool) -> Any:
    """Outputs as `Trainer` expects them from a model that computed its loss: tuples begin with it. Of a dictionary it
    takes the values in their order, and the built-in accuracy takes the first of them for the logits."""
    if isinstance(outputs, torch.Tensor):
        return {"logits": outputs}
    if isinstance(outputs, dict) and logits_first:
        return {"logits": outputs["logits"], **{name: value for name, value in outputs.items() if name != "logits"}}
    return (loss, *outputs) if isinstance(outputs, tuple) else outputs


def _has_transform(dataset: datasets.Dataset) -> bool:
    return dataset.format["type"] == "custom"


def _predicted_classes(logits: Any, labels: Any) -> torch.Tensor:
    return logits_of(logits).argmax(dim=-1)


class Accuracy:
    """Share of right classes among the labels that are not -100; with `batch_eval_metrics`, over all batches."""

    def __init__(self) -> None:
        self.right = self.counted = 0

    def __call__(self, prediction: EvalPrediction, compute_result: bool = True) -> dict[str, float]:
        """Takes in predictions (classes or logits), and on the last ones gives the accuracy and starts anew."""
        if isinstance(prediction.predictions, list):  # of `eval_do_concat_batches=False`: batch by batch
            for predictions, labels in zip(prediction.predictions, prediction.label_ids, strict=True):
                self._count(predictions, labels)
        else:
            self._count(prediction.predictions, prediction.label_ids)
        if not compute_result:
            return {}
        right, total, self.right, self.counted = self.right, self.counted, 0, 0
        return {"accuracy": right / total} if total else {}

    def _count(self, predictions: Any, labels: Any) -> None:
        predictions, labels = (torch.as_tensor(_first(found)) for found in (predictions, labels))
        if predictions.dim() > labels.dim():
            predictions = predictions.argmax(dim=-1)
        counted = labels != IGNORED_LABEL
        self.right += int((predictions == labels)[counted].sum())
        self.counted += int(counted.sum())


def _first(gathered: Any) -> Any:
    """The first of several gathered outputs."""
    return gathered[0] if isinstance(gathered, (tuple, list)) else gathered
