# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""IMDB with an LSTM."""

from __future__ import annotations

from typing import ClassVar

import torch

from glc_hf.experiments.preset import PreparedData, register
from glc_hf.experiments.presets.texts import TextPreset


@register("imdb")
class IMDB(TextPreset):
    """
    25,000 film reviews to train on and 25,000 to test, the first 200 words of each; an LSTM of 64 units over
    50-dimensional word vectors, learned from scratch for 5,000 words, with dropout 0.2 on the output layer; Adam, 3
    epochs, batches of 64, learning rate 0.001.

    All from the text: there is no code for it. That reviews are cut at their end, and how weights start (see
    [`LSTMForSequenceClassification`]), are choices of this preset.
    """

    dataset = "stanfordnlp/imdb"
    num_labels = 2
    inputs = ("text",)
    trusted = (0.05, 0.1, 0.25)
    paper_percent: ClassVar[dict[float, float]] = {0.05: 5, 0.1: 10, 0.25: 25}
    num_train_epochs = 3
    batch_size = 64
    learning_rate = 1e-3
    vocab_size = 5_000
    max_length = 200

    def network(self, data: PreparedData) -> torch.nn.Module:
        """See [`Preset`]."""
        from glc_hf.backbones import LSTMConfig, LSTMForSequenceClassification
        from glc_hf.backbones.base import label_mapping

        config = LSTMConfig(vocab_size=len(data.processing_class), **label_mapping(data.label_names))
        return LSTMForSequenceClassification(config)
