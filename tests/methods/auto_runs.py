# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Runs of `auto` with tiny networks, and what they recorded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import TrainerCallback

from glc_hf import CorruptionMatrix, GLCTrainer, corrupt_labels
from glc_hf.methods.auto import Auto
from tests.training.tiny import bert, config, text_rows, weights


# 60 of 600 rows are trusted. A linear model of 60 rows predicts about 75 % of the labels.
KINDS = {
    "nearly right": CorruptionMatrix.uniform(3, 0.02),
    "good": CorruptionMatrix.uniform(3, 0.2),
    "useless": CorruptionMatrix.uniform(3, 1.0),
    "flipped": CorruptionMatrix.flip(3, 0.6, seed=0),
    "mostly flipped": CorruptionMatrix.flip(3, 0.8, seed=0),
}


class Recorder(TrainerCallback):
    """Records steps, epochs and weights of the stages that train the network."""

    def __init__(self) -> None:
        self.begin, self.end, self.length = {}, {}, {}

    @staticmethod
    def _stage(args: Any) -> str:
        return "first" if args.output_dir.endswith("stage1") else "last"

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self.begin[self._stage(args)] = weights(model)

    def on_train_end(self, args, state, control, model=None, **kwargs):
        self.end[self._stage(args)] = weights(model)
        self.length[self._stage(args)] = (state.global_step, args.num_train_epochs)


@dataclass
class Run:
    """A finished run, with the items, flags and losses of each step of its last stage."""

    trainer: GLCTrainer
    recorder: Recorder
    batches: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = field(default_factory=list)
    judges: torch.Tensor | None = None
    probable: int = 0  # items with probable labels at the start of the last stage


def make_trainer(folder: Any, data: Any, model: Any = None, **settings: Any) -> GLCTrainer:
    arguments = {"method": "auto", "pretrained": True, "per_device_train_batch_size": 16, **settings}
    callbacks = arguments.pop("callbacks", None)
    collator = arguments.pop("data_collator", None)
    matrix = arguments.pop("corruption_matrix", None)
    return GLCTrainer(
        bert(initializer_range=0.3) if model is None else model,
        config(folder, **arguments),
        train_dataset=data,
        callbacks=callbacks,
        data_collator=collator,
        corruption_matrix=matrix,
    )


def train(folder: Any, data: Any, **settings: Any) -> Run:
    run = Run(None, Recorder())
    original, estimate = Auto.item_losses, Auto.estimate

    def spy(self, logits, batch):
        losses = original(self, logits, batch)
        run.batches.append((batch.items, batch.trusted, losses.detach()))
        return losses

    def keep_judges(self, estimation_run):
        estimate(self, estimation_run)
        run.judges, run.probable = self.judges, len(self.posterior_items)

    run.trainer = make_trainer(folder, data, callbacks=[run.recorder], **settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Auto, "item_losses", spy)
        patch.setattr(Auto, "estimate", keep_judges)
        run.trainer.train()
    return run


def rows_of_kind(kind: str, rows: int = 600, trusted: float = 0.1) -> Dataset:
    return corrupt_labels(text_rows(rows, trusted=trusted), KINDS[kind])
