# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""A tagger that sees a word and its neighbours: the paper's network for Twitter's parts of speech."""

from __future__ import annotations

from dataclasses import field
from itertools import pairwise

import torch
import torch.nn.functional as F
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification, PreTrainedConfig
from transformers.modeling_outputs import SequenceClassifierOutput, TokenClassifierOutput
from transformers.utils import can_return_tuple

from glc_hf.backbones.base import (
    BackboneModel,
    label_loss,
    register_model,
    require_sizes,
    start_word_vectors,
    words_there,
)


ACTIVATIONS = {"gelu": F.gelu, "relu": F.relu}


class WindowTaggerConfig(PreTrainedConfig):
    """
    Configuration of [`WindowTaggerForTokenClassification`].

    Args:
        vocab_size (`int`, *optional*, defaults to 10000): Words, those for padding and unknown ones included.
        embedding_size (`int`, *optional*, defaults to 50): Dimensions of a word vector.
        window_size (`int`, *optional*, defaults to 3): Words that are seen at once, an odd number: 3 is one word on
            each side.
        hidden_sizes (`list[int]`, *optional*, defaults to `[256]`):
            Units of the hidden layers. The default is the network of the paper's text, two layers of weights;
            `[256, 256]` with `hidden_act="relu"` is that of the authors' code.
        hidden_act (`str`, *optional*, defaults to `"gelu"`): What stands between the layers, `"gelu"` or `"relu"`.
        train_vectors (`bool`, *optional*, defaults to `False`): Whether word vectors are trained with the rest.
        pad_token_id (`int`, *optional*, defaults to 0): The word that fills up a text; its vector is zero.
    """

    model_type = "glc_window_tagger"

    vocab_size: int = 10_000
    embedding_size: int = 50
    window_size: int = 3
    hidden_sizes: list[int] = field(default_factory=lambda: [256])
    hidden_act: str = "gelu"
    train_vectors: bool = False
    pad_token_id: int | None = 0


class WindowTaggerForTokenClassification(BackboneModel):
    """
    The vectors of the words in a window, one after the other, through linear layers with GELU or ReLU between them.

    Beyond the ends of a text, and where it is padded, vectors are zero. Word vectors are saved with the model; they
    are random until [`~WindowTaggerForTokenClassification.set_word_vectors`] gives others.
    """

    config_class = WindowTaggerConfig
    main_input_name = "input_ids"

    def __init__(self, config: WindowTaggerConfig) -> None:
        super().__init__(config)
        require_sizes(config, "vocab_size", "embedding_size", "window_size", "hidden_sizes")
        if config.window_size % 2 == 0:
            raise ValueError(f"WindowTaggerConfig: window_size must be odd, got {config.window_size}.")
        if config.hidden_act not in ACTIVATIONS:
            raise ValueError(
                f"WindowTaggerConfig: hidden_act must be one of {', '.join(ACTIVATIONS)}, got {config.hidden_act!r}."
            )
        vectors = torch.empty(config.vocab_size, config.embedding_size)
        # What is not trained is a buffer: frozen parameters come back trainable from `from_pretrained`.
        if config.train_vectors:
            self.word_vectors = torch.nn.Parameter(vectors)
        else:
            self.register_buffer("word_vectors", vectors)
        sizes = [config.window_size * config.embedding_size, *config.hidden_sizes]
        self.layers = torch.nn.ModuleList(torch.nn.Linear(before, after) for before, after in pairwise(sizes))
        self.classifier = torch.nn.Linear(sizes[-1], config.num_labels)
        self.post_init()

    def _init_weights(self, module: torch.nn.Module) -> None:
        super()._init_weights(module)
        if module is self and not getattr(self.word_vectors, "_is_hf_initialized", False):
            torch.nn.init.normal_(self.word_vectors)
            self._clear_padding()

    @torch.no_grad()
    def _clear_padding(self) -> None:
        if self.config.pad_token_id is not None:
            self.word_vectors[self.config.pad_token_id] = 0

    @torch.no_grad()
    def set_word_vectors(self, vectors: torch.Tensor) -> None:
        """
        Copies word vectors in; that of padding becomes zero.

        Args:
            vectors (`torch.Tensor` of shape `(vocab_size, embedding_size)`): A row for each word.
        """
        vectors = torch.as_tensor(vectors)
        if vectors.shape != self.word_vectors.shape:
            raise ValueError(
                f"word vectors of shape {tuple(vectors.shape)} for a network of {self.config.vocab_size} words × "
                f"{self.config.embedding_size} dimensions."
            )
        self.word_vectors.copy_(vectors)
        self._clear_padding()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
    ) -> TokenClassifierOutput:
        """
        Args:
            input_ids (`torch.Tensor` of shape `(rows, length)`): Words.
            attention_mask (`torch.Tensor` of shape `(rows, length)`, *optional*):
                1 for words, 0 for padding; by default all that are not `pad_token_id`.
            labels (`torch.Tensor` of shape `(rows, length)`, *optional*):
                With them there is a loss; -100 for words that have none.
        """
        vectors = F.embedding(input_ids, self.word_vectors)
        vectors = vectors * words_there(input_ids, attention_mask, self.config.pad_token_id).unsqueeze(-1)
        side, length = self.config.window_size // 2, input_ids.shape[-1]
        around = F.pad(vectors, (0, 0, side, side))
        hidden = torch.cat(
            [around[..., place : place + length, :] for place in range(self.config.window_size)], dim=-1
        )
        for layer in self.layers:
            hidden = ACTIVATIONS[self.config.hidden_act](layer(hidden))
        logits = self.classifier(hidden)
        return TokenClassifierOutput(loss=label_loss(logits, labels), logits=logits)


register_model(AutoModelForTokenClassification, WindowTaggerConfig, WindowTaggerForTokenClassification)


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
