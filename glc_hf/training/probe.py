# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""A first stage for the price of one forward pass: a linear head on the features of the pretrained network."""

from __future__ import annotations

import hashlib
import math
import tempfile
import time
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from transformers import (
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    DefaultDataCollator,
    default_data_collator,
)
from transformers.utils import logging

from glc_hf.correction.linear import FeatureTable, LinearHead
from glc_hf.data.feature_files import MappedRows, cached_features, features_key, read_features, write_features
from glc_hf.methods.base import Inferred, Items, Part, logits_of
from glc_hf.randomness import random_uint64
from glc_hf.training.checks import without_adapter
from glc_hf.training.inference import TrainedStage, faster_in_bf16, infer, sum_over_processes
from glc_hf.training.stage_trainer import StageTrainer


logger = logging.get_logger(__name__)

_HELD_OUT = 0.1
_FEWEST_EMBEDDED = 1000
_SAMPLE_ROWS = 64
# Types of models whose layers return (tokens, rows, features), not (rows, tokens, features).
_TOKENS_FIRST = ("xlnet",)
# Collators that only pad and stack.
_COLLATORS = (DefaultDataCollator, DataCollatorWithPadding, DataCollatorForTokenClassification)


class ProbeStage(TrainedStage):
    """
    A first stage that does not train the network: one pass over all rows computes the features of each item, which are
    cached on disk, and a linear head is fitted to the stage's labels, as long as held-out labels gain from it.

    Inference uses the features and not the network. Each process embeds its share of the rows, and the processes fit
    one head together.

    Args:
        trainer ([`StageTrainer`]): The trainer of the stage, for its rows, its collator and its evaluation.
    """

    def __init__(self, trainer: StageTrainer) -> None:
        super().__init__(trainer)
        self.probe = self
        self.penalty = math.nan  # until it is fitted
        self.data = trainer.required_data
        self.num_labels = trainer.required_method.num_labels
        self._tap = FeatureTap(trainer.model, self.num_labels)
        self._table: FeatureTable | None = None
        self._labels = torch.from_numpy(np.asarray(self.data.item_labels("all")))

    @property
    def head(self) -> LinearHead:
        """The fitted head."""
        assert self._tap.head is not None
        return self._tap.head

    # ------------------------------------------------------------------ features
    @property
    def table(self) -> FeatureTable:
        """The features of this process's items, from the cache if they are there."""
        if self._table is None:
            trainer = self.trainer
            features, numbers = cached_features(self._cache_key(), self._embed)
            self._table = FeatureTable(
                features, numbers, lambda tensor: sum_over_processes(trainer.accelerator, tensor), trainer.args.device
            )
        return self._table

    @cached_property
    def _numbers(self) -> torch.Tensor | None:
        """The numbers of the items to embed; `None` for all of them."""
        share, args = self.trainer.stage.most_embedded, self.trainer.args
        if share is None:
            return None
        untrusted = self.data.numbers_of("untrusted")
        rows: Any = self.trainer.train_dataset
        most = max(int(share * args.epochs_with(len(rows)) * len(self._labels)), _FEWEST_EMBEDDED)
        if len(untrusted) <= most:
            return None
        order = np.argsort(random_uint64("embed", args.seed, untrusted), kind="stable")
        chosen = np.concatenate([self.data.numbers_of("trusted"), untrusted[order[:most]]])
        return torch.from_numpy(np.sort(chosen))

    @property
    def untrusted_numbers(self) -> np.ndarray:
        """Numbers of the embedded untrusted items."""
        untrusted = self.data.numbers_of("untrusted")
        return untrusted if self._numbers is None else np.intersect1d(untrusted, self._numbers.numpy())

    def _cache_key(self) -> str:
        args, accelerator = self.trainer.args, self.trainer.accelerator
        return features_key(
            self.trainer.model,
            self.trainer.train_dataset,
            rows=self.data.fingerprint(),
            precision=[args.bf16_full_eval, args.fp16_full_eval, accelerator.mixed_precision]
            + (["bf16"] if faster_in_bf16(self.trainer) else []),
            share=[accelerator.process_index, accelerator.num_processes],
            # Not in the key of all items, so that features that were cached before are still found.
            **({} if self._numbers is None else {"items": [len(self._numbers), args.seed]}),
            collated=self._collator_hash(),
        )

    def _collator_hash(self) -> str | None:
        """A hash of what the user's own collator returns for some rows, short and long; `None` for the library's."""
        flagged: Any = self.trainer.data_collator  # a `FlagCollator`
        collator = flagged.collator
        if collator is default_data_collator or type(collator) in _COLLATORS:
            return None
        rows = self.data.for_inference(self.trainer, "all", "all", by_length=True)
        sample = np.unique(np.linspace(0, len(rows) - 1, _SAMPLE_ROWS).astype(np.int64))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # so that a collator that draws at random draws the same
            collate = self.trainer._get_collator_with_removed_columns(self.trainer.data_collator)
            batch = collate(rows.__getitems__(sample))
        digest = hashlib.blake2b(digest_size=16)
        for name, value in sorted(batch.items()):
            digest.update(name.encode())
            if isinstance(value, torch.Tensor):
                digest.update(repr((value.shape, value.dtype)).encode())
                digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
            else:
                digest.update(repr(value).encode())
        return digest.hexdigest()

    def _embed(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        trainer = self.trainer
        head, self._tap.head = self._tap.head, None
        try:
            trainer._move_model_to_device(trainer.model, trainer.args.device)
            rows = self.data.for_inference(trainer, "all", "all", only=self._numbers, by_length=True)
            for batch in infer(trainer, rows, "all", self._numbers, faster_in_bf16(trainer)):
                broken = ~torch.isfinite(batch.logits).all(dim=-1)
                if broken.any():
                    row = self.data.row_of(batch.items[broken].numpy())[0]
                    raise FloatingPointError(
                        f"the network returns NaN or infinite features for row {row} of the training set in "
                        f"{trainer.stage_name}: check the inputs of that row and the weights of the network."
                    )
                yield batch.logits, batch.items  # the tap returns features in place of logits
        finally:
            self._tap.head = head

    # ------------------------------------------------------------------ the stage
    def train(self, *args: Any, **kwargs: Any) -> None:
        """Embed the rows and fit the head."""
        start = time.perf_counter()
        table, trainer = self.table, self.trainer
        embedded = time.perf_counter()
        numbers = table.numbers
        trained = self.data.numbers_of(trainer.stage.items, trainer.stage, "trained")
        positions = table.rows_of(torch.from_numpy(trained))
        draws = random_uint64("probe", trainer.args.seed, numbers[positions].numpy())
        held_out = torch.from_numpy(draws < np.uint64(_HELD_OUT * 2**64))
        labels = self._labels[numbers[positions]]
        head, self.penalty, losses = table.fit_path(positions, labels, self.num_labels, held_out)
        self._tap.head = head
        logger.debug(
            f"The head of {trainer.stage_name} was fitted with a penalty of {self.penalty:.1e} ({len(losses)} tried)."
        )
        trainer.log(
            {
                "train_runtime": round(time.perf_counter() - start, 4),
                "embedding_runtime": round(embedded - start, 4),
                "probe_penalty": self.penalty,
                **({"probe_loss": min(losses)} if losses else {}),
            }
        )

    def infer(self, items: Items, part: Part = "all", only: torch.Tensor | None = None) -> Iterator[Inferred]:
        table = self.table
        numbers = torch.from_numpy(self.data.numbers_of(items, self.trainer.stage, part))
        positions = table.rows_of(numbers)
        if only is not None:
            positions = positions[torch.isin(table.numbers[positions], only)]
        for some in positions.split(2**16):
            chosen = table.numbers[some]
            yield Inferred(table.logits(self.head, some), self._labels[chosen], chosen)

    def weights(self) -> dict[str, torch.Tensor]:
        """The head; the network has not changed."""
        head = self.head.to("cpu")
        return {**vars(head), "penalty": torch.tensor(self.penalty, dtype=torch.float64)}

    def load_weights(self, weights: dict[str, torch.Tensor]) -> None:
        weights = dict(weights)
        self.penalty = float(weights.pop("penalty"))
        self._tap.head = LinearHead(**weights).to(self.trainer.args.device)


# ---------------------------------------------------------------------- features from the forward pass
class FeatureTap:
    """
    Makes a model return its features in place of its logits, or the logits of a linear head on them.

    There is one feature vector per label: for texts the means over the tokens of the hidden states of the middle layer
    and of the last one, otherwise the input of the classifier (images, each token of a token classifier). A decoder
    whose classifier scores every token and that returns the scores of one of them, the last one of the text: the state
    of that token. The last layers of a pretrained network follow the task that it was pretrained for; the middle one
    knows more of what other tasks need.

    Args:
        model (`torch.nn.Module`): Gets forward hooks, which stay.
        num_labels (`int`): K, which identifies its classifier.
    """

    def __init__(self, model: torch.nn.Module, num_labels: int) -> None:
        self.head: LinearHead | None = None
        self._classifier_input: torch.Tensor | None = None
        self._scores: torch.Tensor | None = None
        self._states: torch.Tensor | None = None
        self._middle: torch.Tensor | None = None
        for classifier in classifiers_of(model, num_labels):
            classifier.register_forward_hook(self._catch_input)
        inner = without_adapter(model)
        base = getattr(inner, "base_model", None)
        if isinstance(base, torch.nn.Module) and base is not inner:
            base.register_forward_hook(self._catch_states)
            middle = middle_layer(base)
            if middle is not None:
                middle.register_forward_hook(self._catch_middle)
        model.register_forward_hook(self._replace_logits, with_kwargs=True)

    def _catch_input(self, module: torch.nn.Module, args: tuple, output: torch.Tensor) -> None:
        self._classifier_input, self._scores = args[0], output

    def _catch_states(self, module: torch.nn.Module, args: tuple, output: Any) -> None:
        states = getattr(output, "last_hidden_state", None)
        self._states = states if isinstance(states, torch.Tensor) and states.dim() == 3 else None

    def _catch_middle(self, module: torch.nn.Module, args: tuple, output: Any) -> None:
        states = output[0] if isinstance(output, tuple | list) else output
        self._middle = states if isinstance(states, torch.Tensor) and states.dim() == 3 else None

    def _replace_logits(self, module: torch.nn.Module, args: tuple, kwargs: dict, output: Any) -> Any:
        features = self._features(kwargs, logits_of(output)).float()
        self._classifier_input = self._scores = self._states = self._middle = None
        if self.head is not None:
            features = self.head.to(features.device).logits(features)
        if isinstance(output, torch.Tensor):
            return features
        if isinstance(output, dict):
            output["logits"] = features
            return output
        return (features, *output[1:])

    def _features(self, inputs: dict[str, Any], logits: torch.Tensor) -> torch.Tensor:
        per_token = logits.dim() == 3
        caught = self._classifier_input
        if not per_token and caught is not None and self._scores is not None and self._scores.dim() == 3:
            # The model scores every token. Which of them it returns depends on padding and on its conventions.
            returned = (self._scores == logits.unsqueeze(1)).all(dim=-1)
            if returned.any(dim=1).all():
                rows = torch.arange(len(logits), device=logits.device)
                return caught[rows, returned.int().argmax(dim=1)]
        mask, states = inputs.get("attention_mask"), self._states
        if not per_token and states is not None and mask is not None and mask.shape == states.shape[:2]:
            kept = mask.unsqueeze(-1).float()
            layers, (rows, length) = [states], mask.shape
            middle = self._middle
            if middle is not None and len(middle) == rows and middle.shape[1] >= length:  # some networks pad the text
                layers.insert(0, middle[:, :length])
            means = [(layer.float() * kept).sum(dim=1) / kept.sum(dim=1).clamp(min=1) for layer in layers]
            return torch.cat(means, dim=1)
        if caught is None:
            raise ValueError("stage1='probe': the model's classifier was not called in its forward pass.")
        return caught if per_token else caught.flatten(1)


def middle_layer(base: torch.nn.Module) -> torch.nn.Module | None:
    """The layer after which half of the layers of a network are done; `None` if its layers are not known."""
    config = getattr(base, "config", None)
    number = getattr(config, "num_hidden_layers", None)
    if not isinstance(number, int) or number < 2 or getattr(config, "model_type", None) in _TOKENS_FIRST:
        return None
    stacks = [module for module in base.modules() if isinstance(module, torch.nn.ModuleList) and len(module) == number]
    return stacks[-1][number // 2 - 1] if stacks else None


def classifiers_of(model: torch.nn.Module, num_labels: int) -> list[torch.nn.Module]:
    """The linear layers that may compute the logits. Wrappers keep an unused copy beside the one that is called."""
    layers = _linear_layers(model, num_labels)
    if not layers:
        raise ValueError(
            f"stage1='probe' reads the input of the model's classifier, but {type(model).__name__} has no linear "
            f"layer with {num_labels} outputs: use stage1='short' or 'full'."
        )
    return layers


def _linear_layers(model: torch.nn.Module, outputs: int | None) -> list[torch.nn.Module]:
    return [
        module for module in model.modules() if isinstance(module, torch.nn.Linear) and module.out_features == outputs
    ]


def why_no_features(model: torch.nn.Module, num_labels: int | None, accelerator: Accelerator) -> str | None:
    """Why a [`ProbeStage`] can't embed rows with this network; `None` if it can."""
    if accelerator.distributed_type == DistributedType.FSDP:
        return "FSDP shards the network, and computing features needs the whole network in each process"
    if not _linear_layers(model, num_labels):
        return (
            f"{type(model).__name__} has no linear layer with {num_labels} outputs, whose input would be its features"
        )
    return None


def embed(trainer: StageTrainer, network: torch.nn.Module, dataset: Any) -> torch.Tensor | MappedRows:
    """
    The features of all labels of a dataset, in their order, `(N, D)`. Every process computes all of them.

    Args:
        trainer ([`StageTrainer`]): Its device, precision and collator are used.
        network (`torch.nn.Module`): Gets the hooks of a [`FeatureTap`].
        dataset: Rows as in [`~training.inference.infer`].
    """
    FeatureTap(network, trainer.num_labels or 0)  # a model without a number of classes has no such classifier
    trainer._move_model_to_device(network, trainer.args.device)
    model, trainer.model = trainer.model, network
    try:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            file = Path(folder) / "features.arrow"
            # The tap returns features in place of logits. Rows have no numbers here: they are read in order.
            batches = infer(trainer, dataset, "all", bf16=faster_in_bf16(trainer))
            write_features(file, ((batch.logits, batch.items) for batch in batches))
            return read_features(file)[0]
    finally:
        trainer.model = model
