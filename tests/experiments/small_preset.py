# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Small presets on made-up rows, for the networks that can be stacked."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from datasets import Array3D, Dataset, Features, Value

from glc_hf.experiments.presets.base import PreparedData, Preset


CLASSES = 3


class SmallPreset(Preset):
    """Base of the small presets: 120 rows to train on, 60 to test, few steps."""

    dataset = "made/up"
    num_labels = CLASSES
    inputs = ()
    trusted = (0.2,)
    stacks = True
    num_train_epochs = 2
    batch_size = 16
    learning_rate = 1e-2
    weight_decay = 1e-3

    def prepare(self, data_root: str | None = None, limit: int | None = None) -> PreparedData:
        """Rows whose inputs mostly determine their class."""
        names = [f"class {label}" for label in range(CLASSES)]
        sets = [_dataset(self.rows(np.random.default_rng(seed), number)) for seed, number in ((0, 120), (1, 60))]
        train, test = (one.with_format("torch") for one in sets)
        return PreparedData(train, test, names)

    def rows_of(self, data_root: str | None = None, limit: int | None = None) -> tuple[None, None, None]:
        """Nothing is stored or left out."""
        return None, None, None

    def rows(self, rng: np.random.Generator, number: int) -> dict[str, Any]:
        """Columns of made-up rows."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """Few updates on trusted rows."""
        return {**super().settings(), "trusted_min_updates": 12, "per_device_eval_batch_size": 50}

    def decays(self, parameter_name: str) -> bool:
        """All but the output layer, for two parameter groups."""
        return not parameter_name.startswith("classifier.")


def _dataset(columns: dict[str, Any]) -> Dataset:
    """Images have a known shape, as in the presets. Nested lists would be read several times as slowly."""
    if "pixel_values" not in columns:
        return Dataset.from_dict(columns)
    shape = columns["pixel_values"].shape[1:]
    return Dataset.from_dict(columns, Features(pixel_values=Array3D(shape, "float32"), label=Value("int64")))


class SmallImages(SmallPreset):
    """The fully connected network."""

    name = "small_images"

    def rows(self, rng: np.random.Generator, number: int) -> dict[str, Any]:
        """Images of 4×4 pixels, brighter in the row of their class."""
        labels = rng.integers(CLASSES, size=number)
        pixels = rng.random((number, 1, 4, 4)).astype(np.float32)
        pixels[np.arange(number), 0, labels] += 0.5
        return {"pixel_values": pixels, "label": labels}

    def network(self, data: PreparedData) -> torch.nn.Module:
        """Two hidden layers."""
        from glc_hf.backbones import ImageMLPConfig, ImageMLPForImageClassification

        return ImageMLPForImageClassification(ImageMLPConfig(image_size=4, hidden_sizes=[8, 6], num_labels=CLASSES))

    def tensors(self, dataset: Dataset) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """Whole columns."""
        rows = dataset.with_format("torch")[:]
        return {"pixel_values": rows["pixel_values"]}, rows["label"]


class SmallLinear(SmallImages):
    """A linear classifier."""

    name = "small_linear"

    def network(self, data: PreparedData) -> torch.nn.Module:
        """No hidden layer."""
        from glc_hf.backbones import ImageMLPConfig, ImageMLPForImageClassification

        return ImageMLPForImageClassification(ImageMLPConfig(image_size=4, hidden_sizes=[], num_labels=CLASSES))


class SmallTexts(SmallPreset):
    """The mean of word vectors."""

    name = "small_texts"
    divide_by: int | None = None

    def rows(self, rng: np.random.Generator, number: int) -> dict[str, Any]:
        """Texts of zero to five words, most with a word of their class."""
        labels = rng.integers(CLASSES, size=number)
        words, there = np.zeros((number, 6), dtype=np.int64), np.zeros((number, 6), dtype=np.int64)
        for row, label in enumerate(labels):
            length = int(rng.integers(0, 6))
            words[row, :length] = rng.integers(5, 20, size=length)
            there[row, :length] = 1
            if length:
                words[row, 0] = 1 + label
        return {"input_ids": words, "attention_mask": there, "label": labels}

    def network(self, data: PreparedData) -> torch.nn.Module:
        """Twenty words."""
        from glc_hf.backbones import WordAverageConfig, WordAverageForSequenceClassification

        config = WordAverageConfig(vocab_size=20, embedding_size=5, divide_by=self.divide_by, num_labels=CLASSES)
        return WordAverageForSequenceClassification(config)

    def tensors(self, dataset: Dataset) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """Whole columns."""
        rows = dataset.with_format("torch")[:]
        return {name: rows[name] for name in ("input_ids", "attention_mask")}, rows["label"]


class SmallTextsLate(SmallTexts):
    """With the penalty on the output layer alone, as for SST: word vectors are updated by `LateAdam`."""

    name = "small_texts_late"
    divide_by = 6

    def decays(self, parameter_name: str) -> bool:
        """Not the word vectors."""
        return parameter_name.startswith("classifier.")


class SmallWindows(SmallPreset):
    """The window tagger, one window per row."""

    name = "small_windows"
    prepared_label_column = "labels"

    def rows(self, rng: np.random.Generator, number: int) -> dict[str, Any]:
        """Three words; the middle one determines the tag. Some have no neighbor on the left."""
        labels = rng.integers(CLASSES, size=number)
        words = rng.integers(1, 12, size=(number, 3))
        words[:, 1] = 1 + 3 * labels + rng.integers(3, size=number)
        there = np.ones((number, 3), dtype=np.int64)
        there[::7, 0] = 0
        return {
            "input_ids": words * there,
            "attention_mask": there,
            "labels": np.stack([np.full(number, -100), labels, np.full(number, -100)], axis=1),
        }

    def network(self, data: PreparedData) -> torch.nn.Module:
        """Four dimensions, six units and then five."""
        from glc_hf.backbones import WindowTaggerConfig, WindowTaggerForTokenClassification

        config = WindowTaggerConfig(vocab_size=12, embedding_size=4, hidden_sizes=[6, 5], num_labels=CLASSES)
        return WindowTaggerForTokenClassification(config)

    def tensors(self, dataset: Dataset) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """The middle word's label is the row's."""
        rows = dataset.with_format("torch")[:]
        return {name: rows[name] for name in ("input_ids", "attention_mask")}, rows["labels"][:, 1]
