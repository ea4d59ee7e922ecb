# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Presets, on real data if it is available, and on made-up data laid out as on the Hub."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import ClassLabel, Dataset, Features, Image, List, Value
from PIL import Image as Picture

from glc_hf import CorruptionMatrix, GLCConfig, GLCTrainer, corrupt_labels, mark_trusted
from glc_hf.experiments.curves import paper_presets, printed_percents
from glc_hf.experiments.presets import available_presets, get_preset
from glc_hf.experiments.presets.base import PreparedData, Preset
from glc_hf.experiments.presets.clothing1m import LABEL_NAMES
from glc_hf.experiments.presets.images import SUPERCLASSES, SmallImages
from tests.training.tiny import same_weights, weights


NAMES = [
    "cifar10", "cifar10-features", "cifar100", "cifar100-features", "clothing1m", "imdb", "mnist", "mnist_text", "sst",
    "svhn", "twitter",
]  # fmt: skip


def write(folder: Path, splits: dict[str, dict[str, list]], features: dict[str, Any]) -> None:
    folder.mkdir(parents=True)
    for split, rows in splits.items():
        Dataset.from_dict(rows, features=Features(features)).to_parquet(folder / f"{split}-00000-of-00001.parquet")


def pictures(rows: int, size: int, mode: str = "RGB") -> list[Any]:
    shape = (rows, size, size, 3) if mode == "RGB" else (rows, size, size)
    pixels = np.random.default_rng(0).integers(256, size=shape, dtype=np.uint8)
    return [Picture.fromarray(image) for image in pixels]


def image_rows(column: str, size: int, mode: str = "RGB", rows: int = 20, label: str = "label") -> dict[str, list]:
    return {column: pictures(rows, size, mode), label: [row % 10 for row in range(rows)]}


def digits() -> ClassLabel:
    return ClassLabel(names=[str(digit) for digit in range(10)])


def test_presets_are_found_by_name() -> None:
    assert available_presets() == NAMES
    for name in NAMES:
        assert get_preset(name).name == name


def test_unknown_name_lists_the_presets() -> None:
    with pytest.raises(ValueError, match="unknown preset 'minst'; choose one of cifar10, .*mnist, "):
        get_preset("minst")


def test_package_is_imported_without_torch() -> None:
    script = "import sys, glc_hf, glc_hf.experiments.presets; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize("name", NAMES)
def test_settings_give_a_config_with_the_natural_share_of_trusted_rows(name: str, tmp_path: Path) -> None:
    preset = get_preset(name)
    config = GLCConfig(output_dir=str(tmp_path), report_to="none", use_cpu=True, **preset.settings())
    assert config.learning_rate == preset.learning_rate
    assert config.trusted_share == (0.15 if name == "clothing1m" else 0.0)
    assert config.max_grad_norm == 0.0
    if name in paper_presets():
        assert {*preset.trusted, *preset.trusted_with("weak")} <= set(printed_percents(name))
    optimizer_class, options = preset.optimizer()
    network = torch.nn.Linear(2, 2)
    optimizer = optimizer_class(network.parameters(), **options)
    assert optimizer.param_groups[0]["lr"] == preset.learning_rate


def test_clothing1m_continues_the_first_stage_with_its_first_layers_frozen() -> None:
    settings = get_preset("clothing1m").settings()
    assert settings["stage2_start"] == "continue"
    preset = get_preset("clothing1m", from_scratch=True)
    model = preset.make_model(PreparedData(None, None, LABEL_NAMES), seed=0)
    for prefix in settings["freeze"]:
        assert any(name.startswith(prefix) for name, _ in model.named_parameters())
    frozen = [
        name
        for name, parameter in model.named_parameters()
        if name.startswith(tuple(settings["freeze"])) and parameter.dim() == 4
    ]
    assert len(frozen) == 7
    assert "freeze" not in get_preset("clothing1m", architecture="resnext50_32x4d").settings()


def test_weight_decay_is_on_the_layers_of_the_paper() -> None:
    sst, twitter, mnist = get_preset("sst"), get_preset("twitter"), get_preset("mnist")
    assert [sst.decays(name) for name in ("embeddings.weight", "classifier.weight", "classifier.bias")] == [
        False,
        True,
        True,
    ]
    assert [twitter.decays(name) for name in ("layers.0.weight", "classifier.weight")] == [True, False]
    assert all(mnist.decays(name) for name in ("layers.0.weight", "classifier.bias"))
    assert (sst.weight_decay, twitter.weight_decay, mnist.weight_decay) == (1e-5, 5e-5, 1e-6)


def check_model(preset: Preset, data: PreparedData) -> None:
    state = torch.random.get_rng_state()
    model = preset.make_model(data, seed=1)
    assert same_weights(weights(model), weights(preset.make_model(data, seed=1)))
    assert not same_weights(weights(model), weights(preset.make_model(data, seed=2)))
    assert torch.equal(state, torch.random.get_rng_state())
    assert model.config.num_labels == preset.num_labels
    assert [model.config.id2label[label] for label in range(preset.num_labels)] == data.label_names


def check_tensors(preset: Preset, data: PreparedData) -> None:
    """Whole tensors have the values of the rows, and the model accepts them."""
    inputs, labels = preset.tensors(data.test)
    assert labels.shape == (len(data.test),)
    assert labels.dtype == torch.int64
    for name, values in inputs.items():
        assert torch.equal(values[3], data.test[3][name])
    label = data.test[3][preset.prepared_label_column]
    assert labels[3] == (label if label.dim() == 0 else label[1])
    logits = preset.make_model(data, seed=0)(**inputs).logits
    assert logits.shape == (len(data.test), *label.shape, preset.num_labels)


def check_training(preset: Preset, data: PreparedData, folder: Path) -> None:
    data_train = mark_trusted(data.train, fraction=0.5, label_column=preset.prepared_label_column)
    noisy = corrupt_labels(
        data_train, CorruptionMatrix.uniform(preset.num_labels, 0.3), label_column=preset.prepared_label_column
    )
    settings = {**preset.settings(), "max_steps": 1, "per_device_train_batch_size": 4, "missing_classes": "uniform"}
    config = GLCConfig(
        output_dir=str(folder), report_to="none", use_cpu=True, save_strategy="no", disable_tqdm=True, **settings
    )
    trainer = GLCTrainer(
        preset.make_model(data, seed=0),
        config,
        train_dataset=noisy,
        eval_dataset=data.test,
        data_collator=data.data_collator,
        processing_class=data.processing_class,
        optimizer_cls_and_kwargs=preset.optimizer(),
    )
    trainer.train()
    assert trainer.corruption_matrix.num_labels == preset.num_labels
    assert 0 <= trainer.evaluate()["eval_accuracy"] <= 1
    trainer.save_model()


@pytest.mark.filterwarnings("ignore:.*no trusted.*")
@pytest.mark.parametrize("name", ["mnist", "sst", "twitter", "imdb"])
def test_real_data_is_prepared_and_trains(name: str, shared_data: Path, tmp_path: Path) -> None:
    preset = get_preset(name)
    data = preset.prepare(str(shared_data), limit=40)
    assert preset.dataset in data.reduced
    assert len(data.label_names) == preset.num_labels
    check_model(preset, data)
    if preset.stacks:
        check_tensors(preset, data)
    check_training(preset, data, tmp_path)
    assert (tmp_path / "tokenizer.json").exists() == (name != "mnist")


def test_mnist_pixels_are_between_0_and_1(shared_data: Path) -> None:
    data = get_preset("mnist").prepare(str(shared_data), limit=50)
    pixels = data.train[:]["pixel_values"]
    assert pixels.shape == (50, 1, 28, 28)
    assert pixels.dtype == torch.float32
    assert pixels.min() == 0
    assert pixels.max() == 1
    assert get_preset("mnist").make_model(data, 0).config.hidden_sizes == [128, 128]
    assert get_preset("mnist_text").make_model(data, 0).config.hidden_sizes == [256]


def test_every_word_of_a_tweet_is_a_row_between_its_neighbors(shared_data: Path) -> None:
    preset = get_preset("twitter")
    data = preset.prepare(str(shared_data))
    assert (len(data.train), len(data.test), data.reduced) == (19_442, 7_152, None)
    words = Dataset.from_parquet(str(next((shared_data / "ark-tweets" / "pos").glob("train*"))), columns=None)[0]
    rows = data.train[: len(words["tokens"])]
    vocabulary = data.processing_class.get_vocab()
    ids = [vocabulary.get(word.lower(), 1) for word in words["tokens"]]
    assert rows["input_ids"][:, 1].tolist() == ids
    assert rows["input_ids"][:, 0].tolist() == [0, *ids[:-1]]
    assert rows["input_ids"][:, 2].tolist() == [*ids[1:], 0]
    assert rows["labels"].tolist() == [[-100, tag, -100] for tag in words["pos_tags"]]
    assert torch.equal(preset.make_model(data, 0).word_vectors, data.word_vectors)


def test_sst_trains_on_phrases_without_stop_words(shared_data: Path) -> None:
    preset = get_preset("sst")
    splits, _ = preset.load(str(shared_data))
    assert sum(len(splits[name]) for name in preset.train_splits) == 68_221
    data = preset.prepare(str(shared_data), limit=500)
    assert data.train[0]["input_ids"].shape == (30,)
    vocabulary = data.processing_class.get_vocab()
    assert not {"the", "a", "is", "not", "t", ",", "n't"} & set(vocabulary)
    assert "n" in vocabulary
    assert preset.make_model(data, 0).config.divide_by == 30


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_subset_is_used_and_reported(name: str, shared_data: Path) -> None:
    preset = get_preset(name)
    data = preset.prepare(str(shared_data))
    assert data.reduced == f"{preset.dataset}-subset: 10,000 rows to train on and 2,000 to test"
    row = data.test[0]
    assert set(row) == {"pixel_values", "label"}
    assert row["pixel_values"].shape == (3, 32, 32)
    assert torch.equal(row["pixel_values"], data.test[0]["pixel_values"])
    assert any(not torch.equal(data.train[0]["pixel_values"], data.train[0]["pixel_values"]) for _ in range(5))
    if name == "cifar100":
        splits, _ = preset.load(str(shared_data))
        pairs = set(zip(splits["train"]["fine_label"], splits["train"]["coarse_label"], strict=True))
        assert pairs == set(enumerate(data.groups))
        assert list(SUPERCLASSES) == splits["train"].features["coarse_label"].names


@pytest.mark.filterwarnings("ignore:.*no trusted.*")
def test_svhn_is_read_from_the_folder_of_its_configuration(tmp_path: Path) -> None:
    rows = image_rows("image", 32)
    folder = tmp_path / "data" / "ufldl-stanford" / "svhn" / "cropped_digits"
    write(folder, {"train": rows, "test": rows}, {"image": Image(), "label": digits()})
    preset = get_preset("svhn")
    data = preset.prepare(str(tmp_path / "data"))
    assert data.reduced is None
    assert preset.make_model(data, 0).config.architecture == "wide_resnet16_4_cifar"
    assert not data.train.format["format_kwargs"]["transform"].mirror


@pytest.mark.filterwarnings("ignore:.*no trusted.*")
def test_small_color_images_train(tmp_path: Path) -> None:
    rows = image_rows("img", 32)
    write(tmp_path / "uoft-cs" / "cifar10", {"train": rows, "test": rows}, {"img": Image(), "label": digits()})
    assert get_preset("cifar10").prepare(str(tmp_path)).reduced is None
    preset = get_preset("cifar10", architecture="wide_resnet10_1_cifar")
    data = preset.prepare(str(tmp_path))
    assert data.reduced == "network wide_resnet10_1_cifar"
    check_model(preset, data)
    check_training(preset, data, tmp_path / "out")


def test_crops_and_flips_only_move_pixels() -> None:
    image = np.arange(4 * 4 * 3, dtype=np.uint8).reshape(4, 4, 3)
    rows = {"img": [Picture.fromarray(image)] * 200, "label": [0] * 200, "clean_label": [1] * 200}
    still = SmallImages("img", (0, 0, 0), (1, 1, 1))(rows)
    assert set(still) == {"pixel_values", "label"}
    expected = torch.from_numpy(image).permute(2, 0, 1) / 255
    torch.testing.assert_close(still["pixel_values"][0], expected)
    torch.manual_seed(0)
    mirrored = SmallImages("img", (0, 0, 0), (1, 1, 1), mirror=True)(rows)["pixel_values"]
    turned = sum(torch.allclose(pixels, expected.flip(2)) for pixels in mirrored)
    assert turned + sum(torch.allclose(pixels, expected) for pixels in mirrored) == 200
    assert 60 < turned < 140
    cropped = SmallImages("img", (0, 0, 0), (1, 1, 1), padding=1)(rows)["pixel_values"]
    around = torch.nn.functional.pad(expected, (1, 1, 1, 1))
    places = [around[:, top : top + 4, left : left + 4] for top in range(3) for left in range(3)]
    hits = [sum(torch.allclose(pixels, place) for pixels in cropped) for place in places]
    assert sum(hits) == 200
    assert min(hits) > 0


def _clothing(root: Path, annotations: bool) -> Path:
    folder = root / "annotations" if annotations else root
    (root / "images").mkdir(parents=True)
    folder.mkdir(exist_ok=True)
    keys = [f"images/{number}, {number}.jpg" for number in range(12)]
    for key, picture in zip(keys, pictures(12, 40), strict=True):
        picture.save(root / key)
    labels = [f"{key} {number % 14}\n" for number, key in enumerate(keys)]
    lists = {"noisy_train": keys[:6], "clean_train": keys[6:10], "clean_test": keys[10:]}
    for name, chosen in lists.items():
        (folder / f"{name}_key_list.txt").write_text("\n".join(chosen))
    (folder / "noisy_label_kv.txt").write_text("".join(labels[:6]))
    (folder / "clean_label_kv.txt").write_text("".join(labels[6:]))
    return root


@pytest.mark.parametrize("annotations", [False, True])
def test_clothing1m_is_read_from_its_authors_lists(annotations: bool, tmp_path: Path) -> None:
    root = _clothing(tmp_path / "clothing1m", annotations)
    data = get_preset("clothing1m", path=root, trusted_rows=3).prepare()
    flags = data.train.with_format(None)["trusted"][:]
    assert flags == [False] * 6 + [True] * 3
    assert data.train[0]["pixel_values"].shape == (3, 224, 224)
    assert (len(data.test), data.test[1]["label"]) == (2, 11)
    assert len(get_preset("clothing1m").prepare(str(tmp_path)).train) == 10


def test_clothing1m_without_its_files_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="not on the Hub.*path='./clothing1m'"):
        get_preset("clothing1m").prepare()
    with pytest.raises(FileNotFoundError, match="no noisy_label_kv.txt in"):
        get_preset("clothing1m", path=tmp_path).prepare()
    root = _clothing(tmp_path / "clothing1m", False)
    with pytest.raises(ValueError, match="trusted_rows must be in 1…4, got 5"):
        get_preset("clothing1m", path=root, trusted_rows=5).prepare()
    (root / "noisy_label_kv.txt").write_text("other.jpg 3\n")
    with pytest.raises(ValueError, match="which has no label in noisy_label_kv.txt"):
        get_preset("clothing1m", path=root).prepare()


def test_unreachable_weights_are_named() -> None:
    with pytest.raises(OSError, match="'timm/resnet34.a1_in1k' can't be reached.*from_scratch=True"):
        get_preset("clothing1m").make_model(PreparedData(None, None, LABEL_NAMES), seed=0)


def test_unreachable_dataset_is_named_with_the_fix(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="'ylecun/mnist' can't be reached on the Hub.*data_root='./data'"):
        get_preset("mnist").prepare()
    with pytest.raises(FileNotFoundError, match="there is no folder .*stanfordnlp/sst2 for the dataset"):
        get_preset("sst").prepare(str(tmp_path))


def test_wrong_columns_splits_and_classes_are_rejected(tmp_path: Path) -> None:
    rows = image_rows("picture", 28, "L", rows=10)
    features = {"picture": Image(), "label": digits()}
    write(tmp_path / "columns" / "ylecun" / "mnist", {"train": rows, "test": rows}, features)
    with pytest.raises(ValueError, match="split 'train' .* has no column image .it has picture, label"):
        get_preset("mnist").prepare(str(tmp_path / "columns"))
    write(tmp_path / "splits" / "ylecun" / "mnist", {"train": rows}, features)
    with pytest.raises(ValueError, match="needs the splits train, test; ylecun/mnist here has train"):
        get_preset("mnist").prepare(str(tmp_path / "splits"))
    texts = {"sentence": ["a", "b", "c"], "label": [0, 1, 2]}
    features = {"sentence": Value("string"), "label": ClassLabel(names=["-", "0", "+"])}
    write(tmp_path / "stanfordnlp" / "sst2", dict.fromkeys(("train", "validation", "test"), texts), features)
    with pytest.raises(ValueError, match="for 2 classes; column 'label' of split 'train' has 3: -, 0, \\+"):
        get_preset("sst").prepare(str(tmp_path))
    with pytest.raises(ValueError, match="limit must be at least 1, got 0"):
        get_preset("sst").prepare(str(tmp_path), limit=0)


def test_images_of_another_size_are_rejected(tmp_path: Path) -> None:
    rows = image_rows("image", 20, "L", rows=10)
    write(tmp_path / "ylecun" / "mnist", {"train": rows, "test": rows}, {"image": Image(), "label": digits()})
    with pytest.raises(ValueError, match="image 0 is 20×20 pixels, not 28×28"):
        get_preset("mnist").prepare(str(tmp_path))


def test_twitter_without_word_vectors_raises(tmp_path: Path) -> None:
    names = [f"tag {number}" for number in range(25)]
    rows = {"tokens": [["Hi", "you"]], "pos_tags": [[3, 1]]}
    features = {"tokens": List(Value("string")), "pos_tags": List(ClassLabel(names=names))}
    more = {"tokens": [["once", "You"]], "pos_tags": [[3, 1]]}
    write(tmp_path / "ark-tweets" / "pos", {"train": rows, "validation": more, "test": rows}, features)
    with pytest.raises(FileNotFoundError, match="needs word vectors.*vectors='glove.6B.50d.txt'"):
        get_preset("twitter").prepare(str(tmp_path))
    (tmp_path / "vectors.txt").write_text("hi 1 2 3\n")
    data = get_preset("twitter", vectors=tmp_path / "vectors.txt").prepare(str(tmp_path))
    # "you" has no vector in the file, but is there twice; "once" is not.
    assert data.train[:]["input_ids"].tolist() == [[0, 2, 3], [2, 3, 0], [0, 1, 3], [1, 3, 0]]
    assert data.word_vectors.shape == (4, 3)


def test_unregistered_preset_has_the_name_of_its_class() -> None:
    class Tickets(Preset):
        pass

    assert Tickets.name == "tickets"
    assert get_preset("mnist").name == "mnist"
