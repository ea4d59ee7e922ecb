# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The embedded example of `glc-hf train`: the digits of scikit-learn, a small network for them, and its settings."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from datasets import DatasetDict
    from transformers import PreTrainedModel


DIGITS_NAMES = [str(digit) for digit in range(10)]
# Options of `glc-hf train` that the example sets; options given by the user override them.
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
# The smallest residual network that timm registers. The 8×8 images are enlarged for it.
DIGITS_ARCHITECTURE = "test_resnet"
DIGITS_IMAGE_SIZE = 16


def digits_dataset() -> DatasetDict:
    """
    Load the 1,797 handwritten digits that ship with scikit-learn, as gray 8×8 images.

    Returns:
        `DatasetDict`: `train` (1,347 rows) and `test` (450 rows), always the same split, with the columns `image`
        (`Image`) and `label` (`ClassLabel`).
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError(
            'the embedded example needs scikit-learn, which is not installed: pip install "glc_hf[demo]"'
        ) from error
    import numpy as np
    from datasets import ClassLabel, Dataset, Features, Image
    from PIL import Image as Picture

    digits = load_digits()
    pixels = np.minimum(digits.images * 16, 255).astype(np.uint8)  # scikit-learn's values go from 0 to 16
    rows = {"image": [Picture.fromarray(image) for image in pixels], "label": digits.target.tolist()}
    features = Features({"image": Image(), "label": ClassLabel(names=DIGITS_NAMES)})
    return Dataset.from_dict(rows, features=features).train_test_split(0.25, seed=0)


def digits_model(label_names: list[str] | None = None) -> PreTrainedModel:
    """
    Create a small timm network with random weights, wrapped in `TimmWrapperForImageClassification`.

    Args:
        label_names (`list[str]`, *optional*): Class names, by default the ten digits.
    """
    from glc_hf.backbones.timm_network import timm_network

    return timm_network(DIGITS_ARCHITECTURE, label_names or DIGITS_NAMES, DIGITS_IMAGE_SIZE)


def use_one_thread() -> None:
    """Limit torch to one thread unless `OMP_NUM_THREADS` is set: the network is too small to gain from more."""
    if "OMP_NUM_THREADS" not in os.environ:
        import torch

        torch.set_num_threads(1)
