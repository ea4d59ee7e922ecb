# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Which architectures of transformers `GLCTrainer` trains: a tiny model of each, with random weights, trained two steps
by `Trainer`, by `GLCTrainer` with `no_correction`, whose losses must equal those of `Trainer`, with `glc`, and with
`glc, stage1="probe"`.

Each architecture is one line of the results file. All of them take about ten minutes on one core.

    python benchmarks/architectures.py
    python benchmarks/architectures.py --mappings "image classification" --models vit resnet
    python benchmarks/architectures.py --summary
"""

from __future__ import annotations

import copy
import gc
import logging
import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from result_files import RESULTS as FOLDER
from result_files import add_run, make_parser, read_runs


RESULTS = FOLDER / "architectures.jsonl"
NO_PROBE = "has no linear layer with"


def settings(folder: str, **more: Any) -> dict[str, Any]:
    """Two steps on the CPU that write nothing."""
    return dict(
        output_dir=folder,
        max_steps=2,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        learning_rate=1e-3,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        **more,
    )


def train_all(mapping: str, model_type: str, class_name: str) -> dict[str, Any]:
    """Build a model and train it in each way: `True`, or the reason why not."""
    import datasets
    import transformers
    from tiny_models import random_rows, tiny_model
    from transformers import PrinterCallback, Trainer, TrainingArguments

    from glc_hf import GLCConfig, GLCTrainer

    result: dict[str, Any] = {"mapping": mapping, "model_type": model_type, "class": class_name}
    result["transformers"] = transformers.__version__
    losses: dict[str, list[float]] = {}

    def attempt(name: str, run: Callable[[], Any]) -> Any:
        try:
            value = run()
        except Exception as error:
            result[name] = f"{type(error).__name__}: {str(error).strip()}".splitlines()[0][:200]
            return None
        result[name] = True
        return value

    model = attempt("built", lambda: tiny_model(model_type, class_name))
    if model is None:
        return result
    rows = random_rows(mapping, model)
    result["parameters"] = sum(parameter.numel() for parameter in model.parameters())
    cache = datasets.config.HF_DATASETS_CACHE
    with tempfile.TemporaryDirectory() as folder:

        def train(name: str, trainer_class: type[Trainer], args: TrainingArguments) -> None:
            trainer = trainer_class(copy.deepcopy(model), args, train_dataset=rows)
            trainer.remove_callback(PrinterCallback)
            trainer.train()
            losses[name] = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]

        datasets.config.HF_DATASETS_CACHE = folder  # where the probe keeps features
        try:
            attempt("trainer", lambda: train("trainer", Trainer, TrainingArguments(**settings(folder))))
            for name, options in {
                "no_correction": dict(method="no_correction"),
                "glc": dict(method="glc"),
                "probe": dict(method="glc", stage1="probe"),
            }.items():
                attempt(name, lambda: train(name, GLCTrainer, GLCConfig(**settings(folder, **options))))  # noqa: B023
        finally:
            datasets.config.HF_DATASETS_CACHE = cache
    if "trainer" in losses and "no_correction" in losses:
        pairs = zip(losses["trainer"], losses["no_correction"], strict=True)
        result["loss_difference"] = max(abs(first - second) for first, second in pairs)
    return result


def behind(path: Path = RESULTS) -> list[str]:
    """The classes that `Trainer` trains and `GLCTrainer` does not."""
    runs = [run for run in read_runs(path) if run.get("trainer") is True]
    return [run["class"] for run in runs if run["no_correction"] is not True or run["glc"] is not True]


def summary(path: Path = RESULTS) -> str:
    """Table with one row per mapping. A probe needs a linear classifier with one output per class."""
    lines = [
        "| mapping | architectures | built | `Trainer` | `GLCTrainer` | with a probe | largest difference of losses |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    by_mapping: dict[str, list[dict[str, Any]]] = {}
    for run in read_runs(path):
        by_mapping.setdefault(run["mapping"], []).append(run)
    for mapping, runs in sorted(by_mapping.items(), key=lambda item: -len(item[1])):
        by_trainer = [run for run in runs if run.get("trainer") is True]
        by_glc = [run for run in by_trainer if run.get("no_correction") is True and run.get("glc") is True]
        with_classifier = [run for run in by_glc if NO_PROBE not in str(run["probe"])]
        probed = sum(run["probe"] is True for run in with_classifier)
        difference = max(run["loss_difference"] for run in by_glc)
        lines.append(
            f"| {mapping} | {len(runs)} | {sum(run['built'] is True for run in runs)} | {len(by_trainer)} | "
            f"{len(by_glc)} | {probed} of {len(with_classifier)} | {difference:.0e} |"
        )
    return "\n".join(lines)


def main() -> None:
    from tiny_models import MAPPINGS, architectures

    parser = make_parser(__doc__)
    parser.add_argument("--mappings", nargs="+", default=list(MAPPINGS), choices=list(MAPPINGS))
    parser.add_argument("--models", nargs="+", help="only these model types; the results are printed, not written")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--summary", action="store_true", help="only print the table")
    options = parser.parse_args()
    if options.summary:
        print(summary(options.output))
        return
    import torch
    import transformers

    torch.set_num_threads(options.threads)
    transformers.logging.set_verbosity_error()
    logging.getLogger("glc_hf").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    finished = {(run["mapping"], run["model_type"], run["class"]) for run in read_runs(options.output)}
    for mapping in options.mappings:
        for model_type, class_name in architectures(mapping):
            if options.models is not None:
                if model_type in options.models:
                    print(train_all(mapping, model_type, class_name), flush=True)
            elif (mapping, model_type, class_name) not in finished:
                gc.freeze()  # `Trainer.train` collects garbage, which takes longer than two steps of a tiny model
                add_run(options.output, train_all(mapping, model_type, class_name))
    if options.models is None:
        print(summary(options.output))
        if behind(options.output):
            raise SystemExit(f"GLCTrainer does not train {', '.join(behind(options.output))}")


if __name__ == "__main__":
    main()
