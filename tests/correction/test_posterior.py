# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
from __future__ import annotations

import pytest
import torch

from glc_hf.correction.likelihood import posterior_over_true_labels
from glc_hf.matrix import CorruptionMatrix

from .problems import random_batch, random_matrix


def test_is_bayes_rule():
    matrix = random_matrix(6, 0)
    logits, labels, _ = random_batch(30, 6, seed=0)
    posterior = posterior_over_true_labels(logits, labels, matrix)
    for item in range(30):
        joint = torch.softmax(logits[item], dim=0) * matrix[:, labels[item]]
        torch.testing.assert_close(posterior[item], joint / joint.sum(), rtol=1e-12, atol=1e-12)


def test_without_noise_the_label_is_right():
    logits, labels, _ = random_batch(10, 4, seed=1)
    posterior = posterior_over_true_labels(logits, labels, CorruptionMatrix.identity(4))
    assert torch.equal(posterior, torch.nn.functional.one_hot(labels, 4).double())


def test_a_label_that_tells_nothing_leaves_the_prediction():
    matrix = torch.tensor([[0.5, 0.5, 0.0], [0.2, 0.8, 0.0], [1.0, 0.0, 0.0]])
    logits = torch.randn(2, 2, 3)
    posterior = posterior_over_true_labels(logits, torch.tensor([[2, -100], [0, 2]]), matrix)
    assert posterior.shape == logits.shape
    expected = torch.softmax(logits, dim=-1)
    torch.testing.assert_close(posterior[0], expected[0])
    torch.testing.assert_close(posterior[1, 1], expected[1, 1])
    assert not torch.allclose(posterior[1, 0], expected[1, 0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_extreme_logits_stay_distributions(dtype):
    matrix = CorruptionMatrix.flip(5, 0.3, seed=2)
    logits = (1e4 * torch.randn(40, 5)).to(dtype)
    posterior = posterior_over_true_labels(logits, torch.arange(40) % 5, matrix)
    assert posterior.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(posterior.sum(dim=-1), torch.ones(40, dtype=posterior.dtype))
    possible = torch.tensor(matrix.probs)[:, torch.arange(40) % 5].T > 0
    assert (posterior[~possible & possible.any(dim=1, keepdim=True)] == 0).all()


def test_errors_name_what_is_wrong():
    matrix = CorruptionMatrix.uniform(3, 0.5)
    with pytest.raises(ValueError, match="a given label is 3"):
        posterior_over_true_labels(torch.zeros(2, 3), torch.tensor([0, 3]), matrix)
    with pytest.raises(ValueError, match=r"labels of shape \(2,\)"):
        posterior_over_true_labels(torch.zeros(2, 3), torch.tensor([0]), matrix)
