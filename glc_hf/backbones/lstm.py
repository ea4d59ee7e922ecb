# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""An LSTM that reads a text: the paper's network for IMDB."""

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


class LSTMConfig(PreTrainedConfig):
    """
    Configuration of [`LSTMForSequenceClassification`].

    Args:
        vocab_size (`int`, *optional*, defaults to 5000): Words, those for padding and unknown ones included.
        embedding_size (`int`, *optional*, defaults to 50): Dimensions of a word vector.
        hidden_size (`int`, *optional*, defaults to 64): Units of the LSTM.
        classifier_dropout (`float`, *optional*, defaults to 0.2): Dropout before the output layer.
        pad_token_id (`int`, *optional*, defaults to 0): The word that fills up a text.
    """

    model_type = "glc_lstm"

    vocab_size: int = 5_000
    embedding_size: int = 50
    hidden_size: int = 64
    classifier_dropout: float = 0.2
    pad_token_id: int | None = 0


class LSTMForSequenceClassification(BackboneModel):
    """
    The LSTM's state after the last word of a text, dropout, and a linear layer.

    Padding is never read, on whichever side it is; a text without words has the zero state.

    Word vectors start small, and the bias of the forget gate at 1, as TensorFlow and Keras have it. An LSTM that
    starts as PyTorch starts it forgets half of its state with each word, and takes most of the paper's three epochs of
    IMDB to begin to learn.
    """

    config_class = LSTMConfig
    main_input_name = "input_ids"
    _input_embed_layer = "embeddings"

    def __init__(self, config: LSTMConfig) -> None:
        super().__init__(config)
        require_sizes(config, "vocab_size", "embedding_size", "hidden_size")
        self.embeddings = torch.nn.Embedding(config.vocab_size, config.embedding_size, padding_idx=config.pad_token_id)
        self.lstm = torch.nn.LSTM(config.embedding_size, config.hidden_size, batch_first=True)
        self.dropout = torch.nn.Dropout(config.classifier_dropout)
        self.classifier = torch.nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def _init_weights(self, module: torch.nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, torch.nn.Embedding):
            start_word_vectors(module)
        elif isinstance(module, torch.nn.LSTM):
            forget = slice(module.hidden_size, 2 * module.hidden_size)
            for bias, value in ((module.bias_ih_l0, 1.0), (module.bias_hh_l0, 0.0)):
                # A part of a parameter doesn't carry transformers' mark that it was loaded.
                if not getattr(bias, "_is_hf_initialized", False):
                    torch.nn.init.constant_(bias[forget], value)

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
        there = words_there(input_ids, attention_mask, self.config.pad_token_id)
        # Words first, in their order: then what follows the last one can't reach its state.
        order = torch.argsort(~there, dim=1, stable=True)
        states, _ = self.lstm(self.embeddings(input_ids.gather(1, order)))
        length = there.sum(dim=1)
        last = states[torch.arange(len(states), device=states.device), (length - 1).clamp(min=0)]
        logits = self.classifier(self.dropout(last * (length > 0).unsqueeze(1)))
        return SequenceClassifierOutput(loss=label_loss(logits, labels), logits=logits)


register_model(AutoModelForSequenceClassification, LSTMConfig, LSTMForSequenceClassification)
