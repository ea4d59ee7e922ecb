# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Every method on the digits of scikit-learn: flip noise 0.6, 5 % trusted, the same data, noise and initial weights.

The network and its settings are those of `glc-hf train` without arguments. Each finished (method, seed) is one line of
the results file. `reweight` can't train networks with BatchNorm, so it is compared with `glc` on the same network with
GroupNorm in its place.

    python benchmarks/digits.py --seeds 0 1 2
    python benchmarks/digits.py --seeds 0 1 2 --group-norm --methods glc reweight
    python benchmarks/digits.py --summary
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
from pathlib import Path


RESULTS = Path(__file__).parent / "results" / "digits.jsonl"
METHODS = [
    "glc", "true_matrix", "confusion_matrix", "finetune_on_trusted", "trusted_only", "distillation", "forward_gold",
    "forward", "no_correction",
]  # fmt: skip


def trainer_maker(seed: int, strength: float, norm: str = "batch", **trusted):
    """
    What makes the trainer of a method on the rows, noise and initial weights of a seed, and the matrix of the noise.
    `trusted` says how many rows are, as `mark_trusted` takes it.
    """
    from transformers import set_seed

    from glc_hf import CorruptionMatrix, GLCConfig, GLCTrainer, corrupt_labels, mark_trusted
    from glc_hf.cli.digits import DIGITS_SETTINGS, digits_dataset, digits_model

    data = digits_dataset()
    true_matrix = CorruptionMatrix.flip(10, strength, seed=seed)
    train = corrupt_labels(mark_trusted(data["train"], seed=seed, **trusted), true_matrix, seed=seed)
    set_seed(seed)
    network = digits_model()
    if norm == "group":
        _put_group_norm(network)
    transform = _pixels(network)
    settings = {name: value for name, value in DIGITS_SETTINGS.items() if name in GLCConfig.__dataclass_fields__}
    settings |= {"save_strategy": "no", "logging_strategy": "no"}
    settings.pop("save_total_limit", None)

    def trainer(method: str) -> GLCTrainer:
        args = GLCConfig(
            output_dir=f"outputs/digits-{method}-{seed}",
            method=method,
            seed=seed,
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            **settings,
        )
        return GLCTrainer(
            copy.deepcopy(network),
            args,
            train_dataset=train.with_transform(transform),
            eval_dataset=data["test"].with_transform(transform),
            corruption_matrix=true_matrix if method == "true_matrix" else None,
        )

    return trainer, true_matrix


def run_seed(seed: int, methods: list[str], strength: float, trusted: float, norm: str) -> None:
    """Trains the methods of one seed that have no result yet, and adds each as it ends."""
    from glc_hf.training.compare import compare_methods

    trainer, true_matrix = trainer_maker(seed, strength, norm, fraction=trusted)
    for done, row in compare_methods(methods, trainer):
        matrix = done.corruption_matrix
        result = {
            "method": row["method"],
            "norm": norm,
            "seed": seed,
            "noise": "flip",
            "strength": strength,
            "trusted": trusted,
            "accuracy": row["eval_accuracy"],
            "stage1_accuracy": row.get("stage1_eval_accuracy"),
            "matrix_distance": None if matrix is None else true_matrix.distance(matrix),
        }
        with RESULTS.open("a") as file:
            file.write(json.dumps(result) + "\n")
        print(json.dumps(result), flush=True)


def _put_group_norm(module) -> None:
    """GroupNorm of 8 groups wherever there is BatchNorm."""
    from torch import nn

    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d):
            activation = getattr(child, "act", nn.Identity())
            setattr(module, name, nn.Sequential(nn.GroupNorm(8, child.num_features), activation))
        else:
            _put_group_norm(child)


def _pixels(network):
    """Images to what the network takes, all at once and kept: 1,797 small images are no reason to decode twice."""
    from transformers import TimmWrapperImageProcessor

    processor = TimmWrapperImageProcessor(network.config.pretrained_cfg)
    known: dict[bytes, object] = {}

    def transform(batch):
        pixels = []
        for image in batch["image"]:
            key = image.tobytes()
            if key not in known:
                known[key] = processor(image.convert("RGB"))["pixel_values"][0]
            pixels.append(known[key])
        return {"pixel_values": pixels, "labels": batch["label"]}

    return transform


def read_results() -> list[dict]:
    """The results so far."""
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def summary() -> str:
    """Mean accuracy of each method over its seeds, best first, as a table."""
    by_method: dict[str, list[dict]] = {}
    for entry in sorted(read_results(), key=lambda entry: entry["seed"]):
        name = f"`{entry['method']}`" + (" (GroupNorm)" if entry.get("norm") == "group" else "")
        by_method.setdefault(name, []).append(entry)
    lines = ["| method | accuracy (mean of seeds) | each seed | distance of Ĉ |", "| --- | --- | --- | --- |"]
    ranked = sorted(by_method.items(), key=lambda item: -statistics.mean(e["accuracy"] for e in item[1]))
    for method, entries in ranked:
        each = ", ".join(f"{entry['accuracy']:.3f}" for entry in entries)
        distances = [entry["matrix_distance"] for entry in entries if entry["matrix_distance"] is not None]
        distance = f"{statistics.mean(distances):.3f}" if distances else ""
        mean = statistics.mean(entry["accuracy"] for entry in entries)
        lines.append(f"| {method} | {mean:.3f} | {each} | {distance} |")
    return "\n".join(lines)


def main() -> None:
    """Runs what is not in the results file yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--strength", type=float, default=0.6)
    parser.add_argument("--trusted", type=float, default=0.05)
    parser.add_argument("--group-norm", action="store_true", help="GroupNorm in place of BatchNorm")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--summary", action="store_true", help="only print the table")
    options = parser.parse_args()
    if not options.summary:
        import torch

        torch.set_num_threads(options.threads)
        RESULTS.parent.mkdir(exist_ok=True)
        norm = "group" if options.group_norm else "batch"
        known = {(entry["method"], entry["seed"]) for entry in read_results() if entry.get("norm", "batch") == norm}
        for seed in options.seeds:
            missing = [method for method in options.methods if (method, seed) not in known]
            if missing:
                run_seed(seed, missing, options.strength, options.trusted, norm)
    print(summary())


if __name__ == "__main__":
    main()
