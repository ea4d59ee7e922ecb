# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Time of a training step of the last stage: `GLCTrainer` with the corrected loss compared with the plain `Trainer`, for
a pretrained MiniLM on rows of 32 tokens, 32 rows per batch.

    python benchmarks/training_step.py

Both trainers run their `train()` and alternate after each step. A step is everything between two `on_step_end` events:
reading and collating rows, forward, backward, clipping, optimizer, scheduler and logging. The rows are the same and of
equal length, so that all batches take the same work. The matrix is given, so that there is only the last stage. One
thread is measured in processor time, more threads in wall-clock time.
"""

from __future__ import annotations

import copy
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from result_files import RESULTS, make_parser, write_result
from timing import SteppedJob, describe, measured, ratios, spread, take_turns
from trec import minilm_folder


CLASSES = 6
TRUSTED = 0.02


def rows(number: int, length: int, vocabulary: int):
    """Noisy rows of random tokens, all of one length, with the flag, and their matrix."""
    import numpy as np
    from datasets import Dataset

    from glc_hf import CorruptionMatrix, corrupt_labels, mark_trusted

    rng = np.random.default_rng(0)
    data = Dataset.from_dict(
        {
            "input_ids": rng.integers(1000, vocabulary, (number, length)).tolist(),
            "token_type_ids": np.zeros((number, length), dtype=np.int64).tolist(),
            "attention_mask": np.ones((number, length), dtype=np.int64).tolist(),
            "label": rng.integers(CLASSES, size=number).tolist(),
        }
    )
    matrix = CorruptionMatrix.flip(CLASSES, 0.6)
    return corrupt_labels(mark_trusted(data, fraction=TRUSTED), matrix), matrix


def trainers(folder: str, steps: int, batch: int, length: int, votes: Callable | None = None) -> dict[str, Any]:
    """The two trainers, with the same rows and initial weights. `votes` makes the votes of several sources of the true
    labels: `GLCTrainer` is then trained on these."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments, set_seed

    from glc_hf import GLCConfig, GLCTrainer

    tokenizer = AutoTokenizer.from_pretrained(minilm_folder())
    set_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(minilm_folder(), num_labels=CLASSES)
    data, matrix = rows(batch * steps, length, len(tokenizer))
    settings = {
        "max_steps": steps,
        "per_device_train_batch_size": batch,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
    }
    plain = Trainer(
        model,
        TrainingArguments(f"{folder}/plain", **settings),
        train_dataset=data.remove_columns(["trusted", "clean_label"]),
        processing_class=tokenizer,
    )
    if votes is not None:
        data = data.add_column("votes", votes(data["clean_label"][:]).tolist()).remove_columns("clean_label")
        settings["votes_column"], matrix = "votes", None
    corrected = GLCTrainer(
        copy.deepcopy(model),
        GLCConfig(f"{folder}/corrected", method="glc", **settings),
        train_dataset=data,
        processing_class=tokenizer,
        corruption_matrix=matrix,
    )
    return {"Trainer": plain, "GLCTrainer": corrected}


def step_by_step(trainer: Any, threads: int) -> SteppedJob:
    """The trainer's `train()` as a job that pauses after each step."""
    import torch
    from transformers import TrainerCallback

    class Pause(TrainerCallback):
        def __init__(self, pause: Callable[[], None]) -> None:
            self.pause = pause

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.pause()

    def job(pause: Callable[[], None]) -> None:
        torch.set_num_threads(threads)
        trainer.add_callback(Pause(pause))
        trainer.train()

    return SteppedJob(job)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--steps", type=int, default=200, help="steps that are measured")
    parser.add_argument("--warm-up", type=int, default=5, help="steps before them")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=RESULTS / "training_step.json")
    options = parser.parse_args()
    import datasets
    import torch

    datasets.disable_progress_bars()
    torch.set_num_threads(options.threads)
    clock = time.process_time if options.threads == 1 else time.perf_counter

    def report(turn: int, taken: dict[str, float]) -> None:
        if (turn + 1) % 20 == 0:
            print(f"{turn + 1:4d} " + ", ".join(f"{name} {seconds:.3f} s" for name, seconds in taken.items()))

    with tempfile.TemporaryDirectory() as folder:
        both = trainers(folder, options.steps + options.warm_up, options.batch, options.length)
        jobs = {name: step_by_step(trainer, options.threads) for name, trainer in both.items()}
        seconds = take_turns(jobs, options.steps, options.warm_up, clock, report)
        for job in jobs.values():
            job.finish()
    line = measured(
        f"training step of the last stage: MiniLM, batch {options.batch}, length {options.length}",
        "step of the plain `Trainer`",
        ratios(seconds, "GLCTrainer", "Trainer"),
        at_most=1.01,
        milliseconds={name: spread(values, 1e3, 2) for name, values in seconds.items()},
    )
    print(describe(line))
    what = "whole steps of two `train()` that alternate; " + (
        "processor time, one thread" if options.threads == 1 else f"wall-clock time, {options.threads} threads"
    )
    packages = ["torch", "transformers", "accelerate"]
    write_result(options.output, what, packages, threads=options.threads, measured=[line])


if __name__ == "__main__":
    main()
