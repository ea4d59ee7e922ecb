# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Wrong labels that people, rules or a language model gave, found by the audit and by cleanlab's label-quality scores.

The tasks are those of `real_noise.py`, with 100 trusted rows drawn by seed. All models are linear, on the features of
a pretrained network. The score is the average precision of finding the wrong labels of the untrusted rows (1 if all of
them come first; their share for a random order). `audit` is what `glc-hf audit --folds 5` does. cleanlab's three
scores rank by the probabilities of the same models, and by those of its own recipe: a model of all labels,
cross-validated in 5 folds. Needs `pip install cleanlab` (extra `bench`). Each finished run is one line of the results
file and is not repeated.

    python benchmarks/review.py --data <folder>/real
    python benchmarks/review.py --summary
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from real_noise import default_cache
from result_files import RESULTS as FOLDER
from result_files import add_run, make_data_parser, read_runs


RESULTS = FOLDER / "review.jsonl"
TASKS = ("youtube", "semeval", "semeval_llm", "trec", "crowd", "crowd_single", "labelme", "trec_flip_0.4")
TRUSTED = 100
_FOLDS = 5
_SCORES = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")
_MODELS = ("same models", "own recipe")
_NAMES = ("audit", *(f"{score}, {model}" for model in _MODELS for score in _SCORES))


def run(name: str, seed: int, options: Any) -> dict[str, Any]:
    """The average precisions of one task and seed."""
    import numpy as np
    import torch
    from cleanlab.rank import get_label_quality_scores
    from real_noise_tasks import TASKS as REAL
    from real_noise_tasks import Task, draw_cell, load_features, load_source, simulated
    from sklearn.metrics import average_precision_score

    from glc_hf import CorruptionMatrix
    from glc_hf.audit.cross_fit import cross_fit, with_correct_rows
    from glc_hf.audit.findings import Findings, verdicts_on
    from glc_hf.correction.linear import FeatureTable

    task = {**REAL, "trec_flip_0.4": Task("wrench-trec", simulated("flip", 0.4))}[name]
    source = load_source(options.data, task.folder, task.kind)
    features = load_features(options.data, task.folder, task.kind, options.cache, middle=task.kind == "text")
    cell = draw_cell(source, task.noise, TRUSTED, seed)
    table = FeatureTable(features.train[torch.from_numpy(cell.rows)], torch.arange(len(cell.rows)))
    given, trusted = cell.labels[cell.rows], np.arange(len(cell.rows)) < len(cell.trusted)
    wrong = (given != source.columns["label"][cell.rows])[~trusted]
    start = time.process_time()
    fitted = cross_fit(table, given, trusted, source.num_labels, _FOLDS, seed)
    seconds = time.process_time() - start
    counts = np.bincount(given[trusted], minlength=source.num_labels)
    matrix = with_correct_rows(CorruptionMatrix(fitted.matrix, trusted_rows=counts))
    verdicts = verdicts_on(fitted.log_probs, torch.from_numpy(given), matrix, torch.from_numpy(trusted))
    total = Findings(matrix, np.arange(len(given)), None, given, *verdicts).total_wrong
    precision = {"audit": average_precision_score(wrong, -verdicts.score[~trusted])}
    probabilities = {
        "same models": fitted.log_probs.double().softmax(dim=-1).numpy(),
        "own recipe": cross_validated(table, given, source.num_labels, seed),
    }
    for model in _MODELS:
        for score in _SCORES:
            quality = get_label_quality_scores(given, probabilities[model], method=score)
            precision[f"{score}, {model}"] = average_precision_score(wrong, -np.asarray(quality)[~trusted])
    return {
        "part": "precision",
        "task": name,
        "trusted": TRUSTED,
        "seed": seed,
        "rows": len(wrong),
        "wrong": int(wrong.sum()),
        "expected_wrong": [round(value, 1) for value in total[:3]],
        "average_precision": {name: round(float(value), 5) for name, value in precision.items()},
        "processor_seconds": round(seconds, 2),
    }


def cross_validated(table: Any, labels: Any, num_labels: int, seed: int) -> Any:
    """The probabilities of a linear model of all labels, each from a fit without the row."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    labels, rows = torch.from_numpy(labels), torch.arange(len(labels))
    held_out = torch.rand(len(rows), generator=generator) < 0.1
    start, penalty, _ = table.fit_path(rows, labels, num_labels, held_out)
    folds = torch.randperm(len(rows), generator=generator) % _FOLDS
    probs = torch.zeros(len(rows), num_labels, dtype=torch.float64)
    for fold in range(_FOLDS):
        kept = rows[folds != fold]
        head = table.fit(kept, labels[kept], num_labels, penalty=penalty, start=start)
        probs[folds == fold] = table.logits(head, rows[folds == fold]).double().softmax(dim=-1)
    return probs.numpy()


def summary() -> str:
    """Table of the mean average precision over the seeds, and its mean over the tasks."""
    results = [entry for entry in read_runs(RESULTS) if entry["part"] == "precision"]
    lines = [
        "| task | seeds | wrong labels | expected | " + " | ".join(_NAMES) + " |",
        "| --- " * (len(_NAMES) + 4) + "|",
    ]
    columns: dict[str, list[float]] = {name: [] for name in _NAMES}
    for task in TASKS:
        entries = [entry for entry in results if entry["task"] == task]
        if not entries:
            continue
        for name, values in columns.items():
            values.append(statistics.mean(entry["average_precision"][name] for entry in entries))
        wrong = statistics.mean(entry["wrong"] / entry["rows"] for entry in entries)
        bounds = [statistics.mean(entry["expected_wrong"][i] / entry["rows"] for entry in entries) for i in range(3)]
        start = f"{task} | {len(entries)} | {wrong:.0%} | {bounds[0]:.0%} ({bounds[1]:.0%} to {bounds[2]:.0%})"
        lines.append(_line(start, [values[-1] for values in columns.values()]))
    if columns["audit"]:
        lines.append(_line("**mean** | | | ", [statistics.mean(values) for values in columns.values()]))
    return "\n".join(lines)


def _line(start: str, values: list[float]) -> str:
    best = max(round(value, 3) for value in values)
    cells = (f"**{value:.3f}**" if round(value, 3) == best else f"{value:.3f}" for value in values)
    return f"| {start} | {' | '.join(cells)} |"


def main() -> None:
    parser = make_data_parser(__doc__, TASKS)
    options = parser.parse_args()
    if not options.summary:
        if options.data is None:
            parser.error("--data is needed to run; --summary prints the table of the finished runs")
        import torch

        options.cache = options.cache or default_cache()

        torch.set_num_threads(options.threads)
        finished = {(entry["task"], entry["seed"]) for entry in read_runs(RESULTS) if entry["part"] == "precision"}
        for seed in options.seeds:
            for task in options.tasks or TASKS:
                if (task, seed) not in finished:
                    add_run(RESULTS, run(task, seed, options))
    print(summary())


if __name__ == "__main__":
    main()
