# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Speed and memory of `corrupt_labels`, compared with a simple loop: `numpy.random.choice(K, p=C[y])` for each row.

Loop and transforms run alternately. The loop is timed on a part of the rows at each turn and scaled, and once on all
rows. Memory is the peak allocated by `corrupt_labels`, in NumPy (tracemalloc) and in Arrow (a separate memory pool),
compared with the size of the label column.

    python benchmarks/transforms.py
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
from datasets import ClassLabel, Dataset, Features, Value
from result_files import RESULTS, make_parser
from timing import seconds_of

from glc_hf import CorruptionMatrix, __version__, corrupt_labels, mark_trusted


def loop(labels: np.ndarray, probs: np.ndarray) -> np.ndarray:
    """The baseline: one draw per row."""
    classes = len(probs)
    return np.array([np.random.choice(classes, p=probs[label]) for label in labels])


def summary(values: list[float]) -> dict[str, float]:
    """Median, minimum and maximum."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def extra_memory(function: Callable[[], Any]) -> dict[str, int]:
    """Peak of the bytes allocated during the call."""
    before = pa.default_memory_pool()
    pool = pa.system_memory_pool()  # not used before, so its maximum belongs to this call
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        result = function()
        numpy_peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)
    del result
    return {"numpy": numpy_peak, "arrow": pool.max_memory()}


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--loop-rows", type=int, default=50_000, help="rows of the loop per turn; its time is scaled")
    parser.add_argument("--output", type=Path, default=RESULTS / "transforms.json")
    args = parser.parse_args()

    rng = np.random.default_rng(0)
    labels = rng.integers(0, args.classes, args.rows)
    matrix = CorruptionMatrix.uniform(args.classes, 0.5)
    features = Features({"label": ClassLabel(num_classes=args.classes), "id": Value("int64")})
    table = pa.table({"label": labels, "id": rng.permutation(args.rows)})
    rows = Dataset(table, info=datasets.DatasetInfo(features=features))
    column_bytes = labels.nbytes

    with tempfile.TemporaryDirectory() as folder:
        rows.save_to_disk(folder)
        mapped = datasets.load_from_disk(folder)
        flagged = mark_trusted(rows, fraction=0.1)
        shuffled = mapped.shuffle(seed=0)
        cases: dict[str, Callable[[], Any]] = {
            "corrupt_labels": lambda: corrupt_labels(rows, matrix, trusted_column=None),
            "corrupt_labels, 10 % of rows trusted": lambda: corrupt_labels(flagged, matrix),
            "corrupt_labels, with index_column": lambda: corrupt_labels(
                rows, matrix, trusted_column=None, index_column="id"
            ),
            "corrupt_labels, memory-mapped": lambda: corrupt_labels(mapped, matrix, trusted_column=None),
            "corrupt_labels, memory-mapped and shuffled": lambda: corrupt_labels(
                shuffled, matrix, trusted_column=None
            ),
        }
        memory = extra_memory(cases["corrupt_labels"])
        for function in cases.values():
            function()  # the first call imports modules
        times: dict[str, list[float]] = {name: [] for name in ("loop", *cases)}
        for _ in range(args.repeats):
            part = seconds_of(lambda: loop(labels[: args.loop_rows], matrix.probs), time.perf_counter)
            times["loop"].append(part * args.rows / args.loop_rows)
            for name, function in cases.items():
                times[name].append(seconds_of(function, time.perf_counter))
        whole_loop = seconds_of(lambda: loop(labels, matrix.probs), time.perf_counter)

    ratios = {
        name: summary([slow / fast for slow, fast in zip(times["loop"], times[name], strict=True)]) for name in cases
    }
    relative_memory = (memory["numpy"] + memory["arrow"]) / column_bytes
    result = {
        "command": " ".join(["python", "benchmarks/transforms.py", *sys.argv[1:]]),
        "rows": args.rows,
        "classes": args.classes,
        "repeats": args.repeats,
        "loop": f"numpy.random.choice(K, p=C[y]) for each row; per turn on {args.loop_rows} rows, scaled",
        "seconds": {name: summary(values) for name, values in times.items()},
        "times_faster_than_loop": ratios,
        "loop_on_all_rows_seconds": whole_loop,
        "times_faster_than_loop_on_all_rows": whole_loop / statistics.median(times["corrupt_labels"]),
        "extra_memory_bytes": memory,
        "label_column_bytes": column_bytes,
        "extra_memory_of_label_column": relative_memory,
        "versions": {
            "glc_hf": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "pyarrow": pa.__version__,
            "datasets": datasets.__version__,
        },
        "cpu_count": os.cpu_count(),
    }
    print(f"{args.rows:,} rows, {args.classes} classes; loop of numpy.random.choice: {whole_loop:.1f} s on all rows,")
    print(f"{summary(times['loop'])['median']:.1f} s scaled from {args.loop_rows:,} rows (median of {args.repeats})\n")
    print(f"{'':44}{'seconds':>9}{'times faster':>14}   (min – max)")
    for name in cases:
        ratio = ratios[name]
        spread = f"({ratio['min']:.0f} – {ratio['max']:.0f})"
        print(f"{name:44}{statistics.median(times[name]):9.3f}{ratio['median']:14.0f}   {spread}")
    print(f"\nextra peak memory of corrupt_labels: {relative_memory:.2f} times the label column")
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(f"written to {args.output}")


if __name__ == "__main__":
    datasets.disable_progress_bars()
    main()
