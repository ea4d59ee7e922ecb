# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Exact resume: what a run keeps in its output folder, and checkpoints that continue exactly where they were written.

    output_dir/
      _run_state/glc_run.json               identifies the run (method, seed, data); a resumed run must match
      _run_state/initial.safetensors        the weights that every stage starts from   } removed when the run
      _run_state/stage1.safetensors         the weights of a finished stage            } is complete
      _run_state/estimate.json, …           what the method estimated between the stages
      stage1/checkpoint-N/                  checkpoints of the first stage, with glc_run.json
      checkpoint-N/                         checkpoints of the last stage, with glc_run.json and corruption_matrix.json
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
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from transformers import EarlyStoppingCallback, Trainer, TrainerCallback
from transformers.trainer_callback import ExportableState, TrainerControl, TrainerState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from transformers.utils import logging

from glc_hf._compat import own_weight_names, without_rotation
from glc_hf.correction.verdict import load_verdict, save_verdict
from glc_hf.matrix import MATRIX_TENSOR_FILE, CorruptionMatrix
from glc_hf.methods.base import Method
from glc_hf.methods.matrix_files import SOURCES_TENSOR_FILE, load_matrices, save_matrices
from glc_hf.run_files import RECORD_FILE, STATE_FOLDER


logger = logging.get_logger(__name__)

_ESTIMATE_FILE = "estimate.json"
_CHECKPOINT = re.compile(rf"{PREFIX_CHECKPOINT_DIR}-\d+")
_RECORD_MEANING = {
    "method": "the method",
    "seed": "the seed",
    "num_labels": "the number of classes",
    "data": "the training data (labels, flags or number of rows)",
    "matrix": "the given corruption matrix (its hash)",
    "stages": "the stages before the last one",
}


# ---------------------------------------------------------------------- the record of a run
def write_record(folder: str | Path, record: Mapping[str, Any]) -> None:
    """Write the record that identifies the run of a checkpoint."""
    write_atomically(Path(folder) / RECORD_FILE, json.dumps(dict(record), indent=2))


def read_record(folder: str | Path) -> dict[str, Any]:
    """The record of a checkpoint or of a run's state; empty if there is none."""
    try:
        return json.loads((Path(folder) / RECORD_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def check_record(folder: str | Path, record: Mapping[str, Any]) -> None:
    """Raise if a checkpoint belongs to another run; the message says what differs."""
    stored = read_record(folder)
    if not stored:
        raise ValueError(
            f"{folder} has no readable {RECORD_FILE}: it is not a checkpoint of a GLCTrainer and can't be resumed."
        )
    differences = [
        f"{meaning} was {stored.get(key)!r} and is now {record[key]!r}"
        for key, meaning in _RECORD_MEANING.items()
        if key in stored and stored[key] != record[key]
    ]
    if differences:
        raise ValueError(
            f"can't resume from {folder}: {'; '.join(differences)}. Start a new run with another output_dir (or "
            "without resume_from_checkpoint), or undo the change."
        )


def matrix_hash(matrix: CorruptionMatrix | None) -> str | None:
    """A hash of a given matrix."""
    return None if matrix is None else hashlib.blake2b(matrix.probs.tobytes(), digest_size=4).hexdigest()


def write_atomically(path: Path, text: str) -> None:
    """Write a file in one step: a reader sees the old content or the new, never a part of it."""
    scratch = path.with_suffix(path.suffix + ".tmp")
    scratch.write_text(text, encoding="utf-8")
    os.replace(scratch, path)


# ---------------------------------------------------------------------- the folder of a run
class StoredWeights(NamedTuple):
    """Weights of a finished stage, and its logs."""

    weights: dict[str, torch.Tensor]
    history: list[dict[str, Any]]


@dataclass(frozen=True)
class ResumePoint:
    """Where a run resumes: a checkpoint of the last stage (`stage` 0) or of first stage number `stage`. `checkpoint`
    is `None` if the stages before are complete and this one has not saved a checkpoint yet."""

    run: RunFolder
    stage: int
    checkpoint: str | None


class RunFolder:
    """The output folder of a run. Only the main process writes; all processes may read after a barrier."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.state = self.path / STATE_FOLDER

    def save_weights(
        self, name: str, weights: Mapping[str, torch.Tensor], run: str, history: list[dict[str, Any]] | None = None
    ) -> None:
        """Store weights of a run under a name (`"initial"`, `"stage1"`), with the logs of the stage."""
        self.state.mkdir(parents=True, exist_ok=True)
        target = self.state / f"{name}.safetensors"
        scratch = target.with_suffix(".tmp")
        # Cloned because the format can't store tensors that share memory (tied weights).
        tensors = {key: value.detach().cpu().contiguous().clone() for key, value in weights.items()}
        save_file(tensors, scratch, metadata={"run": run, "history": json.dumps(history or [])})
        os.replace(scratch, target)

    def load_weights(self, name: str, run: str) -> StoredWeights | None:
        """The weights that this run stored under a name, if there are any."""
        file = self.state / f"{name}.safetensors"
        if not file.is_file():
            return None
        with safe_open(file, framework="pt") as opened:
            metadata = opened.metadata() or {}
        if metadata.get("run") != run:
            return None
        return StoredWeights(load_file(file), json.loads(metadata["history"]))

    def save_estimate(self, method: Method, record: Mapping[str, Any], history: list[dict[str, Any]]) -> None:
        """Store what the method estimated, and the logs of the first stages."""
        self.state.mkdir(parents=True, exist_ok=True)
        # Cloned because two of them can be the same tensor, which the format can't store.
        tensors = {key: value.detach().cpu().contiguous().clone() for key, value in method.state().items()}
        if tensors:
            save_file(tensors, self.state / "estimate.safetensors")
        save_matrices(method.matrices, self.state)
        save_verdict(method.verdict, self.state)
        content = {"record": dict(record), "history": history, "has_matrix": bool(method.matrices)}
        # Written last and atomically: it marks the rest as complete.
        write_atomically(self.state / _ESTIMATE_FILE, json.dumps(content))

    def load_estimate(self, method: Method, record: Mapping[str, Any]) -> list[dict[str, Any]] | None:
        """Restore the method's estimate. Returns the logs of the first stages, or `None` if there is no estimate."""
        content = self._read_estimate(record["run"])
        if content is None:
            return None
        if content["has_matrix"]:
            method.matrices = load_matrices(self.state)
        method.verdict = load_verdict(self.state)
        tensors = self.state / "estimate.safetensors"
        if tensors.is_file():
            method.load_state(load_file(tensors))
        return content["history"]

    def _read_estimate(self, run: str) -> dict[str, Any] | None:
        file = self.state / _ESTIMATE_FILE
        content = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        return content if content.get("record", {}).get("run") == run else None

    def claim(self, record: Mapping[str, Any], source: RunFolder | None = None) -> None:
        """
        Assign the folder to a run before the run writes anything else, and remove the state of an earlier run. If that
        is interrupted, each file still says which run it belongs to.

        Args:
            record (`Mapping`): The record of the run.
            source ([`RunFolder`], *optional*): The folder where the run started, if it is another one; its state is
                copied.
        """
        if read_record(self.state).get("run") == record["run"]:
            return
        self._check_state()
        self.state.mkdir(parents=True, exist_ok=True)
        write_record(self.state, record)
        for path in self.state.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != RECORD_FILE:
                path.unlink()
        if source is not None and read_record(source.state).get("run") == record["run"]:
            for path in sorted(source.state.iterdir(), key=lambda path: path.name == _ESTIMATE_FILE):
                copy = shutil.copytree if path.is_dir() else shutil.copyfile
                copy(path, self.state / path.name)

    def _check_state(self) -> None:
        """Raise if files would be removed that are not of a run: the state folder is a link, or has no record."""
        for path in (self.state, *self.path.glob("stage[0-9]")):
            if path.is_symlink():
                raise ValueError(
                    f"{path} is a symbolic link to {os.path.realpath(path)}, whose files the run would remove. Delete "
                    "the link, or choose another output_dir."
                )
        if self.state.is_dir() and any(self.state.iterdir()) and not read_record(self.state):
            raise ValueError(
                f"{self.state} has files, but no {RECORD_FILE} of a run: they may be yours. Move them away, or choose "
                "another output_dir."
            )

    def finish(self) -> None:
        """Remove the stored weights of a complete run; the estimate stays."""
        for file in self.state.glob("*.safetensors"):
            if file.name not in ("estimate.safetensors", MATRIX_TENSOR_FILE, SOURCES_TENSOR_FILE):
                file.unlink(missing_ok=True)

    def find_resume_point(self, num_first_stages: int, processes: int) -> ResumePoint | None:
        """The latest complete checkpoint of any stage, or the stage after the last finished one. Checkpoints of an
        earlier run in the same folder don't count."""
        run = read_record(self.state).get("run")
        checkpoint = last_complete_checkpoint(self.path, processes, run=run)
        if checkpoint is not None:
            return ResumePoint(self, 0, checkpoint)
        if run is None:
            return None
        if self._read_estimate(run) is not None:
            return ResumePoint(self, 0, None)
        for stage in range(num_first_stages, 0, -1):
            checkpoint = last_complete_checkpoint(self.path / f"stage{stage}", processes, run=run)
            if checkpoint is not None or self.load_weights(f"stage{stage - 1}", run) is not None:
                return ResumePoint(self, stage, checkpoint)
        return ResumePoint(self, min(num_first_stages, 1), None)


def resume_point_at(path: str, processes: int) -> ResumePoint:
    """The resume point of a path given by the user: a checkpoint of any stage."""
    checkpoint = Path(path)
    if not (checkpoint / "trainer_state.json").is_file() and not _CHECKPOINT.fullmatch(checkpoint.name):
        raise FileNotFoundError(
            f"there is no checkpoint at {path}: name a folder such as {PREFIX_CHECKPOINT_DIR}-500, or pass True to "
            "resume from the latest one in output_dir."
        )
    if _CHECKPOINT.fullmatch(checkpoint.name):
        complete = last_complete_checkpoint(checkpoint.parent, processes, at_most=checkpoint.name)
    else:
        complete = path if _missing_part(checkpoint, processes) is None else None
    if complete is None:
        problem = _missing_part(checkpoint, processes)
        raise ValueError(
            f"the checkpoint {path} can't be resumed ({problem}), and there is no complete checkpoint before it."
        )
    stage = re.fullmatch(r"stage(\d+)", checkpoint.parent.name)
    if stage:
        return ResumePoint(RunFolder(checkpoint.parent.parent), int(stage[1]), complete)
    return ResumePoint(RunFolder(checkpoint.parent), 0, complete)


def last_complete_checkpoint(
    folder: str | Path, processes: int, at_most: str | None = None, run: str | None = None
) -> str | None:
    """The newest complete checkpoint (of a run). Logs a warning for newer ones that are incomplete."""
    numbered = sorted(
        (int(name.removeprefix(f"{PREFIX_CHECKPOINT_DIR}-")), name)
        for name in (os.listdir(folder) if os.path.isdir(folder) else ())
        if _CHECKPOINT.fullmatch(name)
    )
    if at_most is not None:
        numbered = [entry for entry in numbered if entry[0] <= int(at_most.rsplit("-", 1)[1])]
    for _, name in reversed(numbered):
        problem = _missing_part(Path(folder) / name, processes)
        if run is not None and read_record(Path(folder) / name).get("run", run) != run:
            continue
        if problem is None:
            return os.path.join(folder, name)
        logger.warning(f"checkpoint {name} in {folder} is incomplete ({problem}); trying the one before it.")
    return None


def _missing_part(checkpoint: Path, processes: int) -> str | None:
    """What an incomplete checkpoint lacks; `None` for a complete one."""
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
        # Both formats can be checked for truncation without loading the file.
        if file.suffix in (".pt", ".pth", ".bin") and not zipfile.is_zipfile(file):
            return f"{file.name} is incomplete"
        if file.suffix == ".safetensors":
            try:
                with safe_open(file, framework="pt"):
                    pass
            except (OSError, SafetensorError):
                return f"{file.name} is incomplete"
    return None


# ---------------------------------------------------------------------- checkpoints of a trainer
class PortableState(TrainerState):
    """A `TrainerState` whose file contains no path: the best checkpoint is known by its step, so it can be moved."""

    def save_to_json(self, json_path: str) -> None:
        content = {**dataclasses.asdict(self), "best_model_checkpoint": None}
        write_atomically(Path(json_path), json.dumps(content, indent=2, sort_keys=True) + "\n")


class ResumableTrainer(Trainer):
    """
    A `Trainer` that resumes from a checkpoint exactly.

    - A checkpoint is written into an empty folder, with its state file last, after every process has written its part.
      So it never mixes with files that another run left under the same name.
    - Stateful callbacks (early stopping) get their state back.
    - If training had ended at the checkpoint, by its steps or by early stopping, no further step is made.
    """

    # Whether training had stopped early at the checkpoint that it resumed from.
    _had_stopped = False

    def run_record(self) -> dict[str, Any]:
        """What identifies the run that a checkpoint belongs to."""
        raise NotImplementedError

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        folder = os.path.join(self._get_output_dir(trial), f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}")
        if self.args.should_save and os.path.isdir(folder):
            shutil.rmtree(folder)
        self.accelerator.wait_for_everyone()
        with without_rotation(), own_weight_names(self.model):
            super()._save_checkpoint(model, trial)
        if self.args.should_save:
            self._rotate_checkpoints(Path(self._get_output_dir(trial)))

    def _rotate_checkpoints(self, folder: Path) -> None:
        """Remove checkpoints beyond `save_total_limit`, but not the best one: first those of earlier runs, then those
        with the fewest steps. Times of files are not used, because clocks can be wrong."""
        limit, best = self.args.save_total_limit, self.state.best_model_checkpoint
        if limit is None or limit <= 0:
            return
        run = self.run_record()["run"]
        found = [
            (record["run"] == run, int(path.name.rsplit("-", 1)[1]), path)
            for path in folder.iterdir()
            if _CHECKPOINT.fullmatch(path.name) and not path.is_symlink() and (record := read_record(path)).get("run")
        ]
        older = [path for *_, path in sorted(found)][:-1]
        removable = [path for path in older if best is None or path != Path(best)]
        kept = len(found) - len(removable)
        for path in removable[: len(removable) - max(limit - kept, 0)]:
            shutil.rmtree(path, ignore_errors=True)

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        # The state file follows and marks the checkpoint as complete; older checkpoints are removed after it.
        self.accelerator.wait_for_everyone()

    def _init_training_state(self, *args: Any, **kwargs: Any) -> tuple[int, int]:
        self._had_stopped = False
        counts = super()._init_training_state(*args, **kwargs)
        self.state = PortableState(
            **{field.name: getattr(self.state, field.name) for field in dataclasses.fields(TrainerState)}
        )
        return counts

    def _load_callback_state(self) -> None:
        """Called when `self.state` is that of the checkpoint, before the numbers of this training are set in it."""
        state, best = self.state, self.state.best_global_step
        if best is not None and state.best_model_checkpoint is None:
            folder = os.path.join(str(self.args.output_dir), f"{PREFIX_CHECKPOINT_DIR}-{best}")
            state.best_model_checkpoint = folder if os.path.isdir(folder) else None
        if self.args.restore_callback_states_from_checkpoint:
            super()._load_callback_state()
        else:
            self._restore_callbacks(state)
        # Training that stopped for another reason, such as a time limit, continues.
        control = _callback_states(state).get(TrainerControl.__name__, {})
        ended = state.global_step >= state.max_steps
        stopped = control.get("args", {}).get("should_training_stop", False) and not ended
        self._had_stopped = stopped and any(map(_is_out_of_patience, self.callback_handler.callbacks))

    def _restore_callbacks(self, state: TrainerState) -> None:
        for name, stored in _callback_states(state).items():
            callbacks = [
                callback
                for callback in self.callback_handler.callbacks
                if isinstance(callback, ExportableState) and type(callback).__name__ == name
            ]
            # For several callbacks of one class the file contains a list that grew with each checkpoint.
            newest = stored[-len(callbacks) :] if isinstance(stored, list) else [stored]
            for callback, data in zip(callbacks, newest, strict=False):
                for attribute, value in data.get("attributes", {}).items():
                    setattr(callback, attribute, value)

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        # `Trainer` checks whether it is done only after a step, but there may be no step left.
        if self._had_stopped or self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
            return
        super()._run_epoch(*args, **kwargs)


def _callback_states(state: TrainerState) -> dict[str, Any]:
    """The states of the callbacks by class name, as in the file. The field is declared as a list of callbacks, which
    is what the state is made from."""
    states: Any = state.stateful_callbacks
    return states


def _is_out_of_patience(callback: TrainerCallback) -> bool:
    return (
        isinstance(callback, EarlyStoppingCallback)
        and callback.early_stopping_patience_counter >= callback.early_stopping_patience
    )
