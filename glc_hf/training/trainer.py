# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""GLCTrainer: every stage of a method behind one `train()`."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from functools import cached_property
from typing import Any

import datasets
import torch
from transformers import TrainerCallback, set_seed
from transformers.trainer_utils import TrainOutput
from transformers.utils import logging

from glc_hf.hold_out import evaluation_sets, held_out_trusted_rows
from glc_hf.hub.model_card import ModelCardCallback
from glc_hf.hub.push import Publishing
from glc_hf.labels.columns import label_names_of
from glc_hf.matrix import CorruptionMatrix
from glc_hf.methods import get_method
from glc_hf.methods.base import Batch, Method, Stage
from glc_hf.training.checks import (
    check_arguments,
    check_devices,
    check_evaluation_labels,
    check_matrix,
    check_matrix_names,
    check_model,
    freeze_parameters,
)
from glc_hf.training.config import GLCConfig
from glc_hf.training.inference import Refinement
from glc_hf.training.item_trainer import CorrectedTrainer
from glc_hf.training.probe import classifiers_of
from glc_hf.training.resume import ResumePoint, RunFolder, check_record, digest_of, read_record, resume_point_at
from glc_hf.training.stages import FinishedStage, FirstStages, max_steps_for, name_progress_bar
from glc_hf.training.training_data import TrainingData, training_data
from glc_hf.version import __version__


logger = logging.get_logger(__name__)


class GLCTrainer(Publishing, CorrectedTrainer):
    """
    A `Trainer` whose model ignores label noise, by the method that `args.method` names.

    With the default method, Gold Loss Correction, `train()` does what the paper describes: stage 1 trains on the
    untrusted rows, the corruption matrix is estimated from the trusted ones, and stage 2 trains a model from the same
    initial weights on all rows with the corrected loss. This object is the trainer of the last stage; earlier stages
    run in trainers of their own.

    Args:
        model, args, data_collator, train_dataset, eval_dataset, processing_class, model_init, compute_metrics,
        callbacks, optimizer_cls_and_kwargs, preprocess_logits_for_metrics:
            As in `Trainer`. `args` is a [`GLCConfig`], and `train_dataset` has the boolean column
            `args.trusted_column`. `compute_metrics` defaults to accuracy. Callbacks run in every stage: the earlier
            ones get shallow copies, whose `args.output_dir` ends in `stage1`; a trainer that a callback holds on to is
            the last stage's, whose model is not the one being trained then.
        corruption_matrix ([`CorruptionMatrix`], *optional*):
            A known matrix: it is used as it is, and no first stage is trained.

    After `train()`, `corruption_matrix` holds the matrix that was used, `save_model` writes it and a model card beside
    the weights, and the model is a plain one that `from_pretrained` and `pipeline` load without this library;
    `push_to_hub` sends all of it in one commit, and `audit` says which labels of a dataset look wrong.
    """

    _tag_names = ["glc_hf", "label-noise"]  # noqa: RUF012  (the name Trainer looks for)

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        args: GLCConfig | None = None,
        data_collator: Callable | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        model_init: Callable | None = None,
        compute_loss_func: Callable | None = None,
        compute_metrics: Callable | None = None,
        callbacks: list | None = None,
        optimizers: tuple = (None, None),
        optimizer_cls_and_kwargs: tuple | None = None,
        preprocess_logits_for_metrics: Callable | None = None,
        corruption_matrix: CorruptionMatrix | None = None,
    ) -> None:
        args = check_arguments(args, optimizers, compute_loss_func)
        method_class = get_method(args.method)
        columns = {"label_column": args.label_column, "trusted_column": args.trusted_column}
        held_out = held_out_trusted_rows(train_dataset, args.trusted_eval_fraction, seed=args.seed, **columns)
        eval_dataset, trusted_eval_dataset = evaluation_sets(eval_dataset, train_dataset, held_out, **columns)
        super().__init__(
            model=model,
            args=args,
            data_collator=data_collator,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            model_init=model_init,
            compute_metrics=compute_metrics,
            callbacks=callbacks,
            optimizer_cls_and_kwargs=optimizer_cls_and_kwargs,
            preprocess_logits_for_metrics=preprocess_logits_for_metrics,
        )
        self.trusted_eval_dataset = trusted_eval_dataset
        check_devices(args, self.accelerator)
        self.num_labels = check_model(self.model)
        self._given_matrix = check_matrix(corruption_matrix, self.num_labels)
        self.training_data: TrainingData | None = None
        self.class_names: list[str] | None = None
        # Stages that several trainers share; see `compare_methods`.
        self.shared_stages: dict[Stage, FinishedStage] | None = None
        self.method: Method | None = None
        self._stage_history: list[dict[str, Any]] = []
        self._run_id: str | None = None
        if train_dataset is not None:
            self.training_data = training_data(train_dataset, args, self.num_labels, method_class, held_out)
            self.class_names = label_names_of(train_dataset, self.training_data.label_column, self.model)
            check_matrix_names(self._given_matrix, self.class_names)
            check_evaluation_labels(self.eval_dataset, self.training_data.label_column, self.num_labels)
            self._make_method().prepare_model(self.model)
            if any(stage.mode == "probe" for stage in self.method.first_stages()):
                classifiers_of(self.model, self.num_labels)
        self.add_callback(_StageHistory(self))
        self.add_callback(Refinement(self))
        self.model_card = ModelCardCallback(self)
        self.add_callback(self.model_card)

    # ------------------------------------------------------------------ what it found
    @property
    def corruption_matrix(self) -> CorruptionMatrix | None:
        """The matrix given, or estimated by `train()`; `None` before that and for methods that use none."""
        return self.method.matrix if self.method is not None else self._given_matrix

    @property
    def num_stages(self) -> int:
        """How many trainings `train()` runs."""
        return len(self.method.first_stages()) + 1

    def _make_method(self) -> Method:
        if self.num_labels is None:
            raise ValueError(
                "the number of classes can't be read off the model: give it a `config.num_labels` (or `num_classes`)."
            )
        given = self._given_matrix
        if given is not None and given.label_names is None and self.class_names is not None:
            given = given.with_names(self.class_names)
        self.method = get_method(self.args.method)(self.args, self.num_labels, given)
        self.training_data.check(self.method)
        return self.method

    # ------------------------------------------------------------------ the last stage
    @property
    def stage_name(self) -> str:  # type: ignore[override]
        """The stage in messages and on the progress bar."""
        return f"stage {self.num_stages} of {self.num_stages} ({self.args.method})"

    @property
    def stage_items(self) -> str:  # type: ignore[override]
        """The labels that carry loss in the last stage."""
        return self.method.last_stage().items

    def _training_data(self) -> Any:
        share = self.args.trusted_share if self.method.upsamples_trusted else 0.0
        return self.training_data.for_training(self, self.method.last_stage(), share)

    def _item_losses(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        return self.method.item_losses(logits, batch)

    def _item_numbers(self, rows: torch.Tensor | None, labels: torch.Tensor) -> torch.Tensor | None:
        if rows is None or not self.method.needs_item_numbers:
            return None
        return self.training_data.item_numbers(rows, labels)

    def _item_weights(self, model: torch.nn.Module, inputs: dict, batch: Batch) -> torch.Tensor | None:
        return self.method.item_weights(self, model, inputs, batch)

    # ------------------------------------------------------------------ all stages
    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> TrainOutput:
        """
        Runs every stage of the method.

        Args:
            resume_from_checkpoint (`bool` or `str`, *optional*):
                `True` goes on from the furthest complete checkpoint of any stage in `output_dir` (and starts from the
                beginning, with a warning, where there is none); a path may be a checkpoint of either stage.
            trial, ignore_keys_for_eval: As in `Trainer.train`.

        Returns:
            `TrainOutput`: Of the last stage; its metrics hold the earlier stages' too, as `stage1_…`.
        """
        if self.training_data is None:
            raise ValueError("training needs a train_dataset.")
        if trial is not None:
            self._hp_search_setup(trial)
        self.run_dir = self._get_output_dir(trial)
        model_init = self._start_from_initial_weights(trial)
        method = self._make_method()
        method.prepare_model(self.model)
        point = self._find_resume_point(resume_from_checkpoint)
        run = RunFolder(self.run_dir) if point is None or self.keeps_state else point.run
        self._restore_or_keep_initial_weights(run, point)
        earlier = FirstStages(self, run, point)
        checkpoint = earlier.run(ignore_keys_for_eval)
        self._stage_history = earlier.history
        del earlier
        max_steps = self.args.max_steps
        try:
            self.model_init = None  # the weights are in place; `Trainer.train` would draw new ones
            self.args.max_steps = max_steps_for(self, method.last_stage())
            name_progress_bar(self)
            logger.info(f"***** {self.stage_name} *****")
            set_seed(self.args.seed)
            output = super().train(checkpoint, trial, ignore_keys_for_eval)
        finally:
            self.model_init, self.args.max_steps = model_init, max_steps
        if self.keeps_state and self.args.should_save:
            run.finish()
        return TrainOutput(output.global_step, output.training_loss, {**self.stage_metrics(), **output.metrics})

    def _start_from_initial_weights(self, trial: Any) -> Callable | None:
        """A plain, unprepared model to start every stage from, and no optimizer; returns `model_init`."""
        if self.model_init is not None:
            set_seed(self.args.seed)
            self.model = self.call_model_init(trial)
            if self.place_model_on_device:
                self._move_model_to_device(self.model, self.args.device)
        else:
            _undo_preparation(self.model)
        self.model_wrapped = self.model
        self.optimizer = self.lr_scheduler = None
        if self.accelerator._models:
            self.accelerator.free_memory()
        freeze_parameters(self.model, self.args.freeze)
        return self.model_init

    def stage_metrics(self) -> dict[str, float]:
        """The last value of everything the earlier stages logged, under their prefix."""
        metrics: dict[str, float] = {}
        for entry in self._stage_history:
            metrics.update({name: value for name, value in entry.items() if name.startswith("stage")})
        return metrics

    # ------------------------------------------------------------------ going on after a crash
    @property
    def keeps_state(self) -> bool:
        """Whether the run can be resumed: it writes checkpoints."""
        return self.args.save_strategy != "no"

    @cached_property
    def _matrix_digest(self) -> str | None:
        return digest_of(self._given_matrix)

    def run_record(self) -> dict[str, Any]:
        """What a checkpoint of this run belongs to; resuming needs the same."""
        return {
            "glc_hf": __version__,
            "run": self._run_id,
            "method": self.args.method,
            "seed": self.args.seed,
            "num_labels": self.num_labels,
            "data": self.training_data.fingerprint() if self.training_data is not None else None,
            "matrix": self._matrix_digest,
            "stages": [str(stage) for stage in self.method.first_stages()] if self.method is not None else None,
            "processes": self.accelerator.num_processes,
        }

    def _find_resume_point(self, resume: str | bool | None) -> ResumePoint | None:
        self._run_id = uuid.uuid4().hex
        run, point = RunFolder(self.run_dir), None
        if resume:
            point = self._look_for_resume_point(run, resume)
        self.accelerator.wait_for_everyone()  # all have looked before one writes
        if self.keeps_state and self.args.should_save:
            run.make_folder_of(self.run_record(), point.run if point is not None else None)
        self.accelerator.wait_for_everyone()
        return point

    def _look_for_resume_point(self, run: RunFolder, resume: str | bool) -> ResumePoint | None:
        processes = self.accelerator.num_processes
        if isinstance(resume, (str, os.PathLike)):
            point = resume_point_at(str(resume), processes)
        else:
            point = run.find_resume_point(len(self.method.first_stages()), processes)
        if point is None:
            logger.warning(f"there is no checkpoint to resume from in {self.run_dir}; starting from the beginning.")
            return None
        belongs_to = point.checkpoint or point.run.state
        check_record(belongs_to, self.run_record())
        found = read_record(belongs_to)
        self._run_id = found["run"]
        if point.checkpoint is not None and found.get("processes", processes) != processes:
            logger.warning(
                f"{point.checkpoint} was written by {found['processes']} processes, and there are {processes} now: "
                "the run goes on from it, but with other random states, so not to the very same weights."
            )
        return point

    def _restore_or_keep_initial_weights(self, run: RunFolder, point: ResumePoint | None) -> None:
        kept = run.load_weights("initial", self._run_id) if point is not None else None
        if kept is not None:
            self.model.load_state_dict(kept.weights)
        elif self.keeps_state and self.args.should_save and (point is None or point.checkpoint is None or point.stage):
            run.save_weights("initial", self.model.state_dict(), self._run_id)
        self.accelerator.wait_for_everyone()

    # ------------------------------------------------------------------ using it
    def audit(self, dataset: datasets.Dataset) -> datasets.Dataset:
        """
        Which labels of a dataset look wrong, and what they should be: the posterior over true labels, p(true = y | x,
        given) ∝ g(x)_y · Ĉ[y, given].

        Args:
            dataset (`datasets.Dataset`):
                Rows as `train_dataset` has them: inputs, labels and, if some are trusted, their flags. The rows that
                were trained on, or any others of the same noisy source.

        Returns:
            `datasets.Dataset`: The same rows in the same order, with the columns `given_label`, `suggested_label` (the
            most probable one) and `p_wrong` (the probability that the given label is not the true one; 0 for trusted
            rows). Lists where labels are lists; a token labelled -100 keeps it.
        """
        from glc_hf.audit.findings import audit_rows

        return audit_rows(self, dataset)

    # ------------------------------------------------------------------ saving
    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        """Weights and processing class as `Trainer`, the matrix and the card beside them, the arguments as JSON."""
        super()._save(output_dir, state_dict)
        folder = output_dir if output_dir is not None else self.args.output_dir
        if self.args.should_save and self.corruption_matrix is not None:
            self.corruption_matrix.save_pretrained(folder)
        if self.args.should_save:
            self.model_card.save(folder)


def _undo_preparation(model: torch.nn.Module) -> None:
    """Gives a model that accelerate prepared before (by `evaluate`, say) its own forward back. A deep copy would call
    the original through the prepared one; accelerate's own `unwrap_model` takes off the class's decorators as well."""
    model.__dict__.pop("_is_accelerate_prepared", None)  # else it would not be prepared again
    original = model.__dict__.pop("_original_forward", None)
    if original is None:
        return
    if getattr(original, "__func__", None) is type(model).forward:
        del model.forward
    else:
        model.forward = original


class _StageHistory(TrainerCallback):
    """Puts the earlier stages' logs in front of the last stage's, so that its saved state tells of all of them."""

    def __init__(self, trainer: GLCTrainer) -> None:
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state is self.trainer.state and not any(
            name.startswith("stage1_") for entry in state.log_history for name in entry
        ):
            state.log_history[:0] = self.trainer._stage_history
