# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
The paper's small networks: word averages (SST), an LSTM (IMDB), a window tagger (Twitter parts of speech), and a fully
connected network for images (MNIST).

The networks for text take `input_ids` and optionally `attention_mask` (1 for words, 0 for padding; by default every
word but `pad_token_id` counts), both of shape `(rows, length)`. All return a loss if they get `labels`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, is_dataclass
from functools import wraps
from itertools import pairwise
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from transformers import (
    AutoConfig,
    AutoModelForImageClassification,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import (
    ImageClassifierOutputWithNoAttention,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils import can_return_tuple


Class = TypeVar("Class", bound=type)
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {"gelu": F.gelu, "relu": F.relu}


class BackboneModel(PreTrainedModel):
    """Uses PyTorch's default initialization: that of transformers, normal with standard deviation 0.02, trains these
    networks far worse."""

    supports_gradient_checkpointing = False

    def _init_weights(self, module: torch.nn.Module) -> None:
        reset: Any = getattr(module, "reset_parameters", None)
        # Before transformers 5.4 this is also called for modules that were loaded.
        if reset is not None and not (isinstance(module, torch.nn.Embedding) and is_loaded(module.weight)):
            reset()


def is_loaded(tensor: torch.Tensor) -> bool:
    """Whether a weight comes from a checkpoint. While a model is loaded, the functions in `torch.nn.init` don't change
    such weights, but they would change slices of them."""
    return getattr(tensor, "_is_hf_initialized", False)


def init_word_vectors(embeddings: torch.nn.Embedding) -> None:
    """Initialize with small vectors, uniform within ±√(6 / (words + dimensions)), and zero for padding. PyTorch's
    default vectors are so large that a few epochs hardly change them."""
    torch.nn.init.xavier_uniform_(embeddings.weight)
    if embeddings.padding_idx is not None and not is_loaded(embeddings.weight):
        torch.nn.init.zeros_(embeddings.weight[embeddings.padding_idx])


def word_mask(input_ids: torch.Tensor, attention_mask: torch.Tensor | None, pad_token_id: int | None) -> torch.Tensor:
    """Boolean mask of the words, in the shape of `input_ids`: the attention mask, or else everything but padding."""
    if attention_mask is not None:
        return attention_mask.bool()
    return torch.ones_like(input_ids, dtype=torch.bool) if pad_token_id is None else input_ids != pad_token_id


def label_loss(logits: torch.Tensor, labels: torch.Tensor | None) -> Any:
    """Mean cross-entropy over the labels that are not -100, (…, K) × (…) → scalar; `None` without labels."""
    if labels is None:
        return None
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))


def number_of_labels(config: PreTrainedConfig) -> int:
    """The number of classes, which a configuration of transformers has unless its `id2label` was removed."""
    if config.num_labels is None:
        raise ValueError(f"{type(config).__name__}: id2label is None, so the number of classes is not known.")
    return config.num_labels


def require_sizes(config: PreTrainedConfig, *names: str) -> None:
    """Raise if one of these sizes of the configuration is not a positive integer."""
    for name in names:
        value = getattr(config, name)
        for size in value if isinstance(value, (list, tuple)) else [value]:
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise ValueError(f"{type(config).__name__}: {name} must be a positive integer, got {value!r}.")


def register_model(auto_class: Any, config_class: type[PreTrainedConfig], model_class: type[PreTrainedModel]) -> None:
    """Register a network with `AutoConfig` and one `AutoModelFor…` class. Repeated calls are harmless."""
    model_class.config_class = config_class
    AutoConfig.register(config_class.model_type, config_class, exist_ok=True)
    auto_class.register(config_class, model_class, exist_ok=True)


def config_fields(config_class: Class) -> Class:
    """Make the fields of a configuration class options with defaults. Before transformers 5.4 configurations are not
    dataclasses."""
    if is_dataclass(config_class):
        return config_class
    untyped: Any = config_class
    defaults: dict[str, Any] = {name: vars(config_class)[name] for name in untyped.__annotations__}
    init = untyped.__init__

    @wraps(init)
    def init_with_defaults(self: Any, **options: Any) -> None:
        for name, default in defaults.items():
            options.setdefault(name, default.default_factory() if hasattr(default, "default_factory") else default)
        init(self, **options)

    untyped.__init__ = init_with_defaults
    return config_class


@config_fields
class WindowTaggerConfig(PreTrainedConfig):
    """
    Configuration of [`WindowTaggerForTokenClassification`].

    Args:
        vocab_size (`int`, *optional*, defaults to 10000): Number of words, including padding and unknown.
        embedding_size (`int`, *optional*, defaults to 50): Dimensions of a word vector.
        window_size (`int`, *optional*, defaults to 3): Words in the window, an odd number: 3 is one word on each side.
        hidden_sizes (`list[int]`, *optional*, defaults to `[256]`):
            Units of the hidden layers. The default is the network of the paper's text; `[256, 256]` with
            `hidden_act="relu"` is that of the authors' code.
        hidden_act (`str`, *optional*, defaults to `"gelu"`): Activation between the layers, `"gelu"` or `"relu"`.
        train_vectors (`bool`, *optional*, defaults to `False`): Whether to train the word vectors.
        pad_token_id (`int`, *optional*, defaults to 0): The padding word; its vector is zero.
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
    The concatenated vectors of the words in a window, followed by linear layers with GELU or ReLU.

    Vectors are zero for padding and beyond the ends of a text. Word vectors are saved with the model. They are random
    unless set by [`~WindowTaggerForTokenClassification.set_word_vectors`].
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
        # Frozen vectors are a buffer: `from_pretrained` makes frozen parameters trainable again.
        if config.train_vectors:
            self.word_vectors = torch.nn.Parameter(vectors)
        else:
            self.register_buffer("word_vectors", vectors)
        sizes = [config.window_size * config.embedding_size, *config.hidden_sizes]
        self.layers = torch.nn.ModuleList(torch.nn.Linear(before, after) for before, after in pairwise(sizes))
        self.classifier = torch.nn.Linear(sizes[-1], number_of_labels(config))
        self.post_init()

    def _init_weights(self, module: torch.nn.Module) -> None:
        super()._init_weights(module)
        if module is self and not is_loaded(self.word_vectors):
            torch.nn.init.normal_(self.word_vectors)
            self._clear_padding()

    @torch.no_grad()
    def _clear_padding(self) -> None:
        if self.config.pad_token_id is not None:
            self.word_vectors[self.config.pad_token_id] = 0

    @torch.no_grad()
    def set_word_vectors(self, vectors: torch.Tensor) -> None:
        """
        Copy word vectors into the model. The vector of padding becomes zero.

        Args:
            vectors (`torch.Tensor` of shape `(vocab_size, embedding_size)`): One row per word.
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
        """Logits of shape `(rows, length, K)`. `labels` have the shape `(rows, length)`, with -100 for no label."""
        vectors = F.embedding(input_ids, self.word_vectors)
        vectors = vectors * word_mask(input_ids, attention_mask, self.config.pad_token_id).unsqueeze(-1)
        side, length = self.config.window_size // 2, input_ids.shape[-1]
        padded = F.pad(vectors, (0, 0, side, side))
        hidden = torch.cat([padded[..., i : i + length, :] for i in range(self.config.window_size)], dim=-1)
        for layer in self.layers:
            hidden = ACTIVATIONS[self.config.hidden_act](layer(hidden))
        logits = self.classifier(hidden)
        return TokenClassifierOutput(loss=label_loss(logits, labels), logits=logits)


register_model(AutoModelForTokenClassification, WindowTaggerConfig, WindowTaggerForTokenClassification)


@config_fields
class WordAverageConfig(PreTrainedConfig):
    """
    Configuration of [`WordAverageForSequenceClassification`].

    Args:
        vocab_size (`int`, *optional*, defaults to 10000): Number of words, including padding and unknown.
        embedding_size (`int`, *optional*, defaults to 100): Dimensions of a word vector.
        divide_by (`int`, *optional*):
            Divisor of the sum of a text's vectors, by default the number of its words. The authors' code includes
            padding in the mean; a fixed number, the padded length, reproduces it.
        pad_token_id (`int`, *optional*, defaults to 0): The padding word.
    """

    model_type = "glc_word_average"

    vocab_size: int = 10_000
    embedding_size: int = 100
    divide_by: int | None = None
    pad_token_id: int | None = 0


class WordAverageForSequenceClassification(BackboneModel):
    """
    logits = W · (mean of a text's word vectors) + b, with vectors learned from scratch.

    Padding is ignored, so the logits don't depend on the padded length. A text without words has the zero vector. As
    in the authors' code, word vectors start small ([`init_word_vectors`]), and the linear layer is
    normal with variance 1 / dimensions.
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
        self.classifier = torch.nn.Linear(config.embedding_size, number_of_labels(config))
        self.post_init()

    def _init_weights(self, module: torch.nn.Module) -> None:
        if isinstance(module, torch.nn.Linear):
            torch.nn.init.normal_(module.weight, std=module.in_features**-0.5)
            torch.nn.init.zeros_(module.bias)
        elif isinstance(module, torch.nn.Embedding):
            init_word_vectors(module)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
    ) -> SequenceClassifierOutput:
        """Logits of shape `(rows, K)`. `labels` have the shape `(rows,)`."""
        vectors = self.embeddings(input_ids)
        mask = word_mask(input_ids, attention_mask, self.config.pad_token_id).to(vectors.dtype).unsqueeze(-1)
        number = self.config.divide_by or mask.sum(dim=-2).clamp(min=1)
        logits = self.classifier((vectors * mask).sum(dim=-2) / number)
        return SequenceClassifierOutput(loss=label_loss(logits, labels), logits=logits)


register_model(AutoModelForSequenceClassification, WordAverageConfig, WordAverageForSequenceClassification)


@config_fields
class LSTMConfig(PreTrainedConfig):
    """
    Configuration of [`LSTMForSequenceClassification`].

    Args:
        vocab_size (`int`, *optional*, defaults to 5000): Number of words, including padding and unknown.
        embedding_size (`int`, *optional*, defaults to 50): Dimensions of a word vector.
        hidden_size (`int`, *optional*, defaults to 64): Units of the LSTM.
        classifier_dropout (`float`, *optional*, defaults to 0.2): Dropout before the output layer.
        pad_token_id (`int`, *optional*, defaults to 0): The padding word.
    """

    model_type = "glc_lstm"

    vocab_size: int = 5_000
    embedding_size: int = 50
    hidden_size: int = 64
    classifier_dropout: float = 0.2
    pad_token_id: int | None = 0


class LSTMForSequenceClassification(BackboneModel):
    """
    The state of an LSTM after the last word of a text, followed by dropout and a linear layer.

    Padding on either side is never read. A text without words has the zero state.

    Word vectors start small, and the bias of the forget gate starts at 1, as in Keras. With PyTorch's default an LSTM
    forgets half of its state per word, and needs most of the paper's three epochs on IMDB to start learning.
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
        self.classifier = torch.nn.Linear(config.hidden_size, number_of_labels(config))
        self.post_init()

    def _init_weights(self, module: torch.nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, torch.nn.Embedding):
            init_word_vectors(module)
        elif isinstance(module, torch.nn.LSTM):
            forget = slice(module.hidden_size, 2 * module.hidden_size)
            biases: dict[Any, float] = {module.bias_ih_l0: 1.0, module.bias_hh_l0: 0.0}
            for bias, value in biases.items():
                if not is_loaded(bias):
                    torch.nn.init.constant_(bias[forget], value)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
    ) -> SequenceClassifierOutput:
        """Logits of shape `(rows, K)`. `labels` have the shape `(rows,)`."""
        mask = word_mask(input_ids, attention_mask, self.config.pad_token_id)
        # Move the words to the front, in order, so that padding can't affect the state after the last word.
        order = torch.argsort(~mask, dim=1, stable=True)
        states, _ = self.lstm(self.embeddings(input_ids.gather(1, order)))
        length = mask.sum(dim=1)
        last = states[torch.arange(len(states), device=states.device), (length - 1).clamp(min=0)]
        logits = self.classifier(self.dropout(last * (length > 0).unsqueeze(1)))
        return SequenceClassifierOutput(loss=label_loss(logits, labels), logits=logits)


register_model(AutoModelForSequenceClassification, LSTMConfig, LSTMForSequenceClassification)


@config_fields
class ImageMLPConfig(PreTrainedConfig):
    """
    Configuration of [`ImageMLPForImageClassification`].

    Args:
        image_size (`int`, *optional*, defaults to 28): Height and width of the images, in pixels.
        num_channels (`int`, *optional*, defaults to 1): Channels of the images.
        hidden_sizes (`list[int]`, *optional*, defaults to `[256]`):
            Units of the hidden layers. The default is the network of the paper's text; `[128, 128]` is that of the
            authors' code. An empty list is a linear classifier.
    """

    model_type = "glc_mlp"

    image_size: int = 28
    num_channels: int = 1
    hidden_sizes: list[int] = field(default_factory=lambda: [256])


class ImageMLPForImageClassification(BackboneModel):
    """The flattened pixels, followed by linear layers with ReLU."""

    config_class = ImageMLPConfig
    main_input_name = "pixel_values"
    input_modalities = ["image"]  # noqa: RUF012  (the type that transformers declares)

    def __init__(self, config: ImageMLPConfig) -> None:
        super().__init__(config)
        require_sizes(config, "image_size", "num_channels", "hidden_sizes")
        sizes = [config.num_channels * config.image_size**2, *config.hidden_sizes]
        self.layers = torch.nn.ModuleList(torch.nn.Linear(before, after) for before, after in pairwise(sizes))
        self.classifier = torch.nn.Linear(sizes[-1], number_of_labels(config))
        self.post_init()

    @can_return_tuple
    def forward(
        self, pixel_values: torch.Tensor, labels: torch.Tensor | None = None
    ) -> ImageClassifierOutputWithNoAttention:
        """`pixel_values`, in [0, 1], have the shape `(rows, channels, image_size, image_size)`, `labels` `(rows,)`."""
        hidden = pixel_values.flatten(1)
        size, channels = self.config.image_size, self.config.num_channels
        if hidden.shape[1] != channels * size**2:
            raise ValueError(
                f"pixel_values have shape {tuple(pixel_values.shape)}; this network takes "
                f"(rows, {channels}, {size}, {size})."
            )
        for layer in self.layers:
            hidden = torch.relu(layer(hidden))
        logits = self.classifier(hidden)
        return ImageClassifierOutputWithNoAttention(loss=label_loss(logits, labels), logits=logits)


register_model(AutoModelForImageClassification, ImageMLPConfig, ImageMLPForImageClassification)
