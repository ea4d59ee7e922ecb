# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The stages before the last one: their trainers, their training, and the method's estimate."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch
from transformers import TrainerCallback, set_seed
from transformers.integrations import TrackioCallback
from transformers.trainer_callback import ProgressCallback
from transformers.trainer_utils import speed_metrics
from transformers.utils import logging

from glc_hf.correction.reliability import few_rows_warning, singular_warning
from glc_hf.correction.verdict import load_verdict
from glc_hf.methods.base import Stage
from glc_hf.methods.matrix_files import load_matrices, load_sources
from glc_hf.training.checks import check_optimizer
from glc_hf.training.config import GLCConfig
from glc_hf.training.inference import TrainedStage
from glc_hf.training.probe import ProbeStage
from glc_hf.training.resume import ResumePoint, RunFolder, StoredWeights
from glc_hf.training.stage_trainer import StageTrainer


logger = logging.get_logger(__name__)


@dataclass
class FinishedStage:
    """A trained stage that other methods can reuse."""

    weights: dict[str, torch.Tensor]
    history: list[dict[str, Any]]


class GradientStage(TrainedStage):
    """A first stage that is trained by gradient descent."""

    def train(self, checkpoint: str | None, ignore_keys: list[str] | None) -> dict[str, float]:
        # Not the `train` of GLCTrainer or of a user's subclass, which runs all stages.
        return StageTrainer.train(self.trainer, checkpoint, ignore_keys_for_eval=ignore_keys).metrics

    def weights(self) -> dict[str, torch.Tensor]:
        """The full weights on every process; accelerate gathers sharded FSDP weights on the main process only."""
        trainer = self.trainer
        if trainer.is_fsdp_enabled:
            from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

            weights: dict[str, Any] = get_model_state_dict(
                trainer.model, options=StateDictOptions(full_state_dict=True)
            )
            return weights
        return trainer.accelerator.get_state_dict(trainer.model)

    def load_weights(self, weights: dict[str, torch.Tensor]) -> None:
        self.trainer.model.load_state_dict(weights)


class FirstStages:
    """
    Runs the first stages of a [`GLCTrainer`]'s method, or restores them.

    Args:
        parent ([`GLCTrainer`]): The trainer of the last stage. Its model has the initial weights.
        run ([`RunFolder`]): The folder of the run.
        point ([`ResumePoint`], *optional*): Where the run resumes.
    """

    def __init__(self, parent: Any, run: RunFolder, point: ResumePoint | None) -> None:
        self.parent = parent
        self.method = parent.method
        self.run_folder = run
        self.point = point
        self.history: list[dict[str, Any]] = []
        self.stages: list[ProbeStage | GradientStage] = []

    def run(self, ignore_keys: list[str] | None) -> str | None:
        """Leave the method with its estimate and the parent's model with the weights to start from. Returns the
        checkpoint that the last stage resumes from, if there is one."""
        self._restore_or_store_initial_weights()
        checkpoint = self.point.checkpoint if self.point is not None and self.point.stage == 0 else None
        if self.point is None or self.point.stage > 0 or not self._restore_estimate():
            for number, stage in enumerate(self.method.first_stages(), start=1):
                self._run_stage(number, stage, ignore_keys)
            self._estimate()
            if checkpoint is not None:  # moved without its run
                self._restore_checkpoint(checkpoint)
        return checkpoint

    def _restore_or_store_initial_weights(self) -> None:
        parent, point = self.parent, self.point
        run = parent.run_record()["run"]
        stored = self.run_folder.load_weights("initial", run) if point is not None else None
        if stored is not None:
            parent.model.load_state_dict(stored.weights)
        elif (
            parent.keeps_state
            and parent.args.should_save
            and (point is None or point.checkpoint is None or point.stage)
        ):
            self.run_folder.save_weights("initial", parent.model.state_dict(), run)
        parent.accelerator.wait_for_everyone()

    def _restore_estimate(self) -> bool:
        """Restore the estimate of an interrupted run. Returns whether that was possible."""
        history = self.run_folder.load_estimate(self.method, self.parent.run_record())
        checkpoint = None if self.point is None else self.point.checkpoint
        if history is None and checkpoint is not None and not self.method.state_names:
            # A checkpoint that was moved without its run: it needs only the matrices beside its weights.
            self.method.matrices = load_matrices(checkpoint)
            history = []
        if history is None:
            return False
        if checkpoint is not None:
            self._restore_checkpoint(checkpoint)
        stages = self.method.first_stages()
        if checkpoint is None and stages and self.method.last_stage().start == "previous":
            trained = [number for number, stage in enumerate(stages, start=1) if stage.mode != "probe"]
            stored = self._stored(trained[-1])
            if stored is None:
                return False  # a complete run without its checkpoints
            self.parent.model.load_state_dict(stored.weights)
        self.history = history
        return True

    def _restore_checkpoint(self, checkpoint: str) -> None:
        """Restore what the last stage has refined since the estimate."""
        verdict = load_verdict(checkpoint)
        if verdict is not None:
            self.method.restore_verdict(verdict)
        refined = load_matrices(checkpoint)
        if refined:
            self.method.restore_refined(refined)
        sources = load_sources(checkpoint)
        if sources is not None and self.method.sources is not None:
            self.method.set_sources(sources, self.parent.class_names)

    def _run_stage(self, number: int, stage: Stage, ignore_keys: list[str] | None) -> None:
        model = copy.deepcopy(self.parent.model)
        if stage.start == "previous" and self.stages:
            model.load_state_dict(self._previous_weights())
        trainer = stage_trainer(self.parent, number, stage, model)
        trained: ProbeStage | GradientStage
        trained = ProbeStage(trainer) if stage.mode == "probe" else GradientStage(trainer)
        self.stages.append(trained)
        shared = self.parent.shared_stages
        if shared is not None and stage in shared:
            trained.load_weights(shared[stage].weights)
            self.history += shared[stage].history
            self._store(trainer, number, shared[stage].weights, shared[stage].history)
            return
        stored = self._stored(number) if self.point is not None else None
        if stored is not None:
            trained.load_weights(stored.weights)
            self.history += stored.history
            return
        logger.info(f"***** {trainer.stage_name} *****")
        set_seed(trainer.args.seed)
        point = self.point if self.point is not None and self.point.stage == number else None
        metrics = trained.train(None if point is None else point.checkpoint, ignore_keys)
        if metrics is not None:
            self.parent.speed.first_stages.append(metrics)
        with _unchanged_precision(trainer):
            self._evaluate(trainer, number, ignore_keys)
        self.history += trainer.state.log_history
        weights = trained.weights() if self.parent.keeps_state or shared is not None else None
        if weights is not None and shared is not None and stage.start == "initial":
            shared[stage] = FinishedStage({k: v.cpu().clone() for k, v in weights.items()}, trainer.state.log_history)
        self._store(trainer, number, weights, trainer.state.log_history)

    def _previous_weights(self) -> dict[str, torch.Tensor]:
        """The weights of the last stage that has trained the network."""
        return next(stage.weights() for stage in reversed(self.stages) if stage.probe is None)

    def _store(
        self,
        trainer: StageTrainer,
        number: int,
        weights: dict[str, torch.Tensor] | None,
        history: list[dict[str, Any]],
    ) -> None:
        if weights is None or not self.parent.keeps_state:
            return
        if trainer.args.should_save:
            self.run_folder.save_weights(f"stage{number}", weights, self.parent.run_record()["run"], history)
        trainer.accelerator.wait_for_everyone()

    def _stored(self, number: int) -> StoredWeights | None:
        return self.run_folder.load_weights(f"stage{number}", self.parent.run_record()["run"])

    def _estimate(self) -> None:
        parent = self.parent
        # Rows may be read with random crops, which must not depend on whether a stage was trained just before.
        set_seed(parent.args.seed)
        self.method.estimate(parent.estimation_run(self.stages))
        matrix = self.method.matrix
        if matrix is not None:
            # Classes without trusted rows have had their warning in the estimate.
            for warning in filter(None, (singular_warning(matrix), few_rows_warning(matrix))):
                logger.warning(warning)
        if self.stages and self.method.last_stage().start == "previous":
            parent.model.load_state_dict(self._previous_weights())
        if parent.keeps_state:
            if parent.args.should_save:
                self.run_folder.save_estimate(self.method, parent.run_record(), self.history)
            parent.accelerator.wait_for_everyone()

    @staticmethod
    def _evaluate(trainer: StageTrainer, number: int, ignore_keys: list[str] | None) -> None:
        """Measure the accuracy before correction, unless the last step of the stage was evaluated already."""
        if trainer.eval_dataset is None or not trainer.args.evaluate_stages:
            return
        step, name = trainer.state.global_step, f"stage{number}_eval_loss"
        done = any(entry.get("step") == step and name in entry for entry in trainer.state.log_history)
        if not done or trainer.args.load_best_model_at_end:
            trainer.evaluate(ignore_keys=ignore_keys)


class RunSpeed:
    """
    The speed metrics (`train_runtime`, …) of a run with several stages. They cover everything from the start of
    `train()` on: the stages that it trains, and the estimates between them.

    Args:
        last_stage (`int`): Number of the last stage. Its own metrics get its prefix, such as `stage2_`.
    """

    def __init__(self, last_stage: int) -> None:
        self.start = time.time()
        self.prefix = f"stage{last_stage}_"
        self.first_stages: list[dict[str, float]] = []
        self._metrics: dict[str, float] | None = None

    def metrics(self, last: dict[str, float]) -> dict[str, float]:
        """The metrics that replace or follow those of the last stage. They are computed when it ends, once."""
        if self._metrics is None:
            stages = [*self.first_stages, last]
            samples, steps = (
                sum(stage["train_runtime"] * stage[rate] for stage in stages if rate in stage)
                for rate in ("train_samples_per_second", "train_steps_per_second")
            )
            whole = speed_metrics("train", self.start, num_samples=samples, num_steps=steps)
            self._metrics = {**whole, **{f"{self.prefix}{name}": last[name] for name in whole if name in last}}
        return self._metrics


class StageHistory(TrainerCallback):
    """Checks the optimizer of each stage, and puts the logs of the first stages before those of the last stage, so
    that its saved state has all of them."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None, **kwargs: Any
    ) -> None:
        check_optimizer(model, optimizer, args.output_dir)
        if state is self.trainer.state and not any(
            name.startswith("stage1_") for entry in state.log_history for name in entry
        ):
            state.log_history[:0] = self.trainer._stage_history


# ---------------------------------------------------------------------- trainers of first stages
def stage_trainer(parent: Any, number: int, stage: Stage, model: torch.nn.Module) -> StageTrainer:
    """
    The trainer of a first stage: an object of the parent's own class, with the attributes that a user's subclass has
    set, so that its overrides (`create_optimizer`, `training_step`, `log`, …) apply in every stage. Its `__init__` is
    not called again.

    Callbacks are shallow copies: they keep their settings and start new. A callback that holds the trainer, or a
    method of it, gets that of the stage.
    """
    trainer = object.__new__(type(parent))
    trainer.__dict__.update({name: _rebound(value, parent, trainer) for name, value in parent.__dict__.items()})
    trainer.first_stage = (number, stage)
    StageTrainer.__init__(
        trainer,
        model=model,
        args=stage_arguments(parent, number, stage),
        data_collator=parent.data_collator.collator,
        train_dataset=parent.train_dataset,
        eval_dataset=parent.eval_dataset,
        processing_class=parent.processing_class,
        compute_metrics=None if parent._default_metrics else trainer.compute_metrics,
        optimizer_cls_and_kwargs=_stage_optimizer(parent),
        preprocess_logits_for_metrics=trainer.preprocess_logits_for_metrics,
    )
    trainer.callback_handler.callbacks = [
        _stage_callback(callback, parent, trainer) for callback in parent.callback_handler.callbacks
    ]
    name_progress_bar(trainer)
    trainer.args.max_steps = max_steps_for(trainer)
    return trainer


def _rebound(value: Any, parent: Any, trainer: StageTrainer) -> Any:
    """The value of an attribute for a first stage: the parent, and methods that are bound to it, are replaced."""
    if value is parent:
        return trainer
    is_method = isinstance(value, MethodType) and value.__self__ is parent
    return MethodType(value.__func__, trainer) if is_method else value


def _stage_callback(callback: TrainerCallback, parent: Any, trainer: StageTrainer) -> TrainerCallback:
    if isinstance(callback, TrackioCallback):
        return _open_run(callback, parent)
    copied = copy.copy(callback)
    if not type(callback).__module__.startswith("glc_hf."):  # these ask whether the stage is the last one
        for name, value in list(getattr(copied, "__dict__", {}).items()):
            rebound = _rebound(value, parent, trainer)
            if rebound is not value:
                setattr(copied, name, rebound)
    return copied


def _open_run(callback: TrackioCallback, parent: Any) -> TrackioCallback:
    """A callback for a first stage whose run goes on in the next stage: the stages share what is known about the run,
    it has the arguments of the last stage, and the end of a first stage does not end it."""

    kind: Any = type(callback)

    class OpenRun(kind):
        def setup(self, args: Any, state: Any, model: Any = None, **kwargs: Any) -> None:
            super().setup(parent.args, state, model, **kwargs)

        def on_train_end(self, *args: Any, **kwargs: Any) -> None:
            return

    opened = object.__new__(OpenRun)
    opened.__dict__ = callback.__dict__
    return opened


def stage_arguments(parent: Any, number: int, stage: Stage) -> GLCConfig:
    """The arguments of a first stage. A plain copy, because `dataclasses.replace` would run `__post_init__` again. It
    is made in `train()`, so that the values set by a hyper-parameter search apply."""
    args = copy.copy(parent.args)
    args.output_dir = os.path.join(parent.run_dir, f"stage{number}")
    args.push_to_hub = False
    # A probe has no steps: it embeds rows by the length of the run.
    if args.stage1_num_train_epochs is not None and stage.mode != "probe":
        args.num_train_epochs = args.stage1_num_train_epochs
        args.max_steps = -1
    if args.stage1_max_steps is not None and stage.mode != "probe":
        args.max_steps = args.stage1_max_steps
    if args.stage1_learning_rate is not None:
        args.learning_rate = args.stage1_learning_rate
    shorten(args, stage.fraction * (args.stage1_fraction if stage.mode == "short" else 1.0))
    return args


def shorten(args: GLCConfig, fraction: float) -> None:
    """Multiply epochs and steps of a stage by a fraction."""
    if fraction != 1.0:
        args.num_train_epochs *= fraction
        args.max_steps = max(1, round(args.max_steps * fraction)) if args.max_steps > 0 else -1


def _stage_optimizer(parent: Any) -> tuple[type[torch.optim.Optimizer], dict[str, Any]] | None:
    """The given optimizer, with the learning rate of the first stages if they have their own."""
    given, rate = parent.optimizer_cls_and_kwargs, parent.args.stage1_learning_rate
    if given is None or rate is None or "lr" not in given[1]:
        return given
    return given[0], {**given[1], "lr": rate}


def max_steps_for(trainer: StageTrainer) -> int:
    """`max_steps` that gives the stage at least its `min_updates`; unchanged (-1: by epochs) if it has enough."""
    args, min_updates = trainer.args, trainer.stage.min_updates
    if min_updates <= 0:
        return args.max_steps
    if args.max_steps > 0:
        return max(args.max_steps, min_updates)
    updates = args.updates_per_epoch(len(trainer.stage_rows())) * args.num_train_epochs
    return min_updates if updates < min_updates else args.max_steps


class _NamedProgress(ProgressCallback):
    """The progress bar with the name of the stage."""

    stage_name = ""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        super().on_train_begin(args, state, control, **kwargs)
        bar: Any = self.training_bar
        if bar is not None:
            bar.set_description(self.stage_name)


def name_progress_bar(trainer: StageTrainer) -> None:
    """Show the name of the stage on the default progress bar, or on any callback with a `stage_name` attribute."""
    callbacks = trainer.callback_handler.callbacks
    for index, callback in enumerate(callbacks):
        if type(callback) in (ProgressCallback, _NamedProgress):
            callback = callbacks[index] = _NamedProgress(callback.max_str_len)
        if hasattr(callback, "stage_name"):
            callback.stage_name = trainer.stage_name


# ---------------------------------------------------------------------- helpers
@contextmanager
def _unchanged_precision(trainer: StageTrainer) -> Iterator[None]:
    """Restore the weights after an evaluation with `bf16_full_eval` or `fp16_full_eval`, which converts the model."""
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
