# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The embedded example."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import ClassLabel, Image
from transformers import AutoModelForImageClassification, TimmWrapperImageProcessor, pipeline

from glc_hf.backbones.timm_network import pretrained_name, timm_network
from glc_hf.cli import model as loading
from glc_hf.cli.digits import DIGITS_NAMES, digits_dataset, digits_model

from .conftest import results_in


def test_digits_are_the_same_every_time() -> None:
    one, other = digits_dataset(), digits_dataset()
    assert (len(one["train"]), len(one["test"])) == (1347, 450)
    assert one["train"].features == {"image": Image(), "label": ClassLabel(names=DIGITS_NAMES)}
    assert one["test"]["label"][:] == other["test"]["label"][:]
    picture = np.asarray(one["train"][0]["image"])
    assert picture.shape == (8, 8)
    assert picture.max() == 255


def test_network_is_the_same_after_saving_and_loading(tmp_path: Path) -> None:
    model = digits_model().eval()
    model.save_pretrained(tmp_path)
    loaded = AutoModelForImageClassification.from_pretrained(tmp_path).eval()
    pixels = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        assert torch.equal(model(pixels).logits, loaded(pixels).logits)
    assert loaded.config.id2label == dict(enumerate(DIGITS_NAMES))


def test_network_from_scratch_has_the_initialization_of_timm() -> None:
    # He initialization, fan out: 64 channels × 3 × 3. transformers uses a standard deviation of 0.02.
    convolution = next(
        module
        for module in timm_network("resnet18", ["a", "b"]).modules()
        if isinstance(module, torch.nn.Conv2d) and module.weight.shape == (64, 64, 3, 3)
    )
    assert convolution.weight.std().item() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.02)


def test_unknown_timm_network_raises_with_similar_names() -> None:
    with pytest.raises(ValueError, match="no network 'resnet1818'.*resnet18"):
        timm_network("resnet1818", ["a", "b"])


def test_timm_name_without_tag_means_the_default_weights() -> None:
    assert pretrained_name("timm/resnet18") == "timm/resnet18.a1_in1k"
    assert pretrained_name("timm/resnet18.tv_in1k") == "timm/resnet18.tv_in1k"


@pytest.mark.parametrize(("module", "package"), [("sklearn.datasets", "scikit-learn"), ("timm", "timm")])
def test_missing_package_raises_with_the_install_command(
    glc_hf, monkeypatch: pytest.MonkeyPatch, module: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    outcome = glc_hf("train")
    assert outcome.code == 2
    assert f'{package}, which is not installed: pip install "glc_hf[demo]"' in outcome.complaint


def test_shortened_example_corrects_digits(glc_hf, tmp_path: Path) -> None:
    outcome = glc_hf("train", "--output-dir", tmp_path, "--num-train-epochs", "2", "--seed", "0")
    assert outcome.code == 0, outcome.err
    results = results_in(tmp_path)
    assert (results["train_rows"], results["eval_rows"], results["trusted"]) == (1347, 450, 67)
    assert results["simulated_noise"]["kind"] == "flip"
    assert results["accuracy_after_correction"] > results["accuracy_before_correction"] + 0.3
    assert "accuracy before correction (full training on the noisy labels): " in outcome.out
    digit = digits_dataset()["test"][0]
    answers = pipeline("image-classification", model=str(tmp_path))(digit["image"], top_k=10)
    assert {answer["label"] for answer in answers} == set(DIGITS_NAMES)
    for name in ("model.safetensors", "corruption_matrix.json", "corruption_matrix.png", "results.json"):
        assert (tmp_path / name).stat().st_size > 0
    assert (tmp_path / "stage1").is_dir()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_example_gains_thirty_points_within_three_minutes(glc_hf, tmp_path: Path, seed: int) -> None:
    assert glc_hf("train", "--output-dir", tmp_path, "--seed", seed).code == 0
    results = results_in(tmp_path)
    assert results["accuracy_after_correction"] > results["accuracy_before_correction"] + 0.3
    assert results["seconds"] < 180


def test_pixels_of_an_image_are_computed_once_and_are_those_of_the_processor(monkeypatch) -> None:
    data = digits_dataset()["train"].select(range(12)).cast_column("image", Image(decode=False))
    model = digits_model(DIGITS_NAMES)
    processor = TimmWrapperImageProcessor(model.config.pretrained_cfg, model.config.architecture)
    calls = []

    def counting(images, **kwargs):
        calls.append(len(images))
        return processor(images, **kwargs)

    transformed = data.with_transform(loading._Pixels(counting, "image"))
    decoded = data.cast_column("image", Image())
    for rows in ([0, 1, 1, 2], [2, 0, 3], [0, 1, 2, 3]):
        expected = processor([decoded[row]["image"].convert("RGB") for row in rows], return_tensors="pt")
        assert torch.equal(transformed[rows]["pixel_values"], expected["pixel_values"])
    assert calls == [3, 1]
    # With no more room, images are decoded each time. A copy for another process starts empty.
    monkeypatch.setattr(loading, "_KEPT_PIXELS", expected["pixel_values"][0].nbytes * 2)
    small = pickle.loads(pickle.dumps(loading._Pixels(processor, "image")))
    small.processor = counting
    calls.clear()
    for _ in range(2):
        assert torch.equal(small(data[[0, 1, 2]])["pixel_values"], expected["pixel_values"][:3])
    assert calls == [3, 1]
