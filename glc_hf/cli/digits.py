# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The embedded example of `glc-hf train`: the digits of scikit-learn, a small network for them, and its settings."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from datasets import DatasetDict
    from transformers import PreTrainedModel


DIGITS_NAMES = [str(digit) for digit in range(10)]
# Options of `glc-hf train` that the example sets and that any option given overrides.
DIGITS_SETTINGS: dict[str, Any] = {
    "noise": "flip",
    "noise_strength": 0.6,
    "num_train_epochs": 5,
    "learning_rate": 3e-3,
    "per_device_train_batch_size": 32,
    "per_device_eval_batch_size": 64,
    "logging_strategy": "epoch",
    "save_strategy": "epoch",
    "save_total_limit": 1,
}
# The network: the smallest residual network that timm registers. The images are enlarged for it.
DIGITS_ARCHITECTURE = "test_resnet"
DIGITS_IMAGE_SIZE = 16
_TEST_SHARE = 0.25
_SPLIT_SEED = 0


def digits_dataset() -> DatasetDict:
    """
    The 1,797 hand-written digits that ship with scikit-learn, as grey 8×8 images.

    Returns:
        `DatasetDict`: `train` (1,347 rows) and `test` (450 rows, the same ones every time), with the columns `image`
        (`Image`) and `label` (`ClassLabel`).
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError(_missing("scikit-learn")) from error
    import numpy as np
    from datasets import ClassLabel, Dataset, Features, Image
    from PIL import Image as Picture

    digits = load_digits()
    # Ink runs from 0 to 16.
    pixels = np.minimum(digits.images * 16, 255).astype(np.uint8)
    rows = {"image": [Picture.fromarray(image) for image in pixels], "label": digits.target.tolist()}
    features = Features({"image": Image(), "label": ClassLabel(names=DIGITS_NAMES)})
    return Dataset.from_dict(rows, features=features).train_test_split(_TEST_SHARE, seed=_SPLIT_SEED)


def digits_model(label_names: list[str] | None = None) -> PreTrainedModel:
    """
    A small network of timm with random weights, under transformers' `TimmWrapperForImageClassification`.

    Args:
        label_names (`list[str]`, *optional*): The classes, by default the ten digits.
    """
    from glc_hf.backbones.timm_network import timm_network

    return timm_network(DIGITS_ARCHITECTURE, label_names or DIGITS_NAMES, DIGITS_IMAGE_SIZE)


def use_one_thread() -> None:
    """
    The network is too small to share among cores: threads would wait for each other longer than they work, and on a
    busy machine many times longer. `OMP_NUM_THREADS`, if set, holds.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        import torch

        torch.set_num_threads(1)


def _missing(package: str) -> str:
    return f'the embedded example needs {package}, which is not installed: pip install "glc_hf[demo]"'
