# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Some cells of the paper's CIFAR-10 tables with a pretrained network that is trained end to end.

EfficientNet-Lite0 at 96 pixels, 2,000 training rows, 10 % of them trusted, three epochs; networks of trusted rows
alone get as many updates. Estimates as in the paper: no refinement, no repeated trusted rows. Labels of the weak
classifier are those of `cifar10-features`, drawn from a linear classifier on frozen features. Each finished run is one
line of the results file and is not repeated.

    python benchmarks/cifar_finetune.py --data <folder>
    python benchmarks/cifar_finetune.py --summary
"""

from __future__ import annotations

import copy
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from result_files import RESULTS as FOLDER
from result_files import add_run, make_runs_parser, read_runs


RESULTS = FOLDER / "cifar_finetune.jsonl"
METHODS = ("trusted_only", "no_correction", "confusion_matrix", "glc")
NOISES = {"flip": 0.6, "weak": None}
ROWS, TRUSTED, EPOCHS, BATCH = 2_000, 0.1, 3, 32


def run(noise: str, seed: int, methods: list[str], folder: str | None) -> Iterator[dict[str, Any]]:
    """Train the methods on the same rows and initial weights; equal first stages are trained once."""
    from real_noise_finetune import collate_images
    from real_noise_tasks import vision_network
    from transformers import set_seed

    from glc_hf import GLCConfig, GLCTrainer
    from glc_hf.training.compare import compare_methods

    train, test, right = rows_of(noise, seed, folder)
    set_seed(seed)
    network = vision_network(10)
    with tempfile.TemporaryDirectory() as output:

        def make_trainer(method: str) -> GLCTrainer:
            args = GLCConfig(
                output_dir=output,
                method=method,
                num_train_epochs=EPOCHS,
                per_device_train_batch_size=BATCH,
                per_device_eval_batch_size=64,
                learning_rate=1e-3,
                warmup_steps=0.1,
                trusted_share=0.0,
                refine_matrix=False,
                trusted_min_updates=EPOCHS * ROWS // BATCH,
                evaluate_stages=False,
                seed=seed,
                save_strategy="no",
                logging_strategy="no",
                report_to="none",
                disable_tqdm=True,
                use_cpu=True,
            )
            return GLCTrainer(
                copy.deepcopy(network), args, train_dataset=train, eval_dataset=test, data_collator=collate_images
            )

        start = time.process_time()
        for _, metrics in compare_methods(methods, make_trainer):
            yield {
                "noise": noise,
                "strength": NOISES[noise],
                "method": metrics["method"],
                "seed": seed,
                "error": round(100 * (1 - metrics["eval_accuracy"]), 3),
                "right_untrusted_labels": right,
                "shared_stages": metrics["shared_stages"],
                "processor_seconds": round(time.process_time() - start, 1),
            }
            start = time.process_time()


def rows_of(noise: str, seed: int, folder: str | None) -> tuple[Any, Any, float]:
    """Noisy training rows with their flags, test rows, and the share of correct untrusted labels."""
    import datasets
    import numpy as np

    from glc_hf.experiments.jobs import noisy_rows
    from glc_hf.experiments.presets import get_preset

    preset = get_preset("cifar10-features")
    images, test_images, _ = preset.rows_of(folder)
    noisy = noisy_rows(preset, preset.prepare(folder), noise, TRUSTED, NOISES[noise], seed).train.with_format("numpy")
    # A tenth of these rows are trusted too: flags are drawn at random.
    first = {name: noisy[name][:][:ROWS] for name in ("label", "trusted", "clean_label")}
    right = (first["label"] == first["clean_label"])[~first["trusted"]].mean()

    def pixels(rows: Any, number: int) -> list[Any]:
        return [np.asarray(image.convert("RGB")) for image in rows.select(range(number))["img"]]

    train = datasets.Dataset.from_dict(
        {"pixel_values": pixels(images, ROWS), "labels": first["label"], "trusted": first["trusted"]}
    )
    count = len(test_images)
    test = datasets.Dataset.from_dict(
        {"pixel_values": pixels(test_images, count), "labels": test_images.with_format("numpy")["label"][:]}
    )
    return train, test, round(float(right), 4)


def summary() -> str:
    """Table of the errors."""
    names = [method.replace("_", " ") for method in METHODS]
    lines = [
        "| noise | correct untrusted labels | " + " | ".join(names) + " |",
        "| --- | ---: |" + " ---: |" * len(METHODS),
    ]
    runs = read_runs(RESULTS)
    for noise, strength in NOISES.items():
        own = [run for run in runs if run["noise"] == noise]
        if own:
            errors = [
                ", ".join(f"{run['error']:.1f}" for run in own if run["method"] == method) or "–" for method in METHODS
            ]
            title = "weak classifier" if strength is None else f"{noise} {strength:g}"
            right = ", ".join(f"{share:.0%}" for share in sorted({run["right_untrusted_labels"] for run in own}))
            lines.append(f"| {title} | {right} | " + " | ".join(errors) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run what the results file does not have, then print the table."""
    parser = make_runs_parser(__doc__)
    parser.set_defaults(seeds=[0])
    parser.add_argument("--data", help="folder of the datasets, named as on the Hub")
    parser.add_argument("--noises", nargs="+", choices=list(NOISES), default=list(NOISES))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    options = parser.parse_args()
    if not options.summary:
        import torch

        torch.set_num_threads(options.threads)
        done = {(one["noise"], one["seed"], one["method"]) for one in read_runs(RESULTS)}
        for seed in options.seeds:
            for noise in options.noises:
                missing = [method for method in options.methods if (noise, seed, method) not in done]
                for figures in run(noise, seed, missing, options.data) if missing else ():
                    add_run(RESULTS, figures)
    print(summary())


if __name__ == "__main__":
    main()
