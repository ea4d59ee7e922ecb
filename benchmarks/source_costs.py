# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Costs of several sources of labels: a training step with the votes of 68 sources compared with a step of the plain
`Trainer`, and the time to estimate 5,000 annotators from 100,000 answers.

    python benchmarks/source_costs.py

Steps are measured as in `training_step.py`; half of the sources vote on each row. Two steps of the run also estimate
the sources again, and the median leaves them out.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from result_files import RESULTS, make_parser, write_result
from timing import describe, measured, ratios, seconds_of, spread, take_turns
from training_step import CLASSES, step_by_step, trainers


SOURCES = 68
ANNOTATORS, ANSWERS, ANSWERS_PER_ITEM = 5_000, 100_000, 5
TRUSTED_ITEMS = 100


def votes_of_sources(labels: list[int]) -> np.ndarray:
    """Votes of 68 sources on each label, of which 40 % to 90 % are right; -1 for half of them."""
    rng = np.random.default_rng(1)
    labels = np.asarray(labels)
    shape = (len(labels), SOURCES)
    right = rng.random(shape) < rng.uniform(0.4, 0.9, SOURCES)
    votes = np.where(right, labels[:, None], rng.integers(CLASSES, size=shape))
    return np.where(rng.random(shape) < 0.5, votes, -1)


def annotators() -> tuple[Any, np.ndarray]:
    """The answers of the annotators, and the true classes."""
    from glc_hf.labels.label_batch import Votes

    rng = np.random.default_rng(0)
    items = ANSWERS // ANSWERS_PER_ITEM
    classes = rng.integers(CLASSES, size=items)
    first = rng.integers(ANNOTATORS, size=(items, 1))
    who = np.sort((first + np.arange(ANSWERS_PER_ITEM) * (ANNOTATORS // ANSWERS_PER_ITEM)) % ANNOTATORS, axis=1)
    right = rng.random(who.shape) < rng.uniform(0.4, 0.95, ANNOTATORS)[who]
    answers = np.where(right, classes[:, None], rng.integers(CLASSES, size=who.shape))
    offsets = np.arange(0, ANSWERS + 1, ANSWERS_PER_ITEM)
    return Votes(tuple(map(str, range(ANNOTATORS))), offsets, who.ravel(), answers.ravel()), classes


def estimation(turns: int) -> list[dict[str, Any]]:
    """Seconds of `fit_sources`."""
    from glc_hf.correction.sources import fit_sources

    votes, classes = annotators()
    probs = np.full((len(votes), CLASSES), 0.4 / (CLASSES - 1))
    probs[np.arange(len(votes)), classes] = 0.6
    what = f"{ANNOTATORS:,} annotators from {ANSWERS:,} answers, K={CLASSES}"
    cases = [
        (f"estimating {what}, {TRUSTED_ITEMS} trusted rows", TRUSTED_ITEMS, None),
        ("the same with the predictions of a model", TRUSTED_ITEMS, probs),
        ("the same with neither", 0, None),
    ]
    lines = []
    for name, trusted, given in cases:
        items = np.arange(trusted)
        seconds = [
            seconds_of(lambda items=items, given=given: fit_sources(votes, CLASSES, items, classes[items], given))
            for _ in range(turns)
        ]
        lines.append(measured(name, "—", seconds, at_most=10, unit=" s"))
    return lines


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--steps", type=int, default=100, help="steps that are measured")
    parser.add_argument("--warm-up", type=int, default=5, help="steps before them")
    parser.add_argument("--turns", type=int, default=5, help="estimates that are measured")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--output", type=Path, default=RESULTS / "source_costs.json")
    options = parser.parse_args()
    import datasets
    import torch

    datasets.disable_progress_bars()
    torch.set_num_threads(1)

    def report(turn: int, taken: dict[str, float]) -> None:
        if (turn + 1) % 20 == 0:
            print(f"{turn + 1:4d} " + ", ".join(f"{name} {seconds:.3f} s" for name, seconds in taken.items()))

    lines = estimation(options.turns)
    with tempfile.TemporaryDirectory() as folder:
        both = trainers(folder, options.steps + options.warm_up, options.batch, options.length, votes_of_sources)
        jobs = {name: step_by_step(trainer, 1) for name, trainer in both.items()}
        seconds = take_turns(jobs, options.steps, options.warm_up, time.process_time, report)
        for job in jobs.values():
            job.finish()
    step = measured(
        f"training step with the votes of {SOURCES} sources: MiniLM, batch {options.batch}, length {options.length}",
        "step of the plain `Trainer`",
        ratios(seconds, "GLCTrainer", "Trainer"),
        at_most=1.05,
        milliseconds={name: spread(values, 1e3, 2) for name, values in seconds.items()},
    )
    for line in (step, *lines):
        print(describe(line))
    what = "whole steps of two `train()` that alternate, and `fit_sources`; processor time, one thread"
    write_result(options.output, what, ["torch", "transformers", "accelerate"], threads=1, measured=[step, *lines])


if __name__ == "__main__":
    main()
