# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""What came of a run: `results.json`, the picture of the matrix, and a few lines for the reader."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glc_hf._compat import versions
from glc_hf.cli.data import Rows, count_changed_labels, count_labels
from glc_hf.cli.terminal import print_facts
from glc_hf.hub.facts import public_name


if TYPE_CHECKING:
    from glc_hf.cli.parsing import TrainOptions
    from glc_hf.training.trainer import GLCTrainer


RESULTS_FILE = "results.json"
# What the rows of the embedded example are called.
DIGITS = "digits of scikit-learn"
_PIPELINES = {"text": "text-classification", "image": "image-classification", "token": "token-classification"}
_FEW_ROWS = 100
_SHOWN_CONFUSIONS = 3


def results_of(
    trainer: GLCTrainer,
    rows: Rows,
    options: TrainOptions,
    metrics: dict[str, Any],
    seconds: float,
    label_accuracy: float | None = None,
) -> dict[str, Any]:
    """
    Every figure of the run, ready for JSON.

    Args:
        trainer ([`GLCTrainer`]): After training.
        rows (`Rows`): What it was trained on.
        options (`TrainOptions`): What it was told.
        metrics (`dict`): Of training and evaluation.
        seconds (`float`): From start to end.
        label_accuracy (`float`, *optional*): How many of a weak classifier's labels are right.
    """
    matrix, true = trainer.corruption_matrix, rows.true_matrix
    return {
        "method": trainer.args.method,
        "dataset": _without_folder(options.data.dataset) if options.data.dataset else DIGITS,
        "model": _without_folder(options.model.model) if options.model.model else "network for digits",
        "task": rows.columns.task,
        "num_labels": rows.num_labels,
        **count_labels(rows, options.config.trusted_column),
        "simulated_noise": simulated_noise(rows, options, label_accuracy),
        "accuracy_before_correction": metrics.get("stage1_eval_accuracy"),
        "accuracy_after_correction": metrics.get("eval_accuracy"),
        "distance_to_true_matrix": matrix.distance(true) if matrix is not None and true is not None else None,
        "largest_confusions": matrix.largest_confusions() if matrix is not None else [],
        "metrics": metrics,
        "arguments": _arguments(trainer, options),
        "versions": versions(),
        "seconds": round(seconds, 1),
    }


def write_results(folder: str | Path, results: dict[str, Any]) -> None:
    """Writes `results.json`."""
    folder = Path(folder)
    text = json.dumps(results, indent=2, ensure_ascii=False, default=float)
    (folder / RESULTS_FILE).write_text(text + "\n", encoding="utf-8")


def simulated_noise(rows: Rows, options: TrainOptions, label_accuracy: float | None) -> dict[str, Any] | None:
    """The noise that was put on the labels, and what came of it; `None` where they are noisy by themselves."""
    if not options.noise.simulated:
        return None
    has_strength = options.noise.noise.isalpha() and options.noise.noise != "weak"
    return {
        "kind": _without_folder(options.noise.noise),
        "strength": options.noise.noise_strength if has_strength else None,
        "changed_labels": count_changed_labels(rows),
        "label_accuracy": label_accuracy,
    }


def add_card_facts(trainer: GLCTrainer, rows: Rows, options: TrainOptions, label_accuracy: float | None) -> None:
    """Adds to the model card what the trainer can't know: the dataset's name, the simulated noise, the options."""
    data, model = options.data, options.model
    told = {
        "dataset": public_name(data.dataset)._asdict() if data.dataset else {"name": DIGITS, "on_hub": False},
        "simulated_noise": simulated_noise(rows, options, label_accuracy),
        "arguments": _arguments(trainer, options),
    }
    if model.from_scratch or model.model is None:
        told["base_model"] = None  # only its configuration was taken
    trainer.model_card.add_facts(**told)


def print_results(results: dict[str, Any], folder: str) -> None:
    """The results in short: a table on a terminal, plain lines elsewhere."""
    *lines, after = _lines(results, folder)
    print_facts(f"glc_hf: method {results['method']}", lines, [after], good="accuracy after correction")


def _lines(results: dict[str, Any], folder: str) -> list[tuple[str, str]]:
    rows = f"{results['train_rows']:,} to train on, {results['eval_rows']:,} to evaluate on"
    lines = [("rows", rows)]
    unit = "labels" if "train_labels" in results else "rows"
    if "trusted" in results:
        total = results["trusted"] + results["untrusted"]
        unit = unit if total != results["train_rows"] else "rows"
        lines.append(("trusted", f"{results['trusted']:,} of {total:,} {unit}"))
    noise = results["simulated_noise"]
    if noise is not None:
        strength = f" {noise['strength']:g}" if noise["strength"] is not None else ""
        if noise["label_accuracy"] is not None:
            came_of_it = f"labels of untrusted rows right in {noise['label_accuracy']:.1%}"
        else:
            came_of_it = f"{noise['changed_labels']:,} labels made wrong"
        lines.append(("simulated noise", f"{noise['kind']}{strength}, {came_of_it}"))
    for name in ("accuracy_before_correction", "accuracy_after_correction"):
        if results[name] is not None:
            note = " (stage 1)" if "before" in name else ""
            if results["eval_rows"] < _FEW_ROWS and "train_labels" not in results:
                # The standard error of a share of so few rows, none of them counting as certain.
                share = (results[name] * results["eval_rows"] + 1) / (results["eval_rows"] + 2)
                error = (share * (1 - share) / results["eval_rows"]) ** 0.5
                note += f" (of {results['eval_rows']} rows: ± {100 * error:.0f} points)"
            lines.append((name.replace("_", " "), f"{results[name]:.1%}{note}"))
    if results["distance_to_true_matrix"] is not None:
        lines.append(("distance to the true matrix", f"{results['distance_to_true_matrix']:.3f} (0 to 1)"))
    if results["largest_confusions"]:
        shown = results["largest_confusions"][:_SHOWN_CONFUSIONS]
        text = ", ".join(f"{entry['true']} → {entry['noisy']} {entry['probability']:.0%}" for entry in shown)
        lines.append(("largest confusions", text))
    lines.append(("seconds", f"{results['seconds']:.0f}"))
    lines.append(("saved in", folder))
    lines.append(("load it with", f'transformers.pipeline("{_PIPELINES[results["task"]]}", model="{folder}")'))
    return lines


def _arguments(trainer: GLCTrainer, options: TrainOptions) -> dict[str, Any]:
    return {**_differing(options), **trainer.args.changed_arguments()}


def _differing(options: TrainOptions) -> dict[str, Any]:
    """The command's own options that are not the default; of paths, the last part alone."""
    differing = {}
    for arguments in (options.data, options.noise, options.model):
        for field in dataclasses.fields(arguments):
            value = getattr(arguments, field.name)
            if value != field.default:
                differing[field.name] = _without_folder(value)
    return differing


def _without_folder(value: Any) -> Any:
    """Absolute paths, and those from the home folder, say where somebody keeps things."""
    if isinstance(value, str) and (os.path.isabs(value) or value.startswith(("~", ".."))):
        return Path(value).name
    return value
