# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Gradient accumulation: 1 batch of 8 rows, 2 of 4 and 8 of 1 give the same loss and weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import (
    DistilBertConfig,
    DistilBertForSequenceClassification,
    TimmWrapperConfig,
    TimmWrapperForImageClassification,
    ViTConfig,
    ViTForImageClassification,
    set_seed,
)

from glc_hf import GLCTrainer
from tests.training.tiny import VOCABULARY, bert, config, noisy_text_rows, pixels, weights


def _distilbert():
    return DistilBertForSequenceClassification(
        DistilBertConfig(
            vocab_size=VOCABULARY, dim=16, n_layers=1, n_heads=2, hidden_dim=32, num_labels=3, dropout=0.0,
            attention_dropout=0.0, seq_classif_dropout=0.0,
        )
    )  # fmt: skip


def _vit():
    return ViTForImageClassification(
        ViTConfig(
            image_size=32, patch_size=16, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=32, num_labels=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )
    )  # fmt: skip


def _timm():
    pytest.importorskip("timm")
    sizes = {"depths": (1, 1, 1, 1), "dims": (8, 8, 8, 8), "patch_size": 4}
    return TimmWrapperForImageClassification(
        TimmWrapperConfig(architecture="convnext_atto", num_labels=3, model_args=sizes)
    )


@pytest.mark.parametrize(
    ("make_model", "make_data", "method"),
    [
        (bert, noisy_text_rows, "glc"),
        (bert, noisy_text_rows, "no_correction"),
        (_distilbert, noisy_text_rows, "glc"),
        (_vit, pixels, "glc"),
        (_timm, pixels, "glc"),
    ],
    ids=["bert", "bert-no_correction", "distilbert", "vit", "timm"],
)
def test_gradient_accumulation_changes_neither_loss_nor_weights(tmp_path, make_model, make_data, method):
    data = make_data(rows=64) if make_data is noisy_text_rows else make_data(rows=64, size=32)
    # Trusted rows (13 or 32 of 64) come first in a sequential order, so batches have different shares of them.
    data = data.select(np.argsort(~np.asarray(data["trusted"]), kind="stable"))
    results = []
    for batch, accumulation in ((8, 1), (4, 2), (1, 8)):
        settings = config(
            tmp_path,
            method=method,
            max_steps=6,
            per_device_train_batch_size=batch,
            gradient_accumulation_steps=accumulation,
            train_sampling_strategy="sequential",
            learning_rate=1e-3,
            # The gradient of a key's bias is zero up to rounding, and with a small epsilon Adam would amplify it.
            adam_epsilon=1e-6,
        )
        set_seed(0)
        model = make_model()
        assert not any(isinstance(module, torch.nn.modules.batchnorm._BatchNorm) for module in model.modules())
        trainer = GLCTrainer(model, settings, train_dataset=data)
        before = weights(trainer.model)
        metrics = trainer.train().metrics
        results.append((metrics["train_loss"], metrics.get("stage1_train_loss", 0.0), weights(trainer.model)))
    assert max((results[0][2][name] - value).abs().max() for name, value in before.items()) > 1e-3
    for loss, stage1_loss, trained in results[1:]:
        assert loss == pytest.approx(results[0][0], abs=1e-6)
        assert stage1_loss == pytest.approx(results[0][1], abs=1e-6)
        for name, value in trained.items():
            torch.testing.assert_close(value, results[0][2][name], atol=1e-6, rtol=0, msg=name)
