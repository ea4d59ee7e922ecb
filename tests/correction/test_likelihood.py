# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
from __future__ import annotations

import copy
import gc
import pickle

import pytest
import torch

from glc_hf.correction import likelihood as transposed_module
from glc_hf.correction.likelihood import transposed
from glc_hf.correction.loss import corrected_cross_entropy
from glc_hf.matrix import CorruptionMatrix

from .problems import random_matrix


CPU = torch.device("cpu")


@pytest.fixture
def preparations(monkeypatch):
    """How many times a matrix was checked and turned round."""
    calls = []
    original = transposed_module._prepare

    def counting(matrix, dtype, device):
        calls.append(dtype)
        return original(matrix, dtype, device)

    monkeypatch.setattr(transposed_module, "_prepare", counting)
    return calls


@pytest.mark.parametrize("make", [lambda: random_matrix(5, 0), lambda: CorruptionMatrix(random_matrix(5, 0))])
def test_a_matrix_is_checked_once_for_each_dtype(make, preparations):
    matrix = make()
    for _ in range(3):
        for dtype in (torch.float32, torch.float64):
            found = transposed(matrix, 5, dtype, CPU)
            assert found.rows.dtype == dtype
            assert found.rows.is_contiguous()
            torch.testing.assert_close(found.rows[:5].T, random_matrix(5, 0).to(dtype))
            assert torch.equal(found.rows[5:], torch.eye(5, dtype=dtype))  # what trusted labels need
    assert preparations == [torch.float32, torch.float64]


def test_a_tensor_changed_in_place_is_checked_again():
    matrix = random_matrix(3, 0)
    before = transposed(matrix, 3, torch.float64, CPU).rows[:3].clone()
    matrix.copy_(random_matrix(3, 1))
    after = transposed(matrix, 3, torch.float64, CPU).rows[:3]
    assert torch.equal(after, random_matrix(3, 1).T)
    assert not torch.equal(after, before)
    matrix[1, 1] = 9.0
    with pytest.raises(ValueError, match="row 1"):
        transposed(matrix, 3, torch.float64, CPU)


def test_a_tensor_made_in_inference_mode_is_never_remembered():
    with torch.inference_mode():
        matrix = random_matrix(3, 0)
        transposed(matrix, 3, torch.float64, CPU)
        matrix.copy_(random_matrix(3, 1))
        assert torch.equal(transposed(matrix, 3, torch.float64, CPU).rows[:3], random_matrix(3, 1).T)


@pytest.mark.parametrize("make", [lambda: random_matrix(4, 0), lambda: CorruptionMatrix.uniform(4, 0.5)])
def test_what_was_prepared_goes_with_the_matrix(make):
    matrix = make()
    transposed(matrix, 4, torch.float32, CPU)
    key = id(matrix)
    assert key in transposed_module._REMEMBERED
    del matrix
    gc.collect()
    assert key not in transposed_module._REMEMBERED


def test_using_a_matrix_does_not_stop_it_from_being_copied_or_pickled():
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
def test_a_wrong_matrix_is_an_error_naming_the_row_every_time(matrix, message):
    for _ in range(2):
        with pytest.raises(ValueError, match=message):
            transposed(matrix, 2, torch.float32, CPU)


@pytest.mark.parametrize("logit", [3.0, 1e4])  # in probability space, and where its sums underflow
def test_many_classes_go_without_the_identity_and_get_the_same_loss(monkeypatch, logit):
    generator = torch.Generator().manual_seed(0)
    labels, trusted = torch.randint(7, (40,), generator=generator), torch.rand(40, generator=generator) < 0.4
    found = []
    for most in (2048, 6):
        monkeypatch.setattr(transposed_module, "_MOST_CLASSES_WITH_IDENTITY", most)
        logits = (logit * torch.randn(40, 7, generator=torch.Generator().manual_seed(1))).requires_grad_()
        losses = corrected_cross_entropy(logits, labels, random_matrix(7, 0), trusted, reduction="none")
        losses.sum().backward()
        found.append((losses.detach(), logits.grad))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
