# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Wrong labels found by `trainer.audit`, compared with cleanlab's label-quality scores from the same probabilities.

A model is trained with `glc` on labels of which 40 % are flipped. Both then rank the untrusted training rows from the
probabilities of that model. The score is the average precision of finding the rows whose label the noise changed (1 if
all of them come first; their share for a random order). Needs `pip install cleanlab` (extra `bench`). Each finished
run is one line of the results file and is not repeated.

    python benchmarks/audit.py --tasks digits --seeds 0 1 2
    python benchmarks/audit.py --tasks trec --seeds 0 --data <folder>/cogcomp/trec
    python benchmarks/audit.py --summary
"""

from __future__ import annotations

import statistics

import digits
import trec
from result_files import RESULTS as FOLDER
from result_files import add_run, make_runs_parser, read_runs


RESULTS = FOLDER / "audit.jsonl"
STRENGTH = 0.4
TRUSTED = {"digits": 0.05, "trec": 0.02}
CLEANLAB = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")


def run(task: str, seed: int, data: str) -> dict:
    """Train one model and return the average precision of the audit and of cleanlab's three scores."""
    import numpy as np
    import torch
    from cleanlab.rank import get_label_quality_scores
    from sklearn.metrics import average_precision_score

    from glc_hf.training.inference import infer

    if task == "digits":
        make_trainer, _ = digits.trainer_maker(seed, STRENGTH, fraction=TRUSTED[task])
        trainer = make_trainer("glc")
    else:
        trainer, _ = trec.make_trainer(data, "glc", seed, STRENGTH, TRUSTED[task], {})
    trainer.train()
    rows = trainer.train_dataset
    audited = trainer.audit(rows).with_format("numpy", columns=["label", "clean_label", "trusted", "p_wrong"])[:]
    view = trainer.training_data.for_inference(trainer, "all", "all")
    logits = torch.cat([batch.logits for batch in infer(trainer, view, "all")])
    probabilities = torch.softmax(logits.double(), dim=-1).numpy()
    untrusted = ~audited["trusted"].astype(bool)
    given, wrong = audited["label"][untrusted], (audited["label"] != audited["clean_label"])[untrusted]
    precision = {"audit": average_precision_score(wrong, audited["p_wrong"][untrusted])}
    for method in CLEANLAB:
        quality = get_label_quality_scores(given, probabilities[untrusted], method=method)
        precision[f"cleanlab {method}"] = average_precision_score(wrong, -np.asarray(quality))
    return {
        "task": task,
        "seed": seed,
        "noise": "flip",
        "strength": STRENGTH,
        "trusted": TRUSTED[task],
        "rows": int(untrusted.sum()),
        "wrong": int(wrong.sum()),
        "accuracy": trainer.evaluate()["eval_accuracy"],
        "average_precision": {name: float(value) for name, value in precision.items()},
    }


def summary() -> str:
    """Table of the mean average precision over the seeds."""
    names = ("audit", *(f"cleanlab {method}" for method in CLEANLAB))
    lines = [
        "| dataset | seeds | wrong labels | " + " | ".join(f"`{name}`" for name in names) + " |",
        "| --- " * (len(names) + 3) + "|",
    ]
    results = read_runs(RESULTS)
    for task in dict.fromkeys(entry["task"] for entry in results):
        entries = [entry for entry in results if entry["task"] == task]
        wrong = statistics.mean(entry["wrong"] / entry["rows"] for entry in entries)
        means = [statistics.mean(entry["average_precision"][name] for entry in entries) for name in names]
        figures = " | ".join(f"{value:.5f}" for value in means)
        lines.append(f"| {task} | {len(entries)} | {wrong:.0%} | {figures} |")
    return "\n".join(lines)


def main() -> None:
    parser = make_runs_parser(__doc__)
    parser.add_argument("--tasks", nargs="+", default=["digits", "trec"], choices=list(TRUSTED))
    parser.add_argument("--data", default="cogcomp/trec", help="TREC: Hub id or local folder")
    options = parser.parse_args()
    if not options.summary:
        import torch

        torch.set_num_threads(options.threads)
        finished = {(entry["task"], entry["seed"]) for entry in read_runs(RESULTS)}
        for task in options.tasks:
            for seed in options.seeds:
                if (task, seed) not in finished:
                    add_run(RESULTS, run(task, seed, options.data))
    print(summary())


if __name__ == "__main__":
    main()
