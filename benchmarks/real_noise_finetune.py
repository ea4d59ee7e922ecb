# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Finetune mode of `real_noise.py`: the pretrained network is trained, with the same number of steps per method."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from real_noise_linear import LinearCell
from real_noise_tasks import Cell, Features, fixed_draw, vision_inputs, vision_network
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    set_seed,
)
from trec import minilm_folder

from glc_hf import GLCConfig, GLCTrainer
from glc_hf._compat import has_fast_bf16
from glc_hf.labels.label_batch import Votes
from glc_hf.methods.base import Method, Stage


_MAX_TEST_ROWS = 1000
_MAX_LENGTH = 40
# Batch size, learning rate and precision by the kind of inputs. Without instructions for it, bf16 takes twice as long.
_TRAINING = {
    "text": {
        "per_device_train_batch_size": 16,
        "learning_rate": 1e-4,
        "bf16": has_fast_bf16("cpu"),
    },
    "image": {"per_device_train_batch_size": 32, "learning_rate": 1e-3},
}


class TunedFinetuneOnTrusted(Method):
    """Half of the steps on all rows, then half of them on the trusted rows, from these weights. Trusted rows are
    repeated, so that few of them get as many steps as many."""

    def first_stages(self) -> list[Stage]:
        return [Stage("all", fraction=0.5)]

    def last_stage(self) -> Stage:
        return Stage("trusted", start="previous", fraction=0.5, trusted_share=1.0)


# Settings of `GLCConfig` by the name of the method.
_SETTINGS: dict[str, dict[str, Any]] = {
    "auto": {"method": "auto", "pretrained": True},
    "glc": {"method": "glc", "stage1": "probe"},
    "finetune_on_trusted": {"method": f"{__name__}:{TunedFinetuneOnTrusted.__name__}"},
    "trusted_only": {"method": "trusted_only"},
    "no_correction": {"method": "no_correction"},
    "cleanlab": {"method": "no_correction"},
}


class FinetuneCell:
    """
    The runs of one cell.

    Args:
        cell ([`Cell`]): The rows and their labels.
        seed (`int`): Of the new head and of the order of the rows.
        steps (`int`): Optimizer steps of plain training.
        features (`Callable`): Returns the features of the pretrained network, for the linear models.
        votes ([`Votes`], *optional*): The votes of several sources on the rows, to train on instead of the labels.
    """

    def __init__(
        self, cell: Cell, seed: int, steps: int, features: Callable[[], Features], votes: Votes | None = None
    ) -> None:
        self.cell, self.seed, self.steps, self.features, self.votes = cell, seed, steps, features, votes
        self.kind = cell.source.kind
        self.test_rows = fixed_draw(len(cell.source.test_labels), _MAX_TEST_ROWS)
        if self.kind == "text":
            self.tokenizer = AutoTokenizer.from_pretrained(minilm_folder())
            self.collator = DataCollatorWithPadding(self.tokenizer)
        else:
            self.tokenizer, self.collator = None, collate_images

    # ------------------------------------------------------------------ rows and model
    def dataset(self, inputs: Any, rows: np.ndarray, **columns: np.ndarray) -> datasets.Dataset:
        """These rows of the inputs, with further columns."""
        chosen = [inputs[row] for row in rows]
        if self.kind == "text":
            encoded = dict(self.tokenizer(chosen, truncation=True, max_length=_MAX_LENGTH))
            encoded.pop("token_type_ids", None)
        else:
            encoded = {"pixel_values": chosen}  # uint8; the collator scales them
        return datasets.Dataset.from_dict({**encoded, **columns})

    def new_model(self):
        """The pretrained network with a new head."""
        set_seed(self.seed)
        classes = self.cell.source.num_labels
        if self.kind == "image":
            return vision_network(classes)
        return AutoModelForSequenceClassification.from_pretrained(
            minilm_folder(), num_labels=classes, attn_implementation="eager"
        )

    # ------------------------------------------------------------------ runs
    def run(self, method: str) -> dict[str, Any]:
        """Train and return the figures. The time is that of the training and of what it needs, without the
        evaluation."""
        if method == "linear_pool":
            return self.run_linear_pool()
        cell, seconds, more = self.cell, 0.0, {}
        rows = cell.rows
        if method == "cleanlab":
            start = time.process_time()
            issues = LinearCell(cell, self.features(), self.seed).label_issues()
            seconds = time.process_time() - start + self.features().seconds_per_row * len(rows)
            wrong = (cell.labels != cell.source.columns["label"])[rows]
            more["dropped"] = {"wrong": int((issues & wrong).sum()), "right": int((issues & ~wrong).sum())}
            rows = rows[~issues]
        trainer, spent = self.train(rows, method)
        source = cell.source
        test = self.dataset(source.test_inputs, self.test_rows, labels=source.test_labels[self.test_rows])
        figures = {
            "accuracy": round(trainer.evaluate(test)["eval_accuracy"], 5),
            "processor_seconds": round(spent + seconds, 1),
            "bf16": trainer.args.bf16,
            **more,
        }
        if trainer.verdict is not None:
            figures["verdict"] = trainer.verdict.to_dict()
        return figures

    def train(self, rows: np.ndarray, method: str) -> tuple[GLCTrainer, float]:
        """Train on these rows, and return the trainer and the processor seconds."""
        source, training = self.cell.source, _TRAINING[self.kind]
        columns = {"labels": self.cell.labels[rows], "trusted": np.isin(rows, self.cell.trusted)}
        settings = {**training, **_SETTINGS[method]}
        if self.votes is not None:
            columns["votes"] = self.votes.select(rows).to_dense()
            settings["votes_column"] = "votes"
        train = self.dataset(source.inputs, rows, **columns)
        steps_per_epoch = math.ceil(len(rows) / training["per_device_train_batch_size"])
        kept_cache = datasets.config.HF_DATASETS_CACHE
        with tempfile.TemporaryDirectory() as folder:
            # Features cached by an earlier run would make this run look too cheap.
            datasets.config.HF_DATASETS_CACHE = Path(folder) / "cache"
            trainer = GLCTrainer(
                self.new_model(),
                GLCConfig(
                    output_dir=f"{folder}/output",
                    num_train_epochs=self.steps / steps_per_epoch,
                    per_device_eval_batch_size=64,
                    warmup_steps=0.1,
                    trusted_min_updates=self.steps,
                    seed=self.seed,
                    save_strategy="no",
                    report_to="none",
                    use_cpu=True,
                    disable_tqdm=True,
                    logging_steps=1000,
                    **settings,
                ),
                train_dataset=train,
                data_collator=self.collator,
            )
            start = time.process_time()
            trainer.train()
            seconds = time.process_time() - start
            datasets.config.HF_DATASETS_CACHE = kept_cache
        return trainer, seconds

    def run_linear_pool(self) -> dict[str, Any]:
        """The pool of linear models on the features of the pretrained network, on the same test rows."""
        start = time.process_time()
        linear = LinearCell(self.cell, self.features(), self.seed)
        predicted = linear.pool_logits("auto").argmax(dim=-1)
        seconds = time.process_time() - start + self.features().seconds_per_row * len(self.cell.rows)
        correct = (predicted == linear.test_labels)[torch.from_numpy(self.test_rows)]
        return {"accuracy": round(float(correct.double().mean()), 5), "processor_seconds": round(seconds, 1)}


def collate_images(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Batch of the vision network."""
    return {
        "pixel_values": vision_inputs([row["pixel_values"] for row in rows]),
        "labels": torch.tensor([row["labels"] for row in rows]),
    }
