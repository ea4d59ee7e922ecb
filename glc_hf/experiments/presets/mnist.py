# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""MNIST with a fully connected network."""

from __future__ import annotations

import io
from typing import Any, ClassVar

import numpy as np
import torch
from datasets import Array3D, ClassLabel, Dataset, Features, Image

from glc_hf.experiments.preset import PreparedData, Preset, label_names, register


_SIZE = 28


@register("mnist")
class MNIST(Preset):
    """
    60,000 digits to train on and 10,000 to test, pixels in [0, 1]; Adam, 10 epochs, batches of 32, learning rate
    0.001, L2 1e-6 on all layers.

    Where text and code of the paper differ this takes the code, whose figures the tables print: a network of
    784-128-128-10 (the text: one hidden layer of 256, the preset `mnist_text`), and 0.1, 1 and 5 % trusted rows (the
    tables: 5, 10 and 25 %).
    """

    dataset = "ylecun/mnist"
    num_labels = 10
    inputs = ("image",)
    trusted = (0.001, 0.01, 0.05)
    paper_percent: ClassVar[dict[float, float]] = {0.001: 5, 0.01: 10, 0.05: 25}
    stacks = True
    num_train_epochs = 10
    batch_size = 32
    learning_rate = 1e-3
    weight_decay = 1e-6
    hidden_sizes: ClassVar[list[int]] = [128, 128]

    def make_ready(self, train: Dataset, test: Dataset, data_root: str | None, reduced: str | None) -> PreparedData:
        """Decodes every image once; see [`Preset`]."""
        names = label_names(train, self.label, self.num_labels)
        return PreparedData(self._decoded(train, names), self._decoded(test, names), names, reduced=reduced)

    def _decoded(self, dataset: Dataset, names: list[str]) -> Dataset:
        pixels = np.empty((len(dataset), 1, _SIZE, _SIZE), dtype=np.float32)
        stored = dataset.select_columns(["image"]).cast_column("image", Image(decode=False)).with_format(None)
        row = 0
        for batch in stored.iter(1000):
            for image in batch["image"]:
                pixels[row, 0] = _grey(image, row)
                row += 1
        pixels /= 255
        features = Features({"pixel_values": Array3D((1, _SIZE, _SIZE), "float32"), "label": ClassLabel(names=names)})
        labels = dataset.with_format("numpy")["label"][:]
        return Dataset.from_dict({"pixel_values": pixels, "label": labels}, features=features).with_format("torch")

    def network(self, data: PreparedData) -> torch.nn.Module:
        """See [`Preset`]."""
        from glc_hf.backbones import ImageMLPConfig, ImageMLPForImageClassification
        from glc_hf.backbones.base import label_mapping

        config = ImageMLPConfig(
            image_size=_SIZE,
            hidden_sizes=list(self.hidden_sizes),
            **label_mapping(data.label_names),
        )
        return ImageMLPForImageClassification(config)

    def tensors(self, dataset: Dataset) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """See [`Preset`]."""
        rows = dataset.with_format("torch", columns=["pixel_values", "label"])[:]
        return {"pixel_values": rows["pixel_values"]}, rows["label"]


@register("mnist_text")
class MNISTText(MNIST):
    """MNIST with the network of the paper's text, one hidden layer of 256 units; see [`MNIST`]."""

    hidden_sizes: ClassVar[list[int]] = [256]


def _grey(image: dict[str, Any], row: int) -> np.ndarray:
    from PIL import Image as Picture

    with Picture.open(io.BytesIO(image["bytes"]) if image["bytes"] is not None else image["path"]) as picture:
        grey = np.asarray(picture if picture.mode == "L" else picture.convert("L"))
    if grey.shape != (_SIZE, _SIZE):
        raise ValueError(f"image {row} is {grey.shape[1]}×{grey.shape[0]} pixels, not {_SIZE}×{_SIZE}.")
    return grey
