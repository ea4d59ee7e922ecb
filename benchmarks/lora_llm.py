# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
LoRA adapters on a tiny Llama with a classification head: the offline data of `examples/lora_llm.py`, 40 % of the
labels flipped, 10 % trusted.

    python benchmarks/lora_llm.py --seeds 0 1 2
    python benchmarks/lora_llm.py --summary
"""

from __future__ import annotations

import runpy
import statistics
import tempfile
from pathlib import Path
from typing import Any

from result_files import RESULTS as FOLDER
from result_files import add_run, make_runs_parser, read_runs


RESULTS = FOLDER / "lora_llm.jsonl"
EXAMPLE = Path(__file__).parents[1] / "examples" / "lora_llm.py"
# Name in the table, settings of `GLCConfig`, and whether the adapters are DoRA ones.
WAYS: dict[str, tuple[dict[str, Any], bool]] = {
    "`Trainer` on the noisy labels": ({}, False),
    '`GLCTrainer`, `method="glc"`': (dict(method="glc"), False),
    '`GLCTrainer`, `method="glc", stage1="probe"`': (dict(method="glc", stage1="probe"), False),
    '`GLCTrainer`, `method="glc"`, DoRA': (dict(method="glc"), True),
}


def run_way(way: str, seed: int) -> dict[str, Any]:
    """Train in one way and measure the accuracy on the clean test rows."""
    from transformers import PrinterCallback, Trainer, TrainingArguments

    from glc_hf import CorruptionMatrix, GLCConfig, GLCTrainer, corrupt_labels, mark_trusted
    from glc_hf.training.stage_trainer import Accuracy

    example = runpy.run_path(str(EXAMPLE))
    settings, use_dora = WAYS[way]
    data, tokenizer, model = example["tiny_example"](seed)
    noise = CorruptionMatrix.flip(3, 0.4, seed=seed)
    train = corrupt_labels(mark_trusted(data["train"], fraction=0.1, seed=seed), noise, seed=seed)
    train, test = (rows.map(lambda row: tokenizer(row["text"])) for rows in (train, data["test"]))
    model.config.pad_token_id = tokenizer.pad_token_id
    with tempfile.TemporaryDirectory() as folder:
        args = (GLCConfig if settings else TrainingArguments)(
            output_dir=folder,
            learning_rate=2e-2,
            num_train_epochs=5,
            per_device_train_batch_size=32,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            seed=seed,
            **settings,
        )
        trainer = (GLCTrainer if settings else Trainer)(
            example["with_adapters"](model, 16, use_dora),
            args,
            train_dataset=train,
            eval_dataset=test,
            processing_class=tokenizer,
            compute_metrics=Accuracy(),
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        result = {"way": way, "seed": seed, "accuracy": trainer.evaluate()["eval_accuracy"]}
    if settings:
        result["matrix_distance"] = noise.distance(trainer.corruption_matrix)
    return result


def summary() -> str:
    """Table of the mean accuracy over the seeds."""
    lines = ["| adapters trained by | mean accuracy | per seed |", "| --- | ---: | --- |"]
    runs = sorted(read_runs(RESULTS), key=lambda run: run["seed"])
    for way in WAYS:
        accuracies = [run["accuracy"] for run in runs if run["way"] == way]
        per_seed = ", ".join(f"{accuracy:.3f}" for accuracy in accuracies)
        lines.append(f"| {way} | {statistics.mean(accuracies):.3f} | {per_seed} |")
    return "\n".join(lines)


def main() -> None:
    options = make_runs_parser(__doc__).parse_args()
    if not options.summary:
        import torch

        torch.set_num_threads(options.threads)
        finished = {(run["way"], run["seed"]) for run in read_runs(RESULTS)}
        for seed in options.seeds:
            for way in WAYS:
                if (way, seed) not in finished:
                    add_run(RESULTS, run_way(way, seed))
    print(summary())


if __name__ == "__main__":
    main()
