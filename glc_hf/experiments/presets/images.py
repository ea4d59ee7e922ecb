# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""What the presets of colour images share: small images made into batches, with random crops and mirroring."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from datasets import Dataset

from glc_hf.experiments.preset import PreparedData, Preset, label_names


class SmallImages:
    """
    A transform for `with_transform`: pictures of one size to `pixel_values`, normalised; of other columns `label`
    alone stays, so that none reaches the model.

    Args:
        column (`str`): The images' column.
        mean, std (`Sequence[float]`): Of each channel, of pixels in [0, 1].
        padding (`int`, *optional*, defaults to 0): Crops are drawn from the image with so many black pixels around.
        mirror (`bool`, *optional*, defaults to `False`): Turn every other image round, at random.
    """

    def __init__(
        self, column: str, mean: Sequence[float], std: Sequence[float], padding: int = 0, mirror: bool = False
    ) -> None:
        self.column = column
        self.mean = np.array(mean, dtype=np.float32)
        self.std = np.array(std, dtype=np.float32)
        self.padding = padding
        self.mirror = mirror

    def __call__(self, rows: dict[str, list[Any]]) -> dict[str, Any]:
        """Draws come from torch's random state, which the Trainer seeds."""
        found: dict[str, Any] = {"label": rows["label"]} if "label" in rows else {}
        if self.column in rows:
            images = [np.asarray(picture.convert("RGB")) for picture in rows[self.column]]
            images = [self._moved(image) for image in images]
            pixels = (np.stack(images).astype(np.float32) / 255 - self.mean) / self.std
            found["pixel_values"] = list(torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous())
        return found

    def _moved(self, image: np.ndarray) -> np.ndarray:
        height, width, _ = image.shape
        if self.padding:
            top, left = torch.randint(2 * self.padding + 1, (2,)).tolist()
            around = np.pad(image, ((self.padding, self.padding), (self.padding, self.padding), (0, 0)))
            image = around[top : top + height, left : left + width]
        return image[:, ::-1] if self.mirror and torch.rand(()) < 0.5 else image


class WideResNetPreset(Preset):
    """
    Images of 32×32 pixels and a wide residual network of timm under transformers' wrapper.

    Args:
        architecture (`str`, *optional*): Another network, by a name that `timm.create_model` takes, such as
            `wide_resnet10_1_cifar`, which is some ten times faster than the paper's. Results say so: they are reduced.

    Class attributes:
        paper_architecture (`str`): The network of the paper's runs.
        mirror (`bool`): Whether images are mirrored at random; crops always are drawn.
    """

    paper_architecture: ClassVar[str] = "wide_resnet40_2_cifar"
    mirror: ClassVar[bool] = True
    tells = ("architecture",)
    lr_scheduler_type = "cosine"
    _padding = 4

    def __init__(self, architecture: str | None = None) -> None:
        self.architecture = architecture or self.paper_architecture

    def rows_of(self, data_root: str | None = None, limit: int | None = None) -> tuple[Dataset, Dataset, str | None]:
        """See [`Preset`]; a network that is not the paper's counts as something left out."""
        train, test, reduced = super().rows_of(data_root, limit)
        if self.architecture != self.paper_architecture:
            reduced = ", ".join(filter(None, (reduced, f"network {self.architecture}")))
        return train, test, reduced

    def make_ready(self, train: Dataset, test: Dataset, data_root: str | None, reduced: str | None) -> PreparedData:
        """See [`Preset`]; images are decoded as they are needed."""
        from glc_hf.backbones.timm_network import require_timm

        require_timm()
        from glc_hf.backbones.wide_resnet import CIFAR_MEAN, CIFAR_STD

        names = label_names(train, self.label, self.num_labels)
        column = self.inputs[0]
        shape = (column, CIFAR_MEAN, CIFAR_STD)
        return PreparedData(
            self._named(train).with_transform(SmallImages(*shape, padding=self._padding, mirror=self.mirror)),
            self._named(test).with_transform(SmallImages(*shape)),
            names,
            groups=self.groups(names),
            reduced=reduced,
        )

    def _named(self, dataset: Dataset) -> Dataset:
        dataset = dataset.select_columns([self.inputs[0], self.label])
        return dataset if self.label == "label" else dataset.rename_column(self.label, "label")

    def groups(self, names: list[str]) -> list[int] | None:
        """The superclass of each class, if there are any."""
        return None

    def network(self, data: PreparedData) -> torch.nn.Module:
        """See [`Preset`]."""
        from glc_hf.backbones.timm_network import timm_network

        # Weights with the channels last, which CPUs are faster with.
        return timm_network(self.architecture, data.label_names).to(memory_format=torch.channels_last)

    def settings(self) -> dict[str, Any]:
        """See [`Preset`]."""
        return {**super().settings(), "per_device_eval_batch_size": 256}

    def optimizer(self) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
        """Gradient descent with Nesterov momentum."""
        return torch.optim.SGD, {"lr": self.learning_rate, "momentum": 0.9, "nesterov": True}
