# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset


timm = pytest.importorskip("timm")

from transformers import AutoModelForImageClassification, pipeline  # noqa: E402

from glc_hf import CorruptionMatrix, GLCTrainer, corrupt_labels, mark_trusted  # noqa: E402
from glc_hf.backbones.timm_network import timm_network  # noqa: E402
from glc_hf.backbones.wide_resnet import CIFAR_MEAN, CIFAR_STD  # noqa: E402
from tests.training.tiny import config, same_weights, weights  # noqa: E402


SMALL = {"depth": 10, "width": 1}


def _count(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("wide_resnet10_1_cifar", 77_850),
        ("wide_resnet40_2_cifar", 2_243_546),
        ("wide_resnet28_10_cifar", 36_479_194),
        ("wide_resnet16_4_cifar", 2_748_890),
    ],
)
def test_named_networks_have_the_published_numbers_of_parameters(name: str, expected: int) -> None:
    with torch.device("meta"):
        assert _count(timm.create_model(name)) == expected


def test_depth_and_width_can_be_chosen() -> None:
    with torch.device("meta"):
        assert _count(timm.create_model("wide_resnet_cifar", depth=16, width=4)) == 2_748_890
        assert len(timm.create_model("wide_resnet_cifar", depth=22, width=1).layer2) == 3
    with pytest.raises(ValueError, match=r"6n \+ 4 .* got 20"):
        timm.create_model("wide_resnet_cifar", depth=20)
    with pytest.raises(ValueError, match="width, the widening factor, must be at least 1, got 0"):
        timm.create_model("wide_resnet_cifar", depth=10, width=0)


def test_network_implements_the_timm_api() -> None:
    model = timm.create_model("wide_resnet_cifar", **SMALL, num_classes=7, in_chans=1, drop_rate=0.1).eval()
    assert model.pretrained_cfg["mean"] == CIFAR_MEAN
    assert model.pretrained_cfg["std"] == CIFAR_STD
    assert model.pretrained_cfg["input_size"] == (3, 32, 32)
    assert model.layer1[0].dropout.p == 0.1
    images = torch.randn(2, 1, 32, 32)
    features = model.forward_features(images)
    assert features.shape == (2, 64, 8, 8)
    assert model.forward_head(features, pre_logits=True).shape == (2, model.num_features)
    assert torch.equal(model.forward_head(features), model(images))
    assert model.get_classifier().out_features == 7
    model.reset_classifier(3)
    assert model(images).shape == (2, 3)
    model.reset_classifier(0)
    assert model(images).shape == (2, 64)
    assert timm.create_model("wide_resnet_cifar", **SMALL).layer1[0].dropout.p == 0.3


def test_blocks_apply_the_activation_before_the_convolution() -> None:
    block = timm.create_model("wide_resnet_cifar", **SMALL).eval().layer2[0]
    images = torch.randn(2, 16, 32, 32)
    active = torch.relu(block.bn1(images))
    inner = block.conv2(torch.relu(block.bn2(block.conv1(active))))
    torch.testing.assert_close(block(images), inner + block.shortcut(active))
    same = timm.create_model("wide_resnet_cifar", **SMALL).eval().layer1[0]
    assert same.shortcut is None
    torch.nn.init.zeros_(same.conv2.weight)
    assert torch.equal(same(images), images)


def test_wrapper_keeps_timms_initialization_and_can_be_reloaded(tmp_path: Path) -> None:
    torch.manual_seed(3)
    model = timm_network("wide_resnet_cifar", ["a", "b", "c"], **SMALL).eval()
    torch.manual_seed(3)
    again = timm_network("wide_resnet_cifar", ["a", "b", "c"], **SMALL)
    assert same_weights(weights(model), weights(again))
    # He's variance is 2 / (9 · 64); transformers initializes with a standard deviation of 0.02.
    assert model.timm_model.layer3[0].conv1.weight.std().item() == pytest.approx((2 / (9 * 64)) ** 0.5, rel=0.05)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForImageClassification.from_pretrained(tmp_path).eval()
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(loaded(images).logits, model(images).logits)
    classify = pipeline("image-classification", model=str(tmp_path))
    answers = classify(_image(), top_k=3)
    assert {answer["label"] for answer in answers} == {"a", "b", "c"}
    assert classify.image_processor.data_config["mean"] == CIFAR_MEAN
    assert classify.image_processor.data_config["input_size"] == (3, 32, 32)


def _image():
    from PIL import Image

    return Image.fromarray(np.full((32, 32, 3), 200, dtype=np.uint8))


def test_trainer_trains_the_network(tmp_path: Path) -> None:
    images = np.random.default_rng(0).normal(size=(24, 3, 32, 32)).astype(np.float32)
    data = Dataset.from_dict({"pixel_values": images, "label": [row % 3 for row in range(24)]}).with_format("torch")
    noisy = corrupt_labels(mark_trusted(data, fraction=0.5), CorruptionMatrix.uniform(3, 0.5))
    model = timm_network("wide_resnet_cifar", ["a", "b", "c"], **SMALL)
    settings = config(tmp_path, max_steps=2, per_device_train_batch_size=8)
    trainer = GLCTrainer(model, settings, train_dataset=noisy, eval_dataset=data)
    before = weights(trainer.model)
    trainer.train()
    assert not same_weights(before, weights(trainer.model))
    trainer.save_model()
    assert same_weights(weights(AutoModelForImageClassification.from_pretrained(tmp_path)), weights(trainer.model))
