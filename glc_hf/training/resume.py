# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
What a run leaves in its output folder so that it can go on after a crash.

    output_dir/
      _run_state/glc_run.json               what the run is (method, seed, data): resuming needs the same
      _run_state/initial.safetensors        the weights every stage starts from   } removed when the run is complete
      _run_state/stage1.safetensors         a finished stage's weights            }
      _run_state/estimate.json, …            what was estimated between the stages
      stage1/checkpoint-N/                 the Trainer's own checkpoints, with glc_run.json
      checkpoint-N/                        the last stage's, with glc_run.json and corruption_matrix.json
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from transformers import EarlyStoppingCallback, Trainer, TrainerCallback
from transformers.trainer_callback import ExportableState, TrainerControl, TrainerState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from transformers.utils import logging

from glc_hf.matrix import MATRIX_TENSOR_FILE, CorruptionMatrix


if TYPE_CHECKING:
    from glc_hf.methods.base import Method


logger = logging.get_logger(__name__)
RECORD_FILE = "glc_run.json"
# The Trainer leaves names with an underscore out of what it pushes.
_STATE_FOLDER = "_run_state"
_ESTIMATE_FILE = "estimate.json"
_NUMBERED = re.compile(rf"{PREFIX_CHECKPOINT_DIR}-\d+")
_MEANING = {
    "method": "the method",
    "seed": "the seed",
    "num_labels": "the number of classes",
    "data": "the training data (labels, flags or number of rows)",
    "matrix": "the corruption matrix that was given (by its digest)",
    "stages": "what comes before the last stage",
}


def write_record(folder: str | Path, record: Mapping[str, Any]) -> None:
    """Writes what a checkpoint belongs to."""
    write_whole(Path(folder) / RECORD_FILE, json.dumps(dict(record), indent=2))


def read_record(folder: str | Path) -> dict[str, Any]:
    """What a checkpoint, or a run's state, belongs to; empty where it does not say."""
    try:
        return json.loads((Path(folder) / RECORD_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def check_record(folder: str | Path, record: Mapping[str, Any]) -> None:
    """Raises if a checkpoint belongs to another run, naming what differs."""
    found = read_record(folder)
    if not found:
        raise ValueError(
            f"{folder} has no readable {RECORD_FILE}: it is no checkpoint of a GLCTrainer, and can't be resumed."
        )
    differing = [
        f"{meaning} was {found.get(key)!r} and is now {record[key]!r}"
        for key, meaning in _MEANING.items()
        if key in found and found[key] != record[key]
    ]
    if differing:
        raise ValueError(
            f"can't resume from {folder}: {'; '.join(differing)}. Start afresh with another output_dir (or without "
            "resume_from_checkpoint), or restore what changed."
        )


def digest_of(matrix: CorruptionMatrix | None) -> str | None:
    """Tells one given matrix from another."""
    return None if matrix is None else hashlib.blake2b(matrix.probs.tobytes(), digest_size=4).hexdigest()


class KeptWeights(NamedTuple):
    """Weights that a run kept between its stages, and the logs of the stage that they came from."""

    weights: dict[str, torch.Tensor]
    history: list[dict[str, Any]]


@dataclass(frozen=True)
class ResumePoint:
    """Where a run goes on: a checkpoint of the last stage (`stage` 0) or of earlier stage `stage`; `checkpoint` is
    `None` where the stages before are complete and the next one has not saved yet."""

    run: RunFolder
    stage: int
    checkpoint: str | None


class RunFolder:
    """The output folder of one run, as above. Only the main process writes; all may read after a barrier."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.state = self.path / _STATE_FOLDER

    # ------------------------------------------------------------------ weights
    def save_weights(
        self, name: str, weights: Mapping[str, torch.Tensor], run: str, history: list[dict[str, Any]] | None = None
    ) -> None:
        """Keeps a run's weights under a name (`"initial"`, `"stage1"`) with a stage's logs, whole or not at all."""
        self.state.mkdir(parents=True, exist_ok=True)
        target = self.state / f"{name}.safetensors"
        scratch = target.with_suffix(".tmp")
        # Clones part what shares memory (tied weights), which the format can't hold.
        tensors = {key: value.detach().cpu().contiguous().clone() for key, value in weights.items()}
        save_file(tensors, scratch, metadata={"run": run, "history": json.dumps(history or [])})
        os.replace(scratch, target)

    def load_weights(self, name: str, run: str) -> KeptWeights | None:
        """What that run kept under a name, if it is there."""
        file = self.state / f"{name}.safetensors"
        if not file.is_file():
            return None
        with safe_open(file, framework="pt") as opened:
            metadata = opened.metadata() or {}
        if metadata.get("run") != run:
            return None
        return KeptWeights(load_file(file), json.loads(metadata["history"]))

    # ------------------------------------------------------------------ between the stages
    def save_estimate(self, method: Method, record: Mapping[str, Any], history: list[dict[str, Any]]) -> None:
        """Keeps what the method estimated, and the earlier stages' logs."""
        self.state.mkdir(parents=True, exist_ok=True)
        tensors = {key: value.detach().cpu().contiguous() for key, value in method.state().items()}
        if tensors:
            save_file(tensors, self.state / "estimate.safetensors")
        if method.matrix is not None:
            method.matrix.save_pretrained(self.state)
        content = {"record": dict(record), "history": history, "has_matrix": method.matrix is not None}
        # Last, and in one step: it says that the rest is there.
        write_whole(self.state / _ESTIMATE_FILE, json.dumps(content))

    def load_estimate(self, method: Method, record: Mapping[str, Any]) -> list[dict[str, Any]] | None:
        """Gives the method back what it had estimated; returns the earlier stages' logs, `None` if there is none."""
        content = self._estimate(record["run"])
        if content is None:
            return None
        if content["has_matrix"]:
            method.matrix = CorruptionMatrix.from_pretrained(self.state)
        tensors = self.state / "estimate.safetensors"
        if tensors.is_file():
            method.load_state(load_file(tensors))
        return content["history"]

    def _estimate(self, run: str) -> dict[str, Any] | None:
        file = self.state / _ESTIMATE_FILE
        content = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        return content if content.get("record", {}).get("run") == run else None

    # ------------------------------------------------------------------ whose folder it is
    def make_folder_of(self, record: Mapping[str, Any], source: RunFolder | None = None) -> None:
        """
        Makes the folder a run's, before the run writes anything else. What an earlier run left goes; where that is cut
        short, each file still says whose it is.

        Args:
            record (`Mapping`): What the run is.
            source ([`RunFolder`], *optional*): Where it was begun, if elsewhere: what it kept there comes along.
        """
        if read_record(self.state).get("run") == record["run"]:
            return
        self.state.mkdir(parents=True, exist_ok=True)
        write_record(self.state, record)
        for file in self.state.iterdir():
            if file.name != RECORD_FILE:
                file.unlink()
        if source is not None and read_record(source.state).get("run") == record["run"]:
            for file in sorted(source.state.iterdir(), key=lambda file: file.name == _ESTIMATE_FILE):
                shutil.copyfile(file, self.state / file.name)

    def finish(self) -> None:
        """Removes the kept weights of a complete run; the estimate stays."""
        for file in self.state.glob("*.safetensors"):
            if file.name not in ("estimate.safetensors", MATRIX_TENSOR_FILE):
                file.unlink(missing_ok=True)

    # ------------------------------------------------------------------ where to go on
    def find_resume_point(self, num_earlier_stages: int, processes: int) -> ResumePoint | None:
        """The furthest complete checkpoint of any stage, or the stage after the last finished one. Checkpoints that an
        earlier run left in the folder are not this run's."""
        run = read_record(self.state).get("run")
        checkpoint = last_complete_checkpoint(self.path, processes, run=run)
        if checkpoint is not None:
            return ResumePoint(self, 0, checkpoint)
        if run is None:
            return None
        if self._estimate(run) is not None:
            return ResumePoint(self, 0, None)
        for stage in range(num_earlier_stages, 0, -1):
            checkpoint = last_complete_checkpoint(self.path / f"stage{stage}", processes, run=run)
            if checkpoint is not None or self.load_weights(f"stage{stage - 1}", run) is not None:
                return ResumePoint(self, stage, checkpoint)
        return ResumePoint(self, min(num_earlier_stages, 1), None)


def resume_point_at(path: str, processes: int) -> ResumePoint:
    """The resume point that a path given by the user means: a checkpoint of either stage."""
    checkpoint = Path(path)
    if not (checkpoint / "trainer_state.json").is_file() and not _NUMBERED.fullmatch(checkpoint.name):
        raise FileNotFoundError(
            f"there is no checkpoint at {path}: name a folder such as {PREFIX_CHECKPOINT_DIR}-500, or pass True to go "
            "on from the furthest one in output_dir."
        )
    if _NUMBERED.fullmatch(checkpoint.name):
        found = last_complete_checkpoint(checkpoint.parent, processes, at_most=checkpoint.name)
    else:
        found = path if _what_is_missing(checkpoint, processes) is None else None
    if found is None:
        problem = _what_is_missing(checkpoint, processes)
        raise ValueError(
            f"the checkpoint {path} can't be resumed ({problem}), and there is no complete one before it."
        )
    stage = re.fullmatch(r"stage(\d+)", checkpoint.parent.name)
    if stage:
        return ResumePoint(RunFolder(checkpoint.parent.parent), int(stage[1]), found)
    return ResumePoint(RunFolder(checkpoint.parent), 0, found)


def last_complete_checkpoint(
    folder: str | Path, processes: int, at_most: str | None = None, run: str | None = None
) -> str | None:
    """The newest checkpoint (of that run) that was written to its end; a warning tells of newer ones that were not."""
    numbered = sorted(
        (int(name.removeprefix(f"{PREFIX_CHECKPOINT_DIR}-")), name)
        for name in (os.listdir(folder) if os.path.isdir(folder) else ())
        if _NUMBERED.fullmatch(name)
    )
    if at_most is not None:
        numbered = [entry for entry in numbered if entry[0] <= int(at_most.rsplit("-", 1)[1])]
    for _, name in reversed(numbered):
        problem = _what_is_missing(Path(folder) / name, processes)
        if run is not None and read_record(Path(folder) / name).get("run", run) != run:
            continue
        if problem is None:
            return os.path.join(folder, name)
        logger.warning(f"checkpoint {name} in {folder} was cut short ({problem}); trying the one before it.")
    return None


def _what_is_missing(checkpoint: Path, processes: int) -> str | None:
    for name in ("trainer_state.json", RECORD_FILE):
        try:
            json.loads((checkpoint / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return f"{name} is missing or incomplete"
    written_by = read_record(checkpoint).get("processes", processes)
    rng = ["rng_state.pth"] if written_by == 1 else [f"rng_state_{rank}.pth" for rank in range(written_by)]
    for name in rng:
        if not (checkpoint / name).is_file():
            return f"{name} is missing"
    if not any(checkpoint.glob("*.safetensors")) and not any(checkpoint.glob("pytorch_model*")):
        return "the weights are missing"
    for file in checkpoint.iterdir():
        # Both formats tell a cut file from a whole one by their ends, without being loaded.
        if file.suffix in (".pt", ".pth", ".bin") and not zipfile.is_zipfile(file):
            return f"{file.name} is incomplete"
        if file.suffix == ".safetensors":
            try:
                with safe_open(file, framework="pt"):
                    pass
            except (OSError, SafetensorError):
                return f"{file.name} is incomplete"
    return None


def write_whole(path: Path, text: str) -> None:
    """Writes a file in one step: a reader sees the old one or the new one, never half of it."""
    scratch = path.with_suffix(path.suffix + ".tmp")
    scratch.write_text(text, encoding="utf-8")
    os.replace(scratch, path)


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
