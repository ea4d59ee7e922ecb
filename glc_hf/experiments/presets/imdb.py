# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""IMDB with an LSTM."""

from __future__ import annotations

from typing import ClassVar

import torch
from datasets import Dataset

from glc_hf.experiments.preset import PreparedData, Preset, label_names, register
from glc_hf.experiments.presets.texts import tokenized


@register("imdb")
class IMDB(Preset):
    """
    25,000 film reviews to train on and 25,000 to test, the first 200 words of each; an LSTM of 64 units over
    50-dimensional word vectors, learned from scratch for 5,000 words, with dropout 0.2 on the output layer; Adam, 3
    epochs, batches of 64, learning rate 0.001.

    All from the text: there is no code for it. That reviews are cut at their end is a choice of this preset.
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

    def make_ready(self, train: Dataset, test: Dataset, data_root: str | None, reduced: str | None) -> PreparedData:
        """See [`Preset`]; the vocabulary is that of the training set."""
        from glc_hf.backbones import word_tokenizer

        names = label_names(train, self.label, self.num_labels)
        tokenizer = word_tokenizer(train["text"], self.vocab_size, self.max_length)
        return PreparedData(
            tokenized(train, "text", tokenizer, names),
            tokenized(test, "text", tokenizer, names),
            names,
            processing_class=tokenizer,
            reduced=reduced,
        )

    def network(self, data: PreparedData) -> torch.nn.Module:
        """See [`Preset`]."""
        from glc_hf.backbones import LSTMConfig, LSTMForSequenceClassification
        from glc_hf.backbones.base import label_mapping

        config = LSTMConfig(vocab_size=len(data.processing_class), **label_mapping(data.label_names))
        return LSTMForSequenceClassification(config)
