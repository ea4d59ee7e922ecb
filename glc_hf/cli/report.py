# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Results of a run: `results.json`, facts for the model card, and the printed summary."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glc_hf._compat import versions
from glc_hf.cli.data import count_changed_labels, count_labels
from glc_hf.cli.terminal import print_table
from glc_hf.hub.facts import public_name
from glc_hf.methods import get_method
from glc_hf.noise.families import WEAK


if TYPE_CHECKING:
    from glc_hf.cli.model import Prepared
    from glc_hf.cli.parsing import TrainOptions
    from glc_hf.training.trainer import GLCTrainer


RESULTS_FILE, COMPARISON_FILE = "results.json", "comparison.json"
# Name of the dataset of the embedded example.
DIGITS = "digits of scikit-learn"
_FEW_ROWS = 100
_SHOWN_CONFUSIONS = 3


def results_of(
    trainer: GLCTrainer, prepared: Prepared, options: TrainOptions, metrics: dict[str, Any], seconds: float
) -> dict[str, Any]:
    """
    Return the content of `results.json`.

    Args:
        trainer ([`GLCTrainer`]): The trainer, after training.
        prepared (`Prepared`): The rows and the model that it was built from.
        options (`TrainOptions`): The options of the command.
        metrics (`dict`): Metrics of training and evaluation.
        seconds (`float`): Duration of the run.
    """
    rows = prepared.rows
    matrix, true = trainer.corruption_matrix, rows.true_matrix
    return {
        "method": trainer.args.method,
        "dataset": _without_folder(options.data.dataset) if options.data.dataset else DIGITS,
        "model": _without_folder(options.model.model) if options.model.model else "network for digits",
        "task": rows.columns.task,
        "num_labels": rows.num_labels,
        **count_labels(rows, options.config.trusted_column),
        "simulated_noise": _simulated_noise(prepared, options),
        "accuracy_before_correction": metrics.get("stage1_eval_accuracy"),
        "accuracy_after_correction": metrics.get("eval_accuracy"),
        "distance_to_true_matrix": matrix.distance(true) if matrix is not None and true is not None else None,
        "largest_confusions": matrix.largest_confusions() if matrix is not None else [],
        "metrics": metrics,
        "arguments": _changed_arguments(trainer, prepared, options),
        "versions": versions(),
        "seconds": round(seconds, 1),
    }


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write `results.json` or `comparison.json`."""
    text = json.dumps(content, indent=2, ensure_ascii=False, default=float)
    path.write_text(text + "\n", encoding="utf-8")


def add_card_facts(trainer: GLCTrainer, prepared: Prepared, options: TrainOptions) -> None:
    """Add to the model card what the trainer can't know: the dataset's name, the simulated noise, the options."""
    data, model = options.data, options.model
    facts = {
        "dataset": public_name(data.dataset)._asdict() if data.dataset else {"name": DIGITS, "on_hub": False},
        "simulated_noise": _simulated_noise(prepared, options),
        "arguments": _changed_arguments(trainer, prepared, options),
    }
    if model.from_scratch or model.model is None:
        facts["base_model"] = None  # only its configuration was used
    trainer.model_card.add_facts(**facts)


def _simulated_noise(prepared: Prepared, options: TrainOptions) -> dict[str, Any] | None:
    noise = options.noise
    if not noise.simulated:
        return None
    has_strength = noise.noise.isalpha() and noise.noise != WEAK
    return {
        "kind": _without_folder(noise.noise),
        "strength": noise.noise_strength if has_strength else None,
        "changed_labels": count_changed_labels(prepared.rows),
        "label_accuracy": prepared.label_accuracy,
    }


def _changed_arguments(trainer: GLCTrainer, prepared: Prepared, options: TrainOptions) -> dict[str, Any]:
    """Return the options that differ from their defaults, without the folders of paths."""
    changed = {}
    for arguments in (options.data, options.noise, options.model):
        for field in dataclasses.fields(arguments):
            value = getattr(arguments, field.name)
            if value != field.default:
                changed[field.name] = _without_folder(value)
    if prepared.label_column is not None:
        changed["label_column"] = prepared.label_column
    return {**changed, **trainer.args.changed_arguments()}


def _without_folder(value: Any) -> Any:
    """Return the last part of a path that is absolute or starts at the home folder, which others must not see."""
    if isinstance(value, str) and (os.path.isabs(value) or value.startswith(("~", ".."))):
        return Path(value).name
    return value


def print_results(results: dict[str, Any], folder: str) -> None:
    """Print the summary of a run: a table on a terminal, plain lines elsewhere."""
    lines = {"rows": f"{results['train_rows']:,} for training, {results['eval_rows']:,} for evaluation"}
    if "trusted" in results:
        total = results["trusted"] + results["untrusted"]
        unit = "rows" if total == results["train_rows"] else "labels"
        lines["trusted"] = f"{results['trusted']:,} of {total:,} {unit}"
    noise = results["simulated_noise"]
    if noise is not None:
        strength = f" {noise['strength']:g}" if noise["strength"] is not None else ""
        if noise["label_accuracy"] is not None:
            effect = f"{noise['label_accuracy']:.1%} of the untrusted labels are correct"
        else:
            effect = f"{noise['changed_labels']:,} wrong labels"
        lines["simulated noise"] = f"{noise['kind']}{strength}, {effect}"
    final = "accuracy after correction" if get_method(results["method"]).uses_matrix else "accuracy"
    for name, key, note in (
        ("accuracy before correction", "accuracy_before_correction", "stage 1"),
        (final, "accuracy_after_correction", ""),
    ):
        accuracy = results[key]
        if accuracy is not None:
            notes = ", ".join(filter(None, [note, _uncertainty(accuracy, results)]))
            lines[name] = f"{accuracy:.1%}" + (f" ({notes})" if notes else "")
    if results["distance_to_true_matrix"] is not None:
        lines["distance to the true matrix"] = f"{results['distance_to_true_matrix']:.3f} (0 to 1)"
    if results["largest_confusions"]:
        shown = results["largest_confusions"][:_SHOWN_CONFUSIONS]
        lines["largest confusions"] = ", ".join(
            f"{entry['true']} → {entry['noisy']} {entry['probability']:.0%}" for entry in shown
        )
    lines["seconds"] = f"{results['seconds']:.0f}"
    lines["saved to"] = folder
    pipeline = f'transformers.pipeline("{results["task"]}-classification", model="{folder}")'
    print_table(f"glc_hf: method {results['method']}", list(lines.items()), highlight=final)
    print(f"load with: {pipeline}")  # below the table, where a narrow terminal does not break it into pieces


def _uncertainty(accuracy: float, results: dict[str, Any]) -> str:
    """Format the standard error of an accuracy on few rows, which is never zero here."""
    rows = results["eval_rows"]
    if rows >= _FEW_ROWS or "train_labels" in results:
        return ""
    share = (accuracy * rows + 1) / (rows + 2)
    return f"± {100 * (share * (1 - share) / rows) ** 0.5:.0f} points on {rows} rows"


def print_comparison(rows: list[dict[str, Any]], folder: str) -> None:
    """Print one line per method."""

    def optional(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    lines = [
        (
            row["method"],
            " ".join(filter(None, [f"{accuracy:.1%}", _uncertainty(accuracy, row)])),
            optional(row["accuracy_before_correction"], ".1%"),
            optional(row["distance_to_true_matrix"], ".3f"),
            f"{row['seconds']:.0f}" + (" (stage 1 shared)" if row["shared_stages"] else ""),
        )
        for row in rows
        for accuracy in [row["accuracy_after_correction"]]
    ]
    header = ("method", "accuracy", "before correction", "matrix distance", "seconds")
    print_table("glc_hf: the same rows, noise and initial weights", lines, header)
    print(f"saved to: {folder}")
