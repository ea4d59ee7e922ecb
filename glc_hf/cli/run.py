# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""A run of `glc-hf train`: set up, then train one method, or compare several."""

from __future__ import annotations

import copy
import os
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import set_seed

from glc_hf.cli import report
from glc_hf.cli.data import CLEAN_COLUMN, load_rows, read_matrix
from glc_hf.cli.digits import use_one_thread
from glc_hf.cli.main import raise_if_interrupted
from glc_hf.cli.model import Prepared, check_labels_fit, prepare
from glc_hf.cli.terminal import SaveOnInterrupt, show_progress
from glc_hf.hub.facts import read_facts, write_facts
from glc_hf.hub.model_card import write_card
from glc_hf.methods import get_method
from glc_hf.noise.families import WEAK
from glc_hf.run_files import COMPARISON_FILE, check_output_folder, locked
from glc_hf.training.compare import compare_methods
from glc_hf.training.trainer import GLCTrainer


if TYPE_CHECKING:
    from glc_hf.cli.parsing import TrainOptions
    from glc_hf.training.config import GLCConfig


def run(options: TrainOptions, started: float) -> dict[str, Any]:
    """
    Train, save and report; return the content of `results.json`, or of `comparison.json`.

    Args:
        options (`TrainOptions`): The options of the command.
        started (`float`): Value of `time.perf_counter()` when the command started.
    """
    config = options.config
    folder = str(config.output_dir)
    check_output_folder(folder, options.model.overwrite_output_dir)
    prepared = set_up(options)
    with locked(folder) if config.process_index == 0 else nullcontext():
        return compare(prepared, options) if options.model.compare else run_one(prepared, options, started)


def set_up(options: TrainOptions) -> Prepared:
    """Load and prepare rows and model. Errors in the rows are raised before the model is loaded."""
    noise, config = options.noise, options.config
    if options.model.compare:
        # Rows are loaded with flags if any of the methods needs them.
        config.method = max(options.model.compare, key=lambda name: get_method(name).needs_trusted)
    with config.main_process_first(desc="loading the data"):
        rows = load_rows(options)
        check_labels_fit(rows)
    raise_if_interrupted()
    matrix = read_matrix(noise.corruption_matrix, "--corruption-matrix") if noise.corruption_matrix else None
    if options.model.model is None:
        use_one_thread()
    set_seed(config.seed)
    prepared = prepare(rows, options)
    raise_if_interrupted()
    prepared.known_matrix = matrix
    if noise.noise == WEAK:
        from glc_hf.training.weak_training import label_by_weak_classifier

        prepared.train, prepared.label_accuracy = label_by_weak_classifier(
            prepared.train,
            prepared.model,
            config,
            num_train_epochs=noise.weak_epochs,
            temperature=noise.weak_temperature,
            label_column="labels",
            data_collator=prepared.collator,
            clean_column=CLEAN_COLUMN,
        )
    return prepared


def run_one(prepared: Prepared, options: TrainOptions, started: float) -> dict[str, Any]:
    """Train, save and report one method."""
    config = options.config
    trainer = _make_trainer(prepared, options, config, prepared.model)
    metrics = dict(trainer.train(resume_from_checkpoint=config.resume_from_checkpoint).metrics)
    if trainer.eval_dataset is not None:
        metrics.update(trainer.evaluate())
    results = _save(trainer, prepared, options, metrics, time.perf_counter() - started)
    if trainer.is_world_process_zero():
        report.print_results(results, str(config.output_dir), options.data)
    if config.push_to_hub:
        trainer.push_to_hub()
    return results


def compare(prepared: Prepared, options: TrainOptions) -> dict[str, Any]:
    """Train each method, save its model to a subfolder, and print the accuracies, best first."""
    if prepared.evaluation is None:
        raise ValueError("--compare needs rows to evaluate on: name a split with --eval-split.")
    folder = Path(str(options.config.output_dir))

    def trainer_of(method: str) -> GLCTrainer:
        config = copy.copy(options.config)
        config.method, config.output_dir = method, os.path.join(folder, method)
        return _make_trainer(prepared, options, config, copy.deepcopy(prepared.model))

    methods = list(dict.fromkeys(options.model.compare or ()))
    for method in methods:
        trainer_of(method)  # raises for options and models that a method can't use, before the first training
    rows = []
    started = time.perf_counter()
    for trainer, metrics in compare_methods(methods, trainer_of, resume=bool(options.config.resume_from_checkpoint)):
        shared = metrics.pop("shared_stages")
        seconds, started = time.perf_counter() - started, time.perf_counter()
        rows.append({**_save(trainer, prepared, options, metrics, seconds), "shared_stages": shared})
    rows.sort(key=lambda row: -row["accuracy_after_correction"])
    comparison = {"methods": rows}
    if options.config.process_index == 0:
        report.write_json(folder / COMPARISON_FILE, comparison)
        accuracies = [{"method": row["method"], "accuracy": row["accuracy_after_correction"]} for row in rows]
        for method in methods:  # each model card shows all methods
            write_facts(folder / method, {**read_facts(folder / method), "comparison": accuracies})
            write_card(folder / method)
        report.print_comparison(rows, str(folder))
    return comparison


def _make_trainer(prepared: Prepared, options: TrainOptions, config: GLCConfig, model: Any) -> GLCTrainer:
    matrix = prepared.known_matrix if get_method(config.method).uses_matrix else None
    if matrix is None and config.method == "true_matrix":
        matrix = prepared.rows.true_matrix
    trainer = GLCTrainer(
        model=model,
        args=config,
        data_collator=prepared.collator,
        train_dataset=prepared.train,
        eval_dataset=prepared.evaluation,
        # The image processor of a timm network is saved in the configuration of the model.
        processing_class=None if model.config.model_type == "timm_wrapper" else prepared.processor,
        corruption_matrix=matrix,
        callbacks=[SaveOnInterrupt()],
    )
    trainer.model_card.overwrites = True  # the folder has been checked
    show_progress(trainer)
    report.add_card_facts(trainer, prepared, options)
    return trainer


def _save(
    trainer: GLCTrainer, prepared: Prepared, options: TrainOptions, metrics: dict[str, Any], seconds: float
) -> dict[str, Any]:
    results = report.results_of(trainer, prepared, options, metrics, seconds)
    # Not the public save, which would push: `results.json` must be in the folder first.
    trainer.save_model(trainer.args.output_dir, _internal_call=True)
    if trainer.is_world_process_zero():
        report.write_json(Path(str(trainer.args.output_dir)) / report.RESULTS_FILE, results)
    return results
