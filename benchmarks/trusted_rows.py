# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
How many trusted rows are enough? Accuracy of `glc` on digits against their number.

Flip noise 0.6 on the other rows of 1,347; the network and its settings are those of `glc-hf train` without arguments.
Trusted rows are drawn class by class (`stratify`), so that no class is without one. Each finished run is one line of
the results file, and is not run again.

    python benchmarks/trusted_rows.py --seeds 0 1 2
    python benchmarks/trusted_rows.py --summary
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from pathlib import Path


sys.path.insert(0, str(Path(__file__).parent))

import digits


RESULTS = Path(__file__).parent / "results" / "trusted_rows.jsonl"
COUNTS = [10, 20, 40, 67, 135, 270]
STRENGTH = 0.6


def run(method: str, count: int, seed: int) -> dict:
    """Trains one model and returns what was measured."""
    make, true_matrix = digits.trainer_maker(seed, STRENGTH, count=count, stratify=True)
    trainer = make(method)
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


def read_results() -> list[dict]:
    """The results so far."""
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def summary() -> str:
    """Mean accuracy over the seeds by number of trusted rows, as a table."""
    results = read_results()
    methods = list(dict.fromkeys(entry["method"] for entry in results))
    lines = [
        "| trusted rows | a class | " + " | ".join(f"`{name}` | each seed" for name in methods) + " | distance of Ĉ |",
        "| --- | --- | " + "--- | --- | " * len(methods) + "--- |",
    ]
    for count in sorted({entry["trusted"] for entry in results}):
        cells = []
        for method in methods:
            found = [entry for entry in results if (entry["method"], entry["trusted"]) == (method, count)]
            values = [entry["accuracy"] for entry in sorted(found, key=lambda entry: entry["seed"])]
            cells += [f"{statistics.mean(values):.3f}" if values else "", ", ".join(f"{v:.3f}" for v in values)]
        distances = [
            entry["matrix_distance"]
            for entry in results
            if entry["trusted"] == count and entry["matrix_distance"] is not None
        ]
        cells.append(f"{statistics.mean(distances):.3f}" if distances else "")
        lines.append(f"| {count} | {count / 10:g} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Runs what is not in the results file yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["glc"])
    parser.add_argument("--counts", nargs="+", type=int, default=COUNTS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--summary", action="store_true", help="only print the table")
    options = parser.parse_args()
    if not options.summary:
        import torch

        torch.set_num_threads(options.threads)
        RESULTS.parent.mkdir(exist_ok=True)
        known = {(entry["method"], entry["trusted"], entry["seed"]) for entry in read_results()}
        for seed in options.seeds:
            for count in options.counts:
                for method in options.methods:
                    if (method, count, seed) in known:
                        continue
                    result = run(method, count, seed)
                    with RESULTS.open("a") as file:
                        file.write(json.dumps(result) + "\n")
                    print(json.dumps(result), flush=True)
    print(summary())


if __name__ == "__main__":
    main()
