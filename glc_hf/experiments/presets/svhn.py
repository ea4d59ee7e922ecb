# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""SVHN with a wide residual network."""

from __future__ import annotations

from typing import ClassVar

from glc_hf.experiments.preset import register
from glc_hf.experiments.presets.images import WideResNetPreset


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
