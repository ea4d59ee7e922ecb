# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Memory with many classes: the corrected loss and the estimation of the matrix, compared with plain cross-entropy.

    python benchmarks/many_classes.py --output benchmarks/results/many_classes.json

Each figure is the peak resident memory of a separate process above its memory before the work. The inputs exist
before: the logits, the K×K matrix, and for the loss the transposed copy that the first call caches. The results also
contain the sizes of tensors that must never be built: B×K×K for the loss, and t×K (the probabilities of all t trusted
rows) for the estimate.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from result_files import write_result

from glc_hf import corrected_cross_entropy
from glc_hf.correction.accumulators import GoldAccumulator


MEBIBYTE = 2**20
# (classes, rows per batch, trusted rows)
SIZES = [(1_000, 256, 50_000), (21_841, 64, 20_000)]
Work = Callable[[], object]


def matrix_of(classes: int) -> torch.Tensor:
    """Uniform noise of strength 0.5, built in place, without temporary memory."""
    matrix = torch.full((classes, classes), 0.5 / classes)
    matrix.diagonal().add_(0.5)
    return matrix


def loss_work(classes: int, rows: int, name: str) -> Work:
    """Forward and backward of a loss on the same logits."""
    torch.manual_seed(0)
    logits = torch.randn(rows, classes, requires_grad=True)
    labels, trusted = torch.randint(classes, (rows,)), torch.rand(rows) < 0.1
    matrix = matrix_of(classes) if name == "corrected" else None

    def step(x: torch.Tensor = logits) -> None:
        if matrix is None:
            F.cross_entropy(x, labels[: len(x)]).backward()
        else:
            corrected_cross_entropy(x, labels[: len(x)], matrix, trusted[: len(x)]).backward()

    step(torch.randn(1, classes, requires_grad=True))
    return step


def estimate_work(classes: int, rows: int, trusted: int) -> Work:
    """Accumulation of the trusted rows' logits, batch by batch."""
    generator = torch.Generator().manual_seed(0)
    accumulator = GoldAccumulator(classes)
    accumulator.sums[0].fill_(0.0)  # allocates the pages
    logits = torch.randn(rows, classes, generator=generator)

    def run() -> None:
        for _ in range(0, trusted, rows):
            accumulator.update_logits(logits, torch.randint(classes, (rows,), generator=generator))

    return run


def evaluation_work(classes: int, rows: int, trusted: int) -> Work:
    """The same pass with plain cross-entropy."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(rows, classes, generator=generator)

    def run() -> None:
        for _ in range(0, trusted, rows):
            F.cross_entropy(logits, torch.randint(classes, (rows,), generator=generator))

    return run


def peak_of(make: Callable[[], Work]) -> float:
    """Peak memory of the work in a forked process above the memory before, in MiB."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        work = make()
        gc.collect()
        before = reset_peak()
        work()
        os.write(writer, str(peak() - before).encode())
        os._exit(0)
    os.close(writer)
    result = os.read(reader, 64)
    os.close(reader)
    _, status = os.waitpid(child, 0)
    if status:
        raise SystemExit(f"a measurement failed (status {status})")
    return float(result)


def reset_peak() -> float:
    """Reset the peak memory of this process and return its resident memory, in MiB."""
    Path("/proc/self/clear_refs").write_text("5")
    return resident()


def peak() -> float:
    """Peak memory of this process since [`reset_peak`], in MiB."""
    return _status("VmHWM")


def resident() -> float:
    """Resident memory of this process, in MiB."""
    return _status("VmRSS")


def _status(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 / MEBIBYTE for line in lines if line.startswith(f"{name}:"))


def measure(classes: int, rows: int, trusted: int) -> dict[str, float]:
    """The peaks of one size."""
    logits = rows * classes * 4 / MEBIBYTE
    return {
        "classes": classes,
        "batch": rows,
        "trusted_rows": trusted,
        "logits_mib": round(logits, 1),
        "matrix_mib": round(classes**2 * 4 / MEBIBYTE, 1),
        "cross_entropy_peak_mib": round(peak_of(lambda: loss_work(classes, rows, "plain")), 1),
        "corrected_peak_mib": round(peak_of(lambda: loss_work(classes, rows, "corrected")), 1),
        "batch_x_classes_x_classes_mib": round(rows * classes**2 * 4 / MEBIBYTE, 1),
        "evaluation_peak_mib": round(peak_of(lambda: evaluation_work(classes, rows, trusted)), 1),
        "estimation_peak_mib": round(peak_of(lambda: estimate_work(classes, rows, trusted)), 1),
        "trusted_x_classes_mib": round(trusted * classes * 4 / MEBIBYTE, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--output", type=Path, help="write the figures to this JSON file")
    parser.add_argument("--classes", type=int, nargs="+", help="only these numbers of classes")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results = []
    for classes, rows, trusted in SIZES:
        if arguments.classes is None or classes in arguments.classes:
            results.append(measure(classes, rows, trusted))
            print(json.dumps(results[-1], indent=1), flush=True)
    if arguments.output is not None:
        what = "peak memory above the inputs, one thread, float32 logits; one process per figure"
        write_result(arguments.output, what, ["torch"], results=results)


if __name__ == "__main__":
    main()
