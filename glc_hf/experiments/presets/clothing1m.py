# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Clothing1M with pretrained residual networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from datasets import ClassLabel, Dataset, DatasetDict, Features, Image, Value

from glc_hf.experiments.presets.base import PreparedData, Preset, register


LABEL_NAMES = [
    *("T-Shirt", "Shirt", "Knitwear", "Chiffon", "Sweater", "Hoodie", "Windbreaker"),
    *("Jacket", "Downcoat", "Suit", "Shawl", "Dress", "Vest", "Underwear"),
]
_LISTS = {
    "noisy": "noisy_train_key_list.txt",
    "clean": "clean_train_key_list.txt",
    "test": "clean_test_key_list.txt",
}
_LABELS = {"noisy": "noisy_label_kv.txt", "clean": "clean_label_kv.txt", "test": "clean_label_kv.txt"}
# The text's "first seven layers" of ResNet-34: the first convolution, and the six of the first group.
_FIRST_SEVEN = ["timm_model.conv1", "timm_model.bn1", "timm_model.layer1"]


@register("clothing1m")
class Clothing1M(Preset):
    """
    A million pictures of clothes with labels from the web, 47,570 of them labelled by hand to train on, 10,526 to
    test. The noise is the data's own: `noises` is empty, and the training set has its `trusted` column already.

    The dataset is given out by its authors on request and is not on the Hub: name its folder (`annotations/*.txt` or
    `*.txt`, and `images/`) with `path`, or put it as `clothing1m` into `data_root`.

    What the text says and this does, for `"resnet34"`: a pretrained network, four epochs on the untrusted rows, then
    four more on all rows **from there** (`stage2_start="continue"`), the first seven layers frozen, gradient descent
    with Nesterov momentum, a cosine schedule, random crops and mirroring, trusted rows upsampled (how much is not
    said: to `GLCConfig`'s default share). The learning rate 0.001, batches of 64 and weight decay 1e-4 are choices of
    this preset.

    For `"resnext50_32x4d"` the text trains on the untrusted rows two epochs of the output layer alone at 1e-2, two of
    the whole network at 1e-3 and two at 1e-4, then with the correction two at 1e-3 and, until the validation set says
    stop, at 1e-4. A stage of `GLCConfig` has one rate and one set of frozen layers: here six epochs, then four, of the
    whole network from 1e-3 down a cosine. Early stopping is transformers' `EarlyStoppingCallback`.

    Args:
        path (`str`, *optional*): The dataset's folder.
        architecture (`str`, *optional*, defaults to `"resnet34"`): Or `"resnext50_32x4d"`, or another of timm's.
        weights (`str`, *optional*): A Hub id or folder of pretrained weights, by default timm's own for it.
        from_scratch (`bool`, *optional*, defaults to `False`): Random weights, for trying out.
        trusted_rows (`int`, *optional*): Keep so many of the trusted rows, drawn with a fixed seed; by default all.
    """

    dataset = "clothing1m"
    num_labels = 14
    inputs = ("image",)
    noises = ()
    trusted = ()
    paper_percent: ClassVar[dict[float, float]] = {}
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
        """Reads the lists of the dataset's authors; no picture is opened."""
        root = Path(self.path if self.path is not None else Path(data_root or ".") / self.dataset).expanduser()
        if not root.is_dir() or (self.path is None and data_root is None):
            raise FileNotFoundError(
                f"preset {self.name!r}: Clothing1M is not on the Hub, its authors give it out on request, and there "
                f"is no folder {root}: name it with get_preset('clothing1m', path='./clothing1m')."
            )
        rows = {name: _read_list(root, name) for name in _LISTS}
        if self.trusted_rows is not None:
            if not 0 < self.trusted_rows <= len(rows["clean"]):
                raise ValueError(f"trusted_rows must lie in 1…{len(rows['clean'])}, got {self.trusted_rows}.")
            kept = np.random.default_rng(0).choice(len(rows["clean"]), self.trusted_rows, replace=False)
            rows["clean"] = [rows["clean"][row] for row in sorted(kept)]
        train = _dataset(
            root, rows["noisy"] + rows["clean"], [False] * len(rows["noisy"]) + [True] * len(rows["clean"])
        )
        return DatasetDict({"train": train, "test": _dataset(root, rows["test"])}), None

    def make_ready(self, train: Dataset, test: Dataset, data_root: str | None, reduced: str | None) -> PreparedData:
        """See [`Preset`]; pictures are opened as they are needed."""
        from glc_hf.backbones.timm_network import require_timm

        require_timm()
        return PreparedData(
            train.with_transform(_Photographs(random=True)),
            test.with_transform(_Photographs(random=False)),
            LABEL_NAMES,
            reduced=reduced,
        )

    def network(self, data: PreparedData) -> torch.nn.Module:
        """See [`Preset`]; the seed draws the output layer."""
        from transformers import AutoModelForImageClassification

        from glc_hf.backbones.base import label_mapping
        from glc_hf.backbones.timm_network import pretrained_name, timm_network

        if self.from_scratch:
            return timm_network(self.architecture, data.label_names)
        weights = self.weights or pretrained_name(f"timm/{self.architecture}")
        try:
            return AutoModelForImageClassification.from_pretrained(
                weights,
                num_labels=len(data.label_names),
                ignore_mismatched_sizes=True,
                **label_mapping(data.label_names),
            )
        except OSError as error:
            raise OSError(
                f"preset {self.name!r}: the weights {weights!r} can't be reached on the Hub, and there is no such "
                "folder: name one with weights='./resnet34', or take random weights with from_scratch=True."
            ) from error

    def settings(self) -> dict[str, Any]:
        """See [`Preset`]."""
        from glc_hf.training.config import GLCConfig

        of_network: dict[str, Any] = {"stage1_num_train_epochs": 6}
        if self.architecture == "resnet34":
            of_network = {"freeze": list(_FIRST_SEVEN)}
        return {
            **super().settings(),
            **of_network,
            "per_device_eval_batch_size": 128,
            "stage2_start": "continue",
            "trusted_share": GLCConfig.trusted_share,
        }

    def optimizer(self) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
        """Gradient descent with Nesterov momentum."""
        return torch.optim.SGD, {"lr": self.learning_rate, "momentum": 0.9, "nesterov": True}


class _Photographs:
    """Short side to 256 pixels, a crop of 224 (at random with mirroring, or the middle), ImageNet's normalisation."""

    def __init__(self, random: bool) -> None:
        from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
        from torchvision.transforms import v2

        crop = [v2.RandomCrop(224), v2.RandomHorizontalFlip()] if random else [v2.CenterCrop(224)]
        self.transform = v2.Compose(
            [
                v2.PILToTensor(),
                v2.Resize(256, antialias=True),
                *crop,
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD),
            ]
        )

    def __call__(self, rows: dict[str, list[Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {"label": rows["label"]} if "label" in rows else {}
        if "image" in rows:
            found["pixel_values"] = [self.transform(picture.convert("RGB")) for picture in rows["image"]]
        return found


def _read_list(root: Path, name: str) -> list[tuple[str, int]]:
    """Pictures and their labels, of one of the authors' lists."""
    labels = dict(line.rsplit(maxsplit=1) for line in _lines(root, _LABELS[name]))
    keys = _lines(root, _LISTS[name])
    without = [key for key in keys if key not in labels]
    if without:
        raise ValueError(f"{_LISTS[name]} names {without[0]}, which has no label in {_LABELS[name]}.")
    return [(key, int(labels[key])) for key in keys]


def _lines(root: Path, name: str) -> list[str]:
    for folder in (root, root / "annotations"):
        if (folder / name).is_file():
            return [line for line in (folder / name).read_text(encoding="utf-8").splitlines() if line.strip()]
    raise FileNotFoundError(f"preset 'clothing1m': there is no {name} in {root} or {root / 'annotations'}.")


def _dataset(root: Path, rows: list[tuple[str, int]], trusted: list[bool] | None = None) -> Dataset:
    columns: dict[str, list[Any]] = {
        "image": [str(root / key) for key, _ in rows],
        "label": [label for _, label in rows],
    }
    features = Features({"image": Image(), "label": ClassLabel(names=LABEL_NAMES)})
    if trusted is not None:
        columns["trusted"] = trusted
        features["trusted"] = Value("bool")
    return Dataset.from_dict(columns, features=features)
