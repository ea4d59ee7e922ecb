# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The compiled corrected loss equals that of PyTorch, and is left out where it can't be compiled."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from glc_hf import CorruptionMatrix, corrected_cross_entropy
from glc_hf.correction import likelihood
from glc_hf.correction.compiled import loss_kernel as module
from glc_hf.correction.compiled.loss_kernel import SWITCH, compiled_item_losses, loss_kernel


needs_compiler = pytest.mark.skipif(
    shutil.which("cc") is None or os.environ.get(SWITCH) == "0", reason="needs a C compiler"
)


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The function is compiled again in this test, in this folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    loss_kernel.cache_clear()
    yield tmp_path
    loss_kernel.cache_clear()


@cache
def _matrix(kind: str, classes: int) -> CorruptionMatrix:
    if kind == "uniform":
        return CorruptionMatrix.uniform(classes, 0.5)
    probs = np.random.default_rng(0).dirichlet(np.full(classes, 0.3), size=classes)
    if kind == "zero column":
        probs[:, 0] = 0.0
    if kind == "tiny":
        probs[0, 0] = 1e-60
    return CorruptionMatrix(probs / probs.sum(axis=1, keepdims=True))


def _loss_and_gradient(logits: torch.Tensor, *args, **kwargs) -> tuple[torch.Tensor, torch.Tensor]:
    leaf = logits.clone().requires_grad_()
    loss = corrected_cross_entropy(leaf, *args, **kwargs)
    weights = torch.linspace(0.5, 2.0, loss.numel(), dtype=loss.dtype).view(loss.shape)
    (loss * weights).sum().backward()
    return loss.detach(), leaf.grad


@needs_compiler
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])  # in probability space, some and most items in log space
@pytest.mark.parametrize("kind", ["uniform", "dense", "zero column", "tiny"])
@pytest.mark.parametrize("classes", [2, 7, 16, 100, 2100])
def test_compiled_loss_equals_that_of_pytorch(classes, kind, scale, reduction, monkeypatch):
    assert loss_kernel() is not None
    generator = torch.Generator().manual_seed(classes)
    logits = scale * torch.randn(40, classes, generator=generator)
    labels = torch.randint(classes, (40,), generator=generator)
    labels[3] = -100
    trusted = torch.rand(40, generator=generator) < 0.3
    matrix = _matrix(kind, classes)
    for flags in (None, trusted):
        found = _loss_and_gradient(logits, labels, matrix, flags, reduction=reduction)
        exact = _loss_and_gradient(logits.double(), labels, matrix, flags, reduction=reduction)
        with monkeypatch.context() as patch:
            patch.setattr(likelihood, "compiled_item_losses", lambda *args: None)
            expected = _loss_and_gradient(logits, labels, matrix, flags, reduction=reduction)
        for one, other, reference in zip(found, expected, exact, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
            # At most twice the error of PyTorch, or two roundings of the largest number: probabilities times weights.
            error, others = ((result.double() - reference).abs().max() for result in (one, other))
            largest = max(reference.abs().max(), 2 / 39 if reduction == "mean" else 2)
            assert error <= 2 * others + 2.0**-23 * largest


@needs_compiler
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_logits_that_are_not_finite_give_the_same(bad, monkeypatch):
    logits = torch.randn(6, 20, generator=torch.Generator().manual_seed(0))
    logits[2, 5] = logits[4, 3] = bad
    labels, flags = torch.tensor([1, 2, 5, 3, 4, 0]), torch.tensor([False, True, False, True, True, False])
    found = _loss_and_gradient(logits, labels, _matrix("dense", 20), flags, reduction="none")
    monkeypatch.setattr(likelihood, "compiled_item_losses", lambda *args: None)
    expected = _loss_and_gradient(logits, labels, _matrix("dense", 20), flags, reduction="none")
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, equal_nan=True)


@needs_compiler
def test_exponential_is_exact_to_two_units_in_the_last_place():
    below = torch.linspace(0, 86.9, 20_001).unsqueeze(1)
    logits = torch.cat([torch.zeros_like(below), -below], dim=1)
    rows, labels = torch.eye(2), torch.zeros(len(below), dtype=torch.int64)
    _, gradient, unsafe = compiled_item_losses(
        logits, labels, torch.ones(len(below), dtype=torch.bool), rows, 0.0, 1.0
    )
    assert unsafe == 0
    expected = torch.softmax(logits.double(), dim=-1)[:, 1]
    # exp within two units, and a rounding each for the sum, the quotient and the product.
    assert ((gradient[:, 1].double() - expected).abs() / expected).max() < 5 * 2.0**-23


@needs_compiler
def test_second_process_uses_the_library_of_the_first(fresh, monkeypatch):
    assert loss_kernel() is not None
    (library,) = fresh.glob("glc_hf-*/*.so")
    loss_kernel.cache_clear()

    def fail(*args, **kwargs):
        raise AssertionError("compiled again")

    monkeypatch.setattr(subprocess, "run", fail)
    assert loss_kernel() is not None
    assert list(library.parent.iterdir()) == [library]


def _no_compiler(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(fresh))


def _failing_compiler(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "false")


def _compiler_without_output(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "true")


def _folder_of_others(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (fresh / f"glc_hf-{os.getuid()}").mkdir()
    (fresh / f"glc_hf-{os.getuid()}").chmod(0o777)


def _link_to_a_folder(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (fresh / "other").mkdir(mode=0o700)
    (fresh / f"glc_hf-{os.getuid()}").symlink_to(fresh / "other")


def _broken_library(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = module._library()
    path.write_bytes(b"no library")


def _switched_off(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "0")


@needs_compiler
@pytest.mark.parametrize(
    "hinder",
    [
        _no_compiler,
        _failing_compiler,
        _compiler_without_output,
        _folder_of_others,
        _link_to_a_folder,
        _broken_library,
        _switched_off,
    ],
)
def test_pytorch_computes_the_loss_if_the_code_can_not_be_compiled(hinder, fresh, monkeypatch):
    logits, labels = torch.randn(8, 5, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 5
    matrix = _matrix("dense", 5)
    hinder(fresh, monkeypatch)
    found = _loss_and_gradient(logits, labels, matrix)
    assert loss_kernel() is None
    for one, other in zip(found, _loss_and_gradient(logits.double(), labels, matrix), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-6)


@needs_compiler
def test_large_arrays_are_left_to_the_threads_of_pytorch(monkeypatch):
    x, labels, rows = torch.randn(300, 1000), torch.zeros(300, dtype=torch.int64), torch.eye(1000)
    assert compiled_item_losses(x, labels, None, rows, 0.0, 1.0) is not None
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    assert compiled_item_losses(x, labels, None, rows, 0.0, 1.0) is None
    assert compiled_item_losses(x[:100], labels[:100], None, rows, 0.0, 1.0) is not None
    # Rows that are not next to each other, and other types.
    assert compiled_item_losses(x[:100, :999], labels[:100], None, rows[:999, :999], 0.0, 1.0) is None
    assert compiled_item_losses(x[:100].double(), labels[:100], None, rows.double(), 0.0, 1.0) is None
