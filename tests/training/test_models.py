# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Model classes and training modes that `GLCTrainer` supports."""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch
from transformers import (
    AutoModelForImageClassification,
    BertForSequenceClassification,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    ViTConfig,
    ViTForImageClassification,
    set_seed,
)

from glc_hf import CorruptionMatrix, GLCTrainer
from tests.training.tiny import (
    VOCABULARY,
    bert,
    bert_config,
    config,
    noisy_text_rows,
    pixels,
    same_weights,
    text_rows,
    weights,
)


def _train_and_check(model, data, folder, **settings):
    trainer = GLCTrainer(model, config(folder, **settings), train_dataset=data, eval_dataset=data)
    before = weights(trainer.model)
    trainer.train()
    assert not same_weights(before, weights(trainer.model))
    assert trainer.corruption_matrix.num_labels == 3
    assert "eval_accuracy" in trainer.evaluate()
    return trainer


def test_distilbert_trains(tmp_path):
    distilbert = DistilBertForSequenceClassification(
        DistilBertConfig(vocab_size=VOCABULARY, dim=16, n_layers=1, n_heads=2, hidden_dim=32, num_labels=3)
    )
    _train_and_check(distilbert, noisy_text_rows(), tmp_path)


def test_vit_trains(tmp_path):
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
    _train_and_check(vit, pixels(), tmp_path)


def test_timm_wrapper_trains_saves_and_loads(tmp_path):
    pytest.importorskip("timm")
    from transformers import TimmWrapperConfig, TimmWrapperForImageClassification

    timm_config = TimmWrapperConfig(
        architecture="resnet10t", num_labels=3, model_args={"channels": (8, 8, 8, 8), "in_chans": 1}
    )
    trainer = _train_and_check(TimmWrapperForImageClassification(timm_config), pixels(channels=1), tmp_path)
    trainer.save_model()
    loaded = AutoModelForImageClassification.from_pretrained(tmp_path)
    assert same_weights(weights(loaded), weights(trainer.model))


def test_lora_trains_and_saves_only_its_adapters_and_classifier(tmp_path):
    peft = pytest.importorskip("peft")
    base = bert()
    frozen = {name: value for name, value in weights(base).items() if "classifier" not in name}
    lora = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"], modules_to_save=["classifier"])
    model = peft.get_peft_model(base, lora)
    trainer = GLCTrainer(model, config(tmp_path), train_dataset=noisy_text_rows(), eval_dataset=text_rows(30))
    output = trainer.train()
    assert "stage1_eval_accuracy" in output.metrics
    after = weights(model)
    for name, value in frozen.items():
        candidates = [v for n, v in after.items() if n.replace(".base_layer", "").endswith(name)]
        assert any(torch.equal(value, candidate) for candidate in candidates), name
    adapters = {name: value for name, value in after.items() if "lora_B" in name}
    assert adapters
    assert all(value.abs().sum() > 0 for value in adapters.values())
    trainer.save_model()
    assert (tmp_path / "adapter_model.safetensors").exists()
    assert CorruptionMatrix.from_pretrained(tmp_path) == trainer.corruption_matrix
    loaded = peft.PeftModel.from_pretrained(bert(), tmp_path)
    rows = torch.tensor(text_rows(8)["input_ids"][:])
    with torch.no_grad():
        torch.testing.assert_close(loaded.eval()(rows).logits, trainer.model.eval()(rows).logits)


def test_gradient_checkpointing_gives_the_same_weights(tmp_path):
    trained = []
    for checkpointing in (False, True):
        trainer = GLCTrainer(
            bert(), config(tmp_path, gradient_checkpointing=checkpointing), train_dataset=noisy_text_rows()
        )
        trainer.train()
        trained.append(weights(trainer.model))
    for name, value in trained[0].items():
        torch.testing.assert_close(value, trained[1][name], atol=1e-6, rtol=0)


def test_model_that_returns_tuples_trains(tmp_path):
    _train_and_check(bert(return_dict=False), noisy_text_rows(), tmp_path)


def test_logits_with_an_extra_dimension_of_one_train_and_evaluate(tmp_path):
    class OneClip(BertForSequenceClassification):
        """Returns logits of shape `(B, 1, K)`, as VideoPrism does."""

        def forward(self, input_ids, attention_mask=None):
            outputs = super().forward(input_ids, attention_mask)
            outputs["logits"] = outputs.logits.unsqueeze(1)
            return outputs

    data, results = noisy_text_rows(), []
    for model_class in (OneClip, BertForSequenceClassification):
        set_seed(0)
        trainer = _train_and_check(model_class(bert_config()), data, tmp_path)
        results.append((trainer.evaluate()["eval_accuracy"], trainer.corruption_matrix))
    assert results[0] == results[1]


def test_compiled_model_gives_the_same_weights_and_is_saved_uncompiled(tmp_path):
    saved = []
    for compiled in (False, True):
        # Without code generation, which takes a minute even for a model of this size.
        settings = config(tmp_path, torch_compile=compiled, torch_compile_backend="aot_eager" if compiled else None)
        trainer = GLCTrainer(bert(), settings, train_dataset=noisy_text_rows(), eval_dataset=text_rows(30))
        assert "stage1_eval_accuracy" in trainer.train().metrics
        trainer.save_model()
        saved.append(weights(BertForSequenceClassification.from_pretrained(tmp_path)))
        assert same_weights(saved[-1], weights(trainer.model))
    torch.compiler.reset()
    for name, value in saved[0].items():
        torch.testing.assert_close(value, saved[1][name], atol=1e-5, rtol=0, msg=name)


def test_auto_find_batch_size_halves_the_batch_in_both_stages(tmp_path):
    class LimitedMemory(BertForSequenceClassification):
        """Runs out of memory in training with more than 8 rows."""

        batch_sizes: ClassVar[list[int]] = []

        def forward(self, input_ids=None, **kwargs):
            if self.training:
                if len(input_ids) > 8:
                    raise RuntimeError("CUDA out of memory. Tried to allocate")
                self.batch_sizes.append(len(input_ids))
            return super().forward(input_ids, **kwargs)

    model = LimitedMemory(bert_config())
    start = weights(model)
    settings = config(tmp_path, auto_find_batch_size=True, max_steps=3)
    trainer = GLCTrainer(model, settings, train_dataset=noisy_text_rows())
    output = trainer.train()
    assert output.global_step == 3
    assert LimitedMemory.batch_sizes == [8] * 6
    assert trainer.corruption_matrix is not None
    assert not same_weights(start, weights(trainer.model))
