# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Accuracy of `glc` on the digits by number of trusted rows.

Flip noise 0.6 on the other rows of 1,347; the network and its settings are those of `glc-hf train` without arguments.
Trusted rows are drawn per class (`stratify`), so that every class has some. Each finished run is one line of the
results file and is not repeated.

    python benchmarks/trusted_rows.py --seeds 0 1 2
    python benchmarks/trusted_rows.py --summary
"""

from __future__ import annotations

import itertools
import statistics

import digits
from result_files import RESULTS as FOLDER
from result_files import add_run, make_runs_parser, read_runs


RESULTS = FOLDER / "trusted_rows.jsonl"
COUNTS = [10, 20, 40, 67, 135, 270]
STRENGTH = 0.6


def run(method: str, count: int, seed: int) -> dict:
    """Train one model and return its figures."""
    make_trainer, true_matrix = digits.trainer_maker(seed, STRENGTH, count=count, stratify=True)
    trainer = make_trainer(method)
    trainer.train()
    matrix = trainer.corruption_matrix
    return {
        "method": method,
        "trusted": count,
        "seed": seed,
        "noise": "flip",
        "strength": STRENGTH,
        "accuracy": trainer.evaluate()["eval_accuracy"],
        "matrix_distance": None if matrix is None else true_matrix.distance(matrix),
    }


def summary() -> str:
    """Table of the mean accuracy over seeds by number of trusted rows."""
    results = read_runs(RESULTS)
    methods = list(dict.fromkeys(entry["method"] for entry in results))
    results.sort(key=lambda entry: entry["seed"])
    titles = " | ".join(f"`{name}` | per seed" for name in methods)
    lines = [
        f"| trusted rows | per class | {titles} | distance of Ĉ |",
        "| --- | --- | " + "--- | --- | " * len(methods) + "--- |",
    ]
    for count in sorted({entry["trusted"] for entry in results}):
        entries = [entry for entry in results if entry["trusted"] == count]
        columns = []
        for method in methods:
            values = [entry["accuracy"] for entry in entries if entry["method"] == method]
            columns += [f"{statistics.mean(values):.3f}" if values else "", ", ".join(f"{v:.3f}" for v in values)]
        distances = [entry["matrix_distance"] for entry in entries if entry["matrix_distance"] is not None]
        columns.append(f"{statistics.mean(distances):.3f}" if distances else "")
        lines.append(f"| {count} | {count / 10:g} | " + " | ".join(columns) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = make_runs_parser(__doc__)
    parser.add_argument("--methods", nargs="+", default=["glc"])
    parser.add_argument("--counts", nargs="+", type=int, default=COUNTS)
    options = parser.parse_args()
    if not options.summary:
        import torch

        torch.set_num_threads(options.threads)
        finished = {(entry["method"], entry["trusted"], entry["seed"]) for entry in read_runs(RESULTS)}
        for seed, count, method in itertools.product(options.seeds, options.counts, options.methods):
            if (method, count, seed) not in finished:
                add_run(RESULTS, run(method, count, seed))
    print(summary())


if __name__ == "__main__":
    main()
