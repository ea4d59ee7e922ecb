# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Cost of a whole robust training: MiniLM on TREC, three epochs, compared with plain fine-tuning and with cross-validated
cleaning of the same model.

Runs what is missing in the results of `trec.py` (some hours on two cores; the runs of a seed follow each other), and
compares the processor time of runs with the same rows, noise and seed.

    python benchmarks/robust_run.py --data <folder>/cogcomp/trec
    python benchmarks/robust_run.py --no-runs
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import trec
from result_files import RESULTS, make_parser, read_runs, write_result
from timing import describe, measured


PLAIN, CLEANLAB = ("plain_trainer", "{}"), ("cleanlab", "{}")
AUTO, FULL, PROBE = ("auto", "{}"), ("glc", "{}"), ("glc", '{"stage1": "probe"}')
NAMES = {
    PLAIN: "one plain fine-tuning",
    AUTO: "`auto`, whole training",
    PROBE: '`glc` with `stage1="probe"`, whole training',
    FULL: "`glc`, whole training",
    CLEANLAB: "cleanlab: 5 folds, then training on the remaining rows",
}
# (method, baseline, target ratio, strengths). With 60 % of the labels flipped, plain training was run again together
# with `auto`, on another machine than the other methods.
PAIRS = [
    (AUTO, PLAIN, 1.12, (0.6,)),
    (PROBE, PLAIN, 1.35, (0.3,)),
    (FULL, PLAIN, 2.05, (0.3,)),
    (PROBE, CLEANLAB, 0.35, (0.3, 0.6)),
    (FULL, CLEANLAB, 0.5, (0.3, 0.6)),
]
# Strength and seed of the runs. Times are compared for the second list; the other runs only compare the accuracy of
# PROBE and FULL.
SETTINGS = [(0.6, 0), (0.6, 1), (0.6, 2), (0.3, 0), (0.9, 0)]
COMPARED = [(0.6, 0), (0.3, 0)]


def all_runs() -> list[tuple[tuple[str, str], float, int]]:
    """All runs as (method and its settings, strength, seed)."""
    return [
        (method, *setting)
        for setting in SETTINGS
        for method in NAMES
        if method in (PROBE, FULL) or setting in COMPARED
    ]


def timed_runs() -> dict[tuple[tuple[str, str], float, int], dict[str, Any]]:
    """The timed results by method, strength and seed."""
    return {
        ((entry["method"], json.dumps(entry["settings"])), entry["strength"], entry["seed"]): entry
        for entry in read_runs(trec.RESULTS)
        if "processor_seconds" in entry and "rows" not in entry
    }


def compare() -> list[dict[str, Any]]:
    """One row of the table of costs per pair, with the accuracies."""
    runs, lines = timed_runs(), []
    for method, baseline, at_most, strengths in PAIRS:
        both = [
            (runs[(method, *setting)], runs[(baseline, *setting)])
            for setting in SETTINGS
            if setting[0] in strengths and {(method, *setting), (baseline, *setting)} <= runs.keys()
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
        lines.append(measured(NAMES[method], NAMES[baseline], ratios, at_most, cells=cells))
    return lines


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--data", default="cogcomp/trec", help="Hub id or local folder")
    parser.add_argument("--no-runs", action="store_true", help="only compare existing results")
    options = parser.parse_args()
    for (method, settings), strength, seed in [] if options.no_runs else all_runs():
        if ((method, settings), strength, seed) not in timed_runs():
            command = [sys.executable, trec.__file__, "--data", options.data, "--threads", "1", "--methods", method]
            command += ["--settings", settings, "--strength", str(strength), "--seeds", str(seed)]
            subprocess.run(command, check=True)
    lines = compare()
    for line in lines:
        print(describe(line))
    what = "processor time of whole trainings on one thread; the runs of a seed follow each other"
    packages = ("torch", "transformers", "datasets", "cleanlab")
    write_result(RESULTS / "robust_run.json", what, packages, measured=lines)


if __name__ == "__main__":
    main()
