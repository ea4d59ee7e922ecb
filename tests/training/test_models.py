# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The kinds of model the Trainer works with, each a real class of its library with random weights."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import (
    AutoModelForImageClassification,
    BertForSequenceClassification,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    ViTConfig,
    ViTForImageClassification,
)

from glc_hf import CorruptionMatrix, GLCTrainer, corrupt_labels, mark_trusted
from tests.training.tiny import (
    VOCABULARY,
    bert,
    bert_config,
    config,
    noisy_text_rows,
    same_weights,
    text_rows,
    weights,
)


def pixels(rows: int = 48, size: int = 16, channels: int = 3) -> Dataset:
    """Each class lights up a corner of its own."""
    rng = np.random.default_rng(0)
    labels = np.arange(rows) % 3
    images = rng.normal(0, 0.3, size=(rows, channels, size, size)).astype(np.float32)
    for row, label in enumerate(labels):
        images[row, :, : size // 2, label * size // 3 : (label + 1) * size // 3] += 2
    data = Dataset.from_dict({"pixel_values": images, "label": labels.tolist()}).with_format("torch")
    return corrupt_labels(mark_trusted(data, fraction=0.5), CorruptionMatrix.flip(3, 0.6))


def _trained(model, data, folder, **settings):
    trainer = GLCTrainer(model, config(folder, **settings), train_dataset=data, eval_dataset=data)
    before = weights(trainer.model)
    trainer.train()
    assert not same_weights(before, weights(trainer.model))
    assert trainer.corruption_matrix.num_labels == 3
    assert "eval_accuracy" in trainer.evaluate()
    return trainer


def test_distilbert(tmp_path):
    distilbert = DistilBertForSequenceClassification(
        DistilBertConfig(vocab_size=VOCABULARY, dim=16, n_layers=1, n_heads=2, hidden_dim=32, num_labels=3)
    )
    _trained(distilbert, noisy_text_rows(), tmp_path)


def test_vit(tmp_path):
    vit = ViTForImageClassification(
        ViTConfig(
            image_size=16,
            patch_size=8,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            num_labels=3,
        )
    )
    _trained(vit, pixels(), tmp_path)


def test_a_timm_network_through_its_wrapper_trains_and_comes_back(tmp_path):
    pytest.importorskip("timm")
    from transformers import TimmWrapperConfig, TimmWrapperForImageClassification

    config_ = TimmWrapperConfig(
        architecture="resnet10t", num_labels=3, model_args={"channels": (8, 8, 8, 8), "in_chans": 1}
    )
    trainer = _trained(TimmWrapperForImageClassification(config_), pixels(channels=1), tmp_path)
    trainer.save_model()
    loaded = AutoModelForImageClassification.from_pretrained(tmp_path)
    assert same_weights(weights(loaded), weights(trainer.model))


def test_lora_trains_its_adapters_alone_in_both_stages_and_saves_them(tmp_path):
    peft = pytest.importorskip("peft")
    base = bert()
    frozen = {name: value for name, value in weights(base).items() if "classifier" not in name}
    settings = peft.LoraConfig(
        task_type="SEQ_CLS", r=2, target_modules=["query", "value"], modules_to_save=["classifier"]
    )
    model = peft.get_peft_model(base, settings)
    trainer = GLCTrainer(model, config(tmp_path), train_dataset=noisy_text_rows(), eval_dataset=text_rows(30))
    output = trainer.train()
    assert "stage1_eval_accuracy" in output.metrics
    after = weights(model)
    for name, value in frozen.items():
        kept = [v for n, v in after.items() if n.replace(".base_layer", "").endswith(name)]
        assert any(torch.equal(value, v) for v in kept), name
    adapters = {name: value for name, value in after.items() if "lora_B" in name}
    assert adapters
    assert all(value.abs().sum() > 0 for value in adapters.values())
    trainer.save_model()
    assert (tmp_path / "adapter_model.safetensors").exists()
    assert CorruptionMatrix.from_pretrained(tmp_path) == trainer.corruption_matrix
    again = peft.PeftModel.from_pretrained(bert(), tmp_path)
    rows = torch.tensor(text_rows(8)["input_ids"][:])
    with torch.no_grad():
        torch.testing.assert_close(again.eval()(rows).logits, trainer.model.eval()(rows).logits)


def test_gradient_checkpointing_gives_the_same_weights(tmp_path):
    found = []
    for checkpointing in (False, True):
        trainer = GLCTrainer(
            bert(), config(tmp_path, gradient_checkpointing=checkpointing), train_dataset=noisy_text_rows()
        )
        trainer.train()
        found.append(weights(trainer.model))
    for name, value in found[0].items():
        torch.testing.assert_close(value, found[1][name], atol=1e-6, rtol=0)


def test_a_model_that_returns_tuples(tmp_path):
    _trained(bert(return_dict=False), noisy_text_rows(), tmp_path)


def test_a_compiled_model_trains_the_same_weights_and_is_saved_plain(tmp_path):
    found = []
    for compiled in (False, True):
        # The compiler's front end alone: its code generator takes a minute for a model of this size, too.
        settings = config(tmp_path, torch_compile=compiled, torch_compile_backend="aot_eager" if compiled else None)
        trainer = GLCTrainer(bert(), settings, train_dataset=noisy_text_rows(), eval_dataset=text_rows(30))
        assert "stage1_eval_accuracy" in trainer.train().metrics
        trainer.save_model()
        found.append(weights(BertForSequenceClassification.from_pretrained(tmp_path)))
        assert same_weights(found[-1], weights(trainer.model))
    torch.compiler.reset()
    for name, value in found[0].items():
        torch.testing.assert_close(value, found[1][name], atol=1e-5, rtol=0, msg=name)


def test_a_batch_size_that_does_not_fit_is_halved_in_both_stages(tmp_path):
    class Small(BertForSequenceClassification):
        """Has memory for eight rows."""

        seen: ClassVar[list[int]] = []

        def forward(self, input_ids=None, **kwargs):
            if self.training:
                if len(input_ids) > 8:
                    raise RuntimeError("CUDA out of memory. Tried to allocate")
                self.seen.append(len(input_ids))
            return super().forward(input_ids, **kwargs)

    model = Small(bert_config())
    start = weights(model)
    settings = config(tmp_path, auto_find_batch_size=True, max_steps=3)
    trainer = GLCTrainer(model, settings, train_dataset=noisy_text_rows())
    output = trainer.train()
    assert output.global_step == 3
    assert Small.seen == [8] * 6
    assert trainer.corruption_matrix is not None
    assert not same_weights(start, weights(trainer.model))
