# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""A tagger that sees a word and its neighbours: the paper's network for Twitter's parts of speech."""

from __future__ import annotations

from dataclasses import field
from itertools import pairwise

import torch
import torch.nn.functional as F
from transformers import AutoModelForTokenClassification, PreTrainedConfig
from transformers.modeling_outputs import TokenClassifierOutput
from transformers.utils import can_return_tuple

from glc_hf.backbones.base import BackboneModel, label_loss, register_model, require_sizes, words_there


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
