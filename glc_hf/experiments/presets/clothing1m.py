# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Preset of Clothing1M with pretrained residual networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import ClassLabel, Dataset, DatasetDict, Features, Image

from glc_hf.backbones.timm_network import label_mapping, pretrained_name, require_timm, timm_network
from glc_hf.experiments.presets import register
from glc_hf.experiments.presets.base import PreparedData, Preset
from glc_hf.training.config import GLCConfig


LABEL_NAMES = [
    *("T-Shirt", "Shirt", "Knitwear", "Chiffon", "Sweater", "Hoodie", "Windbreaker"),
    *("Jacket", "Downcoat", "Suit", "Shawl", "Dress", "Vest", "Underwear"),
]
# The "first seven layers" of ResNet-34 in the text: the first convolution, and the six of the first group.
_FIRST_SEVEN = ["timm_model.conv1", "timm_model.bn1", "timm_model.layer1"]


@register("clothing1m")
class Clothing1M(Preset):
    """
    A million images of clothes with labels from the web, 47,570 hand-labeled ones to train on and 10,526 to test. The
    noise is that of the data: `noises` is empty, and the training set already has its `trusted` column.

    The authors provide the dataset on request; it is not on the Hub. Name its folder (`annotations/*.txt` or `*.txt`,
    and `images/`) with `path`, or put it into `data_root` as `clothing1m`.

    For `"resnet34"` this follows the text: a pretrained network, four epochs on the untrusted rows, then four more on
    all rows **from there** (`stage2_start="continue"`), the first seven layers frozen, gradient descent with Nesterov
    momentum, a cosine schedule, random crops and flips, trusted rows upsampled (the text doesn't say how much: here to
    `GLCConfig`'s default share). Learning rate 0.001, batches of 64 and weight decay 1e-4 are choices of this preset.

    For `"resnext50_32x4d"` the text trains on the untrusted rows two epochs of the output layer alone at 1e-2, two of
    the whole network at 1e-3 and two at 1e-4, then with the correction two at 1e-3 and more at 1e-4 until the
    validation set says stop. A stage of `GLCConfig` has one learning rate and one set of frozen layers: here six
    epochs, then four, of the whole network from 1e-3 with a cosine schedule. For early stopping use transformers'
    `EarlyStoppingCallback`.

    Args:
        path (`str`, *optional*): Folder of the dataset.
        architecture (`str`, *optional*, defaults to `"resnet34"`): Or `"resnext50_32x4d"`, or another one of timm.
        weights (`str`, *optional*): Hub id or folder of pretrained weights, by default timm's.
        from_scratch (`bool`, *optional*, defaults to `False`): Use random weights, for a quick trial.
        trusted_rows (`int`, *optional*): Keep this many trusted rows, drawn with a fixed seed; by default all.
    """

    dataset = "clothing1m"
    num_labels = 14
    inputs = ("image",)
    noises = ()
    trusted = ()
    num_train_epochs = 4
    batch_size = 64
    learning_rate = 1e-3
    weight_decay = 1e-4
    lr_scheduler_type = "cosine"

    def __init__(
        self,
        path: str | Path | None = None,
        architecture: str = "resnet34",
        weights: str | None = None,
        from_scratch: bool = False,
        trusted_rows: int | None = None,
    ) -> None:
        self.path = path
        self.architecture = architecture
        self.weights = weights
        self.from_scratch = from_scratch
        self.trusted_rows = trusted_rows

    def load(self, data_root: str | None) -> tuple[DatasetDict, str | None]:
        root = Path(self.path if self.path is not None else Path(data_root or ".") / self.dataset).expanduser()
        if not root.is_dir() or (self.path is None and data_root is None):
            raise FileNotFoundError(
                f"preset {self.name!r}: Clothing1M is not on the Hub, its authors provide it on request, and there is "
                f"no folder {root}: name it with get_preset('clothing1m', path='./clothing1m')."
            )
        noisy = _read_list(root, "noisy_train_key_list.txt", "noisy_label_kv.txt")
        clean, test = (
            _read_list(root, f"clean_{name}_key_list.txt", "clean_label_kv.txt") for name in ("train", "test")
        )
        if self.trusted_rows is not None:
            if not 0 < self.trusted_rows <= len(clean):
                raise ValueError(f"trusted_rows must be in 1…{len(clean)}, got {self.trusted_rows}.")
            kept = np.random.default_rng(0).choice(len(clean), self.trusted_rows, replace=False)
            clean = [clean[row] for row in sorted(kept)]
        train = _dataset(root, noisy + clean).add_column("trusted", [False] * len(noisy) + [True] * len(clean))
        return DatasetDict({"train": train, "test": _dataset(root, test)}), None

    def make_ready(self, train: Dataset, test: Dataset, data_root: str | None) -> PreparedData:
        require_timm()
        return PreparedData(
            train.with_transform(_Photos(random=True)), test.with_transform(_Photos(random=False)), LABEL_NAMES
        )

    def network(self, data: PreparedData) -> torch.nn.Module:
        from transformers import AutoModelForImageClassification

        if self.from_scratch:
            return timm_network(self.architecture, data.label_names)
        weights = self.weights or pretrained_name(f"timm/{self.architecture}")
        labels = label_mapping(data.label_names)
        try:
            return AutoModelForImageClassification.from_pretrained(
                weights, num_labels=len(data.label_names), ignore_mismatched_sizes=True, **labels
            )
        except OSError as error:
            raise OSError(
                f"preset {self.name!r}: the weights {weights!r} can't be reached on the Hub, and there is no folder "
                "of that name: name a folder with weights='./resnet34', or use random weights with from_scratch=True."
            ) from error

    def settings(self) -> dict[str, Any]:
        resnet34 = self.architecture == "resnet34"
        return {
            **super().settings(),
            **({"freeze": list(_FIRST_SEVEN)} if resnet34 else {"stage1_num_train_epochs": 6}),
            "per_device_eval_batch_size": 128,
            "stage2_start": "continue",
            "trusted_share": GLCConfig.trusted_share,
        }

    def optimizer(self) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
        return torch.optim.SGD, {"lr": self.learning_rate, "momentum": 0.9, "nesterov": True}


class _Photos:
    """Resize the short side to 256 pixels, crop 224 (at random with flips, or the center), normalize for ImageNet.
    Images are opened when they are read."""

    def __init__(self, random: bool) -> None:
        from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
        from torchvision.transforms import v2

        self.transform = v2.Compose(
            [
                v2.PILToTensor(),
                v2.Resize(256, antialias=True),
                *([v2.RandomCrop(224), v2.RandomHorizontalFlip()] if random else [v2.CenterCrop(224)]),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD),
            ]
        )

    def __call__(self, rows: dict[str, list[Any]]) -> dict[str, Any]:
        prepared: dict[str, Any] = {"label": rows["label"]} if "label" in rows else {}
        if "image" in rows:
            prepared["pixel_values"] = [self.transform(image.convert("RGB")) for image in rows["image"]]
        return prepared


def _read_list(root: Path, list_name: str, labels_name: str) -> list[tuple[str, int]]:
    """Return the images of one of the authors' lists with their labels."""
    labels = dict(line.rsplit(maxsplit=1) for line in _lines(root, labels_name))
    keys = _lines(root, list_name)
    unlabeled = [key for key in keys if key not in labels]
    if unlabeled:
        raise ValueError(f"{list_name} names {unlabeled[0]}, which has no label in {labels_name}.")
    return [(key, int(labels[key])) for key in keys]


def _lines(root: Path, name: str) -> list[str]:
    for folder in (root, root / "annotations"):
        if (folder / name).is_file():
            return [line for line in (folder / name).read_text(encoding="utf-8").splitlines() if line.strip()]
    raise FileNotFoundError(f"preset 'clothing1m': there is no {name} in {root} or {root / 'annotations'}.")


def _dataset(root: Path, rows: list[tuple[str, int]]) -> Dataset:
    columns = {"image": [str(root / key) for key, _ in rows], "label": [label for _, label in rows]}
    return Dataset.from_dict(columns, features=Features(image=Image(), label=ClassLabel(names=LABEL_NAMES)))
