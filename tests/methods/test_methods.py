# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""What is special about each method, on problems small enough to compute by hand."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from glc_hf import CorruptionMatrix, GLCConfig
from glc_hf.labels.label_batch import label_batch
from glc_hf.methods import available_methods, get_method
from glc_hf.methods.base import Inferred, Stage
from glc_hf.methods.distillation import precision_of_labels, precision_of_network, weight_of_given_label


class FakeRun:
    """The run between stages, with a table in place of trained networks: softmax rows, labels and flags by item."""

    label_names = None

    def __init__(self, probs, labels, trusted, held_out=(), noisy=None) -> None:
        self.probs = [torch.as_tensor(np.asarray(p), dtype=torch.float64) for p in probs]
        self.labels, self.trusted = np.asarray(labels), np.asarray(trusted, dtype=bool)
        self.held_out = np.isin(np.arange(len(self.labels)), held_out)
        self.noisy = noisy
        self.num_labels = self.probs[0].shape[1] if probs else int(self.labels.max()) + 1

    def _mask(self, items, part="all"):
        mask = {"all": np.ones_like(self.trusted), "trusted": self.trusted, "untrusted": ~self.trusted}[items]
        return mask if part == "all" else mask & (self.held_out if part == "held_out" else ~self.held_out)

    def infer(self, stage, items, part="all", only=None) -> Iterator[Inferred]:
        numbers = np.flatnonzero(self._mask(items, part))
        if only is not None:
            numbers = np.intersect1d(numbers, only.numpy())
        for chunk in np.array_split(numbers, 2):
            yield Inferred(
                self.probs[stage][chunk].log().float(), torch.tensor(self.labels[chunk]), torch.from_numpy(chunk)
            )

    def probe(self, stage):
        return None

    def sum_over_processes(self, tensor):
        return tensor

    def gather_objects(self, value):
        return [value]

    def item_labels(self, items, column=None):
        return (self.labels if column is None else np.asarray(self.noisy))[self._mask(items)]

    def class_counts(self, items):
        return torch.from_numpy(np.bincount(self.item_labels(items), minlength=self.num_labels)).double()


def _method(name, tmp_path, num_labels=3, matrix=None, **settings):
    return get_method(name)(GLCConfig(str(tmp_path), method=name, use_cpu=True, **settings), num_labels, matrix)


def test_every_method_of_the_paper_is_registered():
    assert set(available_methods()) == {
        "trusted_only", "no_correction", "forward", "forward_gold", "distillation", "confusion_matrix", "glc",
        "true_matrix", "reweight", "finetune_on_trusted",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "earlier", "last"),
    [
        ("no_correction", [], Stage("all")),
        ("trusted_only", [], Stage("trusted", min_updates=2000)),
        ("finetune_on_trusted", [Stage("all")], Stage("trusted", start="previous")),
        ("glc", [Stage("untrusted")], Stage("all")),
        ("confusion_matrix", [Stage("untrusted")], Stage("all")),
        ("forward", [Stage("all")], Stage("all")),
        ("forward_gold", [Stage("all")], Stage("all")),
        (
            "distillation",
            [Stage("untrusted"), Stage("trusted", min_updates=2000, held_out=0.25)],
            Stage("all"),
        ),
        ("reweight", [], Stage("all")),
    ],
)
def test_each_method_trains_on_its_rows(tmp_path, name, earlier, last):
    method = _method(name, tmp_path)
    assert method.first_stages() == earlier
    assert method.last_stage() == last


def test_the_clothing1m_recipe_continues_from_stage_1(tmp_path):
    assert _method("glc", tmp_path, stage2_start="continue").last_stage() == Stage("all", start="previous")


def test_glc_averages_the_softmax_of_trusted_rows_by_class(tmp_path):
    probs = [[0.9, 0.1], [0.7, 0.3], [0.2, 0.8], [0.5, 0.5]]
    method = _method("glc", tmp_path, 2)
    method.estimate(FakeRun([probs], labels=[0, 0, 1, 1], trusted=[True, True, True, False]))
    np.testing.assert_allclose(method.matrix.probs, [[0.8, 0.2], [0.2, 0.8]], atol=1e-7)


def test_the_confusion_matrix_counts_first_choices_and_smooths(tmp_path):
    probs = [[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.9, 0.1]]
    method = _method("confusion_matrix", tmp_path, 2)
    method.estimate(FakeRun([probs], labels=[0, 0, 1, 1], trusted=[True, True, True, False]))
    np.testing.assert_allclose(method.matrix.probs, [[0.5, 0.5], [0.005, 0.995]], atol=1e-12)


def test_with_a_perfect_stage_1_glc_finds_the_matrix_and_the_confusion_matrix_is_biased(tmp_path):
    """Separable data: stage 1's softmax is the row of the true class. Flip 0.7 looks total to the first choice."""
    true_matrix, rng = CorruptionMatrix.flip(5, 0.7, seed=3), np.random.default_rng(0)
    labels = rng.integers(5, size=400)
    # A network trained on finite data: the true row, with sampling error.
    probs = true_matrix.probs[labels] + rng.normal(0, 0.02, size=(400, 5))
    probs = np.clip(probs, 1e-3, None)
    probs /= probs.sum(1, keepdims=True)
    run = FakeRun([probs], labels, trusted=np.ones(400))
    glc, confusion = _method("glc", tmp_path, 5), _method("confusion_matrix", tmp_path, 5)
    glc.estimate(run)
    confusion.estimate(run)
    assert true_matrix.distance(glc.matrix) < 0.03
    assert true_matrix.distance(confusion.matrix) == pytest.approx(0.3, abs=0.01)
    assert np.diag(confusion.matrix.probs).max() < 0.01


def test_forward_takes_the_softmax_at_the_example_just_below_the_percentile(tmp_path):
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(3), size=200)
    method = _method("forward", tmp_path)
    method.estimate(FakeRun([probs], labels=np.zeros(200, dtype=int), trusted=np.zeros(200)))
    for k in range(3):
        column = probs[:, k].copy()
        column[column >= np.percentile(column, 97, method="higher")] = 0
        np.testing.assert_allclose(method.matrix.probs[k], probs[column.argmax()], atol=1e-6)


def test_forward_takes_the_plain_maximum_when_asked_and_for_many_classes(tmp_path):
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(100), size=300)
    for settings in ({}, {"anchor_percentile": 100.0}):
        method = _method("forward", tmp_path, 100, **settings)
        method.estimate(FakeRun([probs], labels=np.zeros(300, dtype=int), trusted=np.zeros(300)))
        np.testing.assert_allclose(method.matrix.probs, probs[probs.argmax(0)], atol=1e-6)


def _losses(method, trusted):
    logits = torch.tensor([[1.0, 0.0, -1.0], [0.5, 0.2, 0.1]])
    labels = torch.tensor([1, 2])
    return method.item_losses(logits, label_batch(labels, torch.tensor(trusted), torch.tensor([0, 1]))), logits, labels


def test_forward_corrects_every_row_and_forward_gold_leaves_trusted_ones(tmp_path):
    matrix = CorruptionMatrix.uniform(3, 0.6)
    for name, gold in (("forward", False), ("forward_gold", True), ("glc", True), ("true_matrix", True)):
        losses, logits, labels = _losses(_method(name, tmp_path, matrix=matrix), [True, False])
        corrected = -(logits.softmax(-1).double() @ torch.tensor(matrix.probs))[[0, 1], labels].log()
        plain = F.cross_entropy(logits, labels, reduction="none").double()
        expected = torch.stack([plain[0] if gold else corrected[0], corrected[1]])
        torch.testing.assert_close(losses.double(), expected, atol=1e-6, rtol=0)


def test_distillation_mixes_the_given_label_with_the_soft_target_on_untrusted_rows(tmp_path):
    method = _method("distillation", tmp_path, distillation_lambda="0.25")
    soft = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
    method.estimate(FakeRun([soft], labels=[1, 2], trusted=[False, False]))
    assert method.weight == 0.25
    losses, logits, labels = _losses(method, [True, False])
    target = 0.25 * F.one_hot(labels[1], 3) + 0.75 * torch.tensor(soft[1])
    expected = [F.cross_entropy(logits[:1], labels[:1]), -(target * logits[1].log_softmax(-1)).sum()]
    torch.testing.assert_close(losses, torch.stack([e.float() for e in expected]))


def test_lambda_comes_from_the_precisions_of_network_and_labels(tmp_path):
    # Predicted class 0 is right in 3 of 4, class 1 in 4 of 6.
    confusion = torch.tensor([[3.0, 2.0], [1.0, 4.0]])
    assert precision_of_network(confusion) == pytest.approx((3 / 4 + 4 / 6) / 2)
    # p(true = k | given = k) = C[k, k]·b_k / b̃_k
    matrix = torch.tensor([[0.6, 0.4], [0.1, 0.9]], dtype=torch.float64)
    true = torch.tensor([0.5, 0.5], dtype=torch.float64)
    assert precision_of_labels(matrix, true, true @ matrix) == pytest.approx((0.3 / 0.35 + 0.45 / 0.65) / 2)
    assert weight_of_given_label(0.9, 0.3, "auto") == pytest.approx(0.25)
    assert weight_of_given_label(0.9, 0.3, "paper_code") == pytest.approx(0.75)


def test_distillation_finds_lambda_from_both_networks(tmp_path):
    """The noisy network sees flip 0.6 between two classes; the clean one is right on 3 of 4 held-out rows."""
    noisy = [[0.4, 0.6]] * 4 + [[0.0001, 0.9999]] * 4 + [[0.5, 0.5]] * 2
    clean = [[0.9, 0.1], [0.1, 0.9], [0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.1, 0.9], [0.1, 0.9], [0.1, 0.9]] + [
        [0.3, 0.7]
    ] * 2
    labels = [0, 0, 0, 0, 1, 1, 1, 1, 0, 1]
    run = FakeRun([noisy, clean], labels, trusted=[True] * 8 + [False] * 2, held_out=[0, 1, 4, 5])
    for choice in ("auto", "paper_code"):
        method = _method("distillation", tmp_path, 2, distillation_lambda=choice)
        method.estimate(run)
        network = (1.0 + 2 / 3) / 2  # class 0 predicted once, right; class 1 three times, right twice
        labels_ = (0.4 * 0.5 / 0.5 + min(0.9999 * 0.5 / 0.5, 1)) / 2
        expected = labels_ / (labels_ + network)
        assert method.weight == pytest.approx(expected if choice == "auto" else 1 - expected, abs=1e-6)
        torch.testing.assert_close(method.soft_targets[8:], torch.tensor([[0.3, 0.7]] * 2))
        assert (method.soft_targets[:8] == 0).all()


def test_paired_labels_are_counted_without_a_first_stage(tmp_path):
    method = _method("glc", tmp_path, 2, estimator="paired", noisy_label_column="crowd", smoothing=0.0)
    assert method.first_stages() == []
    method.estimate(FakeRun([], [0, 0, 0, 0, 1, 1, 1], [True] * 6 + [False], noisy=[0, 1, 1, 1, 1, 0, 1]))
    np.testing.assert_allclose(method.matrix.probs, [[0.25, 0.75], [0.5, 0.5]])


def test_calibration_undoes_overconfidence(tmp_path):
    """Logits three times too large: the estimate at the fitted temperature is the honest one."""
    rng = np.random.default_rng(0)
    honest = np.array([[0.4, 0.6], [0.7, 0.3]])
    classes = rng.integers(2, size=4000)
    labels = np.where(np.arange(4000) < 2000, classes, (rng.random(4000) > honest[classes, 0]).astype(int))
    sharp = honest[classes] ** 3
    sharp /= sharp.sum(1, keepdims=True)
    run = FakeRun([sharp], labels, trusted=np.arange(4000) < 2000, held_out=np.arange(2000, 4000))
    plain, calibrated = _method("glc", tmp_path, 2), _method("glc", tmp_path, 2, calibrate=True)
    assert calibrated.first_stages()[0].held_out > 0
    plain.estimate(run)
    calibrated.estimate(run)
    true_matrix = CorruptionMatrix(honest)
    assert true_matrix.distance(plain.matrix) > 0.1
    assert true_matrix.distance(calibrated.matrix) < 0.02


def test_base_rates_pull_the_estimate_to_the_observed_frequencies(tmp_path):
    probs = np.array([[0.7, 0.3]] * 10 + [[0.3, 0.7]] * 10 + [[0.5, 0.5]] * 100)
    labels = [0] * 10 + [1] * 10 + [0] * 80 + [1] * 20
    run = FakeRun([probs], labels, trusted=[True] * 20 + [False] * 100)
    plain, matched = _method("glc", tmp_path, 2), _method("glc", tmp_path, 2, match_base_rates=True)
    plain.estimate(run)
    matched.estimate(run)
    b, target = np.array([0.5, 0.5]), np.array([0.8, 0.2])
    off = [np.abs(b @ m.matrix.probs - target).sum() for m in (plain, matched)]
    assert off[1] == pytest.approx(off[0] / 2, abs=1e-6)  # λ = ‖b‖² goes half the way
