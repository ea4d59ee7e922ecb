# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The trainer of an earlier stage."""

from __future__ import annotations

import copy
import os
from typing import TYPE_CHECKING, Any

import torch
from transformers.trainer_callback import ProgressCallback

from glc_hf.methods.base import Stage
from glc_hf.training.corrected import CorrectedTrainer


if TYPE_CHECKING:
    from glc_hf.training.config import GLCConfig
    from glc_hf.training.data import TrainingData
    from glc_hf.training.trainer import GLCTrainer


class StageTrainer(CorrectedTrainer):
    """
    Trains one earlier stage with plain cross-entropy on its items, on a model of its own.

    Everything the user gave the [`GLCTrainer`] applies here too; only what the stage changes differs. Its logs carry
    the stage's prefix (`stage1_loss`, `stage1_eval_accuracy`).
    """

    def __init__(self, parent: GLCTrainer, number: int, stage: Stage, model: torch.nn.Module) -> None:
        self.stage = stage
        self.stage_items = stage.items
        self.prefix = f"stage{number}"
        self.stage_name = f"stage {number} of {parent.num_stages} ({stage.items} labels)"
        self.training_data: TrainingData = parent.training_data
        self._record = parent.run_record()
        self._decay_parameter_names = parent.get_decay_parameter_names
        super().__init__(
            model=model,
            args=stage_arguments(parent, number, stage),
            data_collator=parent.data_collator.collator,
            train_dataset=parent.train_dataset,
            eval_dataset=parent.eval_dataset,
            processing_class=parent.processing_class,
            compute_metrics=None if parent._default_metrics else parent.compute_metrics,
            optimizer_cls_and_kwargs=_optimizer_of_stage(parent),
            preprocess_logits_for_metrics=parent.preprocess_logits_for_metrics,
        )
        self.trusted_eval_dataset = parent.trusted_eval_dataset
        # Shallow copies: callbacks keep their settings and start anew, and one that holds the trainer does not drag a
        # second model along.
        self.callback_handler.callbacks = [copy.copy(callback) for callback in parent.callback_handler.callbacks]
        name_progress_bar(self)
        self.args.max_steps = max_steps_for(self, stage)

    def _training_data(self) -> Any:
        return self.training_data.for_training(self, self.stage, trusted_share=0.0)

    def get_decay_parameter_names(self, model: torch.nn.Module) -> list[str]:
        """As the last stage's: what a subclass of [`GLCTrainer`] says holds for every stage."""
        return self._decay_parameter_names(model)

    def stage_weights(self) -> dict[str, torch.Tensor]:
        """What the stage has learned, whole and on every process; accelerate gathers what FSDP shared out on the main
        one alone."""
        if self.is_fsdp_enabled:
            from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

            return get_model_state_dict(self.model, options=StateDictOptions(full_state_dict=True))
        return self.accelerator.get_state_dict(self.model)

    def take_weights(self, weights: dict[str, torch.Tensor]) -> None:
        """Takes back what [`~StageTrainer.stage_weights`] gave."""
        self.model.load_state_dict(weights)

    def run_record(self) -> dict[str, Any]:
        """That of the whole run."""
        return self._record

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """As `Trainer`'s, each name with the stage's prefix."""
        super().log({f"{self.prefix}_{name}": value for name, value in logs.items()}, start_time)


def stage_arguments(parent: GLCTrainer, number: int, stage: Stage) -> GLCConfig:
    """The arguments of an earlier stage. A plain copy: `dataclasses.replace` would run `__post_init__` again, and the
    copy is made in `train()`, so that what a hyper-parameter search has set applies."""
    args = copy.copy(parent.args)
    args.output_dir = os.path.join(parent.run_dir, f"stage{number}")
    args.push_to_hub = False
    if args.stage1_num_train_epochs is not None:
        args.num_train_epochs = args.stage1_num_train_epochs
        args.max_steps = -1
    if args.stage1_max_steps is not None:
        args.max_steps = args.stage1_max_steps
    if args.stage1_learning_rate is not None:
        args.learning_rate = args.stage1_learning_rate
    if stage.way == "short":
        args.num_train_epochs *= args.stage1_fraction
        args.max_steps = max(1, round(args.max_steps * args.stage1_fraction)) if args.max_steps > 0 else -1
    return args


def _optimizer_of_stage(parent: GLCTrainer) -> tuple[type[torch.optim.Optimizer], dict[str, Any]] | None:
    """The optimizer that was given, at the earlier stages' own learning rate where they have one."""
    given, rate = parent.optimizer_cls_and_kwargs, parent.args.stage1_learning_rate
    if given is None or rate is None or "lr" not in given[1]:
        return given
    return given[0], {**given[1], "lr": rate}


def max_steps_for(trainer: CorrectedTrainer, stage: Stage) -> int:
    """`max_steps` that gives the stage at least its `min_updates`; unchanged (-1: by epochs) where it has enough."""
    args = trainer.args
    if stage.min_updates <= 0:
        return args.max_steps
    if args.max_steps > 0:
        return max(args.max_steps, stage.min_updates)
    rows = len(trainer._training_data())
    batch = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
    updates = (rows // batch if args.dataloader_drop_last else -(-rows // batch)) * args.num_train_epochs
    return stage.min_updates if updates < stage.min_updates else args.max_steps


class _NamedProgress(ProgressCallback):
    """The progress bar, with the stage in front."""

    stage_name = ""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        super().on_train_begin(args, state, control, **kwargs)
        if self.training_bar is not None:
            self.training_bar.set_description(self.stage_name)


def name_progress_bar(trainer: CorrectedTrainer) -> None:
    """Makes the trainer's own progress bar, if it has the usual one, say which stage runs."""
    callbacks = trainer.callback_handler.callbacks
    for place, callback in enumerate(callbacks):
        if type(callback) in (ProgressCallback, _NamedProgress):
            named = _NamedProgress(callback.max_str_len)
            named.stage_name = trainer.stage_name
            callbacks[place] = named
        elif hasattr(callback, "stage_name"):  # another bar, which asks for it
            callback.stage_name = trainer.stage_name
