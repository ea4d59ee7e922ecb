# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
How often the 90% interval of the number of wrong labels, as `glc-hf audit --folds 5` reports it, contains the number.

The tasks are those of `review.py`, with 30, 100 and 300 trusted rows drawn by seed, and linear models on fixed
features. `counted` uses trusted rows that also have the label of the noisy source, `estimated` those that don't, and
`class errors only` is Σ p_wrong, which holds if errors depend on the class only. Each finished run is one line of the
results file and is not repeated.

    python benchmarks/wrong_totals.py --data <folder>/real
    python benchmarks/wrong_totals.py --summary
"""

from __future__ import annotations

import statistics
from typing import Any

from real_noise import default_cache
from result_files import RESULTS as FOLDER
from result_files import add_run, make_data_parser, read_runs
from review import TASKS


RESULTS = FOLDER / "wrong_totals.jsonl"
TRUSTED = (30, 100, 300)
_WAYS = ("counted", "estimated", "class errors only")


def run(name: str, trusted_rows: int, seed: int, options: Any) -> dict[str, Any]:
    """The true number of wrong labels of one task, and its estimates with their intervals."""
    import numpy as np
    import torch
    from real_noise_tasks import TASKS as REAL
    from real_noise_tasks import Task, draw_cell, load_features, load_source, simulated

    from glc_hf import CorruptionMatrix
    from glc_hf.audit.cross_fit import cross_fit, with_correct_rows
    from glc_hf.audit.findings import Evidence, Findings, verdicts_on
    from glc_hf.correction.linear import FeatureTable

    task = {**REAL, "trec_flip_0.4": Task("wrench-trec", simulated("flip", 0.4))}[name]
    source = load_source(options.data, task.folder, task.kind)
    features = load_features(options.data, task.folder, task.kind, options.cache)
    cell = draw_cell(source, task.noise, trusted_rows, seed)
    table = FeatureTable(features.train[torch.from_numpy(cell.rows)], torch.arange(len(cell.rows)))
    given, trusted = cell.labels[cell.rows], np.arange(len(cell.rows)) < len(cell.trusted)
    gold, noisy = source.columns["label"], np.asarray(task.noise(source.columns, seed))
    fitted = cross_fit(table, given, trusted, source.num_labels, seed=seed)
    counts = np.bincount(given[trusted], minlength=source.num_labels)
    matrix = with_correct_rows(CorruptionMatrix(fitted.matrix, trusted_rows=counts))
    verdicts = verdicts_on(fitted.log_probs, torch.from_numpy(given), matrix, torch.from_numpy(trusted))
    p_given = fitted.log_probs.double().softmax(dim=-1).numpy()[~trusted, given[~trusted]]
    both = cell.trusted[noisy[cell.trusted] >= 0]
    compared = len(both), int((noisy[both] != gold[both]).sum())
    evidence = Evidence((1 - p_given).sum(), *compared), Evidence((1 - p_given).sum()), None
    totals = {
        way: Findings(matrix, np.arange(len(given)), None, given, *verdicts, evidence=known).total_wrong
        for way, known in zip(_WAYS, evidence, strict=True)
    }
    return {
        "task": name,
        "trusted": trusted_rows,
        "seed": seed,
        "rows": int((~trusted).sum()),
        "wrong": int((given != gold[cell.rows])[~trusted].sum()),
        "estimates": {way: [round(float(value), 1) for value in total[:3]] for way, total in totals.items()},
    }


def summary() -> str:
    """Table of the intervals that contain the number of wrong labels, by number of trusted rows."""
    lines = [
        "| trusted rows | runs | way | intervals with the true number | mean width | mean error |",
        "| ---: | ---: | --- | ---: | ---: | ---: |",
    ]
    results = read_runs(RESULTS)
    for trusted in (*TRUSTED, None):
        entries = [entry for entry in results if trusted in (None, entry["trusted"])]
        for way in _WAYS if entries else ():
            shares = [[value / entry["rows"] for value in entry["estimates"][way]] for entry in entries]
            true = [entry["wrong"] / entry["rows"] for entry in entries]
            inside = sum(low <= share <= high for (_, low, high), share in zip(shares, true, strict=True))
            width = statistics.mean(high - low for _, low, high in shares)
            error = statistics.mean(abs(value - share) for (value, *_), share in zip(shares, true, strict=True))
            start = f"| {trusted or '**all**'} | {len(entries)} | {way} | {inside} ({inside / len(entries):.0%})"
            lines.append(f"{start} | {width:.1%} of the rows | {error:.1%} |")
    return "\n".join(lines)


def main() -> None:
    parser = make_data_parser(__doc__, TASKS)
    parser.add_argument("--trusted", nargs="+", type=int, default=list(TRUSTED))
    options = parser.parse_args()
    if not options.summary:
        if options.data is None:
            parser.error("--data is needed to run; --summary prints the table of the finished runs")
        import torch

        options.cache = options.cache or default_cache()
        torch.set_num_threads(options.threads)
        finished = {(entry["task"], entry["trusted"], entry["seed"]) for entry in read_runs(RESULTS)}
        for seed in options.seeds:
            for trusted in options.trusted:
                for task in options.tasks or TASKS:
                    if (task, trusted, seed) not in finished:
                        add_run(RESULTS, run(task, trusted, seed, options))
    print(summary())


if __name__ == "__main__":
    main()
