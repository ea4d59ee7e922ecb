# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""What the paper's small networks have in common as transformers models."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel


class BackboneModel(PreTrainedModel):
    """Layers start as PyTorch starts them: transformers' own rule, a normal distribution of standard deviation 0.02,
    is made for transformers and trains these networks far worse."""

    supports_gradient_checkpointing = False

    def _init_weights(self, module: torch.nn.Module) -> None:
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()


def start_word_vectors(embeddings: torch.nn.Embedding) -> None:
    """Small vectors, uniform within ±√(6 / (words + dimensions)), and zero for padding: of vectors as large as torch
    starts them, what is learned in a few epochs would be a small part."""
    torch.nn.init.xavier_uniform_(embeddings.weight)
    if embeddings.padding_idx is not None:
        torch.nn.init.zeros_(embeddings.weight[embeddings.padding_idx])


def words_there(
    input_ids: torch.Tensor, attention_mask: torch.Tensor | None, pad_token_id: int | None
) -> torch.Tensor:
    """Where there are words, boolean, in the shape of `input_ids`: where the mask says so, or else all but padding."""
    if attention_mask is not None:
        return attention_mask.bool()
    return torch.ones_like(input_ids, dtype=torch.bool) if pad_token_id is None else input_ids != pad_token_id


def label_loss(logits: torch.Tensor, labels: torch.Tensor | None) -> torch.Tensor | None:
    """Mean cross-entropy of the labels that are not -100, (…, K) × (…) → scalar; `None` without labels."""
    if labels is None:
        return None
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))


def label_mapping(label_names: list[str]) -> dict[str, dict]:
    """Class names in the form that configurations take them."""
    return {
        "id2label": dict(enumerate(label_names)),
        "label2id": {name: label for label, name in enumerate(label_names)},
    }


def require_sizes(config: PreTrainedConfig, *names: str) -> None:
    """Raises for a size of the configuration that is no positive integer."""
    for name in names:
        value = getattr(config, name)
        for size in value if isinstance(value, (list, tuple)) else [value]:
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise ValueError(f"{type(config).__name__}: {name} must be a positive integer, got {value!r}.")


def register_model(auto_class: type, config_class: type[PreTrainedConfig], model_class: type[PreTrainedModel]) -> None:
    """Makes `AutoConfig` and one `AutoModelFor…` class find the network; twice is harmless."""
    model_class.config_class = config_class
    AutoConfig.register(config_class.model_type, config_class, exist_ok=True)
    auto_class.register(config_class, model_class, exist_ok=True)
