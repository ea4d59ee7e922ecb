# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Everything before the last stage: the earlier trainings, and what the method makes of them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import set_seed
from transformers.utils import logging

from glc_hf.corruption.matrix import MATRIX_FILE, CorruptionMatrix
from glc_hf.methods.base import Stage
from glc_hf.training.inference import BetweenStages
from glc_hf.training.probe import ProbeTrainer
from glc_hf.training.runs import KeptWeights, ResumePoint, RunFolder
from glc_hf.training.stage import StageTrainer


if TYPE_CHECKING:
    from glc_hf.training.trainer import GLCTrainer

logger = logging.get_logger(__name__)


@dataclass
class FinishedStage:
    """A trained stage, for other methods that start alike."""

    weights: dict[str, torch.Tensor]
    history: list[dict[str, Any]]


class EarlierStages:
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
            for number, stage in enumerate(self.method.earlier_stages(), start=1):
                self._run_stage(number, stage, ignore_keys)
            self._estimate()
        # The stages' trainers go with this object; `Trainer.train` collects what they leave.
        return checkpoint

    def _take_estimate(self) -> bool:
        """Whether the estimate of an interrupted run could be taken over."""
        history = self.run_folder.load_between(self.method, self.parent.run_record())
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
        stages = self.method.earlier_stages()
        if checkpoint is None and stages and self.method.last_stage().start == "previous":
            kept = self._kept(len(stages))
            if kept is None:
                return False  # a complete run whose checkpoints are gone
            self.parent.model.load_state_dict(kept.weights)
        self.history = history
        return True

    def _run_stage(self, number: int, stage: Stage, ignore_keys: list[str] | None) -> None:
        kind = ProbeTrainer if stage.way == "probe" else StageTrainer
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
        self.method.between(
            BetweenStages(
                parent.training_data, self.trainers, parent.accelerator, parent.num_labels, parent.class_names
            )
        )
        _warn_if_singular(self.method.matrix)
        if self.trainers and self.method.last_stage().start == "previous":
            parent.model.load_state_dict(self.trainers[-1].stage_weights())
        if parent.keeps_state:
            if parent.args.should_save:
                self.run_folder.save_between(self.method, parent.run_record(), self.history)
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
