# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
What the estimate of Ĉ costs: 50,000 trusted rows, 1,000 classes, against a plain evaluation pass of the same model.

    python benchmarks/estimation.py

The model is a BERT of two layers (128 wide, the published "tiny") on rows of 32 tokens: small, so that what is added
to its forward shows. The estimate is all that `train()` does between the stages: inference on the trusted rows, the
sums, the finished matrix. The plain pass is a loop over a `DataLoader` in inference mode that keeps nothing but the
number of right answers: less than `Trainer.evaluate` does.

Both take turns of some batches each within one run. Memory is the peak of a process of its own above what it held
before; the extra is the difference of the two, in K×K matrices of float64, as a `CorruptionMatrix` holds them. There
the batches are of 32 rows, so that the model's activations are too small to hide much behind them.
"""

from __future__ import annotations

import argparse
import gc
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
    from glc_hf.training.inference import BetweenStages

    class Paused(BetweenStages):
        """Counts the batches."""

        def infer(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
            for number, inferred in enumerate(super().infer(*args, **kwargs), start=1):
                yield inferred
                if number % every == 0:
                    pause()

    torch.set_num_threads(1)
    run = Paused(trainer.training_data, [trainer], trainer.accelerator, trainer.num_labels, trainer.class_names)
    trainer.method.between(run)
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


def peak_alone(name: str, trusted: int, classes: int) -> float:
    """Mebibytes that a pass takes at its highest, above what is held before it, in a process of its own."""
    command = [sys.executable, __file__, "--peak-of", name, "--trusted", str(trusted), "--classes", str(classes)]
    # Large blocks go back to the system when they are freed: what is held is what is used.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout.split()[-1])


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
    parser.add_argument("--peak-of", choices=["estimation", "evaluation"], help="only print this peak in MiB")
    parser.add_argument("--output", type=Path, default=RESULTS / "estimation.json")
    options = parser.parse_args()
    import datasets

    datasets.disable_progress_bars()
    torch.set_num_threads(1)
    if options.peak_of is not None:
        print(peak_here(options.peak_of, options.trusted, options.classes))
        return
    memory: dict[str, list[float]] = {"estimation": [], "evaluation": []}
    for _ in range(options.memory_repeats):
        for name, values in memory.items():
            values.append(peak_alone(name, options.trusted, options.classes))
        print("peak: " + ", ".join(f"{name} {values[-1]:.1f} MiB" for name, values in memory.items()), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(folder, options.trusted, options.classes, options.batch)
        plain_pass(trainer, min(10 * options.batch, options.trusted), _go_on, 1)  # warm
        seconds: dict[str, list[float]] = {"estimation": [], "evaluation": []}
        for number in range(options.passes):
            for name, taken in one_pass(trainer, options.trusted, options.every, number).items():
                seconds[name].append(taken)
            print(", ".join(f"{name} {values[-1]:.2f} s" for name, values in seconds.items()), flush=True)
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
