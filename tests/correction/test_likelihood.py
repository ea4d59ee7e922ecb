# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
from __future__ import annotations

import copy
import gc
import pickle

import pytest
import torch

from glc_hf.correction import likelihood
from glc_hf.correction.likelihood import posterior_over_true_labels, transposed
from glc_hf.correction.loss import corrected_cross_entropy
from glc_hf.matrix import CorruptionMatrix

from .problems import random_batch, random_matrix


# ---------------------------------------------------------------------------------------------- transposed matrices
CPU = torch.device("cpu")


@pytest.fixture
def preparations(monkeypatch):
    """The dtype of each call that checks and transposes a matrix."""
    calls = []
    original = likelihood._prepare

    def counting(matrix, dtype, device):
        calls.append(dtype)
        return original(matrix, dtype, device)

    monkeypatch.setattr(likelihood, "_prepare", counting)
    return calls


@pytest.mark.parametrize("make", [lambda: random_matrix(5, 0), lambda: CorruptionMatrix(random_matrix(5, 0))])
def test_matrix_is_checked_once_per_dtype(make, preparations):
    matrix = make()
    for _ in range(3):
        for dtype in (torch.float32, torch.float64):
            prepared = transposed(matrix, 5, dtype, CPU)
            assert prepared.rows.dtype == dtype
            assert prepared.rows.is_contiguous()
            torch.testing.assert_close(prepared.rows[:5].T, random_matrix(5, 0).to(dtype))
            assert torch.equal(prepared.rows[5:], torch.eye(5, dtype=dtype))  # for trusted labels
    assert preparations == [torch.float32, torch.float64]


def test_tensor_changed_in_place_is_checked_again():
    matrix = random_matrix(3, 0)
    before = transposed(matrix, 3, torch.float64, CPU).rows[:3].clone()
    matrix.copy_(random_matrix(3, 1))
    after = transposed(matrix, 3, torch.float64, CPU).rows[:3]
    assert torch.equal(after, random_matrix(3, 1).T)
    assert not torch.equal(after, before)
    matrix[1, 1] = 9.0
    with pytest.raises(ValueError, match="row 1"):
        transposed(matrix, 3, torch.float64, CPU)


def test_inference_mode_tensor_is_never_cached():
    with torch.inference_mode():
        matrix = random_matrix(3, 0)
        transposed(matrix, 3, torch.float64, CPU)
        matrix.copy_(random_matrix(3, 1))
        assert torch.equal(transposed(matrix, 3, torch.float64, CPU).rows[:3], random_matrix(3, 1).T)


@pytest.mark.parametrize("make", [lambda: random_matrix(4, 0), lambda: CorruptionMatrix.uniform(4, 0.5)])
def test_cache_entry_is_deleted_with_the_matrix(make):
    matrix = make()
    transposed(matrix, 4, torch.float32, CPU)
    key = id(matrix)
    assert key in likelihood._CACHE
    del matrix
    gc.collect()
    assert key not in likelihood._CACHE


def test_used_matrix_can_be_copied_and_pickled():
    matrix = CorruptionMatrix.uniform(4, 0.5)
    transposed(matrix, 4, torch.float32, CPU)
    assert pickle.loads(pickle.dumps(matrix)) == matrix
    assert copy.deepcopy(matrix) == matrix


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (torch.tensor([[1.0, 0.0], [1.5, -0.5]]), "row 1 .* negative"),
        (torch.tensor([[0.5, float("nan")], [0.5, 0.5]]), "row 0 .* NaN"),
        (torch.tensor([[0.5, 0.5], [0.5, 0.6]]), "row 1 .* sums to 1.1"),
        (torch.full((2, 3), 1 / 3), "square"),
        (torch.full((3, 3), 1 / 3), "has 3 classes and the logits have 2"),
        (torch.eye(2, dtype=torch.bfloat16), "float32"),
        (torch.eye(2, requires_grad=True), "detach"),
    ],
)
def test_invalid_matrix_raises_every_time_and_names_the_row(matrix, message):
    for _ in range(2):
        with pytest.raises(ValueError, match=message):
            transposed(matrix, 2, torch.float32, CPU)


@pytest.mark.parametrize("logit", [3.0, 1e4])  # in probability space, and where the sums underflow
def test_many_classes_work_without_the_identity_and_give_the_same_loss(monkeypatch, logit):
    generator = torch.Generator().manual_seed(0)
    labels, trusted = torch.randint(7, (40,), generator=generator), torch.rand(40, generator=generator) < 0.4
    results = []
    for limit in (2048, 6):
        monkeypatch.setattr(likelihood, "_MAX_CLASSES_WITH_IDENTITY", limit)
        logits = (logit * torch.randn(40, 7, generator=torch.Generator().manual_seed(1))).requires_grad_()
        losses = corrected_cross_entropy(logits, labels, random_matrix(7, 0), trusted, reduction="none")
        losses.sum().backward()
        results.append((losses.detach(), logits.grad))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


# ---------------------------------------------------------------------------------------------- posterior
def test_posterior_is_bayes_rule():
    matrix = random_matrix(6, 0)
    logits, labels, _ = random_batch(30, 6, seed=0)
    posterior = posterior_over_true_labels(logits, labels, matrix)
    for item in range(30):
        joint = torch.softmax(logits[item], dim=0) * matrix[:, labels[item]]
        torch.testing.assert_close(posterior[item], joint / joint.sum(), rtol=1e-12, atol=1e-12)


def test_without_noise_the_given_label_is_certain():
    logits, labels, _ = random_batch(10, 4, seed=1)
    posterior = posterior_over_true_labels(logits, labels, CorruptionMatrix.identity(4))
    assert torch.equal(posterior, torch.nn.functional.one_hot(labels, 4).double())


def test_label_without_information_leaves_the_prediction():
    matrix = torch.tensor([[0.5, 0.5, 0.0], [0.2, 0.8, 0.0], [1.0, 0.0, 0.0]])
    logits = torch.randn(2, 2, 3)
    posterior = posterior_over_true_labels(logits, torch.tensor([[2, -100], [0, 2]]), matrix)
    assert posterior.shape == logits.shape
    expected = torch.softmax(logits, dim=-1)
    torch.testing.assert_close(posterior[0], expected[0])
    torch.testing.assert_close(posterior[1, 1], expected[1, 1])
    assert not torch.allclose(posterior[1, 0], expected[1, 0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_posterior_of_extreme_logits_is_a_distribution(dtype):
    matrix = CorruptionMatrix.flip(5, 0.3, seed=2)
    logits = (1e4 * torch.randn(40, 5)).to(dtype)
    posterior = posterior_over_true_labels(logits, torch.arange(40) % 5, matrix)
    assert posterior.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(posterior.sum(dim=-1), torch.ones(40, dtype=posterior.dtype))
    possible = torch.tensor(matrix.probs)[:, torch.arange(40) % 5].T > 0
    assert (posterior[~possible & possible.any(dim=1, keepdim=True)] == 0).all()


def test_posterior_errors_name_the_cause():
    matrix = CorruptionMatrix.uniform(3, 0.5)
    with pytest.raises(ValueError, match="a given label is 3"):
        posterior_over_true_labels(torch.zeros(2, 3), torch.tensor([0, 3]), matrix)
    with pytest.raises(ValueError, match=r"labels of shape \(2,\)"):
        posterior_over_true_labels(torch.zeros(2, 3), torch.tensor([0]), matrix)
