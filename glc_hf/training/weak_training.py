# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Labels of a weak classifier: train one briefly on clean labels, and draw noisy labels from it."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any

import datasets
import numpy as np
import torch
from transformers.utils import logging

from glc_hf.labels.labeled_rows import LabeledRows
from glc_hf.labels.reading import IGNORED_LABEL, read_integers
from glc_hf.noise.corrupt import weak_labels
from glc_hf.training.config import GLCConfig
from glc_hf.training.inference import infer, sum_over_processes
from glc_hf.training.trainer import GLCTrainer


logger = logging.get_logger(__name__)


def label_by_weak_classifier(
    dataset: datasets.Dataset,
    model: torch.nn.Module,
    args: GLCConfig,
    num_train_epochs: float = 10.0,
    temperature: float = 5.0,
    label_column: str = "label",
    data_collator: Callable | None = None,
    clean_column: str = "clean_label",
    make_trainer: Callable[[torch.nn.Module, GLCConfig, datasets.Dataset], GLCTrainer] | None = None,
) -> tuple[datasets.Dataset, float]:
    """
    Replace the labels of untrusted rows by those of a weak classifier, the paper's third kind of noise.

    A copy of `model` is trained on the clean labels of all rows for `num_train_epochs`. Each untrusted label is then
    drawn from softmax(logits / temperature).

    Args:
        dataset (`datasets.Dataset`): Clean labels, the flag column, and the model's inputs.
        model (`torch.nn.Module`): The weak network before its training. It is not changed.
        args ([`GLCConfig`]): Batch size, learning rate, seed and so on.
        num_train_epochs (`float`, *optional*, defaults to 10): Fewer epochs give noisier labels.
        temperature (`float`, *optional*, defaults to 5): As in the paper; higher is noisier.
        label_column (`str`, *optional*, defaults to `"label"`): The labels.
        data_collator (`Callable`, *optional*): As for `Trainer`.
        clean_column (`str`, *optional*, defaults to `"clean_label"`): The new column with the clean labels.
        make_trainer (`Callable`, *optional*): Makes the trainer of the weak network from the network, its arguments
            and the rows, for example to use another optimizer; by default a plain [`GLCTrainer`].

    Returns:
        `(Dataset, float)`: The rows with noisy labels, and the accuracy of the labels of untrusted rows.
    """
    settings = copy.copy(args)
    settings.method, settings.num_train_epochs, settings.max_steps = "no_correction", num_train_epochs, -1
    settings.output_dir = os.path.join(str(args.output_dir), "weak_classifier")
    settings.save_strategy, settings.eval_strategy, settings.load_best_model_at_end = "no", "no", False
    settings.push_to_hub, settings.label_column, settings.label_names = False, label_column, None
    settings.trusted_eval_fraction = 0.0  # every row needs logits
    if make_trainer is None:
        trainer = GLCTrainer(copy.deepcopy(model), settings, train_dataset=dataset, data_collator=data_collator)
    else:
        trainer = make_trainer(copy.deepcopy(model), settings, dataset)
    trainer.train()
    data = trainer.required_data
    logits = torch.zeros(len(data.item_labels("all")), trainer.required_method.num_labels)
    for batch in infer(trainer, data.for_inference(trainer, "all", "all"), "all"):
        logits[batch.items] = batch.logits
    logits = sum_over_processes(trainer.accelerator, logits)
    noisy = weak_labels(
        dataset,
        logits=_with_ignored_tokens(logits.numpy(), dataset, label_column),
        temperature=temperature,
        seed=args.seed,
        label_column=label_column,
        trusted_column=args.trusted_column,
        clean_column=clean_column,
    )
    rows = LabeledRows(noisy, label_column, args.trusted_column, None, "weak_labels")
    accuracy = float((rows.item_labels("untrusted") == rows.item_labels("untrusted", clean_column)).mean())
    logger.info(f"The labels of the weak classifier are right for {accuracy:.1%} of the untrusted rows.")
    return noisy, accuracy


def _with_ignored_tokens(logits: np.ndarray, dataset: Any, label_column: str) -> np.ndarray:
    """Logits for every token of a list column, with zeros for tokens labeled -100, which are never drawn."""
    labels = read_integers(dataset, label_column)
    if labels.offsets is None:
        return logits
    every = np.zeros((len(labels.values), logits.shape[1]), dtype=logits.dtype)
    every[labels.values != IGNORED_LABEL] = logits
    return every
