# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Small versions of the networks, with inputs and labels."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    AutoModelForImageClassification,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedModel,
)

from glc_hf.backbones import (
    ImageMLPConfig,
    ImageMLPForImageClassification,
    LSTMConfig,
    LSTMForSequenceClassification,
    WindowTaggerConfig,
    WindowTaggerForTokenClassification,
    WordAverageConfig,
    WordAverageForSequenceClassification,
)


WORDS = 30
MODELS = {
    "glc_mlp": (
        AutoModelForImageClassification,
        ImageMLPForImageClassification,
        ImageMLPConfig(image_size=6, hidden_sizes=[16, 8], num_labels=3),
    ),
    "glc_word_average": (
        AutoModelForSequenceClassification,
        WordAverageForSequenceClassification,
        WordAverageConfig(vocab_size=WORDS, embedding_size=8, num_labels=3),
    ),
    "glc_lstm": (
        AutoModelForSequenceClassification,
        LSTMForSequenceClassification,
        LSTMConfig(vocab_size=WORDS, embedding_size=8, hidden_size=8, num_labels=3),
    ),
    "glc_window_tagger": (
        AutoModelForTokenClassification,
        WindowTaggerForTokenClassification,
        WindowTaggerConfig(vocab_size=WORDS, embedding_size=8, hidden_sizes=[16, 12], num_labels=3),
    ),
}


def make(name: str, seed: int = 0) -> PreTrainedModel:
    _, model_class, config = MODELS[name]
    torch.manual_seed(seed)
    return model_class(config)


def inputs(name: str, rows: int = 4) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    if name == "glc_mlp":
        return {"pixel_values": torch.rand(rows, 1, 6, 6, generator=generator)}
    ids = torch.randint(1, WORDS, (rows, 5), generator=generator)
    ids[0, 3:] = 0
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


def labels(name: str, rows: int = 4) -> torch.Tensor:
    row_labels = torch.arange(rows) % 3
    if name != "glc_window_tagger":
        return row_labels
    return torch.stack(
        [torch.full_like(row_labels, -100), *[row_labels] * 3, torch.full_like(row_labels, -100)], dim=1
    )
