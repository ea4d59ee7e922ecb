# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Language models with a classification head: pad tokens, padding sides, adapters, and the features of a probe."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import (
    BertForMultipleChoice,
    BertModel,
    Gemma2Config,
    Gemma2ForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    LlamaConfig,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForSequenceClassification,
    Trainer,
    set_seed,
)

from glc_hf import GLCTrainer
from glc_hf.training.probe import FeatureTap
from tests.training.tiny import VOCABULARY, bert_config, config, same_weights, text_rows, weights


PAD, EOS = 0, 1
SIZES = dict(
    vocab_size=VOCABULARY,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=8,
    intermediate_size=32,
    max_position_embeddings=32,
)
FAMILIES = {
    "llama": (LlamaForSequenceClassification, LlamaConfig, SIZES),
    "qwen": (Qwen3ForSequenceClassification, Qwen3Config, SIZES),
    "gemma": (Gemma2ForSequenceClassification, Gemma2Config, SIZES),
    "gpt2": (
        GPT2ForSequenceClassification,
        GPT2Config,
        dict(vocab_size=VOCABULARY, n_embd=16, n_layer=1, n_head=2, n_positions=32),
    ),
}


def decoder(family: str = "llama", pad: int | None = PAD, **settings):
    model_class, config_class, sizes = FAMILIES[family]
    set_seed(0)
    tokens = dict(pad_token_id=pad, bos_token_id=EOS, eos_token_id=EOS)
    return model_class(config_class(**{**sizes, **tokens, "num_labels": 3, **settings}))


def rows(count: int = 24) -> Dataset:
    """Rows of 2 to 6 tokens."""
    data = text_rows(count, trusted=0.5).with_format(None)
    lengths = np.random.default_rng(0).integers(2, 7, size=count)

    def cut(row, number):
        return {name: row[name][: lengths[number]] for name in ("input_ids", "attention_mask")}

    return data.map(cut, with_indices=True)


def tokenizer(pad: bool = True, side: str = "right") -> PreTrainedTokenizerFast:
    from tokenizers import Tokenizer, models

    words = {f"w{number}": number for number in range(VOCABULARY)}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, "w2")),
        padding_side=side,
        eos_token="w1",
        **({"pad_token": "w0"} if pad else {}),
    )


def train(folder, model, *, processing_class="padding", data=None, **settings) -> GLCTrainer:
    settings = {"max_steps": 2, "per_device_train_batch_size": 8, "per_device_eval_batch_size": 8, **settings}
    data = rows() if data is None else data
    processing_class = tokenizer() if processing_class == "padding" else processing_class
    trainer = GLCTrainer(model, config(folder, **settings), train_dataset=data, processing_class=processing_class)
    trainer.train()
    return trainer


# ---------------------------------------------------------------------- pad tokens
@pytest.mark.parametrize(
    ("family", "stage1"), [("llama", "full"), ("qwen", "probe"), ("gemma", "probe"), ("gpt2", "full")]
)
def test_model_gets_the_pad_token_of_the_tokenizer(tmp_path, family, stage1):
    model = decoder(family, pad=None)
    before = weights(model)
    trainer = train(tmp_path, model, stage1=stage1)
    assert model.config.pad_token_id == PAD
    assert trainer.corruption_matrix is not None
    assert not same_weights(before, weights(model))
    trainer.save_model()
    assert type(model).from_pretrained(tmp_path).config.pad_token_id == PAD


def test_batches_without_a_pad_token_raise_before_training(tmp_path):
    def trainer(train_batch, eval_batch, **sets):
        settings = config(tmp_path, per_device_train_batch_size=train_batch, per_device_eval_batch_size=eval_batch)
        return GLCTrainer(
            decoder("gpt2", pad=None), settings, train_dataset=rows(), processing_class=tokenizer(pad=False), **sets
        )

    with pytest.raises(ValueError, match=r"GPT2.* no pad token.*per_device_train_batch_size is 8.*eos_token"):
        trainer(8, 1)
    with pytest.raises(ValueError, match=r"per_device_eval_batch_size is 8.*pad_token_id"):
        trainer(1, 8, eval_dataset=rows())
    assert trainer(1, 8).single_rows
    assert trainer(1, 1, eval_dataset=rows()).single_rows


@pytest.mark.parametrize("stage1", ["full", "probe"])
def test_single_rows_need_no_pad_token(tmp_path, stage1):
    data = rows(12)
    single = train(
        tmp_path,
        decoder(pad=None),
        data=data,
        processing_class=None,
        per_device_train_batch_size=1,
        stage1=stage1,
    )
    padded = train(tmp_path, decoder(), data=data, per_device_train_batch_size=1, stage1=stage1)
    assert single.model.config.pad_token_id is None
    np.testing.assert_allclose(
        single.corruption_matrix.probs, padded.corruption_matrix.probs, atol=1e-4 if stage1 == "full" else 1e-2
    )
    assert len(single.audit(data)) == 12


# ---------------------------------------------------------------------- features of the last token
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("side", ["left", "right"])
def test_features_are_the_state_of_the_last_token(family, side):
    model = decoder(family).eval()
    texts = [[5, 6, 7], [8, 9, 10, 11, 12], [13, 14, EOS]]
    expected = [model.base_model(torch.tensor([text])).last_hidden_state[0, -1] for text in texts]
    batch = tokenizer(side=side).pad({"input_ids": texts}, return_tensors="pt")
    if side == "left":  # as in generation; GPT-2 would count padding as positions
        batch["position_ids"] = (batch["attention_mask"].cumsum(dim=1) - 1).clamp(min=0)
    FeatureTap(model, num_labels=3)
    with torch.no_grad():
        features = model(**batch).logits
    torch.testing.assert_close(features, torch.stack(expected), atol=1e-5, rtol=1e-4)


def test_probe_gives_the_same_matrix_with_left_and_right_padding(tmp_path):
    matrices = []
    for side in ("left", "right"):
        model = decoder(attn_implementation="eager")
        trainer = train(
            tmp_path, model, processing_class=tokenizer(side=side), stage1="probe", refine_matrix=False, max_steps=1
        )
        matrices.append(trainer.corruption_matrix.probs)
    np.testing.assert_allclose(*matrices, atol=1e-3)


# ---------------------------------------------------------------------- adapters and precision
@pytest.mark.parametrize(
    ("family", "dora", "settings"),
    [
        ("llama", False, dict(gradient_checkpointing=True)),
        ("qwen", True, dict(stage1="probe", bf16=True)),
        ("gemma", False, dict(stage1="probe", gradient_checkpointing=True)),
        ("gpt2", True, dict(bf16=True)),
    ],
)
def test_adapters_train_in_every_stage_and_load_again(tmp_path, family, dora, settings):
    peft = pytest.importorskip("peft")
    targets = ["c_attn"] if family == "gpt2" else ["q_proj", "v_proj"]
    lora = peft.LoraConfig(
        task_type="SEQ_CLS", r=2, use_dora=dora, target_modules=targets, modules_to_save=["score"],
        fan_in_fan_out=family == "gpt2",
    )  # fmt: skip
    base = decoder(family)
    frozen = weights(base.base_model)
    model = peft.get_peft_model(base, lora)
    trainer = train(tmp_path, model, **settings)
    assert trainer.corruption_matrix is not None
    trained = weights(model)
    assert all(value.abs().sum() > 0 for name, value in trained.items() if "lora_B" in name)
    for name, value in frozen.items():
        found = [v for n, v in trained.items() if n.replace(".base_layer", "").endswith(name) and "lora" not in n]
        assert any(torch.equal(value, candidate) for candidate in found), name
    trainer.save_model()
    loaded = peft.PeftModel.from_pretrained(decoder(family), tmp_path).eval()
    tokens = torch.tensor([[5, 6, 7], [8, 9, PAD]])
    with torch.no_grad():
        expected, tolerance = trainer.model.eval()(tokens).logits, 1e-2 if "bf16" in settings else 1e-5
        torch.testing.assert_close(loaded(tokens).logits, expected, atol=tolerance, rtol=tolerance)


def test_weights_in_bf16_train(tmp_path):
    model = decoder("qwen").to(torch.bfloat16)
    trainer = train(tmp_path, model, stage1="probe")
    assert model.score.weight.dtype == torch.bfloat16
    assert np.isfinite(trainer.corruption_matrix.probs).all()


# ---------------------------------------------------------------------- models that can't be trained, and choices
@pytest.fixture
def _no_training(monkeypatch):
    def step(*args, **kwargs):
        raise AssertionError("a training step ran")

    monkeypatch.setattr(Trainer, "training_step", step)


@pytest.mark.usefixtures("_no_training")
def test_quantized_model_raises(tmp_path):
    model = decoder()
    model.is_quantized = True
    model.config.quantization_config = SimpleNamespace(quant_method="bitsandbytes")
    with pytest.raises(ValueError, match=r"LlamaFor.* quantized \(bitsandbytes\).*bfloat16.*LoRA"):
        GLCTrainer(model, config(tmp_path), train_dataset=rows())


@pytest.mark.usefixtures("_no_training")
def test_network_without_a_classifier_raises(tmp_path):
    with pytest.raises(ValueError, match=r"BertModel returns hidden states.*AutoModelForSequenceClassification"):
        GLCTrainer(BertModel(bert_config()), config(tmp_path), train_dataset=rows())


def test_model_that_returns_no_logits_raises_with_what_it_returns(tmp_path):
    class NoLogits(torch.nn.Module):
        num_classes = 3

        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(VOCABULARY, 3)

        def forward(self, input_ids, attention_mask=None):
            return {"scores": self.embed(input_ids).mean(dim=1)}

    with pytest.raises(ValueError, match=r"no `logits`, only 'scores'.*return `logits`"):
        train(tmp_path, NoLogits())


def test_multiple_choice_counts_the_choices_of_a_row(tmp_path):
    draw = np.random.default_rng(0)
    data = Dataset.from_dict(
        {
            "input_ids": draw.integers(1, VOCABULARY, size=(24, 4, 5)).tolist(),
            "label": (np.arange(24) % 4).tolist(),
            "trusted": [row < 12 for row in range(24)],
        }
    )
    set_seed(0)
    trainer = train(tmp_path, BertForMultipleChoice(bert_config(num_labels=2)), data=data, stage1="full")
    assert trainer.corruption_matrix.num_labels == 4
    assert set(trainer.audit(data)["suggested_label"]) <= {0, 1, 2, 3}
