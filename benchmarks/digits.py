# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
All methods on scikit-learn's digits: flip noise 0.6, 5 % trusted, with the same data, noise and initial weights.

The network and its settings are those of `glc-hf train` without arguments. Each finished (method, seed) is one line of
the results file. `reweight` can't train networks with BatchNorm, so it is compared with `glc` on the same network with
GroupNorm.

    python benchmarks/digits.py --seeds 0 1 2
    python benchmarks/digits.py --seeds 0 1 2 --group-norm --methods glc reweight
    python benchmarks/digits.py --summary
"""

from __future__ import annotations

import copy
import statistics

from result_files import RESULTS as FOLDER
from result_files import add_run, make_runs_parser, read_runs


RESULTS = FOLDER / "digits.jsonl"
METHODS = [
    "glc", "true_matrix", "confusion_matrix", "finetune_on_trusted", "trusted_only", "distillation", "forward_gold",
    "forward", "no_correction",
]  # fmt: skip


def trainer_maker(seed: int, strength: float, norm: str = "batch", **trusted):
    """
    Return a function that creates the trainer of a method, and the true matrix. All trainers share the rows, noise and
    initial weights of the seed. `trusted` are arguments of `mark_trusted`.
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
        _use_group_norm(network)
    transform = _image_transform(network)
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
    """Train these methods with one seed and add each result when it is finished."""
    from glc_hf.training.compare import compare_methods

    trainer, true_matrix = trainer_maker(seed, strength, norm, fraction=trusted)
    for finished, row in compare_methods(methods, trainer):
        matrix = finished.corruption_matrix
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
        add_run(RESULTS, result)


def _use_group_norm(module) -> None:
    """Replace BatchNorm by GroupNorm with 8 groups."""
    from torch import nn

    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d):
            activation = getattr(child, "act", nn.Identity())
            setattr(module, name, nn.Sequential(nn.GroupNorm(8, child.num_features), activation))
        else:
            _use_group_norm(child)


def _image_transform(network):
    """A transform from images to the network's inputs that caches each of the 1,797 images."""
    from transformers import TimmWrapperImageProcessor

    processor = TimmWrapperImageProcessor(network.config.pretrained_cfg)
    cache: dict[bytes, object] = {}

    def transform(batch):
        pixels = []
        for image in batch["image"]:
            key = image.tobytes()
            if key not in cache:
                cache[key] = processor(image.convert("RGB"))["pixel_values"][0]
            pixels.append(cache[key])
        return {"pixel_values": pixels, "labels": batch["label"]}

    return transform


def summary() -> str:
    """Table of the mean accuracy per method over its seeds, best first."""
    by_method: dict[str, list[dict]] = {}
    for entry in sorted(read_runs(RESULTS), key=lambda entry: entry["seed"]):
        name = f"`{entry['method']}`" + (" (GroupNorm)" if entry.get("norm") == "group" else "")
        by_method.setdefault(name, []).append(entry)
    lines = ["| method | mean accuracy | per seed | distance of Ĉ |", "| --- | --- | --- | --- |"]
    ranked = sorted(by_method.items(), key=lambda item: -statistics.mean(e["accuracy"] for e in item[1]))
    for method, entries in ranked:
        per_seed = ", ".join(f"{entry['accuracy']:.3f}" for entry in entries)
        distances = [entry["matrix_distance"] for entry in entries if entry["matrix_distance"] is not None]
        distance = f"{statistics.mean(distances):.3f}" if distances else ""
        mean = statistics.mean(entry["accuracy"] for entry in entries)
        lines.append(f"| {method} | {mean:.3f} | {per_seed} | {distance} |")
    return "\n".join(lines)


def main() -> None:
    parser = make_runs_parser(__doc__)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--strength", type=float, default=0.6)
    parser.add_argument("--trusted", type=float, default=0.05)
    parser.add_argument("--group-norm", action="store_true", help="GroupNorm instead of BatchNorm")
    options = parser.parse_args()
    if not options.summary:
        import torch

        torch.set_num_threads(options.threads)
        norm = "group" if options.group_norm else "batch"
        runs = read_runs(RESULTS)
        finished = {(entry["method"], entry["seed"]) for entry in runs if entry.get("norm", "batch") == norm}
        for seed in options.seeds:
            missing = [method for method in options.methods if (method, seed) not in finished]
            if missing:
                run_seed(seed, missing, options.strength, options.trusted, norm)
    print(summary())


if __name__ == "__main__":
    main()
