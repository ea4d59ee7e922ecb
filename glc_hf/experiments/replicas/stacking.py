# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""From a model of `glc_hf.backbones` to replicas of it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from glc_hf.backbones import (
    ImageMLPForImageClassification,
    WindowTaggerForTokenClassification,
    WordAverageForSequenceClassification,
)
from glc_hf.experiments.replicas.networks import StackedNetwork, StackedPerceptron
from glc_hf.experiments.replicas.word_average import StackedWordAverage


def stack(model: torch.nn.Module, replicas: int, order: Tensor | None = None) -> StackedNetwork:
    """
    Replicas of a model, each with its weights.

    Args:
        model (`torch.nn.Module`): A fully connected network, the mean of word vectors, or the window tagger with fixed
            vectors (of rows that are one window each, labelled in the middle).
        replicas (`int`): How many.
        order (`Tensor`, *optional*): Of [`column_order`].
    """
    if isinstance(model, ImageMLPForImageClassification):
        return StackedPerceptron(_layers(model), "relu", _pixels, replicas, order)
    if isinstance(model, WordAverageForSequenceClassification):
        parts = ("embeddings", model.embeddings), ("classifier", model.classifier)
        return StackedWordAverage(*parts, model.config.divide_by, replicas)
    if isinstance(model, WindowTaggerForTokenClassification) and not model.config.train_vectors:
        features = partial(_windows, model.word_vectors)
        return StackedPerceptron(_layers(model), model.config.hidden_act, features, replicas, order)
    raise ValueError(f"a {type(model).__name__} can't be trained in replicas.")


def column_order(model: torch.nn.Module, tensors: Mapping[str, Tensor]) -> Tensor | None:
    """The columns of the features of these rows, those that are zero most often last: what `stack` takes. `None` for
    networks without fixed features."""
    network = stack(model, 1)
    if not isinstance(network, StackedPerceptron):
        return None
    return (network.features(tensors) != 0).sum(dim=0).argsort(descending=True, stable=True)


def _layers(model: torch.nn.Module) -> list[tuple[str, torch.nn.Linear]]:
    hidden = [(f"layers.{place}", layer) for place, layer in enumerate(model.layers)]
    return [*hidden, ("classifier", model.classifier)]


def _pixels(tensors: Mapping[str, Tensor]) -> Tensor:
    return tensors["pixel_values"].flatten(1)


def _windows(vectors: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
    """The vectors of a row's words, one after the other: what the middle word's layer sees."""
    found = F.embedding(tensors["input_ids"], vectors)
    return (found * tensors["attention_mask"].to(found.dtype).unsqueeze(-1)).flatten(1)
