# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Shared parts of the paper's small networks as transformers models."""

from __future__ import annotations

from dataclasses import is_dataclass
from functools import wraps
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel


Class = TypeVar("Class", bound=type)


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


def label_mapping(label_names: list[str]) -> dict[str, Any]:
    """`id2label` and `label2id` of a model configuration."""
    return {
        "id2label": dict(enumerate(label_names)),
        "label2id": {name: label for label, name in enumerate(label_names)},
    }


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
