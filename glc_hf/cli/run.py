# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`glc-hf train --compare`: several methods from one start, and one table."""

from __future__ import annotations

import copy
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import set_seed

from glc_hf.cli.data import CLEAN_COLUMN, Rows, load_rows, read_matrix
from glc_hf.cli.digits import use_one_thread
from glc_hf.cli.model import Prepared, check_labels_fit, load_model, prepare
from glc_hf.cli.report import add_card_facts, print_results, results_of, write_results
from glc_hf.cli.terminal import SaveOnInterrupt, show_progress
from glc_hf.methods import get_method
from glc_hf.training.compare import compare_methods
from glc_hf.training.trainer import GLCTrainer


if TYPE_CHECKING:
    from glc_hf.cli.parsing import TrainOptions
    from glc_hf.matrix import CorruptionMatrix
    from glc_hf.training.config import GLCConfig


def run(options: TrainOptions, started: float | None = None) -> dict:
    """
    Trains, saves and reports; returns what `results.json` holds (of a comparison: `comparison.json`).

    Args:
        options (`TrainOptions`): What to do.
        started (`float`, *optional*): When the clock was started, in `time.perf_counter()`'s seconds.
    """
    started = time.perf_counter() if started is None else started
    ready = set_up(options)
    if options.model.compare:
        return run_comparison(ready, options)
    return run_one(ready, options, started)


def run_one(ready: Ready, options: TrainOptions, started: float) -> dict:
    """One method, from set-up rows and model to a saved one."""
    config = options.config
    trainer = ready.trainer(config, ready.model)
    add_card_facts(trainer, ready.rows, options, ready.label_accuracy)
    metrics = dict(trainer.train(resume_from_checkpoint=config.resume_from_checkpoint).metrics)
    if trainer.eval_dataset is not None:
        metrics.update(trainer.evaluate())
    seconds = time.perf_counter() - started
    results = results_of(trainer, ready.rows, options, metrics, seconds, ready.label_accuracy)
    # Not a public save yet: the results go with the model when it is pushed.
    trainer.save_model(config.output_dir, _internal_call=True)
    if trainer.is_world_process_zero():
        write_results(config.output_dir, results)
        print_results(results, config.output_dir)
    if config.push_to_hub:
        trainer.push_to_hub()
    return results


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
        add_card_facts(trainer, ready.rows, options, ready.label_accuracy)
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
    from glc_hf.hub.facts import read_facts, write_facts
    from glc_hf.hub.model_card import write_card

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


@dataclass
class Ready:
    """
    What a run starts from.

    Attributes:
        rows: The rows as they were loaded, marked and corrupted.
        prepared: The same as the model takes them.
        model: With its initial weights.
        processor: The tokenizer or image processor that is saved with it.
        matrix: A known corruption matrix, for the methods that use one.
        label_accuracy: How many of the weak classifier's labels are right, where it gave them.
    """

    rows: Rows
    prepared: Prepared
    model: torch.nn.Module
    processor: Any
    matrix: CorruptionMatrix | None
    label_accuracy: float | None = None

    def trainer(self, config: GLCConfig, model: torch.nn.Module) -> GLCTrainer:
        """The trainer of a method, which trains `model`."""
        matrix = self.matrix if get_method(config.method).uses_matrix else None
        if matrix is None and config.method == "true_matrix":
            matrix = self.rows.true_matrix
        trainer = GLCTrainer(
            model=model,
            args=config,
            data_collator=self.prepared.collator,
            train_dataset=self.prepared.train,
            eval_dataset=self.prepared.evaluation,
            processing_class=self.processor,
            corruption_matrix=matrix,
            callbacks=[SaveOnInterrupt()],
        )
        show_progress(trainer)
        return trainer


def set_up(options: TrainOptions) -> Ready:
    """Loads and prepares; what is wrong with the rows is found before a model is loaded."""
    noise, config = options.noise, options.config
    if options.model.compare:
        # Rows are loaded with flags if any of the methods looks at them.
        config.method = max(options.model.compare, key=lambda name: get_method(name).needs_trusted)
    with config.main_process_first(desc="loading the data"):
        rows = load_rows(options)
        check_labels_fit(rows)
    matrix = read_matrix(noise.corruption_matrix, "--corruption-matrix") if noise.corruption_matrix else None
    if options.model.model is None:
        use_one_thread()
    set_seed(config.seed)
    model, processor, saved_processor = load_model(options.model, rows.columns.task, rows.num_labels, rows.label_names)
    with config.main_process_first(desc="preparing the data"):
        prepared = prepare(rows, processor, model, options)
    config.label_column = None  # the prepared one is called `labels`
    ready = Ready(rows, prepared, model, saved_processor, matrix)
    return _with_weak_labels(ready, options) if noise.noise == "weak" else ready


def _with_weak_labels(ready: Ready, options: TrainOptions) -> Ready:
    from glc_hf.training.weak_training import label_by_weak_classifier

    train, ready.label_accuracy = label_by_weak_classifier(
        ready.prepared.train,
        ready.model,
        options.config,
        num_train_epochs=options.noise.weak_epochs,
        temperature=options.noise.weak_temperature,
        label_column="labels",
        data_collator=ready.prepared.collator,
        clean_column=CLEAN_COLUMN,
    )
    ready.prepared = ready.prepared._replace(train=train)
    return ready
