# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Everything before the last stage: the earlier trainings, and what the method makes of them."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import set_seed
from transformers.trainer_callback import ProgressCallback
from transformers.utils import logging

from glc_hf.matrix import MATRIX_FILE, CorruptionMatrix
from glc_hf.methods.base import Stage
from glc_hf.training.inference import TrainedStages
from glc_hf.training.item_trainer import CorrectedTrainer
from glc_hf.training.resume import KeptWeights, ResumePoint, RunFolder


if TYPE_CHECKING:
    from glc_hf.training.config import GLCConfig
    from glc_hf.training.trainer import GLCTrainer
    from glc_hf.training.training_data import TrainingData


logger = logging.get_logger(__name__)


@dataclass
class FinishedStage:
    """A trained stage, for other methods that start alike."""

    weights: dict[str, torch.Tensor]
    history: list[dict[str, Any]]


class FirstStages:
    """
    Runs the earlier stages of a [`GLCTrainer`]'s method, or takes them from where they are already.

    Args:
        parent ([`GLCTrainer`]): The trainer of the last stage; its model holds the initial weights.
        run ([`RunFolder`]): The folder of the run.
        point ([`ResumePoint`], *optional*): Where a resumed run goes on.
    """

    def __init__(self, parent: GLCTrainer, run: RunFolder, point: ResumePoint | None) -> None:
        self.parent = parent
        self.method = parent.method
        self.run_folder = run
        self.point = point
        self.history: list[dict[str, Any]] = []
        self.trainers: list[StageTrainer] = []

    def run(self, ignore_keys: list[str] | None) -> str | None:
        """Leaves the method with its estimate and the parent's model ready to start; returns the checkpoint that the
        last stage goes on from, if any."""
        checkpoint = self.point.checkpoint if self.point is not None and self.point.stage == 0 else None
        if self.point is None or self.point.stage > 0 or not self._take_estimate():
            for number, stage in enumerate(self.method.first_stages(), start=1):
                self._run_stage(number, stage, ignore_keys)
            self._estimate()
        # The stages' trainers go with this object; `Trainer.train` collects what they leave.
        return checkpoint

    def _take_estimate(self) -> bool:
        """Whether the estimate of an interrupted run could be taken over."""
        history = self.run_folder.load_estimate(self.method, self.parent.run_record())
        checkpoint = self.point.checkpoint
        if history is None and checkpoint is not None and not self.method.state_names:
            # A checkpoint moved elsewhere, without its run: the matrix beside the weights is all that is needed.
            if (Path(checkpoint) / MATRIX_FILE).exists():
                self.method.matrix = CorruptionMatrix.from_pretrained(checkpoint)
            history = []
        if history is None:
            return False
        if checkpoint is not None and (Path(checkpoint) / MATRIX_FILE).exists():
            self.method.take_refined(CorruptionMatrix.from_pretrained(checkpoint))
        stages = self.method.first_stages()
        if checkpoint is None and stages and self.method.last_stage().start == "previous":
            kept = self._kept(len(stages))
            if kept is None:
                return False  # a complete run whose checkpoints are gone
            self.parent.model.load_state_dict(kept.weights)
        self.history = history
        return True

    def _run_stage(self, number: int, stage: Stage, ignore_keys: list[str] | None) -> None:
        from glc_hf.training.probe import ProbeTrainer

        kind = ProbeTrainer if stage.mode == "probe" else StageTrainer
        trainer = kind(self.parent, number, stage, self._model_for(stage))
        self.trainers.append(trainer)
        shared = self.parent.shared_stages
        if shared is not None and stage in shared:
            trainer.take_weights(shared[stage].weights)
            self.history += shared[stage].history
            self._keep(trainer, number, shared[stage].weights, shared[stage].history)
            return
        kept = self._kept(number) if self.point is not None else None
        if kept is not None:
            trainer.take_weights(kept.weights)
            self.history += kept.history
            return
        logger.info(f"***** {trainer.stage_name} *****")
        set_seed(trainer.args.seed)
        goes_on = self.point is not None and self.point.stage == number
        trainer.train(self.point.checkpoint if goes_on else None, ignore_keys_for_eval=ignore_keys)
        with _as_it_was(trainer):
            self._evaluate(trainer, ignore_keys)
        self.history += trainer.state.log_history
        weights = trainer.stage_weights() if self.parent.keeps_state or shared is not None else None
        if shared is not None and stage.start == "initial":
            shared[stage] = FinishedStage({k: v.cpu().clone() for k, v in weights.items()}, trainer.state.log_history)
        self._keep(trainer, number, weights, trainer.state.log_history)

    def _keep(
        self,
        trainer: StageTrainer,
        number: int,
        weights: dict[str, torch.Tensor] | None,
        history: list[dict[str, Any]],
    ) -> None:
        if not self.parent.keeps_state:
            return
        if trainer.args.should_save:
            self.run_folder.save_weights(f"stage{number}", weights, self.parent.run_record()["run"], history)
        trainer.accelerator.wait_for_everyone()

    def _kept(self, number: int) -> KeptWeights | None:
        return self.run_folder.load_weights(f"stage{number}", self.parent.run_record()["run"])

    def _estimate(self) -> None:
        parent = self.parent
        # Rows may be read through random crops: the draws must not depend on whether a stage was trained just now.
        set_seed(parent.args.seed)
        self.method.estimate(
            TrainedStages(
                parent.training_data, self.trainers, parent.accelerator, parent.num_labels, parent.class_names
            )
        )
        _warn_if_singular(self.method.matrix)
        if self.trainers and self.method.last_stage().start == "previous":
            parent.model.load_state_dict(self.trainers[-1].stage_weights())
        if parent.keeps_state:
            if parent.args.should_save:
                self.run_folder.save_estimate(self.method, parent.run_record(), self.history)
            parent.accelerator.wait_for_everyone()

    def _model_for(self, stage: Stage) -> torch.nn.Module:
        model = copy.deepcopy(self.parent.model)
        if stage.start == "previous" and self.trainers:
            model.load_state_dict(self.trainers[-1].stage_weights())
        return model

    @staticmethod
    def _evaluate(trainer: StageTrainer, ignore_keys: list[str] | None) -> None:
        """The accuracy before correction, unless the stage's last step was evaluated already."""
        if trainer.eval_dataset is None or not trainer.args.evaluate_stages:
            return
        step, name = trainer.state.global_step, f"{trainer.prefix}_eval_loss"
        done = any(entry.get("step") == step and name in entry for entry in trainer.state.log_history)
        if not done or trainer.args.load_best_model_at_end:
            trainer.evaluate(ignore_keys=ignore_keys)


@contextmanager
def _as_it_was(trainer: StageTrainer) -> Iterator[None]:
    """`bf16_full_eval` and `fp16_full_eval` leave the model in that precision: what was learned is put back."""
    args = trainer.args
    if not (args.bf16_full_eval or args.fp16_full_eval) or trainer.is_fsdp_enabled:
        yield
        return
    kept = {name: tensor.detach().clone() for name, tensor in _tensors(trainer.model)}
    yield
    for name, tensor in _tensors(trainer.model):
        tensor.data = kept[name]


def _tensors(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _warn_if_singular(matrix: CorruptionMatrix | None) -> None:
    pairs = matrix.indistinguishable_classes() if matrix is not None else []
    every_pair = matrix.num_labels * (matrix.num_labels - 1) // 2 if matrix is not None else 0
    if len(pairs) == every_pair > 1:
        logger.warning(
            "the corruption matrix has the same row for every class: stage 1 has hardly learned more than how "
            "frequent the labels are, or they say nothing of the classes. Train it longer, or at a higher learning "
            "rate: until then neither the correction nor an audit means anything."
        )
    elif pairs:
        named = ", ".join(f"{matrix.name_of(i)}/{matrix.name_of(j)}" for i, j in pairs[:5])
        more = f" and {len(pairs) - 5} more pairs" if len(pairs) > 5 else ""
        logger.warning(
            f"the corruption matrix is close to singular: the noisy labels of {named}{more} look alike, so only "
            "trusted rows can part these classes. More trusted rows of them, or a longer stage 1, may help."
        )


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
    if stage.mode == "short":
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
