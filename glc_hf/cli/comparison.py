# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`glc-hf train --compare`: several methods from one start, and one table."""

from __future__ import annotations

import copy
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glc_hf.cli.report import results_of, tell_card, write_results
from glc_hf.training.compare import compare_methods


if TYPE_CHECKING:
    from glc_hf.cli.parse import TrainOptions
    from glc_hf.cli.set_up import Ready
    from glc_hf.training.trainer import GLCTrainer

COMPARISON_FILE = "comparison.json"


def run_comparison(ready: Ready, options: TrainOptions) -> dict[str, Any]:
    """Trains each method, saves its model in a folder of its name, and prints them side by side, the best first."""
    if ready.prepared.evaluation is None:
        raise ValueError("--compare needs rows to evaluate on: name a split with --eval-split.")
    folder = Path(options.config.output_dir)
    methods = list(dict.fromkeys(options.model.compare))

    def trainer_of(method: str) -> GLCTrainer:
        config = copy.copy(options.config)
        config.method, config.output_dir = method, os.path.join(folder, method)
        trainer = ready.trainer(config, copy.deepcopy(ready.model))
        tell_card(trainer, ready.rows, options, ready.label_accuracy)
        return trainer

    rows = []
    started = time.perf_counter()
    for trainer, metrics in compare_methods(methods, trainer_of, resume=bool(options.config.resume_from_checkpoint)):
        shared = metrics.pop("shared_stages")
        seconds, started = time.perf_counter() - started, time.perf_counter()
        results = results_of(trainer, ready.rows, options, metrics, seconds, ready.label_accuracy)
        trainer.save_model(trainer.args.output_dir, _internal_call=True)
        if trainer.is_world_process_zero():
            write_results(trainer.args.output_dir, results)
        rows.append({**results, "shared_stages": shared})
    rows.sort(key=lambda row: -row["accuracy_after_correction"])
    comparison = {"methods": rows}
    if options.config.process_index == 0:
        text = json.dumps(comparison, indent=2, ensure_ascii=False, default=float)
        (folder / COMPARISON_FILE).write_text(text + "\n", encoding="utf-8")
        _tell_cards(folder, rows)
        print_comparison(rows, str(folder))
    return comparison


def _tell_cards(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Each model's card shows the others, now that all are measured."""
    from glc_hf.hub.card import write_card
    from glc_hf.hub.facts import read_facts, write_facts

    others = [{"method": row["method"], "accuracy": row["accuracy_after_correction"]} for row in rows]
    for row in rows:
        model = folder / row["method"]
        write_facts(model, {**read_facts(model), "comparison": others})
        write_card(model)


def print_comparison(rows: list[dict[str, Any]], folder: str) -> None:
    """One line a method: a table on a terminal, columns elsewhere."""
    names = ("method", "accuracy", "before", "distance", "seconds")
    lines = [
        (
            row["method"],
            f"{row['accuracy_after_correction']:.1%}",
            _or_dash(row["accuracy_before_correction"], ".1%"),
            _or_dash(row["distance_to_true_matrix"], ".3f"),
            f"{row['seconds']:.0f}" + (" (stage 1 shared)" if row["shared_stages"] else ""),
        )
        for row in rows
    ]
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        table = Table(*names, title="glc_hf: the same rows, noise and initial weights", title_justify="left")
        for line in lines:
            table.add_row(*line)
        Console().print(table, markup=False)
    else:
        widths = [max(len(line[place]) for line in (names, *lines)) for place in range(len(names))]
        for line in (names, *lines):
            print("  ".join(value.ljust(width) for value, width in zip(line, widths, strict=True)).rstrip())
    print(f"saved in: {folder}")


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
