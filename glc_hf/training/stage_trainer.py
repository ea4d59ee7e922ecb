# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`StageTrainer`: a `Trainer` of one stage, with flags in its batches and a loss per item."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import datasets
import numpy as np
import torch
from transformers import EvalPrediction
from transformers.trainer_utils import RemoveColumnsCollator, has_length
from transformers.utils import logging

from glc_hf._compat import rows_in_last_batch, signature_columns, stage_groups, without_division
from glc_hf.hold_out import TRUSTED_SET
from glc_hf.labels.columns import with_usual_label_column
from glc_hf.labels.encoding import encode_words
from glc_hf.labels.label_batch import VOTES_KEY, LabelBatch, label_batch
from glc_hf.labels.reading import IGNORED_LABEL
from glc_hf.methods import get_method
from glc_hf.methods.base import Method, Stage, logits_of
from glc_hf.training.batches import ROW_KEY, ColumnDropper, FlagCollator, FlaggedRows
from glc_hf.training.config import GLCConfig, UnpicklableArguments
from glc_hf.training.resume import ResumableTrainer, write_record
from glc_hf.training.training_data import TrainingData


logger = logging.get_logger(__name__)

_NO_TRAINING_SET = "training needs a train_dataset."


class StageTrainer(ResumableTrainer):
    """
    A `Trainer` that trains one stage of a method: on rows with flags, with a loss per item, divided by its own count
    of items. [`GLCTrainer`] is the trainer of the last stage; [`~training.stages.stage_trainer`] makes those of the
    first stages, which are of the same class.
    """

    # compute_loss divides by the items of the whole accumulated batch, so the Trainer must not divide again.
    loss_is_scaled_for_ga = True
    args: GLCConfig
    model: torch.nn.Module
    num_labels: int | None
    method: Method | None = None
    training_data: TrainingData | None = None
    class_names: list[str] | None = None
    # The speed of a run with several stages; see [`~training.stages.RunSpeed`].
    speed: Any = None
    # Number and stage of a first stage; `None` in the last stage.
    first_stage: tuple[int, Stage] | None = None
    # Trusted rows that are held out, to evaluate on beside the `eval_dataset`.
    trusted_eval_dataset: datasets.Dataset | None = None
    # Whether the model takes one row at a time; see [`~training.checks.check_padding`].
    single_rows = False
    _evaluates_trusted = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Items are counted here for every model: heads with **kwargs often accept the count without using it, and
        # heads without **kwargs would not get a count.
        self.model_accepts_loss_kwargs = True
        # A module whose forward does not take labels still has them: they never reach it.
        self.label_names = self.label_names or ["labels"]
        self.data_collator = FlagCollator(
            self.data_collator, self.args.trusted_column, self.label_name, self.args.soft_label_column
        )
        self._default_metrics = self.compute_metrics is None
        if self._default_metrics:
            self.compute_metrics = Accuracy()

    # ------------------------------------------------------------------ the stage
    @property
    def required_method(self) -> Method:
        """The method; raises without a `train_dataset`."""
        if self.method is None:
            raise ValueError(_NO_TRAINING_SET)
        return self.method

    @property
    def required_data(self) -> TrainingData:
        """The training data; raises without a `train_dataset`."""
        if self.training_data is None:
            raise ValueError(_NO_TRAINING_SET)
        return self.training_data

    @property
    def stage(self) -> Stage:
        """The stage that this object trains."""
        return self.required_method.last_stage() if self.first_stage is None else self.first_stage[1]

    @property
    def num_stages(self) -> int:
        """How many trainings the method has."""
        return len(self.required_method.first_stages()) + 1

    @property
    def stage_name(self) -> str:
        """The stage in messages and on the progress bar."""
        if self.first_stage is None:
            return f"stage {self.num_stages} of {self.num_stages} ({self.args.method})"
        number, stage = self.first_stage
        probe = ", linear probe" if stage.mode == "probe" else ""
        return f"stage {number} of {self.num_stages} ({stage.items} labels{probe})"

    def stage_rows(self) -> Any:
        """The dataset of this stage: [`FlaggedRows`] or a stream."""
        upsamples = self.first_stage is None and self.required_method.upsamples_trusted
        return self.required_data.for_training(self, self.stage, self.args.trusted_share if upsamples else 0.0)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """As `Trainer.log`. In first stages every name gets a prefix such as `stage1_`, and at the end of the last
        stage the speed is that of the whole run."""
        if self.first_stage is not None:
            logs = {f"stage{self.first_stage[0]}_{name}": value for name, value in logs.items()}
        elif self.speed is not None and {"train_loss", "train_runtime"} <= logs.keys():
            logs.update(self.speed.metrics(logs))
        with stage_groups():
            super().log(logs, start_time)

    # ------------------------------------------------------------------ data
    @property
    def label_name(self) -> str:
        """The key of the labels in a batch."""
        return self.label_names[0]

    @property
    def label_column(self) -> str | None:
        """The column of the labels, if it is known. A transform can return labels under another name."""
        return self.args.label_column if self.training_data is None else self.training_data.label_column

    def get_train_dataloader(self) -> torch.utils.data.DataLoader:
        """The data loader of this stage's rows, each with its flag."""
        if self.train_dataset is None:
            raise ValueError(_NO_TRAINING_SET)
        dataset = self.stage_rows()
        batch = self._train_batch_size * self.accelerator.num_processes
        repeats = self.stage.trusted_share is not None
        if self.args.dataloader_drop_last and not repeats and has_length(dataset) and len(dataset) < batch:
            raise ValueError(
                f"{self.stage_name} has {len(dataset)} rows, fewer than one batch of {batch}: dataloader_drop_last "
                "would drop all of them. Use smaller batches, or dataloader_drop_last=False."
            )
        return self._get_dataloader(
            dataset=dataset,
            description="Training",
            batch_size=self._train_batch_size,
            sampler_fn=self._get_train_sampler,
            is_training=True,
        )

    def _get_train_sampler(self, train_dataset: Any = None) -> torch.utils.data.Sampler | None:
        if self.stage.trusted_share is not None and isinstance(train_dataset, FlaggedRows):
            sampler = self.required_data.sampler(self, train_dataset, self.stage)
            # By this length accelerate knows how many rows it repeats to fill the last batch of an epoch.
            train_dataset.total_dataset_length = len(sampler)
            if self.args.train_sampling_strategy != "random":
                logger.warning_once(
                    f"train_sampling_strategy={self.args.train_sampling_strategy!r} has no effect in "
                    f"{self.stage_name}, whose epochs have a fixed share of trusted rows in random order."
                )
            return sampler
        return super()._get_train_sampler(train_dataset)

    def _get_dataloader(
        self,
        dataset: Any,
        description: str,
        batch_size: int,
        sampler_fn: Any = None,
        is_training: bool = False,
        dataloader_key: str | None = None,
    ) -> torch.utils.data.DataLoader:
        if isinstance(dataset, datasets.Dataset):
            if _has_transform(dataset):
                # The transform needs the columns that the model does not take: the collator drops them afterwards.
                dataset = FlaggedRows(dataset, np.arange(len(dataset)), None, self.args.trusted_column)
            else:
                dataset = with_usual_label_column(self._with_classes(dataset), self.label_column, self.label_name)
        collator = self.data_collator
        try:
            if not is_training and isinstance(collator, FlagCollator):
                self.data_collator = collator.without_flags()
            return super()._get_dataloader(
                dataset, description, batch_size, sampler_fn, is_training=is_training, dataloader_key=dataloader_key
            )
        finally:
            self.data_collator = collator

    def _with_classes(self, dataset: Any) -> Any:
        """An evaluation set, or several, whose labels may be words, with class numbers."""
        if isinstance(dataset, dict):
            return {name: self._with_classes(part) for name, part in dataset.items()}
        return encode_words(dataset, self.label_column, self.class_names, "the evaluation set")

    def _get_collator_with_removed_columns(self, data_collator: Any, description: str | None = None) -> Any:
        collator = super()._get_collator_with_removed_columns(data_collator, description)
        if collator is not data_collator and isinstance(collator, RemoveColumnsCollator):
            return ColumnDropper(collator)
        return collator

    def without_unused_columns(self, dataset: Any, label_column: str | None = None) -> Any:
        """The dataset with its labels under a name that collators know, without columns that the model does not take;
        unchanged if it has a transform."""
        if isinstance(dataset, datasets.Dataset) and not _has_transform(dataset):
            dataset = with_usual_label_column(dataset, label_column or self.label_column, self.label_name)
            return self._remove_unused_columns(dataset, description="Training")
        return dataset

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        columns = signature_columns(self)
        columns += [name for name in (self.args.trusted_column, ROW_KEY, VOTES_KEY) if name not in columns]

    def get_batch_samples(
        self, epoch_iterator: Iterator, num_batches: int, device: torch.device
    ) -> tuple[list, torch.Tensor | int | None]:
        """The batches of one optimizer step. Labels without loss in this stage are ignored before the items are
        counted."""
        batches = []
        for _ in range(num_batches):
            try:
                batch = next(epoch_iterator)
            except StopIteration:
                break
            batches.append(self._with_ignored_labels(batch))
        return batches, self._get_num_items_in_batch(batches, device)

    def _with_ignored_labels(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Ignore the labels that carry no loss in this stage, and those of rows that accelerate repeats to fill the
        last batch."""
        labels, trusted = batch.get(self.label_name), batch.get(self.args.trusted_column)
        if labels is None:
            raise ValueError(
                f"a training batch has no {self.label_name!r}: the dataset or its transform returns no labels (its "
                f"keys: {', '.join(map(str, batch))})."
            )
        if trusted is None and get_method(self.args.method).needs_trusted:
            raise ValueError(
                f"a training batch has no {self.args.trusted_column!r}, and the method needs to know which rows are "
                "trusted: the stream or its transform returns no flags."
            )
        targets = label_batch(labels)
        if self.stage.items != "all" and trusted is not None:
            targets = targets.ignoring(trusted if self.stage.items == "untrusted" else ~trusted)
        repeated = self._num_repeated_rows(len(labels))
        if repeated:
            padding = torch.zeros(targets.shape, dtype=torch.bool, device=labels.device)
            padding[len(labels) - repeated :] = True
            targets = targets.ignoring(padding)
        return batch if targets.labels is labels else {**batch, self.label_name: targets.labels}

    def _num_repeated_rows(self, batch_size: int) -> int:
        """How many rows at the end of this process's batch accelerate repeated to fill the last global batch."""
        rows = rows_in_last_batch(self.accelerator) if self.accelerator.num_processes > 1 else 0
        if not rows:
            return 0
        real = rows - self.accelerator.process_index * batch_size
        return batch_size - min(max(real, 0), batch_size)

    def trusted_batch(self, size: int) -> tuple[dict[str, Any], LabelBatch]:
        """Inputs and labels of a random batch of trusted rows, which depends only on seed, step and process."""
        rows = self.required_data.trusted_rows(self, size)
        collate = self._get_collator_with_removed_columns(self.data_collator, "Training")
        inputs = self._prepare_inputs(collate(rows.__getitems__(range(len(rows)))))
        labels, trusted = inputs.pop(self.label_name), inputs.pop(self.args.trusted_column)
        inputs.pop(ROW_KEY)
        return dict(inputs), label_batch(labels).ignoring(~trusted)

    # ------------------------------------------------------------------ loss
    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """As `Trainer.training_step`. The loss is a sum over the items of a batch, divided by those of all batches of
        the optimizer step."""
        with without_division(self.accelerator):
            return super().training_step(*args, **kwargs)

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, Any]:
        """The loss of the stage in training, and plain cross-entropy against the given labels in evaluation. Labels,
        flags, row numbers and votes never reach the model, so it never computes its own loss."""
        inputs = dict(inputs)
        labels = inputs.pop(self.label_name)
        trusted, rows = inputs.pop(self.args.trusted_column, None), inputs.pop(ROW_KEY, None)
        likelihood = inputs.pop(VOTES_KEY, None)
        training, last = model.training, self.first_stage is None
        takes_soft_labels = training and (not last or self.required_method.takes_soft_labels)
        soft = self.required_data.soft_labels if takes_soft_labels else None
        needs_numbers = training and last and rows is not None and self.required_method.needs_item_numbers
        numbers = self.required_data.item_numbers(rows, labels) if needs_numbers or soft is not None else None
        batch = label_batch(labels, trusted, numbers if needs_numbers else None, likelihood)
        if soft is not None and numbers is not None:
            batch = soft.batch(batch, numbers)
        weights = self.item_weights(model, inputs, batch) if training and last else None
        outputs = model(**inputs)
        logits = logits_of(outputs)
        if logits.shape[:-1] == (*batch.shape, 1):  # as of a video classifier, for its one clip per row
            logits = logits.squeeze(-2)
        if not training:
            loss = batch.cross_entropy(logits).sum() / batch.counted.sum().clamp(min=1)
            return (loss, _with_loss(outputs, loss, self._default_metrics)) if return_outputs else loss
        if logits.shape[:-1] != batch.shape:
            raise ValueError(
                f"the model returns logits of shape {tuple(logits.shape)} for labels of shape {tuple(labels.shape)}: "
                "one row of logits per label is needed."
            )
        losses = self.required_method.item_losses(logits, batch) if last else batch.cross_entropy(logits)
        if weights is not None:
            losses = losses * weights
        total = losses.sum()
        if not torch.isfinite(total):
            raise FloatingPointError(self._explain_non_finite(logits))
        if num_items_in_batch is None:
            num_items_in_batch = batch.counted.sum()
        loss = total / torch.as_tensor(num_items_in_batch, device=total.device).clamp(min=1)
        if self.args.average_tokens_across_devices:
            # Gradients are averaged over the processes, but the count is of all of them.
            loss = loss * self.accelerator.num_processes
        return (loss, _with_loss(outputs, loss, self._default_metrics)) if return_outputs else loss

    def item_weights(self, model: torch.nn.Module, inputs: dict, batch: LabelBatch) -> torch.Tensor | None:
        """Weights of the items' losses in the last stage; `None` if all are 1."""
        return self.required_method.item_weights(self, model, inputs, batch)

    def _explain_non_finite(self, logits: torch.Tensor) -> str:
        values = "NaN" if torch.isnan(logits).any() else "infinite values"
        where = "logits" if not torch.isfinite(logits).all() else "loss"
        saves = self.args.save_strategy != "no"
        intact = f", and the last checkpoint in {self.args.output_dir} is intact" if saves else ""
        return (
            f"the {where} contain {values} at step {self.state.global_step} of {self.stage_name}; training stopped"
            f"{intact}. A lower learning rate, a warm-up or fp32 usually helps; also check the inputs for bad values."
        )

    def _get_num_items_in_batch(self, batch_samples: list, device: torch.device) -> torch.Tensor | int | None:
        # `Trainer` counts the entries of "labels" that are not -100: give it one entry per item.
        batches = [label_batch(batch[self.label_name]) for batch in batch_samples if self.label_name in batch]
        batch_samples = [{"labels": torch.where(batch.counted, 0, IGNORED_LABEL)} for batch in batches]
        return super()._get_num_items_in_batch(batch_samples, device)

    # ------------------------------------------------------------------ evaluation
    def prediction_step(self, model: torch.nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> tuple:
        """As `Trainer.prediction_step`, without flags: evaluation uses the given labels of all rows."""
        hidden = (self.args.trusted_column, ROW_KEY, VOTES_KEY)
        return super().prediction_step(model, {k: v for k, v in inputs.items() if k not in hidden}, *args, **kwargs)

    def evaluate(self, eval_dataset: Any = None, *args: Any, **kwargs: Any) -> dict[str, float]:
        """As `Trainer.evaluate`. Without a dataset, held-out trusted rows are evaluated too (`eval_trusted_…`)."""
        self._evaluates_trusted = eval_dataset is None and self.trusted_eval_dataset is not None
        try:
            return super().evaluate(eval_dataset, *args, **kwargs)
        finally:
            self._evaluates_trusted = False

    def evaluation_loop(self, dataloader: Any, description: str, *args: Any, **kwargs: Any) -> Any:
        """As `Trainer.evaluation_loop`, with the metrics of held-out trusted rows added."""
        output = self._evaluation_loop(dataloader, description, *args, **kwargs)
        if self._evaluates_trusted and self.trusted_eval_dataset is not None:
            kwargs["metric_key_prefix"] = f"{kwargs.get('metric_key_prefix', 'eval')}_{TRUSTED_SET}"
            trusted = self.get_test_dataloader(self.trusted_eval_dataset)
            output.metrics.update(self._evaluation_loop(trusted, description, *args, **kwargs).metrics)
        return output

    def _evaluation_loop(self, dataloader: Any, description: str, *args: Any, **kwargs: Any) -> Any:
        """For the default accuracy only the predicted classes are gathered, not the logits."""
        if not self._default_metrics or description != "Evaluation" or self.preprocess_logits_for_metrics is not None:
            return super().evaluation_loop(dataloader, description, *args, **kwargs)
        self.preprocess_logits_for_metrics = _predicted_classes
        try:
            return super().evaluation_loop(dataloader, description, *args, **kwargs)
        finally:
            self.preprocess_logits_for_metrics = None

    # ------------------------------------------------------------------ saving
    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        """As `Trainer._save`, with the arguments as JSON in place of a pickle, and the record of the run in
        checkpoints."""
        args = self.args
        try:
            # `Trainer` pickles the arguments here. A crash right after that must not leave a token on disk.
            stand_in: Any = UnpicklableArguments(args)
            self.args = stand_in
            super()._save(output_dir, state_dict)
        finally:
            self.args = args
        if self.args.should_save:
            folder = output_dir if output_dir is not None else str(self.args.output_dir)
            self.args.write_json(folder)
            if self.is_in_train:
                write_record(folder, self.run_record())


def _with_loss(outputs: Any, loss: torch.Tensor, logits_first: bool) -> Any:
    """Outputs as `Trainer` expects them from a model that computed its loss: a tuple starts with the loss. `Trainer`
    uses the values of a dictionary in their order, and the default accuracy takes the first one as logits."""
    if isinstance(outputs, torch.Tensor):
        return {"logits": outputs}
    if isinstance(outputs, dict) and logits_first:
        return {"logits": outputs["logits"], **{name: value for name, value in outputs.items() if name != "logits"}}
    return (loss, *outputs) if isinstance(outputs, tuple) else outputs


def _has_transform(dataset: datasets.Dataset) -> bool:
    return dataset.format["type"] == "custom"


def _predicted_classes(logits: Any, labels: Any) -> torch.Tensor:
    predicted = logits_of(logits).argmax(dim=-1)
    return predicted if labels is None or predicted.numel() != labels.numel() else predicted.view(labels.shape)


class Accuracy:
    """Share of correct classes among the labels that are not -100; with `batch_eval_metrics`, over all batches."""

    def __init__(self) -> None:
        self.correct = self.total = 0

    def __call__(self, prediction: EvalPrediction, compute_result: bool = True) -> dict[str, float]:
        predictions: Any = prediction.predictions
        if isinstance(predictions, list):  # one entry per batch, from `eval_do_concat_batches=False`
            for of_batch, labels in zip(predictions, prediction.label_ids, strict=True):
                self._add(of_batch, labels)
        else:
            self._add(predictions, prediction.label_ids)
        if not compute_result:
            return {}
        correct, total, self.correct, self.total = self.correct, self.total, 0, 0
        return {"accuracy": correct / total} if total else {}

    def _add(self, predictions: Any, labels: Any) -> None:
        # Of several gathered outputs, the first.
        predictions, labels = (
            torch.as_tensor(values[0] if isinstance(values, (tuple, list)) else values)
            for values in (predictions, labels)
        )
        if predictions.dim() > labels.dim():
            predictions = predictions.argmax(dim=-1).view(labels.shape)
        counted = label_batch(labels).counted
        self.correct += int((predictions == labels)[counted].sum())
        self.total += int(counted.sum())
