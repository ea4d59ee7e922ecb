# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Targets and λ of `distillation`."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from glc_hf.methods.distillation import precision_of_labels, precision_of_network, weight_of_given_label
from tests.methods.fake_run import FakeRun, make_method, two_losses


def test_target_of_untrusted_rows_mixes_given_label_and_soft_target(tmp_path):
    method = make_method("distillation", tmp_path, distillation_lambda="0.25")
    soft = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
    method.estimate(FakeRun([soft], labels=[1, 2], trusted=[False, False]))
    assert method.weight == 0.25
    losses, logits, labels = two_losses(method, [True, False])
    target = 0.25 * F.one_hot(labels[1], 3) + 0.75 * torch.tensor(soft[1])
    expected = [F.cross_entropy(logits[:1], labels[:1]), -(target * logits[1].log_softmax(-1)).sum()]
    torch.testing.assert_close(losses, torch.stack([e.float() for e in expected]))


def test_lambda_depends_on_the_precisions_of_network_and_labels(tmp_path):
    # Predicted class 0 is correct in 3 of 4 rows, class 1 in 4 of 6.
    confusion = torch.tensor([[3.0, 2.0], [1.0, 4.0]])
    assert precision_of_network(confusion) == pytest.approx((3 / 4 + 4 / 6) / 2)
    # p(true = k | given = k) = C[k, k]·b_k / b̃_k
    matrix = torch.tensor([[0.6, 0.4], [0.1, 0.9]], dtype=torch.float64)
    true = torch.tensor([0.5, 0.5], dtype=torch.float64)
    assert precision_of_labels(matrix, true, true @ matrix) == pytest.approx((0.3 / 0.35 + 0.45 / 0.65) / 2)
    assert weight_of_given_label(0.9, 0.3, "auto") == pytest.approx(0.25)
    assert weight_of_given_label(0.9, 0.3, "paper_code") == pytest.approx(0.75)


def test_lambda_is_computed_from_both_networks(tmp_path):
    """The noisy network sees class 0 flipped with 0.6; the clean network is correct on 3 of 4 held-out rows."""
    noisy = [[0.4, 0.6]] * 4 + [[0.0001, 0.9999]] * 4 + [[0.5, 0.5]] * 2
    clean = [[0.9, 0.1], [0.1, 0.9], [0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.1, 0.9], [0.1, 0.9], [0.1, 0.9]] + [
        [0.3, 0.7]
    ] * 2
    labels = [0, 0, 0, 0, 1, 1, 1, 1, 0, 1]
    run = FakeRun([noisy, clean], labels, trusted=[True] * 8 + [False] * 2, held_out=[0, 1, 4, 5])
    for choice in ("auto", "paper_code"):
        method = make_method("distillation", tmp_path, 2, distillation_lambda=choice)
        method.estimate(run)
        network_precision = (1.0 + 2 / 3) / 2  # class 0: 1 of 1 predictions correct; class 1: 2 of 3
        label_precision = (0.4 * 0.5 / 0.5 + min(0.9999 * 0.5 / 0.5, 1)) / 2
        expected = label_precision / (label_precision + network_precision)
        assert method.weight == pytest.approx(expected if choice == "auto" else 1 - expected, abs=1e-6)
        torch.testing.assert_close(method.soft_targets[8:], torch.tensor([[0.3, 0.7]] * 2))
        assert (method.soft_targets[:8] == 0).all()
