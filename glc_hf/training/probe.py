# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""A first stage for the price of one forward pass: a linear head on what the pretrained network knows already."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import (
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    DefaultDataCollator,
    default_data_collator,
)
from transformers.utils import logging

from glc_hf.correction.linear import FeatureTable, LinearHead
from glc_hf.corruption.counter import random_words
from glc_hf.methods.base import Items, Stage
from glc_hf.methods.between import Inferred, Part
from glc_hf.training.features import FeatureTap, cache_file, features_key, read_features, write_features
from glc_hf.training.inference import infer, sum_over_processes
from glc_hf.training.stage import StageTrainer


if TYPE_CHECKING:
    from glc_hf.training.trainer import GLCTrainer

logger = logging.get_logger(__name__)

_HELD_OUT = 0.1
_ROWS_COLLATED = 64
_COLLATORS = (DefaultDataCollator, DataCollatorWithPadding, DataCollatorForTokenClassification)


class ProbeTrainer(StageTrainer):
    """
    An earlier stage that leaves the network as it is: one pass over all rows gives each item its features, which are
    kept on disk, and a linear head is fitted to the stage's labels, as long as held-out ones gain by it.

    It answers [`~methods.between.Between.infer`] from the features, without the network. Each process embeds its share
    of the rows, and the processes fit one head together.
    """

    def __init__(self, parent: GLCTrainer, number: int, stage: Stage, model: torch.nn.Module) -> None:
        super().__init__(parent, number, stage, model)
        self.stage_name = f"stage {number} of {parent.num_stages} ({stage.items} labels, linear probe)"
        self.num_labels = parent.num_labels
        self.penalty: float | None = None
        self._rows_key = self.training_data.fingerprint()
        self._tap = FeatureTap(model, parent.num_labels)
        self._table: FeatureTable | None = None
        self._labels = torch.from_numpy(np.asarray(self.training_data.item_labels("all")))

    # ------------------------------------------------------------------ features
    @property
    def table(self) -> FeatureTable:
        """The features of this process's items, from the disk where they are there."""
        if self._table is None:
            file = cache_file(self._key())
            if not file.is_file():
                write_features(file, self._embed())
            features, numbers = read_features(file)
            self._table = FeatureTable(
                features, numbers, lambda tensor: sum_over_processes(self.accelerator, tensor), self.args.device
            )
        return self._table

    def _key(self) -> str:
        args = self.args
        return features_key(
            self.model,
            self.train_dataset,
            rows=self._rows_key,
            precision=[args.bf16_full_eval, args.fp16_full_eval, self.accelerator.mixed_precision],
            share=[self.accelerator.process_index, self.accelerator.num_processes],
            collated=self._collated(),
        )

    def _collated(self) -> str | None:
        """What a collator of the user's own makes of some rows, short and long; the libraries' only pad and stack."""
        collator = self.data_collator.collator
        if collator is default_data_collator or type(collator) in _COLLATORS:
            return None
        view = self.training_data.for_inference(self, "all", "all", by_length=True)
        places = np.unique(np.linspace(0, len(view) - 1, _ROWS_COLLATED).astype(np.int64))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # so that one that draws at random draws the same
            batch = self._get_collator_with_removed_columns(self.data_collator)(view.__getitems__(places))
        digest = hashlib.blake2b(digest_size=16)
        for name, value in sorted(batch.items()):
            digest.update(name.encode())
            tensor = value if isinstance(value, torch.Tensor) else None
            digest.update(repr(value).encode() if tensor is None else repr((tensor.shape, tensor.dtype)).encode())
            if tensor is not None:
                digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return digest.hexdigest()

    def _embed(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        head, self._tap.head = self._tap.head, None
        try:
            self._move_model_to_device(self.model, self.args.device)
            view = self.training_data.for_inference(self, "all", "all", by_length=True)
            with self.accelerator.autocast():
                for batch in infer(self, view, "all"):
                    yield batch.logits, batch.items  # the tap gives features for logits
        finally:
            self._tap.head = head

    # ------------------------------------------------------------------ the stage
    def train(self, *args: Any, **kwargs: Any) -> None:
        """Embeds the rows and fits the head."""
        began = time.perf_counter()
        table = self.table
        embedded = time.perf_counter()
        numbers = table.numbers
        trained = self.training_data.numbers_of(self.stage.items, self.stage, "trained")
        places = table.places_of(torch.from_numpy(trained))
        words = random_words("probe", self.args.seed, numbers[places].numpy())
        held_out = torch.from_numpy(words < np.uint64(_HELD_OUT * 2**64))
        head, self.penalty, losses = table.fit_path(places, self._labels[numbers[places]], self.num_labels, held_out)
        self._tap.head = head
        done = time.perf_counter()
        logger.info(
            f"The head of {self.stage_name} was fitted with a penalty of {self.penalty:.1e} ({len(losses)} tried)."
        )
        self.log(
            {
                "train_runtime": round(done - began, 4),
                "embedding_runtime": round(embedded - began, 4),
                "probe_penalty": self.penalty,
                **({"probe_loss": min(losses)} if losses else {}),
            }
        )

    def infer_items(self, items: Items, part: Part = "all", only: torch.Tensor | None = None) -> Iterator[Inferred]:
        """See [`~methods.between.Between.infer`]."""
        table = self.table
        numbers = torch.from_numpy(self.training_data.numbers_of(items, self.stage, part))
        places = table.places_of(numbers)
        if only is not None:
            places = places[torch.isin(table.numbers[places], only)]
        for some in places.split(2**16):
            chosen = table.numbers[some]
            yield Inferred(table.logits(self._tap.head, some), self._labels[chosen], chosen)

    # ------------------------------------------------------------------ what it leaves
    def stage_weights(self) -> dict[str, torch.Tensor]:
        """The head alone; the network is as it was."""
        head = self._tap.head.to("cpu")
        return {**vars(head), "penalty": torch.tensor(self.penalty, dtype=torch.float64)}

    def take_weights(self, weights: dict[str, torch.Tensor]) -> None:
        """Takes back what [`~ProbeTrainer.stage_weights`] gave."""
        weights = dict(weights)
        self.penalty = float(weights.pop("penalty"))
        self._tap.head = LinearHead(**weights).to(self.args.device)
