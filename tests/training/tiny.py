# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Tiny models and datasets for tests that train: real model classes with random weights, no download."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from datasets import Array3D, ClassLabel, Dataset, Features, Sequence, Value
from tokenizers import Tokenizer, models
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    DataCollatorForTokenClassification,
    PreTrainedTokenizerFast,
    set_seed,
)

from glc_hf import CorruptionMatrix, GLCConfig, corrupt_labels, mark_trusted
from glc_hf.correction import linear
from glc_hf.correction.pool import pool_data, pooling


VOCABULARY = 40


def bert_config(num_labels: int = 3, **overrides: Any) -> BertConfig:
    settings: dict[str, Any] = dict(
        vocab_size=VOCABULARY,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        num_labels=num_labels,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return BertConfig(**{**settings, **overrides})


def bert(num_labels: int = 3, seed: int = 0, **overrides: Any) -> BertForSequenceClassification:
    set_seed(seed)
    return BertForSequenceClassification(bert_config(num_labels, **overrides))


def token_bert(num_labels: int = 3, seed: int = 0) -> BertForTokenClassification:
    set_seed(seed)
    return BertForTokenClassification(bert_config(num_labels))


def text_rows(
    rows: int = 240, num_labels: int = 3, length: int = 6, seed: int = 0, trusted: float | None = 0.2
) -> Dataset:
    """Rows in which each class has its own words among common ones, so that a model learns it within a few steps."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(num_labels, size=rows)
    words = rng.integers(num_labels * 4, VOCABULARY, size=(rows, length))
    for row, label in enumerate(labels):
        words[row, rng.choice(length, size=3, replace=False)] = label * 4 + rng.integers(1, 4, size=3)
    dataset = Dataset.from_dict(
        {"input_ids": words.tolist(), "attention_mask": np.ones_like(words).tolist(), "label": labels.tolist()},
        features=Features(
            {
                "input_ids": Sequence(Value("int64")),
                "attention_mask": Sequence(Value("int64")),
                "label": ClassLabel(names=[f"class {i}" for i in range(num_labels)]),
            }
        ),
    )
    return mark_trusted(dataset, fraction=trusted, seed=seed) if trusted is not None else dataset


def noisy_text_rows(
    rows: int = 240, num_labels: int = 3, strength: float = 0.6, seed: int = 0, trusted: float = 0.2
) -> Dataset:
    clean = text_rows(rows, num_labels, seed=seed, trusted=trusted)
    return corrupt_labels(clean, CorruptionMatrix.flip(num_labels, strength, seed=seed), seed=seed)


def soft_text_rows(rows: int = 120, trusted: float = 0.25) -> tuple[Dataset, np.ndarray]:
    """Rows with soft labels in the column `probs`, most probable in about two of three rows for the true class, and
    their true classes. Only trusted rows have a label."""
    data = text_rows(rows, trusted=trusted)
    true = np.array(data["label"])
    logits = np.random.default_rng(0).normal(scale=1.5, size=(rows, 3))
    logits[np.arange(rows), true] += 1.5
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = [int(label) if flag else None for label, flag in zip(true, data["trusted"], strict=True)]
    return data.remove_columns("label").add_column("probs", probs.tolist()).add_column("label", labels), true


def token_rows(rows: int = 60, num_labels: int = 3, seed: int = 0) -> Dataset:
    """Rows of different lengths. A token's label is its id modulo the number of classes, and -100 at both ends."""
    rng = np.random.default_rng(seed)
    ids = [rng.integers(1, VOCABULARY, size=rng.integers(4, 9)).tolist() for _ in range(rows)]
    labels = [[-100, *[token % num_labels for token in row[1:-1]], -100] for row in ids]
    return Dataset.from_dict({"input_ids": ids, "attention_mask": [[1] * len(row) for row in ids], "labels": labels})


def token_collator() -> DataCollatorForTokenClassification:
    """A collator that pads rows of tokens and their labels."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"x": 0}, "x")), pad_token="x")
    return DataCollatorForTokenClassification(tokenizer)


def pixels(rows: int = 48, size: int = 16, channels: int = 3) -> Dataset:
    """Noisy images in which each class has its own bright region."""
    rng = np.random.default_rng(0)
    labels = np.arange(rows) % 3
    images = rng.normal(0, 0.3, size=(rows, channels, size, size)).astype(np.float32)
    for row, label in enumerate(labels):
        images[row, :, : size // 2, label * size // 3 : (label + 1) * size // 3] += 2
    # Arrays of a known shape are read many times as fast as nested lists.
    features = Features(pixel_values=Array3D(images.shape[1:], "float32"), label=Value("int64"))
    data = Dataset.from_dict({"pixel_values": images, "label": labels.tolist()}, features).with_format("torch")
    return corrupt_labels(mark_trusted(data, fraction=0.5), CorruptionMatrix.flip(3, 0.6))


def config(folder: Any, **settings: Any) -> GLCConfig:
    """The settings of a short run, of `glc` unless they name another method."""
    defaults: dict[str, Any] = dict(
        output_dir=str(folder),
        method="glc",
        per_device_train_batch_size=16,
        per_device_eval_batch_size=64,
        max_steps=4,
        learning_rate=1e-2,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        logging_steps=1,
    )
    return GLCConfig(**{**defaults, **settings})


def weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def same_weights(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@contextmanager
def quick_pool(folder: Path, iterations: int = 15) -> Iterator[None]:
    """Cache features in a separate folder, and fit the linear models of `auto` less often and less exactly."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", folder)
        patch.setattr(pooling, "_PENALTIES", (1e-3,))
        patch.setattr(pool_data, "FOLDS", 2)
        patch.setattr(linear, "_MAX_ITERATIONS", iterations)
        yield
