# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`GLCTrainer`: every stage of a method behind one `train()`."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from transformers import Trainer, set_seed
from transformers.trainer_utils import TrainOutput
from transformers.utils import logging

from glc_hf import __version__
from glc_hf._compat import check_trainer, has_prepared_models, let_torch_load_on_numbered_cpu, undo_preparation
from glc_hf.audit.findings import GivenLabels
from glc_hf.audit.label_audit import AuditMixin
from glc_hf.correction.sources import SourceModel, SourceTable, judge_sources
from glc_hf.correction.verdict import Verdict, save_verdict
from glc_hf.data.python_rows import as_dataset
from glc_hf.hold_out import evaluation_sets, held_out_trusted_rows
from glc_hf.hub.model_card import ModelCardCallback
from glc_hf.hub.push import HubMixin
from glc_hf.labels.columns import label_names_of
from glc_hf.labels.encoding import encode_training_words
from glc_hf.matrix import CorruptionMatrix
from glc_hf.methods import get_method
from glc_hf.methods.base import ONE_SOURCE, Method, Stage
from glc_hf.methods.matrix_files import save_matrices
from glc_hf.run_files import locks_output_folder
from glc_hf.training.checks import (
    check_arguments,
    check_devices,
    check_evaluation_labels,
    check_head,
    check_matrix,
    check_matrix_names,
    check_model,
    check_overrides,
    check_padding,
    check_soft_labels,
    freeze_parameters,
    name_classes,
    use_pad_token,
)
from glc_hf.training.config import GLCConfig
from glc_hf.training.inference import RefinementCallback, TrainedStage, TrainedStages, infer
from glc_hf.training.probe import classifiers_of, embed, why_no_features
from glc_hf.training.resume import (
    ResumePoint,
    RunFolder,
    check_record,
    matrix_hash,
    read_record,
    resume_point_at,
)
from glc_hf.training.stage_trainer import StageTrainer
from glc_hf.training.stages import (
    FinishedStage,
    FirstStages,
    RunSpeed,
    StageHistory,
    max_steps_for,
    name_progress_bar,
    shorten,
)
from glc_hf.training.training_data import training_data
from glc_hf.voted.voted_rows import UNKNOWN_CLASSES, has_votes, label_by_probabilities, label_column_of
from glc_hf.voted.voted_streams import label_training_set


logger = logging.get_logger(__name__)
check_trainer(Trainer)


class GLCTrainer(AuditMixin, HubMixin, StageTrainer):
    """
    A `Trainer` for noisy labels, with the method that `args.method` names.

    With the default method, `auto`, and a pretrained network, `train()` first fits linear models on the features of
    the network, and estimates the corruption matrix with them. They decide whether the network then trains with
    estimated labels (to the end, or followed by the corrected loss or by the trusted rows) or with the corrected loss
    only. With other networks, and with `glc`, it does what the paper describes: stage 1 trains on the untrusted rows,
    the matrix is estimated from the trusted rows, and stage 2 trains a model from the same initial weights on all rows
    with the corrected loss.

    This object is the trainer of the last stage. Each first stage runs in another trainer of the same class, so that
    overrides in a subclass apply in every stage.

    Args:
        model, args, data_collator, train_dataset, eval_dataset, processing_class, model_init, compute_metrics,
        callbacks, optimizer_cls_and_kwargs, preprocess_logits_for_metrics:
            As in `Trainer`. `args` is a [`GLCConfig`], and `train_dataset` has the column `args.trusted_column`. It is
            a `Dataset` or `IterableDataset`, a torch dataset, a list of dicts or a data frame. Labels can be class
            names. `compute_metrics` defaults to accuracy. Callbacks run in every stage: first stages get shallow
            copies, and their `args.output_dir` ends in `stage1`.
        corruption_matrix ([`CorruptionMatrix`], *optional*):
            A known matrix. It is used as it is, without a first stage.

    After `train()`, `corruption_matrix` is the matrix that was used, `verdict` says whether correction helps, and
    `warnings` lists reasons not to rely on the run. `save_model` writes them and a model card beside the weights. The
    model is a plain one that `from_pretrained` and `pipeline` load without this library. `push_to_hub` uploads all of
    it in one commit. `audit` finds the labels of a dataset that look wrong, and `suggest` the rows to check next. With
    votes of several sources, `sources()` has the quality of each of them.
    """

    args: GLCConfig
    _tag_names = ["glc_hf", "label-noise"]  # noqa: RUF012  (the name that Trainer uses)

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
        check_overrides(type(self), GLCTrainer, args.stage1)
        if model is not None:
            check_head(model)
        method_class = get_method(args.method)
        train_dataset, soft = as_dataset(train_dataset, args), None
        if train_dataset is not None and args.soft_label_column is not None and not has_votes(args):
            classes = None if model is None else check_model(model, train_dataset)
            train_dataset, soft = label_by_probabilities(train_dataset, args, classes)
        label_column, words = label_column_of(train_dataset, args), None
        columns: dict[str, Any] = {"label_column": label_column, "trusted_column": args.trusted_column}
        if soft is None and not has_votes(args):
            train_dataset, words = encode_training_words(train_dataset, **columns, model=model)
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
        self._label_words = words
        if words is not None:
            name_classes(self.model, words)
        check_devices(args, self.accelerator)
        self.num_labels = check_model(self.model, train_dataset)
        use_pad_token(self.model, processing_class)
        evaluates = self.eval_dataset is not None or trusted_eval_dataset is not None
        self.single_rows = check_padding(self.model, args, evaluates)
        self.given_matrix = check_matrix(corruption_matrix, self.num_labels)
        self._label_sources: SourceModel | None = None
        self._judged: tuple[SourceModel, SourceTable] | None = None
        # Stages that several trainers share; see `compare_methods`.
        self.shared_stages: dict[Stage, FinishedStage] | None = None
        self._stage_history: list[dict[str, Any]] = []
        self._run_id: str | None = None
        if train_dataset is not None:
            voted = None
            if has_votes(args):
                voted = label_training_set(train_dataset, args, self.num_labels, self.model, held_out)
                train_dataset = self.train_dataset = voted.dataset
                self._label_sources = voted.model
            elif soft is not None and args.soft_label_column is not None:
                check_soft_labels(soft.shape[1], self.num_labels, args.soft_label_column)
            self.training_data = training_data(
                train_dataset, args, self.num_labels, method_class, held_out, voted, soft, label_column
            )
            self.class_names = label_names_of(train_dataset, self.training_data.label_column, self.model)
            check_matrix_names(self.given_matrix, self.class_names)
            self.eval_dataset = self._with_classes(self.eval_dataset)
            check_evaluation_labels(self.eval_dataset, self.training_data.label_column, self.num_labels)
            method = self._make_method()
            if any(stage.mode == "probe" for stage in method.first_stages()):
                classifiers_of(self.model, method.num_labels)
        self.add_callback(StageHistory(self))
        self.add_callback(RefinementCallback(self))
        self.model_card = ModelCardCallback(self)
        self.add_callback(self.model_card)

    # ------------------------------------------------------------------ the method and its matrix
    @property
    def corruption_matrices(self) -> dict[str, CorruptionMatrix]:
        """The matrix of each source of labels, given or estimated by `train()`; empty before that, and for methods
        without a matrix."""
        if self.method is not None:
            return dict(self.method.matrices)
        return {} if self.given_matrix is None else {ONE_SOURCE: self.given_matrix}

    @property
    def corruption_matrix(self) -> CorruptionMatrix | None:
        """The matrix of a single source, as in `corruption_matrices`; `None` if there is none."""
        return self.corruption_matrices.get(ONE_SOURCE)

    @property
    def warnings(self) -> list[str]:
        """Reasons not to rely on the last `train()`: classes that can't be separated, and classes with no or few
        trusted rows. `save_model` stores them, and the model card and `glc-hf audit` show them. They depend only on
        the method's estimate, so a resumed run has the same ones."""
        return [] if self.method is None else self.method.warnings()

    @property
    def verdict(self) -> Verdict | None:
        """Whether correction helps, and estimated accuracies on true labels: of this model, and of others that were
        trained for comparison. `None` before `train()`, and for methods that make no such estimate."""
        return None if self.method is None else self.method.verdict

    def sources(self) -> SourceTable:
        """
        The quality of each source of votes: how often it votes and is right, with whom it agrees, its most frequent
        errors, and whether it hurts. After `train()` it is based on what the method estimated, and before that on
        the votes alone.

        Returns:
            [`~glc_hf.correction.sources.SourceTable`]: One row per source, the best first. `print` shows it.
        """
        data = self.training_data
        if data is None or data.votes is None:
            raise ValueError(
                "there are no votes of several sources: name their columns with GLCConfig(source_columns=[…]), or one "
                "column of lists with votes_column=…"
            )
        model = self.required_method.sources or self._label_sources
        assert model is not None  # there are votes
        judged = self._judged
        if judged is None or judged[0] is not model:
            items, labels = data.numbers_of("trusted"), data.item_labels("trusted")
            judged = self._judged = model, judge_sources(data.votes, model, items, labels, self.class_names)
        return judged[1]

    def _make_method(self) -> Method:
        if self.num_labels is None:
            raise ValueError(UNKNOWN_CLASSES)
        given = self.given_matrix
        if given is not None and given.label_names is None and self.class_names is not None:
            given = given.with_names(self.class_names)
        data = self.required_data
        method = self.method = get_method(self.args.method)(self.args, self.num_labels, given)
        method.numbered = data.numbered
        method.votes = data.votes
        method.stream_sources = data.stream_sources
        method.has_trusted = data.votes is None or len(data.numbers_of("trusted")) > 0
        method.soft_labels = data.soft_labels
        if method.soft_labels is not None and not method.takes_soft_labels:
            what = "can't use soft labels: its last stage trains on the most probable class"
            logger.warning_once(f"method {self.args.method!r} {what}.")
        method.no_features = why_no_features(self.model, self.num_labels, self.accelerator)
        method.prepare_model(self.model)
        data.check(method)
        return method

    def estimation_run(self, stages: Sequence[TrainedStage]) -> TrainedStages:
        """The trained stages and the rows, for the method's estimate."""
        number = self.required_method.num_labels
        return TrainedStages(self.required_data, stages, self.accelerator, number, self.class_names)

    # ------------------------------------------------------------------ all stages
    @locks_output_folder
    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> TrainOutput:
        """
        Run every stage of the method.

        Args:
            resume_from_checkpoint (`bool` or `str`, *optional*):
                `True` resumes from the latest complete checkpoint of any stage in `output_dir`; if there is none, it
                starts from the beginning and logs a warning. A path can be a checkpoint of any stage.
            trial, ignore_keys_for_eval: As in `Trainer.train`.

        Returns:
            `TrainOutput`: That of the last stage. Its metrics include those of the first stages, as `stage1_…`. With
            several stages, `train_runtime` and the other speed metrics are those of the whole run, and
            `stage2_train_runtime`, … those of the last stage.
        """
        if self.training_data is None:
            raise ValueError("training needs a train_dataset.")
        if trial is not None:
            self._hp_search_setup(trial)
        self.run_dir = self._get_output_dir(trial)
        model_init = self._start_from_initial_weights(trial)
        method = self._make_method()
        self.speed = RunSpeed(self.num_stages) if method.first_stages() else None
        point = self._find_resume_point(resume_from_checkpoint)
        run = RunFolder(self.run_dir) if point is None or self.keeps_state else point.run
        first_stages = FirstStages(self, run, point)
        checkpoint = first_stages.run(ignore_keys_for_eval)
        self._stage_history = first_stages.history
        del first_stages  # frees the models of the first stages
        epochs, max_steps = self.args.num_train_epochs, self.args.max_steps
        no_model_init: Any = None
        try:
            self.model_init = no_model_init  # the weights are in place; `Trainer.train` would initialize them again
            shorten(self.args, self.stage.fraction)
            self.args.max_steps = max_steps_for(self)
            name_progress_bar(self)
            logger.info(f"***** {self.stage_name} *****")
            set_seed(self.args.seed)
            output = super().train(checkpoint, trial, ignore_keys_for_eval)
        finally:
            self.model_init, self.args.num_train_epochs, self.args.max_steps = model_init, epochs, max_steps
        if self.keeps_state and self.args.should_save:
            run.finish()
        speed = {} if self.speed is None else self.speed.metrics(output.metrics)
        metrics = {**self.stage_metrics(), **output.metrics, **speed}
        return TrainOutput(output.global_step, output.training_loss, metrics)

    def _start_from_initial_weights(self, trial: Any) -> Any:
        """Get a plain, unprepared model for all stages to start from, and no optimizer. Returns `model_init`."""
        if self.model_init is not None:
            set_seed(self.args.seed)
            self.model = self.call_model_init(trial)
            if self.place_model_on_device:
                self._move_model_to_device(self.model, self.args.device)
            if self._label_words is not None:
                name_classes(self.model, self._label_words)
        else:
            undo_preparation(self.model)
        self.model_wrapped = self.model
        self.optimizer = self.lr_scheduler = None
        if has_prepared_models(self.accelerator):
            self.accelerator.free_memory()
        freeze_parameters(self.model, self.args.freeze)
        use_pad_token(self.model, self.processing_class)
        return self.model_init

    def stage_metrics(self) -> dict[str, float]:
        """The last value of everything that the first stages logged, with their prefix."""
        metrics: dict[str, float] = {}
        for entry in self._stage_history:
            metrics.update({name: value for name, value in entry.items() if name.startswith("stage")})
        return metrics

    # ------------------------------------------------------------------ resume
    @property
    def keeps_state(self) -> bool:
        """Whether the run writes checkpoints and can be resumed."""
        return self.args.save_strategy != "no"

    @cached_property
    def _matrix_hash(self) -> str | None:
        return matrix_hash(self.given_matrix)

    def run_record(self) -> dict[str, Any]:
        return {
            "glc_hf": __version__,
            "run": self._run_id,
            "method": self.args.method,
            "seed": self.args.seed,
            "num_labels": self.num_labels,
            "data": self.training_data.fingerprint() if self.training_data is not None else None,
            "matrix": self._matrix_hash,
            "stages": [str(stage) for stage in self.method.first_stages()] if self.method is not None else None,
            "processes": self.accelerator.num_processes,
        }

    def _find_resume_point(self, resume: str | bool | None) -> ResumePoint | None:
        self._run_id = uuid.uuid4().hex
        run, point = RunFolder(self.run_dir), None
        if resume:
            let_torch_load_on_numbered_cpu()
            point = self._look_for_resume_point(run, resume)
        self.accelerator.wait_for_everyone()  # every process has looked before one of them writes
        if self.keeps_state and self.args.should_save:
            run.claim(self.run_record(), point.run if point is not None else None)
        self.accelerator.wait_for_everyone()
        return point

    def _look_for_resume_point(self, run: RunFolder, resume: str | bool) -> ResumePoint | None:
        processes = self.accelerator.num_processes
        point: ResumePoint | None
        if isinstance(resume, (str, os.PathLike)):
            point = resume_point_at(str(resume), processes)
        else:
            point = run.find_resume_point(self.num_stages - 1, processes)
        if point is None:
            logger.warning(f"there is no checkpoint to resume from in {self.run_dir}; starting from the beginning.")
            return None
        source = point.checkpoint or point.run.state
        check_record(source, self.run_record())
        record = read_record(source)
        self._run_id = record["run"]
        if point.checkpoint is not None and record.get("processes", processes) != processes:
            logger.warning(
                f"{point.checkpoint} was written by {record['processes']} processes and is resumed by {processes}: "
                "the random states differ, so the final weights will not be exactly the same."
            )
        return point

    # ------------------------------------------------------------------ what an audit needs
    def item_logits(self, labels: GivenLabels) -> torch.Tensor:
        """The logits of the rows of an audit, `(N, K)`, one row per label that is not -100."""
        rows = labels.rows
        view = self.without_unused_columns(labels.dataset, rows.label_column)
        logits = torch.cat([batch.logits for batch in infer(self, view, "all")])
        if len(logits) != rows.count("all"):
            raise ValueError(
                f"the model returned logits for {len(logits):,} labels, but column {rows.label_column!r} has "
                f"{rows.count('all'):,}: the collator or the transform drops labels."
            )
        broken = ~torch.isfinite(logits).all(dim=-1)
        if broken.any():
            row = rows.row_of(np.flatnonzero(broken.numpy())[:1])[0]
            raise FloatingPointError(
                f"the model returns NaN or infinite logits for {int(broken.sum()):,} of {len(logits):,} labels, first "
                f"in row {row}: its weights are damaged, or its training diverged. Restore them, or train again."
            )
        return logits

    def item_features(self, network: torch.nn.Module, labels: GivenLabels) -> Any:
        """The features of the same rows, `(N, D)`, from another network, which gets hooks that stay."""
        return embed(self, network, self.without_unused_columns(labels.dataset, labels.rows.label_column))

    def why_no_features(self) -> str | None:
        """Why the network can't compute features; `None` if it can."""
        return why_no_features(self.model, self.num_labels, self.accelerator)

    # ------------------------------------------------------------------ saving
    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        """Save weights and processing class as `Trainer`, and in the last stage the matrix and the card."""
        super()._save(output_dir, state_dict)
        folder = output_dir if output_dir is not None else str(self.args.output_dir)
        if self.first_stage is None and self.args.should_save:
            save_matrices(self.corruption_matrices, folder, None if self.method is None else self.method.sources)
            save_verdict(self.verdict, folder)
            self.model_card.save(folder)
