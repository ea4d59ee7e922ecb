# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Results of a run: `results.json`, facts for the model card, and the printed summary."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glc_hf._compat import versions
from glc_hf.cli.data import count_changed_labels, count_labels
from glc_hf.cli.terminal import print_table, say
from glc_hf.correction.sources import SourceTable
from glc_hf.correction.verdict import Verdict
from glc_hf.hub.facts import measured_on, public_name, sources_of, stage1_of
from glc_hf.intervals import (
    ACCURACY_LEVEL,
    MATRIX_LEVEL,
    accuracies_differ,
    format_accuracy,
    format_count,
    format_level,
    smallest_difference,
    wilson_interval,
)
from glc_hf.methods import get_method
from glc_hf.noise.families import noise_families


if TYPE_CHECKING:
    from glc_hf.cli.model import Prepared
    from glc_hf.cli.options import DataArguments
    from glc_hf.cli.parsing import TrainOptions
    from glc_hf.matrix import CorruptionMatrix
    from glc_hf.training.trainer import GLCTrainer


RESULTS_FILE = "results.json"
# Name of the dataset of the embedded example.
DIGITS = "digits of scikit-learn"
_SHOWN_CONFUSIONS = 3
# Options about files on this machine, and not about the training.
_LOCAL_OPTIONS = ("overwrite_output_dir", "trust_config")


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
        **_accuracies(trainer, metrics),
        "noise_rates": _noise_rates(matrix) if matrix is not None else [],
        "interval_levels": {"accuracy": ACCURACY_LEVEL, "noise_rates": MATRIX_LEVEL},
        "distance_to_true_matrix": matrix.distance(true) if matrix is not None and true is not None else None,
        "largest_confusions": matrix.largest_confusions() if matrix is not None else [],
        "sources": sources_of(trainer),
        "verdict": None if trainer.verdict is None else trainer.verdict.to_dict(),
        "warnings": trainer.warnings,
        "metrics": metrics,
        "arguments": _changed_arguments(trainer, prepared, options),
        "versions": versions(),
        "seconds": round(seconds, 1),
    }


def _accuracies(trainer: GLCTrainer, metrics: dict[str, Any]) -> dict[str, Any]:
    """The accuracies before and after correction with their intervals, and what they were measured on."""
    counts, unit = measured_on(trainer)
    before, after = metrics.get("stage1_eval_accuracy"), metrics.get("eval_accuracy")
    number = counts.get("accuracy", 0)

    def interval(accuracy: float | None) -> list[float] | None:
        if accuracy is None or not number:
            return None
        return [round(float(bound), 6) for bound in wilson_interval(accuracy, number, ACCURACY_LEVEL)]

    return {
        "evaluated": {"number": number, "unit": unit},
        "before_correction": stage1_of(trainer),
        "accuracy_before_correction": before,
        "accuracy_before_interval": interval(before),
        "accuracy_after_correction": after,
        "accuracy_interval": interval(after),
    }


def _noise_rates(matrix: CorruptionMatrix) -> list[dict[str, Any]]:
    """The noise rate of each class, with its interval if the matrix was estimated from trusted rows."""
    rates = [
        {"name": matrix.name_of(label), "rate": round(float(rate), 6), "low": None, "high": None, "trusted_rows": None}
        for label, rate in enumerate(matrix.noise_rates)
    ]
    if matrix.trusted_rows is not None:
        for entry, count, *bounds in zip(rates, matrix.trusted_rows, *matrix.noise_rate_interval(), strict=True):
            entry["low"], entry["high"] = (round(float(bound), 6) for bound in bounds)
            entry["trusted_rows"] = int(count)
    return rates


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
    has_strength = noise.noise in noise_families()  # not weak labels, and not the path of a matrix
    return {
        "kind": _without_folder(noise.noise),
        "strength": noise.noise_strength if has_strength else None,
        "changed_labels": count_changed_labels(prepared.rows),
        "label_accuracy": prepared.label_accuracy,
    }


def _changed_arguments(trainer: GLCTrainer, prepared: Prepared, options: TrainOptions) -> dict[str, Any]:
    """Return the options that differ from their defaults, without the folders of paths."""
    changed: dict[str, Any] = {}
    for arguments in (options.data, options.noise, options.model):
        for field in dataclasses.fields(arguments):
            value = getattr(arguments, field.name)
            if value != field.default and field.name not in _LOCAL_OPTIONS:
                changed[field.name] = _without_folder(value)
    if prepared.label_column is not None:
        changed["label_column"] = prepared.label_column
    return {**changed, **trainer.args.changed_arguments()}


def _without_folder(value: Any) -> Any:
    """Return the last part of a path that is absolute or starts at the home folder, which others must not see."""
    if isinstance(value, str) and (os.path.isabs(value) or value.startswith(("~", ".."))):
        return Path(value).name
    return value


def print_results(results: dict[str, Any], folder: str, data: DataArguments) -> None:
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
    verdict = None if results["verdict"] is None else Verdict.from_dict(results["verdict"])
    if verdict is not None and not verdict.judges_model:
        verdict = None
    final = "accuracy after correction" if get_method(results["method"]).uses_matrix else "accuracy"
    if verdict is not None:  # it has the accuracy without correction, of a model that is trained to the end
        final = "accuracy on the evaluation rows"
    elif results["accuracy_before_correction"] is not None:
        before = f"accuracy before correction ({results['before_correction']})"
        lines[before] = _with_interval(results["accuracy_before_correction"], results)
    if results["accuracy_after_correction"] is not None:
        lines[final] = _with_interval(results["accuracy_after_correction"], results)
        if results["evaluated"]["number"]:
            lines["level of the intervals"] = format_level(ACCURACY_LEVEL)
    if results["distance_to_true_matrix"] is not None:
        lines["distance to the true matrix"] = f"{results['distance_to_true_matrix']:.3f} (0 to 1)"
    if results["largest_confusions"]:
        shown = results["largest_confusions"][:_SHOWN_CONFUSIONS]
        lines["largest confusions"] = ", ".join(
            f"{entry['true']} → {entry['noisy']} {entry['probability']:.0%}" for entry in shown
        )
    lines["time"] = f"{results['seconds']:.0f} seconds"
    lines["saved to"] = folder
    pipeline = f'transformers.pipeline("{results["task"]}-classification", model="{folder}")'
    print_table(f"glc_hf: method {results['method']}", list(lines.items()), highlight=final)
    sources = SourceTable.from_list(results["sources"])
    if len(sources):
        print_table("glc_hf: sources of labels", sources.cells(), SourceTable.header)
    if verdict is not None:
        say(f"verdict: {verdict}")
    for warning in [*results["warnings"], *sources.sentences()]:
        say(f"warning: {warning}")
    say(f"load with: {pipeline}")  # below the table, where a narrow terminal does not break it into pieces
    if (results["noise_rates"] or len(sources)) and (noise is None or data.dataset is None):
        rows = {"--dataset": data.dataset, "--answers": data.answers}
        options = "".join(f" {option} {shlex.quote(name)}" for option, name in rows.items() if name is not None)
        say(f"find wrong labels with: glc-hf audit {shlex.quote(folder)}{options}")


def _with_interval(accuracy: float, results: dict[str, Any]) -> str:
    evaluated = results["evaluated"]
    return format_accuracy(accuracy, evaluated["number"], evaluated["unit"])


def print_comparison(rows: list[dict[str, Any]], folder: str) -> None:
    """
    Print one line per method, and which of them can't be told apart.

    Args:
        rows (`list[dict]`): The results of the methods, the one with the highest accuracy first.
        folder (`str`): Folder of the comparison.
    """

    def optional(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    lines = [
        (
            row["method"],
            _with_interval(row["accuracy_after_correction"], row),
            optional(row["accuracy_before_correction"], ".1%"),
            optional(row["distance_to_true_matrix"], ".3f"),
            f"{row['seconds']:.0f}" + (" (stage 1 shared)" if row["shared_stages"] else ""),
        )
        for row in rows
    ]
    interval = f"accuracy ({format_level(ACCURACY_LEVEL)} interval)"
    header = ("method", interval, "before correction", "matrix distance", "seconds")
    print_table("glc_hf: the same rows, noise and initial weights", lines, header)
    stages: dict[str, list[str]] = {}
    for row in rows:
        if row["accuracy_before_correction"] is not None:
            stages.setdefault(row["before_correction"], []).append(row["method"])
    for stage, methods in stages.items():
        say(f"before correction ({', '.join(methods)}): {stage}")
    if rows[0]["evaluated"]["number"]:
        say(_differences(rows))
    for row in rows:
        for warning in row["warnings"]:
            say(f"warning ({row['method']}): {warning}")
    say(f"saved to: {folder}")


def _differences(rows: list[dict[str, Any]]) -> str:
    """Say which methods can't be told apart from the best one, the first."""
    number, unit = rows[0]["evaluated"]["number"], rows[0]["evaluated"]["unit"]
    start = f"on {format_count(number, unit)}, "
    accuracies = [row["accuracy_after_correction"] for row in rows]
    limit = smallest_difference(accuracies[0], number)
    if math.isfinite(limit):
        start += f"differences below {100 * limit:.1f} points mean nothing"
    else:
        start += "no difference means anything"
    equal = [
        row["method"]
        for row, accuracy in zip(rows, accuracies, strict=True)
        if not accuracies_differ(accuracies[0], accuracy, number)
    ]
    if len(equal) > 1:
        return f"{start}: {', '.join(equal[:-1])} and {equal[-1]} can't be told apart"
    return f"{start}; {equal[0]} is better by more" if len(rows) > 1 else start
