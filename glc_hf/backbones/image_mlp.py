# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The paper's network for MNIST: a fully connected network for small images."""

from __future__ import annotations

from dataclasses import field
from itertools import pairwise

import torch
from transformers import AutoModelForImageClassification, PreTrainedConfig
from transformers.modeling_outputs import ImageClassifierOutputWithNoAttention
from transformers.utils import can_return_tuple

from glc_hf.backbones.base import BackboneModel, label_loss, register_model, require_sizes


class ImageMLPConfig(PreTrainedConfig):
    """
    Configuration of [`ImageMLPForImageClassification`].

    Args:
        image_size (`int`, *optional*, defaults to 28): Height and width of the images, in pixels.
        num_channels (`int`, *optional*, defaults to 1): Channels of the images.
        hidden_sizes (`list[int]`, *optional*, defaults to `[256]`):
            Units of the hidden layers. The default is the network of the paper's text; `[128, 128]` is that of the
            authors' code.
    """

    model_type = "glc_mlp"

    image_size: int = 28
    num_channels: int = 1
    hidden_sizes: list[int] = field(default_factory=lambda: [256])


class ImageMLPForImageClassification(BackboneModel):
    """The flattened pixels, followed by linear layers with ReLU."""

    config_class = ImageMLPConfig
    main_input_name = "pixel_values"
    input_modalities = ("image",)

    def __init__(self, config: ImageMLPConfig) -> None:
        super().__init__(config)
        require_sizes(config, "image_size", "num_channels", "hidden_sizes")
        sizes = [config.num_channels * config.image_size**2, *config.hidden_sizes]
        self.layers = torch.nn.ModuleList(torch.nn.Linear(before, after) for before, after in pairwise(sizes))
        self.classifier = torch.nn.Linear(sizes[-1], config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self, pixel_values: torch.Tensor, labels: torch.Tensor | None = None
    ) -> ImageClassifierOutputWithNoAttention:
        """`pixel_values`, in [0, 1], have the shape `(rows, channels, image_size, image_size)`, `labels` `(rows,)`."""
        hidden = pixel_values.flatten(1)
        if hidden.shape[1] != self.layers[0].in_features:
            size, channels = self.config.image_size, self.config.num_channels
            raise ValueError(
                f"pixel_values have shape {tuple(pixel_values.shape)}; this network takes "
                f"(rows, {channels}, {size}, {size})."
            )
        for layer in self.layers:
            hidden = torch.relu(layer(hidden))
        logits = self.classifier(hidden)
        return ImageClassifierOutputWithNoAttention(loss=label_loss(logits, labels), logits=logits)


register_model(AutoModelForImageClassification, ImageMLPConfig, ImageMLPForImageClassification)
