# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Checkpoints that a run goes on from exactly: what `Trainer` leaves open when a process may end at any moment."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import EarlyStoppingCallback, Trainer, TrainerCallback
from transformers.trainer_callback import ExportableState, TrainerControl, TrainerState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from glc_hf.training.runs import write_whole


class PortableState(TrainerState):
    """A `TrainerState` whose file names no place: the best checkpoint is known by its step, so it may be moved."""

    def save_to_json(self, json_path: str) -> None:
        """Writes the state in one step, without the path of the best checkpoint."""
        content = {**dataclasses.asdict(self), "best_model_checkpoint": None}
        write_whole(Path(json_path), json.dumps(content, indent=2, sort_keys=True) + "\n")


class CheckpointedTrainer(Trainer):
    """
    A `Trainer` that goes on from a checkpoint as if nothing had happened.

    - A checkpoint is written into an empty folder, its state file last, when every process has written its part: what
      another run left under the same name never mixes with it.
    - Callbacks with a state of their own (early stopping) get it back.
    - From a checkpoint at which training had ended, by its steps or by early stopping, not a single step more is made.
    """

    # Whether the checkpoint that was resumed from was the last of a training that had stopped early.
    _had_stopped = False

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        folder = os.path.join(self._get_output_dir(trial), f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}")
        if self.args.should_save and os.path.isdir(folder):
            shutil.rmtree(folder)
        self.accelerator.wait_for_everyone()
        super()._save_checkpoint(model, trial)

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        # The state file, which follows, says that all of them are there; older checkpoints are removed after it.
        self.accelerator.wait_for_everyone()

    def _init_training_state(self, *args: Any, **kwargs: Any) -> tuple[int, int]:
        self._had_stopped = False
        found = super()._init_training_state(*args, **kwargs)
        self.state = PortableState(
            **{field.name: getattr(self.state, field.name) for field in dataclasses.fields(TrainerState)}
        )
        return found

    def _load_callback_state(self) -> None:
        """Called with the state of a checkpoint in place, before this training's own numbers go into it."""
        state, best = self.state, self.state.best_global_step
        if best is not None and state.best_model_checkpoint is None:
            folder = os.path.join(self.args.output_dir, f"{PREFIX_CHECKPOINT_DIR}-{best}")
            state.best_model_checkpoint = folder if os.path.isdir(folder) else None
        if self.args.restore_callback_states_from_checkpoint:
            super()._load_callback_state()
        else:
            self._give_callbacks_their_state(state)
        # What was stopped for another reason, such as a limit of time, is resumed to be gone on with.
        control = state.stateful_callbacks.get(TrainerControl.__name__, {})
        ended = state.global_step >= state.max_steps
        stopped = control.get("args", {}).get("should_training_stop", False) and not ended
        self._had_stopped = stopped and any(map(_is_out_of_patience, self.callback_handler.callbacks))

    def _give_callbacks_their_state(self, state: TrainerState) -> None:
        for name, kept in state.stateful_callbacks.items():
            callbacks = [
                callback
                for callback in self.callback_handler.callbacks
                if isinstance(callback, ExportableState) and type(callback).__name__ == name
            ]
            # Of several callbacks of one class the file holds a list, which grew with each checkpoint.
            newest = kept[-len(callbacks) :] if isinstance(kept, list) else [kept]
            for callback, data in zip(callbacks, newest, strict=False):
                for attribute, value in data.get("attributes", {}).items():
                    setattr(callback, attribute, value)

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        # `Trainer` looks whether it is done after a step; there may be none left to make.
        if self._had_stopped or self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
            return
        super()._run_epoch(*args, **kwargs)


def _is_out_of_patience(callback: TrainerCallback) -> bool:
    return (
        isinstance(callback, EarlyStoppingCallback)
        and callback.early_stopping_patience_counter >= callback.early_stopping_patience
    )
