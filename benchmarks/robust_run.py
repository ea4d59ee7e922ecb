# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
What a whole robust run costs: MiniLM on TREC, three epochs, against one plain fine-tuning and against cleaning by
cross-validation with the same model.

Runs whatever of it is not among the results of `trec.py` yet (some hours on two cores; a seed's runs follow each
other), and sets the processor time of runs with the same rows, noise and seed against each other.

    python benchmarks/robust_run.py --data <folder>/cogcomp/trec
    python benchmarks/robust_run.py --no-runs
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any


sys.path.insert(0, str(Path(__file__).parent))

import trec
from timing import RESULTS, in_words, measured, write_result


PLAIN, CLEANLAB = ("plain_trainer", "{}"), ("cleanlab", "{}")
FULL, PROBE = ("glc", "{}"), ("glc", '{"stage1": "probe"}')
NAMES = {
    PLAIN: "one plain fine-tuning",
    PROBE: '`GLCTrainer(stage1="probe")`, the whole run',
    FULL: "`GLCTrainer`, the whole run",
    CLEANLAB: "cleanlab: 5 folds, then training on what is left",
}
PAIRS = [(PROBE, PLAIN, 1.35), (PROBE, CLEANLAB, 0.35), (FULL, CLEANLAB, 0.5)]
# Strength and seed of the runs; of those, where times are compared. The others are for the accuracy of the two ways.
CELLS = [(0.6, 0), (0.6, 1), (0.6, 2), (0.3, 0), (0.9, 0)]
COMPARED = [(0.6, 0), (0.3, 0)]


def wanted() -> list[tuple[tuple[str, str], float, int]]:
    """Every run: the way, the strength of the noise, and the seed."""
    return [(way, *cell) for cell in CELLS for way in NAMES if way in (PROBE, FULL) or cell in COMPARED]


def timed_runs() -> dict[tuple[tuple[str, str], float, int], dict[str, Any]]:
    """The results whose time was taken, by way, strength and seed."""
    found = {}
    for line in trec.RESULTS.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if "processor_seconds" in entry:
            found[((entry["method"], json.dumps(entry["settings"])), entry["strength"], entry["seed"])] = entry
    return found


def compare() -> list[dict[str, Any]]:
    """A line of the table of costs for each pair, with the accuracies."""
    runs, lines = timed_runs(), []
    for way, other, at_most in PAIRS:
        both = [
            (runs[(way, *cell)], runs[(other, *cell)])
            for cell in CELLS
            if {(way, *cell), (other, *cell)} <= runs.keys()
        ]
        if not both:
            continue
        cells = [
            {
                "strength": mine["strength"],
                "seed": mine["seed"],
                "accuracy": mine["accuracy"],
                "against": theirs["accuracy"],
            }
            for mine, theirs in both
        ]
        ratios = [mine["processor_seconds"] / theirs["processor_seconds"] for mine, theirs in both]
        lines.append(measured(NAMES[way], NAMES[other], ratios, at_most, cells=cells))
    return lines


def main() -> None:
    """Runs what is missing, and compares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cogcomp/trec", help="Hub id or local folder")
    parser.add_argument("--no-runs", action="store_true", help="only compare what is there")
    options = parser.parse_args()
    for (method, settings), strength, seed in [] if options.no_runs else wanted():
        if ((method, settings), strength, seed) not in timed_runs():
            command = [sys.executable, trec.__file__, "--data", options.data, "--threads", "1", "--methods", method]
            command += ["--settings", settings, "--strength", str(strength), "--seeds", str(seed)]
            subprocess.run(command, check=True)
    lines = compare()
    for line in lines:
        print(in_words(line))
    what = "processor time of whole trainings on one thread; runs of one seed follow each other"
    write_result(RESULTS / "robust_run.json", what, lines, ("torch", "transformers", "datasets", "cleanlab"))


if __name__ == "__main__":
    main()
