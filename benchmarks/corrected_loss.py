# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
What the corrected cross-entropy costs: forward and backward on one CPU thread, against PyTorch's cross-entropy and
against the authors' formula.

    python benchmarks/corrected_loss.py --output benchmarks/results/corrected_loss.json

The contestants take turns within one run, so that whatever else the machine does meets all of them alike, and each
ratio is the median of the ratios of neighbouring turns. The authors' formula, which reads the whole matrix and so
empties the caches for the others, has one turn in twenty, and a turn that is not counted follows it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from glc_hf import CorruptionMatrix, corrected_cross_entropy


# (rows, classes, repeats)
SIZES = [(256, 10, 2000), (256, 100, 1500), (256, 1000, 400), (64, 10000, 150)]
TRUSTED_SHARE = 0.1
TURNS_BETWEEN_AUTHORS = 20


def authors_formula(logits: Tensor, labels: Tensor, matrix: Tensor) -> Tensor:
    """-log(clamp((softmax @ C).gather(y))): a product with the whole matrix, and an epsilon against log 0."""
    noisy = torch.softmax(logits, dim=-1) @ matrix
    return -noisy.gather(1, labels.unsqueeze(1)).clamp(min=1e-12).log().mean()


def contestants(rows: int, classes: int) -> dict[str, Callable[[], None]]:
    """Each does one forward and backward on the same logits, with all of its checks."""
    torch.manual_seed(0)
    logits = (3 * torch.randn(rows, classes)).requires_grad_()
    labels = torch.randint(classes, (rows,))
    trusted = torch.rand(rows) < TRUSTED_SHARE
    matrix = CorruptionMatrix.uniform(classes, 0.5)
    tensor = torch.tensor(matrix.probs, dtype=torch.float32)
    losses: dict[str, Callable[[], Tensor]] = {
        "cross_entropy": lambda: F.cross_entropy(logits, labels),
        "corrected": lambda: corrected_cross_entropy(logits, labels, matrix),
        "corrected_with_trusted": lambda: corrected_cross_entropy(logits, labels, matrix, trusted),
        "authors": lambda: authors_formula(logits, labels, tensor),
    }

    def step(loss: Callable[[], Tensor]) -> Callable[[], None]:
        def run() -> None:
            logits.grad = None
            loss().backward()

        return run

    return {name: step(loss) for name, loss in losses.items()}


def measure(rows: int, classes: int, repeats: int) -> dict[str, object]:
    """Median microseconds and quartiles of each contestant, and the ratios to cross-entropy."""
    runs = contestants(rows, classes)
    authors = runs.pop("authors")
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    ratios: dict[str, list[float]] = {name: [] for name in [*runs, "authors"]}
    seconds["authors"] = []
    for turn in range(-10, repeats):
        times = {name: _seconds(run) for name, run in runs.items()}
        if turn < 0:
            continue
        if turn % TURNS_BETWEEN_AUTHORS == 0:
            times["authors"] = _seconds(authors)
            for run in runs.values():
                run()
        for name, taken in times.items():
            seconds[name].append(taken)
            ratios[name].append(taken / times["cross_entropy"])
    result: dict[str, object] = {"rows": rows, "classes": classes, "repeats": repeats, "microseconds": {}, "ratio": {}}
    for name in seconds:
        result["microseconds"][name] = _spread(seconds[name], 1e6)
        result["ratio"][name] = _spread(ratios[name], 1.0)
    return result


def _seconds(run: Callable[[], None]) -> float:
    """Processor time, of all threads: other programs that want the processor don't count."""
    start = time.process_time()
    run()
    return time.process_time() - start


def _spread(values: list[float], unit: float) -> dict[str, float]:
    low, median, high = (round(value * unit, 3) for value in statistics.quantiles(values, n=4))
    return {"median": median, "lower_quartile": low, "upper_quartile": high}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--output", type=Path, help="write the figures to this JSON file")
    parser.add_argument("--repeats", type=float, default=1.0, help="multiplies the number of repeats")
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    print("processor time of forward + backward, one thread; ratio to F.cross_entropy: median (quartiles)")
    print(f"{'rows':>5} {'classes':>7} {'cross_entropy':>14} {'corrected':>20} {'with trusted':>20} {'authors':>20}")
    results = []
    for rows, classes, repeats in SIZES:
        result = measure(rows, classes, max(2 * TURNS_BETWEEN_AUTHORS, int(repeats * arguments.repeats)))
        results.append(result)
        cells = [
            f"{r['median']:6.2f} ({r['lower_quartile']:.2f}-{r['upper_quartile']:.2f})"
            for r in (result["ratio"][name] for name in ("corrected", "corrected_with_trusted", "authors"))
        ]
        plain = result["microseconds"]["cross_entropy"]["median"]
        print(f"{rows:5d} {classes:7d} {plain:11.0f} µs " + " ".join(f"{cell:>20}" for cell in cells), flush=True)

    if arguments.output is not None:
        content = {
            "command": shlex.join(["python", *sys.argv]),
            "what": "processor time of forward + backward, float32, one thread; contestants take turns in one run",
            "trusted_share": TRUSTED_SHARE,
            "versions": {"python": platform.python_version(), "torch": torch.__version__},
            "cpu_count": os.cpu_count(),
            "results": results,
        }
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
