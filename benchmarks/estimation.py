# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
What the estimate of Ĉ costs: 50,000 trusted rows, 1,000 classes, against a plain evaluation pass of the same model.

    python benchmarks/estimation.py

The model is a BERT of two layers (128 wide, the published "tiny") on rows of 32 tokens: small, so that what is added
to its forward shows. The estimate is all that `train()` does between the stages: inference on the trusted rows, the
sums, the finished matrix. The plain pass is a loop over a `DataLoader` in inference mode that keeps nothing but the
number of right answers: less than `Trainer.evaluate` does.

Both take turns of some batches each within one run, in a process that keeps the memory it frees. Whether a freed block
goes back to the system, which takes time to get it again, depends on where it happens to lie: that made now the one
pass slower and now the other, by up to a sixth.

Memory is the peak of a process of its own above what it held before; the extra is the difference of the two, in K×K
matrices of float64, as a `CorruptionMatrix` holds them. There the batches are of 32 rows, so that the model's
activations are too small to hide much behind them.
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
from timing import RESULTS, InSteps, in_words, measured, ratios, seconds_of, spread, write_result


LENGTH = 32
VOCABULARY = 30_522
MEMORY_BATCH = 32
UNTRUSTED = 1_000  # the method wants some; the estimate does not look at them
# For glibc's malloc. Kept: freed memory is used again. Given back: what a process holds is what it uses.
KEPT = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": str(2**30), "MALLOC_TRIM_THRESHOLD_": str(2**32)}
GIVEN_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}


def make_trainer(folder: str, trusted: int, classes: int, batch: int):
    """A trainer on random rows, the trusted ones first; each class has some."""
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
        per_device_eval_batch_size=batch,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    return GLCTrainer(BertForSequenceClassification(config), args, train_dataset=data)


def estimate(trainer: Any, pause: Callable[[], None], every: int) -> Any:
    """The matrix, by the way that `train()` takes; pauses after every so many batches."""
    from glc_hf.training.inference import TrainedStages

    class Paused(TrainedStages):
        """Counts the batches."""

        def infer(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
            for number, inferred in enumerate(super().infer(*args, **kwargs), start=1):
                yield inferred
                if number % every == 0:
                    pause()

    torch.set_num_threads(1)
    run = Paused(trainer.training_data, [trainer], trainer.accelerator, trainer.num_labels, trainer.class_names)
    trainer.method.estimate(run)
    return trainer.corruption_matrix


def plain_pass(trainer: Any, trusted: int, pause: Callable[[], None], every: int) -> float:
    """The accuracy on the same rows."""
    from transformers import default_data_collator

    torch.set_num_threads(1)
    data = trainer.train_dataset.select(range(trusted)).remove_columns("trusted")
    loader = torch.utils.data.DataLoader(
        data, batch_size=trainer.args.eval_batch_size, collate_fn=default_data_collator
    )
    model, right = trainer.model.eval(), 0
    for number, batch in enumerate(loader, start=1):
        labels = batch.pop("labels")
        with torch.inference_mode():
            right += int((model(**batch).logits.argmax(dim=-1) == labels).sum())
        if number % every == 0:
            pause()
    return right / trusted


def one_pass(trainer: Any, trusted: int, every: int, first: int) -> dict[str, float]:
    """The processor seconds of a whole estimate and a whole plain pass that take turns; `first` says who begins."""
    jobs = {
        "estimation": InSteps(lambda pause: estimate(trainer, pause, every)),
        "evaluation": InSteps(lambda pause: plain_pass(trainer, trusted, pause, every)),
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
    """The processor seconds of each pass, of several that take turns."""
    seconds: dict[str, list[float]] = {"estimation": [], "evaluation": []}
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(folder, options.trusted, options.classes, options.batch)
        plain_pass(trainer, min(10 * options.batch, options.trusted), _go_on, 1)  # warm
        for number in range(options.passes):
            for name, taken in one_pass(trainer, options.trusted, options.every, number).items():
                seconds[name].append(taken)
            print(", ".join(f"{name} {values[-1]:.2f} s" for name, values in seconds.items()), file=sys.stderr)
    return seconds


def peak_here(name: str, trusted: int, classes: int) -> float:
    """The same in this process."""
    batch = min(MEMORY_BATCH, trusted)
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(folder, trusted, classes, batch)
        plain_pass(trainer, batch, _go_on, 1)  # what the first batch of a process takes for good is no part of a pass
        gc.collect()
        held = reset_peak()
        if name == "estimation":
            estimate(trainer, _go_on, 1)
        else:
            plain_pass(trainer, trusted, _go_on, 1)
        return peak() - held


def in_process(part: str, options: argparse.Namespace, malloc: dict[str, str]) -> Any:
    """What `--only` prints for a part, in a process of its own with these settings of malloc."""
    command = [sys.executable, __file__, "--only", part]
    for name in ("trusted", "classes", "batch", "passes", "every"):
        command += [f"--{name}", str(getattr(options, name))]
    done = subprocess.run(command, env={**os.environ, **malloc}, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def _go_on() -> None:
    """A pause that is none."""


def main() -> None:
    """Measures, prints, and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trusted", type=int, default=50_000)
    parser.add_argument("--classes", type=int, default=1_000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--every", type=int, default=5, help="batches of a turn")
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
            values.append(in_process(name, options, GIVEN_BACK))
        print("peak: " + ", ".join(f"{name} {values[-1]:.1f} MiB" for name, values in memory.items()), flush=True)
    seconds = in_process("times", options, KEPT)
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
            f"{what}: extra memory at the peak",
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
        print(in_words(line))
    how = "whole passes that take turns batch by batch, processor time, one thread; memory in processes of their own"
    write_result(options.output, how, lines, ["torch", "transformers", "datasets"], batch=options.batch)


if __name__ == "__main__":
    main()
