# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""All small networks: saving and loading, losses, initialization, training."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from datasets import Dataset
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedConfig

from glc_hf import CorruptionMatrix, GLCTrainer, corrupt_labels, mark_trusted
from glc_hf.backbones import ImageMLPConfig, ImageMLPForImageClassification, LSTMConfig, WordAverageConfig
from tests.backbones.networks import MODELS, inputs, labels, make
from tests.forked_python import python
from tests.training.tiny import config, same_weights, weights


every_model = pytest.mark.parametrize("name", MODELS)


@every_model
def test_auto_class_loads_the_saved_model(name: str, tmp_path: Path) -> None:
    auto_class, model_class, _ = MODELS[name]
    model = make(name).eval()
    model.save_pretrained(tmp_path)
    loaded = auto_class.from_pretrained(tmp_path).eval()
    assert type(loaded) is model_class
    assert AutoConfig.from_pretrained(tmp_path).model_type == name
    assert same_weights(weights(model), weights(loaded))
    assert torch.equal(model(**inputs(name)).logits, loaded(**inputs(name)).logits)
    trained = [parameter.requires_grad for parameter in model.parameters()]
    assert [parameter.requires_grad for parameter in loaded.parameters()] == trained


def test_saved_model_loads_in_a_new_process(tmp_path: Path) -> None:
    model = make("glc_word_average").eval()
    model.save_pretrained(tmp_path)
    script = (
        "import sys, torch, glc_hf.backbones\n"
        "from transformers import AutoModelForSequenceClassification\n"
        "model = AutoModelForSequenceClassification.from_pretrained(sys.argv[1]).eval()\n"
        "print(model(torch.tensor([[1, 2, 3]])).logits.tolist())\n"
    )
    result = subprocess.run([python(), "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    logits = model(torch.tensor([[1, 2, 3]])).logits
    torch.testing.assert_close(torch.tensor(eval(result.stdout.strip().splitlines()[-1])), logits)


@every_model
def test_labels_are_optional_and_give_a_loss(name: str) -> None:
    model = make(name).eval()
    assert model(**inputs(name)).loss is None
    output = model(**inputs(name), labels=labels(name))
    expected = F.cross_entropy(output.logits.reshape(-1, 3), labels(name).reshape(-1), ignore_index=-100)
    torch.testing.assert_close(output.loss, expected)
    assert output.logits.shape == (*labels(name).shape, 3)
    loss, logits = model(**inputs(name), labels=labels(name), return_dict=False)
    assert torch.equal(loss, output.loss)
    assert torch.equal(logits, output.logits)


@every_model
def test_same_seed_gives_the_same_initial_weights(name: str) -> None:
    assert same_weights(weights(make(name, 1)), weights(make(name, 1)))
    assert not same_weights(weights(make(name, 1)), weights(make(name, 2)))


def test_layers_use_the_default_initialization_of_torch() -> None:
    torch.manual_seed(0)
    model = ImageMLPForImageClassification(ImageMLPConfig(hidden_sizes=[128, 128], num_labels=10))
    for layer in (*model.layers, model.classifier):
        bound = layer.in_features**-0.5
        # Uniform in ±bound, also for biases; transformers would use normal weights and zero biases.
        assert layer.weight.abs().max() <= bound
        assert layer.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.1)
        assert layer.bias.abs().max() > bound / 10


@pytest.mark.parametrize("model_config", [WordAverageConfig(), LSTMConfig()], ids=lambda config: config.model_type)
def test_word_vectors_start_small(model_config: PreTrainedConfig) -> None:
    model = AutoModelForSequenceClassification.from_config(model_config)
    bound = (6 / (model_config.vocab_size + model_config.embedding_size)) ** 0.5
    assert 0.99 * bound < model.embeddings.weight.abs().max() <= bound
    assert model.embeddings.weight[0].abs().max() == 0


def test_word_average_classifier_starts_with_variance_one_over_dimensions() -> None:
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_config(WordAverageConfig())
    assert model.classifier.weight.std().item() == pytest.approx(0.1, rel=0.15)
    assert model.classifier.bias.abs().max() == 0


def test_lstm_forget_gate_bias_starts_at_one() -> None:
    lstm = AutoModelForSequenceClassification.from_config(LSTMConfig(hidden_size=8)).lstm
    together = lstm.bias_ih_l0 + lstm.bias_hh_l0
    assert (together[8:16] == 1).all()
    other_gates = torch.cat([together[:8], together[16:]])
    assert 0 < other_gates.abs().max() <= 2 * 8**-0.5


def test_weights_in_a_checkpoint_are_not_reinitialized(tmp_path: Path) -> None:
    saved = AutoModelForSequenceClassification.from_config(LSTMConfig(num_labels=2))
    state = {name: torch.full_like(value, 3.0) for name, value in saved.state_dict().items()}
    missing = {"lstm.weight_hh_l0", "classifier.weight", "classifier.bias"}
    saved.save_pretrained(tmp_path, state_dict={name: value for name, value in state.items() if name not in missing})
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path, num_labels=5).state_dict()
    assert {name for name, value in loaded.items() if not (value == 3).all()} == missing
    assert all(loaded[name].abs().max() < 1 for name in missing)


# torch has no batching rule for its LSTM.
@pytest.mark.parametrize("name", ["glc_mlp", "glc_word_average", "glc_window_tagger"])
def test_stacked_weights_give_the_logits_of_each_network(name: str) -> None:
    models = [make(name, seed).eval() for seed in range(3)]
    parameters, buffers = torch.func.stack_module_state(models)
    base, rows = make(name).eval(), inputs(name)

    def logits(parameters: dict, buffers: dict) -> torch.Tensor:
        return torch.func.functional_call(base, (parameters, buffers), kwargs=rows).logits

    stacked = torch.func.vmap(logits)(parameters, buffers)
    for model, logits_of_model in zip(models, stacked, strict=True):
        torch.testing.assert_close(logits_of_model, model(**rows).logits)


@every_model
def test_trainer_runs_both_stages_and_saves(name: str, tmp_path: Path) -> None:
    rows = {key: list(value.numpy()) for key, value in inputs(name, 48).items()}
    data = Dataset.from_dict({**rows, "labels": list(labels(name, 48).numpy())}).with_format("torch")
    flagged = mark_trusted(data, fraction=0.5, label_column="labels")
    noisy = corrupt_labels(flagged, CorruptionMatrix.flip(3, 0.5), label_column="labels")
    trainer = GLCTrainer(make(name), config(tmp_path, max_steps=3), train_dataset=noisy, eval_dataset=data)
    before = weights(trainer.model)
    trainer.train()
    assert not same_weights(before, weights(trainer.model))
    assert trainer.corruption_matrix.num_labels == 3
    trainer.save_model()
    auto_class = MODELS[name][0]
    assert same_weights(weights(auto_class.from_pretrained(tmp_path)), weights(trainer.model))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("glc_mlp", {"hidden_sizes": [16, 0]}),
        ("glc_lstm", {"hidden_size": -1}),
        ("glc_word_average", {"vocab_size": 0}),
    ],
)
def test_invalid_sizes_raise(name: str, wrong: dict) -> None:
    _, model_class, known = MODELS[name]
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be a positive integer"):
        model_class(type(known)(**wrong))


def test_images_of_another_size_raise() -> None:
    with pytest.raises(ValueError, match=r"takes \(rows, 1, 6, 6\)"):
        make("glc_mlp")(pixel_values=torch.rand(2, 1, 8, 8))
