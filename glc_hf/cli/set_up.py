# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Everything that methods share: rows with their noise, the model before its training, and what makes a trainer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from transformers import set_seed

from glc_hf.cli.digits import use_one_thread
from glc_hf.cli.interrupt import SaveOnInterrupt
from glc_hf.cli.load_model import load_model
from glc_hf.cli.noise import read_matrix
from glc_hf.cli.prepare import Prepared, check_labels_fit, prepare
from glc_hf.cli.progress import show_progress
from glc_hf.cli.rows import CLEAN_COLUMN, Rows, load_rows
from glc_hf.methods import get_method
from glc_hf.training.trainer import GLCTrainer


if TYPE_CHECKING:
    from glc_hf.cli.parse import TrainOptions
    from glc_hf.corruption.matrix import CorruptionMatrix
    from glc_hf.training.config import GLCConfig


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
    from glc_hf.training.weak import label_by_weak_classifier

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
