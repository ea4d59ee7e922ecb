# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Kills runs (SIGKILL) at random points, resumes them, and checks that each ends with exactly the weights of an
undisturbed run. A run can be killed several times.

    python benchmarks/crashes.py --runs 32 --output benchmarks/results/crashes.json

A tiny BERT with dropout trains both stages of Gold Loss Correction, in one process or in two (gloo). Faults occur

- at a random time;
- at a random change of the file system: right before a file in the output folder is opened for writing, renamed or
  removed, which is mostly in the middle of a checkpoint;
- within a file: half of it is written.

Weights and matrix are compared element by element, without tolerance. Every attempt is a new process, forked from this
one, which has imported the libraries but never trains.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import transformers
from datasets import Dataset
from result_files import write_result
from transformers import BertConfig, BertForSequenceClassification, EarlyStoppingCallback, set_seed

from glc_hf import CorruptionMatrix, GLCConfig, GLCTrainer, corrupt_labels, mark_trusted
from glc_hf.training import resume as run_files


# Training setups, each with its own reference run. Twelve steps of stage 1 are two epochs.
SETUPS: dict[str, dict[str, Any]] = {
    "plain": {},
    "accumulating": {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4, "save_steps": 3},
    "continuing": {"stage2_start": "continue", "save_total_limit": 1},
    "best": {
        "trusted_eval_fraction": 0.3,
        "eval_strategy": "steps",
        "eval_steps": 2,
        "load_best_model_at_end": True,
        "metric_for_best_model": "accuracy",
        "save_total_limit": 1,
        "learning_rate": 3e-2,
    },
}
STAGES = ("before stage 1", "stage 1", "stage 2")
KINDS = ("time", "change", "half")
GLOBAL_BATCH = 8


def rows() -> Dataset:
    """Sentences of class-specific words, with noisy labels. The last batch of an epoch is not full."""
    draw = random.Random(0)
    labels = [draw.randrange(3) for _ in range(61)]
    words = [[label * 4 + draw.randrange(4) if draw.random() < 0.5 else draw.randrange(12, 40) for _ in range(6)]
             for label in labels]  # fmt: skip
    data = Dataset.from_dict({"input_ids": words, "label": labels})
    data = mark_trusted(data, count=16, stratify=True)
    return corrupt_labels(data, CorruptionMatrix.flip(3, 0.5))


def train(folder: Path, setup: str, processes: int, data: Dataset) -> None:
    """One attempt: resume from the folder, and save the weights and the matrix at the end."""
    set_seed(0)
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
            max_position_embeddings=8, num_labels=3, hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.2,
        )
    )  # fmt: skip
    settings = {
        "method": "glc",
        "output_dir": str(folder / "run"),
        "per_device_train_batch_size": GLOBAL_BATCH,
        "max_steps": 12,
        "learning_rate": 1e-2,
        "save_strategy": "steps",
        "save_steps": 2,
        "logging_steps": 1,
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "ddp_backend": "gloo" if processes > 1 else None,
        **SETUPS[setup],
    }
    settings["per_device_train_batch_size"] //= processes
    callbacks = [EarlyStoppingCallback(early_stopping_patience=2)] if setup == "best" else []
    trainer = GLCTrainer(model, GLCConfig(**settings), train_dataset=data, callbacks=callbacks)
    assert trainer.accelerator.num_processes == processes
    trainer.train(resume_from_checkpoint=True)
    if trainer.is_world_process_zero():
        weights = {name: value.clone() for name, value in trainer.model.state_dict().items()}
        matrix = torch.tensor(trainer.corruption_matrix.probs).contiguous()
        safetensors.torch.save_file({**weights, "corruption matrix": matrix}, folder / "scratch")
        os.replace(folder / "scratch", folder / "weights.safetensors")


# ---------------------------------------------------------------------- faults
def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def watch_changes(folder: Path, number: int | None) -> list[int]:
    """Count the file system changes in the folder, and die before change `number`."""
    inside, count = str(folder), [0]

    def hook(event: str, arguments: tuple) -> None:
        if event == "open":
            changes = isinstance(arguments[1], str) and arguments[1][:1] in "wax"
        else:
            changes = event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir")
        if changes and isinstance(arguments[0], (str, os.PathLike)) and str(arguments[0]).startswith(inside):
            count[0] += 1
            if count[0] == number:
                die()

    sys.addaudithook(hook)
    return count


def watch_files(number: int | None) -> list[int]:
    """Count the tensor and JSON files written, and die when half of file `number` is written."""
    count = [0]

    def interrupt(write: Callable, path_of: Callable[..., Any]) -> Callable:
        def written(*arguments: Any, **options: Any) -> Any:
            result = write(*arguments, **options)
            count[0] += 1
            if count[0] == number:
                path = path_of(*arguments, **options)
                os.truncate(path, os.path.getsize(path) // 2)
                die()
            return result

        return written

    torch.save = interrupt(torch.save, lambda content, file, **options: file)
    for module in (transformers.modeling_utils, safetensors.torch, run_files):
        name = "safe_save_file" if hasattr(module, "safe_save_file") else "save_file"
        setattr(module, name, interrupt(getattr(module, name), lambda tensors, file, *rest, **options: file))
    Path.write_text = interrupt(Path.write_text, lambda path, *rest, **options: path)
    return count


def attempt(
    folder: Path, setup: str, processes: int, data: Dataset, kind: str = "none", at: float = 0, rank: int = 0
) -> dict[str, Any]:
    """
    Run an attempt in new processes, with at most one fault.

    Args:
        folder (`Path`): Folder of the run.
        setup (`str`): One of `SETUPS`.
        processes (`int`): Number of processes.
        data (`Dataset`): The training set.
        kind (`str`): One of `KINDS`, or `"none"`.
        at (`float`): Seconds, or the number of the change or file.
        rank (`int`): The process to kill; the others are killed after it, as torchrun does.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    children = []
    started = time.monotonic()
    for number in range(processes):
        child = os.fork()
        if child == 0:
            _run_child(number, processes, port, folder, setup, data, kind, at if number == rank else None)
        children.append(child)
    if kind == "time":
        while time.monotonic() - started < at and not (folder / "weights.safetensors").exists():
            time.sleep(0.005)
        os.kill(children[rank], signal.SIGKILL)
    codes = _wait(children)
    seconds = time.monotonic() - started
    counts = json.loads((folder / "counts.json").read_text()) if (folder / "counts.json").exists() else {}
    return {"codes": codes, "seconds": seconds, **counts}


def _run_child(
    number: int, processes: int, port: int, folder: Path, setup: str, data: Dataset, kind: str, at: float | None
) -> None:
    """Run the attempt in a forked process and exit."""
    code = 1
    try:
        log = os.open(folder / f"log{number}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if processes > 1:
            os.environ.update(
                RANK=str(number), LOCAL_RANK=str(number), WORLD_SIZE=str(processes), LOCAL_WORLD_SIZE=str(processes),
                MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
            )  # fmt: skip
        if kind == "none":
            changes, files = watch_changes(folder / "run", None), watch_files(None)
        elif kind == "change" and at is not None:
            watch_changes(folder / "run", int(at))
        elif kind == "half" and at is not None:
            watch_files(int(at))
        train(folder, setup, processes, data)
        if kind == "none" and number == 0:
            (folder / "counts.json").write_text(json.dumps({"changes": changes[0], "files": files[0]}))
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(children: list[int]) -> list[int]:
    """Wait for all processes and return their exit codes. If one fails, kill the others."""
    codes: dict[int, int] = {}
    while len(codes) < len(children):
        for child in children:
            if child not in codes:
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    codes[child] = os.waitstatus_to_exitcode(status)
        if any(code != 0 for code in codes.values()):
            for child in children:
                if child not in codes:
                    os.kill(child, signal.SIGKILL)
        time.sleep(0.005)
    return [codes[child] for child in children]


# ---------------------------------------------------------------------- runs
def differing(folder: Path, reference: dict[str, torch.Tensor]) -> list[str]:
    """The names of the tensors that are not equal, element by element."""
    weights = safetensors.torch.load_file(folder / "weights.safetensors")
    if weights.keys() != reference.keys():
        return sorted(weights.keys() ^ reference.keys())
    return [name for name, value in reference.items() if not torch.equal(weights[name], value)]


def current_stage(folder: Path) -> str:
    """The stage of a run according to its files."""
    run = folder / "run"
    if (run / "_run_state" / "estimate.json").exists():
        return "stage 2"
    return "stage 1" if run.exists() else "before stage 1"


def try_run(
    draw: random.Random, scratch: Path, setup: str, processes: int, data: Dataset, reference: dict[str, Any]
) -> dict[str, Any]:
    """One run with one to three faults."""
    folder = Path(tempfile.mkdtemp(dir=scratch))
    faults = []
    for _ in range(draw.choice((1, 1, 2, 3))):
        kind = draw.choice(KINDS)
        most = reference["seconds"] if kind == "time" else reference["changes" if kind == "change" else "files"]
        at = draw.uniform(0, most) if kind == "time" else draw.randrange(1, max(int(most), 1) + 1)
        rank = draw.randrange(processes) if kind == "time" else 0  # only the main process writes
        codes = attempt(folder, setup, processes, data, kind, at, rank)["codes"]
        hit = -signal.SIGKILL in codes
        if not hit and any(codes):
            return {"way": setup, "processes": processes, "faults": faults, "lost": _log(folder)}
        if hit:
            half_saved = any(not (c / "trainer_state.json").exists() for c in folder.glob("run/**/checkpoint-*"))
            faults.append({"kind": kind, "during": current_stage(folder), "checkpoint_cut_short": half_saved})
        if not any(codes):
            break
    outcome: dict[str, Any] = {"way": setup, "processes": processes, "faults": faults, "lost": None}
    (folder / "weights.safetensors").unlink(missing_ok=True)
    if any(attempt(folder, setup, processes, data)["codes"]):
        outcome["lost"] = _log(folder)
    else:
        unequal = differing(folder, reference["weights"])
        outcome["lost"] = f"other weights: {', '.join(unequal[:3])}" if unequal else None
    shutil.rmtree(folder)
    return outcome


def _log(folder: Path) -> str:
    return "\n".join((folder / "log0").read_text(errors="replace").splitlines()[-6:])


def undisturbed(scratch: Path, setup: str, processes: int, data: Dataset) -> dict[str, Any]:
    """The reference run."""
    folder = Path(tempfile.mkdtemp(dir=scratch))
    reference = attempt(folder, setup, processes, data)
    if any(reference["codes"]):
        raise SystemExit(f"the undisturbed run failed:\n{(folder / 'log0').read_text(errors='replace')}")
    return {**reference, "weights": safetensors.torch.load_file(folder / "weights.safetensors")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--runs", type=int, default=32, help="number of runs")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--ways", nargs="+", default=list(SETUPS), choices=list(SETUPS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="JSON file for the results")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    data, draw = rows(), random.Random(arguments.seed)
    outcomes = []
    with tempfile.TemporaryDirectory() as scratch:
        combinations = [(setup, processes) for processes in arguments.processes for setup in arguments.ways]
        references = {}
        for number in range(arguments.runs):
            setup, processes = combinations[number % len(combinations)]
            if (setup, processes) not in references:
                references[setup, processes] = undisturbed(Path(scratch), setup, processes, data)
            outcomes.append(try_run(draw, Path(scratch), setup, processes, data, references[setup, processes]))
            faults = ", ".join(f"{fault['kind']} in {fault['during']}" for fault in outcomes[-1]["faults"]) or "none"
            print(f"{number + 1:3d} {setup:13s} {processes} process(es); killed: {faults}; "
                  f"{outcomes[-1]['lost'] or 'equal'}", flush=True)  # fmt: skip
    faults = [fault for outcome in outcomes for fault in outcome["faults"]]
    figures = {
        "runs": len(outcomes),
        "runs_lost": sum(outcome["lost"] is not None for outcome in outcomes),
        "faults": len(faults),
        "faults_by_kind": {kind: sum(fault["kind"] == kind for fault in faults) for kind in KINDS},
        "faults_by_stage": {stage: sum(fault["during"] == stage for fault in faults) for stage in STAGES},
        "faults_that_cut_a_checkpoint_short": sum(fault["checkpoint_cut_short"] for fault in faults),
        "faults_in_two_processes": sum(len(outcome["faults"]) for outcome in outcomes if outcome["processes"] > 1),
    }
    print(figures)
    if arguments.output is not None:
        what = "runs killed with SIGKILL and resumed; lost = not bit-equal to an undisturbed run, or failed"
        write_result(arguments.output, what, ["torch", "transformers"], **figures, outcomes=outcomes)
    sys.exit(1 if figures["runs_lost"] else 0)


if __name__ == "__main__":
    main()
