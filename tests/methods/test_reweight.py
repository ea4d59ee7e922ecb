# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The weights of `reweight`."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from datasets import Dataset

from glc_hf import CorruptionMatrix, GLCTrainer, corrupt_labels, mark_trusted
from glc_hf.labels.label_batch import label_batch
from glc_hf.methods.reweight import look_ahead_weights, use_plain_attention
from glc_hf.training.batches import ROW_KEY
from tests.training.tiny import bert, config, noisy_text_rows, text_rows


def _inputs(data, start, stop):
    return {name: torch.tensor(data[name][start:stop]) for name in ("input_ids", "attention_mask")}


def test_weights_are_the_derivative_of_the_trusted_loss_per_example():
    """Compare with the definition: take the step θ − α∇Σε_j l_j for a small ε and measure the trusted loss."""
    data = noisy_text_rows(rows=24)
    model = bert().double()
    use_plain_attention(model)
    inputs, trusted = _inputs(data, 0, 8), _inputs(data, 8, 14)
    labels, trusted_labels = torch.tensor(data["label"][:8]), torch.tensor(data["label"][8:14])
    weights = look_ahead_weights(model, inputs, label_batch(labels), trusted, label_batch(trusted_labels))

    start = {name: p.detach().clone() for name, p in model.named_parameters()}

    def trusted_loss_after(example: int, epsilon: float) -> float:
        loss = F.cross_entropy(model(**inputs).logits, labels, reduction="none")[example]
        gradient = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
        with torch.no_grad():
            for p, g in zip(model.parameters(), gradient, strict=True):
                if g is not None:
                    p -= epsilon * g
            after = F.cross_entropy(model(**trusted).logits, trusted_labels).item()
            for name, p in model.named_parameters():
                p.copy_(start[name])
        return after

    epsilon = 1e-4
    slopes = [(trusted_loss_after(i, -epsilon) - trusted_loss_after(i, epsilon)) / (2 * epsilon) for i in range(8)]
    expected = torch.tensor(slopes, dtype=torch.float64).clamp(min=0)
    torch.testing.assert_close(weights.double(), expected / expected.sum(), atol=1e-6, rtol=1e-4)
    assert (weights == 0).any() or min(slopes) > 0


class _Linear(torch.nn.Module):
    num_classes = 3

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 3)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.linear(features)


def test_wrong_labels_get_much_less_weight_than_correct_labels(tmp_path, monkeypatch):
    """Classes are well separated, so the gradient of a wrong label opposes those of the trusted rows of its class."""
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=400)
    features = (rng.normal(size=(400, 8)) + 4 * np.eye(3, 8)[labels]).astype(np.float32)
    data = mark_trusted(Dataset.from_dict({"features": features, "label": labels}), fraction=0.1)
    data = corrupt_labels(data.with_format("torch"), CorruptionMatrix.flip(3, 0.5, seed=1), seed=1)
    wrong = (data["label"][:] != data["clean_label"][:]).tolist()
    weights_by_wrong: dict[bool, list[float]] = {True: [], False: []}
    original = GLCTrainer.compute_loss

    def spy(self, model, inputs, **kwargs):
        self.rows_of_step = inputs[ROW_KEY].tolist()
        return original(self, model, inputs, **kwargs)

    def record_weights(self, model, inputs, batch):
        weights = self.method.item_weights(self, model, inputs, batch)
        for row, weight in zip(self.rows_of_step, weights.tolist(), strict=True):
            weights_by_wrong[wrong[row]].append(weight)
        return weights

    monkeypatch.setattr(GLCTrainer, "compute_loss", spy)
    monkeypatch.setattr(GLCTrainer, "item_weights", record_weights)
    settings = config(tmp_path, method="reweight", max_steps=50, logging_steps=50)
    GLCTrainer(_Linear(), settings, train_dataset=data).train()
    mean = {is_wrong: sum(values) / len(values) for is_wrong, values in weights_by_wrong.items()}
    assert mean[True] < 0.1 * mean[False]


def test_weights_are_zero_if_no_example_helps():
    model = bert()
    use_plain_attention(model)
    inputs = _inputs(text_rows(4), 0, 4)
    ignored, trusted = label_batch(torch.full((4,), -100)), label_batch(torch.tensor([0, 1, 2, 0]))
    assert (look_ahead_weights(model, inputs, ignored, inputs, trusted) == 0).all()


def test_batch_norm_raises_before_training(tmp_path):
    timm = pytest.importorskip("timm")
    network = timm.create_model("resnet10t", channels=(8, 8, 8, 8), num_classes=3)
    data = mark_trusted(text_rows(20, trusted=None), fraction=0.5)
    with pytest.raises(ValueError, match=r"'reweight' can't train this model.*BatchNorm.*LayerNorm"):
        GLCTrainer(network, config(tmp_path, method="reweight"), train_dataset=data)


def test_attention_is_switched_to_eager(tmp_path):
    model = bert()
    assert model.config._attn_implementation == "sdpa"
    GLCTrainer(model, config(tmp_path, method="reweight", max_steps=2), train_dataset=noisy_text_rows()).train()
    assert model.config._attn_implementation == "eager"
