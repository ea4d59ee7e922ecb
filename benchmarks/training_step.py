# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
What a step of the last stage costs: `GLCTrainer` with the corrected loss against the plain `Trainer`, a pretrained
MiniLM on rows of 32 tokens, 32 rows a batch.

    python benchmarks/training_step.py

Both trainers run their own `train()` from start to end, and take turns after each step: a step is everything from one
`on_step_end` to the next (reading and collating the rows, forward, backward, clipping, optimizer, scheduler, logging).
The rows are the same; their length is too, so that a batch is the same work whichever rows it holds. The matrix is
given, so that the last stage is the only one. With one thread the time is the processor's, with more it is the wall's.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from timing import RESULTS, InSteps, in_words, measured, ratios, spread, take_turns, write_result
from trec import minilm_folder


CLASSES = 6
TRUSTED = 0.02


def rows(number: int, length: int, vocabulary: int):
    """Noisy rows of random tokens with the flag, all of one length."""
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


def trainers(folder: str, steps: int, batch: int, length: int) -> dict[str, Any]:
    """The two trainers, on the same rows and the same initial weights."""
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
    corrected = GLCTrainer(
        copy.deepcopy(model),
        GLCConfig(f"{folder}/corrected", **settings),
        train_dataset=data,
        processing_class=tokenizer,
        corruption_matrix=matrix,
    )
    return {"Trainer": plain, "GLCTrainer": corrected}


def step_by_step(trainer: Any, threads: int) -> InSteps:
    """The trainer's `train()`, to be called once for each step."""
    import torch
    from transformers import TrainerCallback

    class Pause(TrainerCallback):
        """Stops the training after each step."""

        def __init__(self, pause: Callable[[], None]) -> None:
            self.pause = pause

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.pause()

    def job(pause: Callable[[], None]) -> None:
        torch.set_num_threads(threads)
        trainer.add_callback(Pause(pause))
        trainer.train()

    return InSteps(job)


def main() -> None:
    """Measures, prints, and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, help="steps that count")
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
        made = trainers(folder, options.steps + options.warm_up, options.batch, options.length)
        jobs = {name: step_by_step(trainer, options.threads) for name, trainer in made.items()}
        seconds = take_turns(jobs, options.steps, options.warm_up, clock, report)
        for job in jobs.values():
            job.to_the_end()
    line = measured(
        f"a training step of the last stage: MiniLM, batch {options.batch}, length {options.length}",
        "a step of the plain `Trainer`",
        ratios(seconds, "GLCTrainer", "Trainer"),
        at_most=1.03,
        milliseconds={name: spread(values, 1e3, 2) for name, values in seconds.items()},
    )
    print(in_words(line))
    what = "whole steps of two `train()` that take turns; " + (
        "processor time, one thread" if options.threads == 1 else f"wall-clock time, {options.threads} threads"
    )
    write_result(options.output, what, [line], ["torch", "transformers", "accelerate"], threads=options.threads)


if __name__ == "__main__":
    main()
