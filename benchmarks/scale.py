# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Cost against size: processor time and peak memory of noise, estimation, audit and probe, by rows and by classes.

Each figure comes from a forked process with one thread. Its memory is the peak above the inputs, which exist before.
Inputs are synthetic: labels, logits of a classifier, and features on disk. The growth exponent of a cost is the slope
of log cost against log size over the three largest sizes: 1 is linear.

    python benchmarks/scale.py
    python benchmarks/scale.py --only audit --rows 10000 100000
    python benchmarks/scale.py --summary
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from many_classes import peak, reset_peak
from result_files import RESULTS as FOLDER
from result_files import make_parser, write_result
from scale_work import WORK, Work


RESULTS = FOLDER / "scale.json"
ROWS = (10_000, 100_000, 1_000_000, 10_000_000)
CLASSES = (10, 100, 1_000, 10_000, 21_841)
FEW_CLASSES = 10  # while the rows grow
CONSTANT = 0.5  # memory with a smaller exponent in rows is that of buffers
REPEATS, LONG = 3, 5.0  # work that takes longer, in seconds, is measured once
MANY_CLASSES = 10_000  # from here on too: several K×K matrices take gigabytes
MOST = 180.0  # no larger size is measured after one that makes the next one take longer


# ---------------------------------------------------------------------- measuring
def cost_of(make: Callable[[], Work]) -> dict[str, float]:
    """Processor seconds of the work in a forked process, and its peak memory above the inputs, in MiB."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work = make()
            _return_freed_memory()
            before, start = reset_peak(), time.process_time()
            work()
            seconds = time.process_time() - start
            os.write(writer, json.dumps({"seconds": seconds, "peak_mib": peak() - before}).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    result = os.read(reader, 256)
    os.close(reader)
    if os.waitpid(child, 0)[1]:
        raise SystemExit("a measurement failed")
    return json.loads(result)


def _return_freed_memory() -> None:
    """Return memory that was freed to the system: work that used it again would seem to need none."""
    import pyarrow as pa

    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)


def _warm_up() -> None:
    """Load what torch loads at its first use of an optimizer, once for all forked processes."""
    import torch

    weight = torch.zeros(1, requires_grad=True)
    torch.optim.LBFGS([weight]).step(lambda: (weight**2).sum())


def measure(name: str, rows: int, classes: int, folder: str) -> dict[str, Any]:
    """Medians of some repetitions."""
    make = WORK[name].make
    costs = [cost_of(lambda: make(rows, classes, folder))]
    while len(costs) < REPEATS and costs[0]["seconds"] < LONG and classes < MANY_CLASSES:
        costs.append(cost_of(lambda: make(rows, classes, folder)))
    seconds, memory = (statistics.median(cost[key] for cost in costs) for key in ("seconds", "peak_mib"))
    digits = {"seconds": round(seconds, 4), "peak_mib": round(memory, 1)}
    return {"work": name, "rows": rows, "classes": classes, **digits, "repeats": len(costs)}


def exponent(sizes: list[float], costs: list[float]) -> float | None:
    """Slope of log cost against log size over the three largest sizes; `None` with fewer than two, or no cost."""
    points = [(size, cost) for size, cost in zip(sizes, costs, strict=True) if cost > 0][-3:]
    if len(points) < 2 or len(points) < min(len(costs), 3):
        return None
    logs = np.log(np.array(points, dtype=float))
    return round(float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0]), 2)


def exponents(results: list[dict[str, Any]]) -> dict[str, dict[str, float | None]]:
    """The growth exponents of each work: of time and memory in rows, and of time in classes."""
    found: dict[str, dict[str, float | None]] = {}
    for name in WORK:
        by_rows, by_classes = series(results, name, "rows"), series(results, name, "classes")
        found[name] = {
            "time_by_rows": exponent([one["rows"] for one in by_rows], [one["seconds"] for one in by_rows]),
            "memory_by_rows": exponent([one["rows"] for one in by_rows], [one["peak_mib"] for one in by_rows]),
            "time_by_classes": exponent(
                [one["classes"] for one in by_classes], [one["seconds"] for one in by_classes]
            ),
        }
    return found


def series(results: list[dict[str, Any]], name: str, size: str) -> list[dict[str, Any]]:
    """The results of a work for growing `rows` or `classes`, in their order."""
    own = [one for one in results if one["work"] == name and one["varied"] == size]
    return sorted(own, key=lambda one: one[size])


def plan(only: list[str] | None, rows: tuple[int, ...], classes: tuple[int, ...]) -> Iterator[tuple[str, str, list]]:
    """The series to measure: the work, what grows, and the sizes (rows, classes)."""
    for name, work in WORK.items():
        if only is None or any(start in name for start in only):
            yield name, "rows", [(number, FEW_CLASSES) for number in work.rows or rows]
            if work.fixed is not None:
                yield name, "classes", [(work.fixed, number) for number in classes]


def run(only: list[str] | None, rows: tuple[int, ...], classes: tuple[int, ...]) -> list[dict[str, Any]]:
    """Measure the series; a size is left out if the time of the one before says that it takes too long."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name, varied, sizes in plan(only, rows, classes):
            last: dict[str, Any] | None = None
            for number_of_rows, number_of_classes in sizes:
                if last is not None:
                    growth = number_of_rows * number_of_classes / (last["rows"] * last["classes"])
                    if last["seconds"] * growth > MOST:
                        print(f"{name}: {number_of_rows:,} rows, {number_of_classes:,} classes left out", flush=True)
                        break
                last = {**measure(name, number_of_rows, number_of_classes, folder), "varied": varied}
                results.append(last)
                print(json.dumps(last), flush=True)
            for file in Path(folder).glob("features-*"):
                file.unlink()
    return results


# ---------------------------------------------------------------------- tables
def summary(path: Path = RESULTS) -> str:
    """Table of the exponents, and of time and memory at the largest size."""
    results = json.loads(path.read_text(encoding="utf-8"))["results"]
    found = exponents(results)
    lines = [
        "| work | rows | rows per second | peak memory | memory per row | time grows with rows^ | memory grows with "
        "rows^ | most classes | seconds there | time grows with classes^ |",
        "| --- |" + " ---: |" * 9,
    ]
    for name in WORK:
        by_rows, by_classes = series(results, name, "rows"), series(results, name, "classes")
        if not by_rows:
            continue
        largest, growth = by_rows[-1], found[name]
        memory = largest["peak_mib"]
        cells = [
            f"{largest['rows']:,}",
            f"{_rounded(largest['rows'] / largest['seconds']):,}",
            f"{memory:,.0f} MiB",
            f"{memory * 2**20 / largest['rows']:.1f} B" if (growth["memory_by_rows"] or 0) > CONSTANT else "",
            _exponent_text(growth["time_by_rows"]),
            _exponent_text(growth["memory_by_rows"]),
        ]
        cells += ["", "", ""]
        if by_classes:
            most = by_classes[-1]
            cells[-3:] = [
                f"{most['classes']:,} ({most['rows']:,} rows)",
                f"{most['seconds']:.2f}",
                _exponent_text(growth["time_by_classes"]),
            ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def projection(path: Path = RESULTS) -> str:
    """Table of what the measured costs mean for each of 1,000 processes at 10⁹ rows. Costs of a size that was not
    measured are those per row of the largest one."""
    results = json.loads(path.read_text(encoding="utf-8"))["results"]
    step = json.loads((FOLDER / "training_step.json").read_text(encoding="utf-8"))["measured"][0]["milliseconds"]
    lines = [
        "| step | rows per process | measured, one core | time per process | memory per process |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for title, name, rows in STEPS:
        found = series(results, name, "rows")
        if not found:
            continue
        # The figure of this size, if it was measured.
        largest = next((one for one in found if one["rows"] == rows), found[-1])
        seconds = largest["seconds"] / largest["rows"]
        grows = exponents(results)[name]["memory_by_rows"]
        memory = largest["peak_mib"] * 2**20
        if grows is not None and grows > CONSTANT:
            memory *= rows / largest["rows"]
        lines.append(
            f"| {title} | {_power(rows)} | {_amount(seconds, TIMES)} per row | {_amount(seconds * rows, TIMES)} | "
            f"{_amount(memory, SIZES)} |"
        )
    for name in ("Trainer", "GLCTrainer"):
        seconds = step[name]["median"] / 1000 / 32
        lines.append(
            f"| one epoch of training, `{name}` | 10⁶ | {_amount(seconds, TIMES)} per row | "
            f"{_amount(seconds * 10**6, TIMES)} | |"
        )
    return "\n".join(lines)


# Step, work and rows of each of 1,000 processes for 10⁹ rows. Every process reads all labels, or all of a stream.
STEPS = [
    ("noise, if it is simulated", "`corrupt_labels`, dataset", 10**9),
    ("the same on a stream: one pass", "`corrupt_labels`, stream", 10**9),
    ("labels and flags", "labels and flags of a training", 10**9),
    ("embedding of the probe", "probe, embedding", 10**6),
    ("fit of its head", "probe, fit of the head", 10**6),
    ("one pass of its head", "probe, one pass", 10**6),
    ("estimate from 10⁶ trusted rows", "estimation, `glc`", 10**3),
    ("audit of all rows", "audit", 10**9),
    ("audit of a part", "audit", 10**6),
]
TIMES = [(3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")]
SIZES = [(1e9, "GB"), (1e6, "MB"), (1e3, "kB")]


def _amount(value: float, units: list[tuple[float, str]]) -> str:
    """Two significant digits in the largest unit that makes it at least one; the smallest unit otherwise."""
    size, unit = next((one for one in units if value >= one[0]), units[-1])
    return f"{float(f'{value / size:.2g}'):,g} {unit}"


def _power(value: int) -> str:
    return {10**9: "10⁹", 10**6: "10⁶", 10**3: "10³"}[value]


def _rounded(value: float) -> int:
    """Two significant digits."""
    return int(float(f"{value:.2g}"))


def _exponent_text(value: float | None) -> str:
    return "" if value is None else f"{abs(value) if abs(value) < 0.005 else value:.2f}"


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--only", nargs="+", help="only the work whose name contains one of these")
    parser.add_argument("--rows", nargs="+", type=int, default=ROWS)
    parser.add_argument("--classes", nargs="+", type=int, default=CLASSES)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--summary", action="store_true", help="only print the table")
    options = parser.parse_args()
    if not options.summary:
        import datasets
        import torch

        # Imported here, so that the forked processes don't import it again.
        import glc_hf.audit.findings  # noqa: F401

        datasets.disable_progress_bars()
        torch.set_num_threads(1)
        _warm_up()
        results = run(options.only, tuple(options.rows), tuple(options.classes))
        if options.only is not None and options.output.exists():
            others = json.loads(options.output.read_text(encoding="utf-8"))["results"]
            measured = {one["work"] for one in results}
            results = [one for one in others if one["work"] not in measured] + results
        what = "processor time and peak memory above the inputs, one thread, one forked process per figure"
        packages = ["torch", "datasets", "pyarrow"]
        write_result(options.output, what, packages, exponents=exponents(results), results=results)
    print(summary(options.output))


if __name__ == "__main__":
    main()
