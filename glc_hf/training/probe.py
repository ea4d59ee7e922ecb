# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""A first stage for the price of one forward pass: a linear head on what the pretrained network knows already."""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasets
import numpy as np
import pyarrow as pa
import torch
from transformers import (
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    DefaultDataCollator,
    default_data_collator,
)
from transformers.utils import logging

from glc_hf.correction.linear import FeatureTable, LinearHead
from glc_hf.methods.base import Inferred, Items, Part, Stage
from glc_hf.randomness import random_uint64
from glc_hf.training.inference import infer, sum_over_processes
from glc_hf.training.stages import StageTrainer


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

    It answers [`~methods.base.EstimationRun.infer`] from the features, without the network. Each process embeds its
    share of the rows, and the processes fit one head together.
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
        places = table.rows_of(torch.from_numpy(trained))
        words = random_uint64("probe", self.args.seed, numbers[places].numpy())
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
        """See [`~methods.base.EstimationRun.infer`]."""
        table = self.table
        numbers = torch.from_numpy(self.training_data.numbers_of(items, self.stage, part))
        places = table.rows_of(numbers)
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


_FORMAT = 1  # changes when the same key would mean other features
_ROWS_A_BATCH = 4096
_NUMBERS_IN_MEMORY = 2**26


class FeatureTap:
    """
    Makes a model give its features where its logits would be, or what a linear head says about them.

    A feature belongs to each label: the mean of the last hidden states over the tokens of a text; what goes into the
    classifier for anything else (images, each token of a token classifier).

    Args:
        model (`torch.nn.Module`): Hooks are put on it, and stay.
        num_labels (`int`): K, by which its classifier is known.
    """

    def __init__(self, model: torch.nn.Module, num_labels: int) -> None:
        self.head: LinearHead | None = None
        self._into_classifier: torch.Tensor | None = None
        self._states: torch.Tensor | None = None
        for classifier in classifiers_of(model, num_labels):
            classifier.register_forward_pre_hook(self._catch_input)
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model  # what an adapter is put on
        base = getattr(inner, "base_model", None)
        if isinstance(base, torch.nn.Module) and base is not inner:
            base.register_forward_hook(self._catch_states)
        model.register_forward_hook(self._replace_logits, with_kwargs=True)

    def _catch_input(self, module: torch.nn.Module, args: tuple) -> None:
        self._into_classifier = args[0]

    def _catch_states(self, module: torch.nn.Module, args: tuple, output: Any) -> None:
        states = getattr(output, "last_hidden_state", None)
        self._states = states if isinstance(states, torch.Tensor) and states.dim() == 3 else None

    def _replace_logits(self, module: torch.nn.Module, args: tuple, kwargs: dict, output: Any) -> Any:
        found = self._features(kwargs, per_token=_logits(output).dim() == 3).float()
        self._into_classifier = self._states = None
        if self.head is not None:
            found = self.head.to(found.device).logits(found)
        return _with_logits(output, found)

    def _features(self, inputs: dict[str, Any], per_token: bool) -> torch.Tensor:
        mask, states = inputs.get("attention_mask"), self._states
        if not per_token and states is not None and mask is not None and mask.shape == states.shape[:2]:
            kept = mask.unsqueeze(-1).to(states)
            return (states * kept).sum(dim=1) / kept.sum(dim=1).clamp(min=1)
        if self._into_classifier is None:
            raise ValueError("stage1='probe': the model's classifier was not called in its forward pass.")
        return self._into_classifier if per_token else self._into_classifier.flatten(1)


def classifiers_of(model: torch.nn.Module, num_labels: int) -> list[torch.nn.Module]:
    """The linear layers that may give the logits. Wrappers keep an unused copy beside the one that is called."""
    found = [
        module
        for module in model.modules()
        if isinstance(module, torch.nn.Linear) and module.out_features == num_labels
    ]
    if not found:
        raise ValueError(
            f"stage1='probe' reads what goes into the model's classifier, and {type(model).__name__} has no linear "
            f"layer with {num_labels} outputs: use stage1='short' or 'full'."
        )
    return found


def _logits(output: Any) -> torch.Tensor:
    if isinstance(output, torch.Tensor):
        return output
    return output["logits"] if isinstance(output, dict) else output[0]


def _with_logits(output: Any, logits: torch.Tensor) -> Any:
    if isinstance(output, torch.Tensor):
        return logits
    if isinstance(output, dict):
        output["logits"] = logits
        return output
    return (logits, *output[1:])


# ---------------------------------------------------------------------- kept on disk
def features_key(model: torch.nn.Module, dataset: datasets.Dataset, **more: Any) -> str:
    """Identifies features by the network's weights, the rows, and whatever else they depend on."""
    digest = hashlib.blake2b(digest_size=16)
    config = getattr(model, "config", None)
    named = {
        "format": _FORMAT,
        "class": type(model).__qualname__,
        "config": config.to_json_string() if hasattr(config, "to_json_string") else None,
        "data": dataset._fingerprint,
        **more,
    }
    digest.update(json.dumps(named, sort_keys=True).encode())
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def cache_file(key: str) -> Path:
    """Where features of that key are kept: in the cache folder of `datasets`."""
    return Path(datasets.config.HF_DATASETS_CACHE) / "glc_hf_features" / f"{key}.arrow"


def write_features(path: Path, batches: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Writes (features, item numbers) as they come, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    writer = None
    try:
        for features, numbers in _larger(batches):
            values = pa.array(features.numpy().reshape(-1))
            batch = pa.record_batch(
                [pa.FixedSizeListArray.from_arrays(values, features.shape[1]), pa.array(numbers.numpy())],
                names=["features", "number"],
            )
            if writer is None:
                writer = pa.ipc.new_file(str(scratch), batch.schema)
            writer.write_batch(batch)
        if writer is not None:
            writer.close()
            os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


def _larger(batches: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The same rows in fewer batches."""
    waiting: list[tuple[torch.Tensor, torch.Tensor]] = []
    for batch in batches:
        waiting.append(batch)
        if sum(len(numbers) for _, numbers in waiting) >= _ROWS_A_BATCH:
            yield _one(waiting)
            waiting = []
    if waiting:
        yield _one(waiting)


def _one(batches: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
    features, numbers = zip(*batches, strict=True)
    return torch.cat(features).contiguous(), torch.cat(numbers)


def read_features(path: Path) -> tuple[torch.Tensor | MappedRows, torch.Tensor]:
    """The features and item numbers of a file: in memory where they are few, mapped into it otherwise."""
    table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    chunks = [
        chunk.flatten().to_numpy(zero_copy_only=True).reshape(len(chunk), chunk.type.list_size)
        for chunk in table.column("features").chunks
    ]
    mapped = MappedRows(chunks)
    numbers = torch.from_numpy(np.array(table.column("number").to_numpy()))
    small = mapped.shape[0] * mapped.shape[1] <= _NUMBERS_IN_MEMORY
    return mapped[torch.arange(len(numbers))] if small else mapped, numbers


class MappedRows:
    """Rows of a file in several pieces, as one table: only what is asked for is read."""

    def __init__(self, chunks: list[np.ndarray]) -> None:
        self.chunks = chunks
        self._ends = np.cumsum([len(chunk) for chunk in chunks])
        self.shape = (int(self._ends[-1]), chunks[0].shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, places: torch.Tensor) -> torch.Tensor:
        wanted = places.numpy()
        rows = np.empty((len(wanted), self.shape[1]), dtype=np.float32)
        piece = np.searchsorted(self._ends, wanted, side="right")
        for number in np.unique(piece):
            here = piece == number
            first = self._ends[number] - len(self.chunks[number])
            rows[here] = self.chunks[number][wanted[here] - first]
        return torch.from_numpy(rows)
