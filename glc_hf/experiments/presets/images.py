# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""What the presets of colour images share: small images made into batches, with random crops and mirroring."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from datasets import Array3D, ClassLabel, Dataset, Features, Image

from glc_hf.experiments.presets.base import PreparedData, Preset, label_names, register


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


@register("cifar10")
class CIFAR10(WideResNetPreset):
    """
    50,000 images to train on and 10,000 to test, WRN-40-2, 75 epochs of gradient descent with Nesterov momentum and a
    cosine schedule.

    The text gives no more. Batches of 128, learning rate 0.1, momentum 0.9, weight decay 5e-4, dropout 0.3, random
    crops from the image padded by 4 pixels, and mirroring are what such networks are commonly trained with.

    Weak labels (`noises`) come from such a network after ten epochs on clean labels, and have fractions of their own
    in the tables: `weak_trusted`.
    """

    dataset = "uoft-cs/cifar10"
    num_labels = 10
    inputs = ("img",)
    noises = ("uniform", "flip", "weak")
    trusted = (0.05, 0.1, 0.25)
    weak_trusted: ClassVar[tuple[float, ...]] = (0.01, 0.05, 0.1)
    paper_percent: ClassVar[dict[float, float]] = {0.01: 1, 0.05: 5, 0.1: 10, 0.25: 25}
    num_train_epochs = 75
    batch_size = 128
    learning_rate = 0.1
    weight_decay = 5e-4


@register("cifar100")
class CIFAR100(CIFAR10):
    """CIFAR-100, trained as [`CIFAR10`]; its 20 superclasses are the groups of hierarchical noise."""

    dataset = "uoft-cs/cifar100"
    num_labels = 100
    label = "fine_label"
    noises = ("uniform", "flip", "hierarchical", "weak")
    weak_trusted: ClassVar[tuple[float, ...]] = (0.05, 0.1, 0.25)
    paper_percent: ClassVar[dict[float, float]] = {0.05: 5, 0.1: 10, 0.25: 25}

    def groups(self, names: list[str]) -> list[int]:
        """The number of each class's superclass, in the dataset's own order."""
        found = {name: number for number, group in enumerate(SUPERCLASSES.values()) for name in group.split()}
        unknown = [name for name in names if name not in found]
        if unknown:
            raise ValueError(f"preset {self.name!r}: {', '.join(unknown[:5])} are no classes of CIFAR-100.")
        return [found[name] for name in names]


SUPERCLASSES: dict[str, str] = {
    "aquatic_mammals": "beaver dolphin otter seal whale",
    "fish": "aquarium_fish flatfish ray shark trout",
    "flowers": "orchid poppy rose sunflower tulip",
    "food_containers": "bottle bowl can cup plate",
    "fruit_and_vegetables": "apple mushroom orange pear sweet_pepper",
    "household_electrical_devices": "clock keyboard lamp telephone television",
    "household_furniture": "bed chair couch table wardrobe",
    "insects": "bee beetle butterfly caterpillar cockroach",
    "large_carnivores": "bear leopard lion tiger wolf",
    "large_man-made_outdoor_things": "bridge castle house road skyscraper",
    "large_natural_outdoor_scenes": "cloud forest mountain plain sea",
    "large_omnivores_and_herbivores": "camel cattle chimpanzee elephant kangaroo",
    "medium_mammals": "fox porcupine possum raccoon skunk",
    "non-insect_invertebrates": "crab lobster snail spider worm",
    "people": "baby boy girl man woman",
    "reptiles": "crocodile dinosaur lizard snake turtle",
    "small_mammals": "hamster mouse rabbit shrew squirrel",
    "trees": "maple_tree oak_tree palm_tree pine_tree willow_tree",
    "vehicles_1": "bicycle bus motorcycle pickup_truck train",
    "vehicles_2": "lawn_mower rocket streetcar tank tractor",
}


@register("svhn")
class SVHN(WideResNetPreset):
    """
    73,257 house numbers, cropped to their digits, to train on and 26,032 to test.

    The paper prints results (in its appendix) and no recipe, and there is no code for it. Taken here: WRN-16-4 with
    dropout 0.3, 20 epochs of gradient descent with Nesterov momentum, batches of 128, learning rate 0.01, a cosine
    schedule, weight decay 5e-4, random crops, and no mirroring, which would make other signs of the digits.
    """

    dataset = "ufldl-stanford/svhn"
    dataset_config = "cropped_digits"
    num_labels = 10
    inputs = ("image",)
    paper_architecture = "wide_resnet16_4_cifar"
    mirror = False
    trusted = (0.001, 0.01, 0.05)
    paper_percent: ClassVar[dict[float, float]] = {0.001: 0.1, 0.01: 1, 0.05: 5}
    num_train_epochs = 20
    batch_size = 128
    learning_rate = 0.01
    weight_decay = 5e-4
