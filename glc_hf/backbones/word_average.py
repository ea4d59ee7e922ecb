# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The mean of word vectors and a linear layer: the paper's network for SST."""

from __future__ import annotations

import torch
from transformers import AutoModelForSequenceClassification, PreTrainedConfig
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import can_return_tuple

from glc_hf.backbones.base import (
    BackboneModel,
    label_loss,
    register_model,
    require_sizes,
    start_word_vectors,
    words_there,
)


class WordAverageConfig(PreTrainedConfig):
    """
    Configuration of [`WordAverageForSequenceClassification`].

    Args:
        vocab_size (`int`, *optional*, defaults to 10000): Words, those for padding and unknown ones included.
        embedding_size (`int`, *optional*, defaults to 100): Dimensions of a word vector.
        divide_by (`int`, *optional*):
            What the sum of a text's vectors is divided by; by default the number of its words. A fixed number, the
            length that texts are padded to, is the authors' code, whose mean takes in the padding.
        pad_token_id (`int`, *optional*, defaults to 0): The word that fills up a text.
    """

    model_type = "glc_word_average"

    vocab_size: int = 10_000
    embedding_size: int = 100
    divide_by: int | None = None
    pad_token_id: int | None = 0


class WordAverageForSequenceClassification(BackboneModel):
    """
    logits = W · (mean of the vectors of a text's words) + b, the vectors learned from scratch.

    Padding counts for nothing, so a text has the same logits whatever it is padded to. A text without words has the
    zero vector. Word vectors start small ([`~backbones.base.start_word_vectors`]), and the linear layer normal with
    variance 1 / dimensions, both as in the authors' code.
    """

    config_class = WordAverageConfig
    main_input_name = "input_ids"
    _input_embed_layer = "embeddings"

    def __init__(self, config: WordAverageConfig) -> None:
        super().__init__(config)
        require_sizes(config, "vocab_size", "embedding_size")
        if config.divide_by is not None:
            require_sizes(config, "divide_by")
        self.embeddings = torch.nn.Embedding(config.vocab_size, config.embedding_size, padding_idx=config.pad_token_id)
        self.classifier = torch.nn.Linear(config.embedding_size, config.num_labels)
        self.post_init()

    def _init_weights(self, module: torch.nn.Module) -> None:
        if isinstance(module, torch.nn.Linear):
            torch.nn.init.normal_(module.weight, std=module.in_features**-0.5)
            torch.nn.init.zeros_(module.bias)
        elif isinstance(module, torch.nn.Embedding):
            start_word_vectors(module)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
    ) -> SequenceClassifierOutput:
        """
        Args:
            input_ids (`torch.Tensor` of shape `(rows, length)`): Words.
            attention_mask (`torch.Tensor` of shape `(rows, length)`, *optional*):
                1 for words, 0 for padding; by default all that are not `pad_token_id`.
            labels (`torch.Tensor` of shape `(rows,)`, *optional*): With them there is a loss.
        """
        vectors = self.embeddings(input_ids)
        there = words_there(input_ids, attention_mask, self.config.pad_token_id).to(vectors.dtype).unsqueeze(-1)
        number = self.config.divide_by or there.sum(dim=-2).clamp(min=1)
        mean = (vectors * there).sum(dim=-2) / number
        logits = self.classifier(mean)
        return SequenceClassifierOutput(loss=label_loss(logits, labels), logits=logits)


register_model(AutoModelForSequenceClassification, WordAverageConfig, WordAverageForSequenceClassification)
