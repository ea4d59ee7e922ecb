# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Cost of estimating Ĉ: 50,000 trusted rows, 1,000 classes, compared with a plain evaluation pass of the same model.

    python benchmarks/estimation.py

The model is BERT tiny (two layers, 128 units) on rows of 32 tokens, so small that the overhead is visible. The
estimate is everything that `train()` does between the stages: inference on the trusted rows, the sums, and the final
matrix. The plain pass is a loop over a `DataLoader` in inference mode that only counts correct predictions, which is
less than `Trainer.evaluate` does.

Both run alternately, a few batches each, in a process whose malloc keeps freed memory. If freed blocks can go back to
the system, one of the passes becomes slower by up to a sixth, depending on the memory layout.

Memory is the peak of a separate process above its memory before the pass. The extra memory is the difference between
the two, in K×K float64 matrices, the size of a `CorruptionMatrix`. These passes use batches of 32 rows, so that the
model's activations don't hide the extra memory.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from many_classes import MEBIBYTE, peak, reset_peak
from result_files import RESULTS, make_parser, write_result
from timing import SteppedJob, describe, measured, ratios, seconds_of, spread


LENGTH = 32
VOCABULARY = 30_522
MEMORY_BATCH = 32
UNTRUSTED = 1_000  # required by the method, but not used by the estimate
# Settings of glibc's malloc: reuse freed memory, or return it to the system at once.
KEEP_FREED = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": str(2**30), "MALLOC_TRIM_THRESHOLD_": str(2**32)}
RETURN_FREED = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}


def make_trainer(folder: str, trusted: int, classes: int, batch: int):
    """A trainer on random rows, trusted rows first, with trusted rows in each class."""
    import numpy as np
    from datasets import Dataset
    from transformers import BertConfig, BertForSequenceClassification, set_seed

    from glc_hf import GLCConfig, GLCTrainer

    set_seed(0)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=512,
        num_labels=classes,
    )
    rng, rows = np.random.default_rng(0), trusted + UNTRUSTED
    data = Dataset.from_dict(
        {
            "input_ids": rng.integers(1000, VOCABULARY, (rows, LENGTH), dtype=np.int32),
            "attention_mask": np.ones((rows, LENGTH), dtype=np.int8),
            "labels": np.arange(rows) % classes,
            "trusted": np.arange(rows) < trusted,
        }
    )
    args = GLCConfig(
        folder,
        method="glc",
        per_device_eval_batch_size=batch,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    return GLCTrainer(BertForSequenceClassification(config), args, train_dataset=data)


def estimate(trainer: Any, pause: Callable[[], None], every: int) -> Any:
    """Estimate the matrix as `train()` does; pause after every `every` batches."""
    from glc_hf.training.inference import TrainedStage, TrainedStages

    class PausingStages(TrainedStages):
        def infer(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
            for number, inferred in enumerate(super().infer(*args, **kwargs), start=1):
                yield inferred
                if number % every == 0:
                    pause()

    torch.set_num_threads(1)
    stages = [TrainedStage(trainer)]
    run = PausingStages(trainer.training_data, stages, trainer.accelerator, trainer.num_labels, trainer.class_names)
    trainer.method.estimate(run)
    return trainer.corruption_matrix


def plain_pass(trainer: Any, trusted: int, pause: Callable[[], None], every: int) -> float:
    """Compute the accuracy on the same rows."""
    from transformers import default_data_collator

    torch.set_num_threads(1)
    data = trainer.train_dataset.select(range(trusted)).remove_columns("trusted")
    loader = torch.utils.data.DataLoader(
        data, batch_size=trainer.args.eval_batch_size, collate_fn=default_data_collator
    )
    model, correct = trainer.model.eval(), 0
    for number, batch in enumerate(loader, start=1):
        labels = batch.pop("labels")
        with torch.inference_mode():
            correct += int((model(**batch).logits.argmax(dim=-1) == labels).sum())
        if number % every == 0:
            pause()
    return correct / trusted


def one_pass(trainer: Any, trusted: int, every: int, first: int) -> dict[str, float]:
    """Processor seconds of a whole estimate and a whole plain pass that run alternately; `first` sets which starts."""
    jobs = {
        "estimation": SteppedJob(lambda pause: estimate(trainer, pause, every)),
        "evaluation": SteppedJob(lambda pause: plain_pass(trainer, trusted, pause, every)),
    }
    seconds = dict.fromkeys(jobs, 0.0)
    turn = first
    while not all(job.finished for job in jobs.values()):
        for name in list(jobs) if turn % 2 == 0 else list(jobs)[::-1]:
            if not jobs[name].finished:
                seconds[name] += seconds_of(jobs[name])
        turn += 1
    return seconds


def times_here(options: argparse.Namespace) -> dict[str, list[float]]:
    """Processor seconds of several passes."""
    seconds: dict[str, list[float]] = {"estimation": [], "evaluation": []}
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(folder, options.trusted, options.classes, options.batch)
        plain_pass(trainer, min(10 * options.batch, options.trusted), _no_pause, 1)  # warm-up
        for number in range(options.passes):
            for name, taken in one_pass(trainer, options.trusted, options.every, number).items():
                seconds[name].append(taken)
            print(", ".join(f"{name} {values[-1]:.2f} s" for name, values in seconds.items()), file=sys.stderr)
    return seconds


def peak_here(name: str, trusted: int, classes: int) -> float:
    """Peak memory of a pass in this process, in MiB."""
    batch = min(MEMORY_BATCH, trusted)
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(folder, trusted, classes, batch)
        plain_pass(trainer, batch, _no_pause, 1)  # the first batch allocates memory that stays
        gc.collect()
        held = reset_peak()
        if name == "estimation":
            estimate(trainer, _no_pause, 1)
        else:
            plain_pass(trainer, trusted, _no_pause, 1)
        return peak() - held


def in_process(part: str, options: argparse.Namespace, malloc: dict[str, str]) -> Any:
    """Run this script with `--only` in a new process with these malloc settings, and return what it prints."""
    command = [sys.executable, __file__, "--only", part]
    for name in ("trusted", "classes", "batch", "passes", "every"):
        command += [f"--{name}", str(getattr(options, name))]
    process = subprocess.run(command, env={**os.environ, **malloc}, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(process.stdout.splitlines()[-1])


def _no_pause() -> None:
    """Continue without a pause."""


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--trusted", type=int, default=50_000)
    parser.add_argument("--classes", type=int, default=1_000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--every", type=int, default=5, help="batches per turn")
    parser.add_argument("--memory-repeats", type=int, default=3)
    parser.add_argument("--only", choices=["times", "estimation", "evaluation"], help="print times, or a peak in MiB")
    parser.add_argument("--output", type=Path, default=RESULTS / "estimation.json")
    options = parser.parse_args()
    import datasets

    datasets.disable_progress_bars()
    torch.set_num_threads(1)
    if options.only is not None:
        times = options.only == "times"
        print(json.dumps(times_here(options) if times else peak_here(options.only, options.trusted, options.classes)))
        return
    memory: dict[str, list[float]] = {"estimation": [], "evaluation": []}
    for _ in range(options.memory_repeats):
        for name, values in memory.items():
            values.append(in_process(name, options, RETURN_FREED))
        print("peak: " + ", ".join(f"{name} {values[-1]:.1f} MiB" for name, values in memory.items()), flush=True)
    seconds = in_process("times", options, KEEP_FREED)
    matrix = options.classes**2 * 8 / MEBIBYTE
    what = f"Ĉ from {options.trusted:,} trusted rows, K={options.classes:,}"
    against = "a plain evaluation pass of the same model"
    lines = [
        measured(
            what,
            against,
            ratios(seconds, "estimation", "evaluation"),
            at_most=1.05,
            seconds={name: spread(values, 1.0, 3) for name, values in seconds.items()},
        ),
        measured(
            f"{what}: extra peak memory",
            against,
            [(mine - theirs) / matrix for mine, theirs in zip(*memory.values(), strict=True)],
            at_most=3,
            unit=" K×K matrices",
            peak_mib={name: spread(values, 1.0, 1) for name, values in memory.items()},
            memory_batch=MEMORY_BATCH,
            matrix_mib=round(matrix, 1),
        ),
    ]
    for line in lines:
        print(describe(line))
    how = "whole passes that alternate batch by batch, processor time, one thread; memory in separate processes"
    packages = ["torch", "transformers", "datasets"]
    write_result(options.output, how, packages, batch=options.batch, measured=lines)


if __name__ == "__main__":
    main()
