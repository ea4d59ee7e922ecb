# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""What all methods declare: their names, stages and corrected rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from glc_hf import CorruptionMatrix
from glc_hf.methods import available_methods
from glc_hf.methods.base import Stage
from tests.methods.fake_run import FakeRun, make_method, two_losses


def test_all_methods_are_registered():
    assert set(available_methods()) == {
        "trusted_only", "no_correction", "forward", "forward_gold", "distillation", "confusion_matrix", "glc",
        "true_matrix", "reweight", "finetune_on_trusted", "auto",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "first_stages", "last_stage"),
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
def test_each_method_has_its_stages(tmp_path, name, first_stages, last_stage):
    method = make_method(name, tmp_path)
    assert method.first_stages() == first_stages
    assert method.last_stage() == last_stage


def test_stage2_start_continue_starts_from_the_previous_stage(tmp_path):
    assert make_method("glc", tmp_path, stage2_start="continue").last_stage() == Stage("all", start="previous")


def test_confusion_matrix_counts_predicted_classes_with_smoothing(tmp_path):
    probs = [[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.9, 0.1]]
    method = make_method("confusion_matrix", tmp_path, 2)
    method.estimate(FakeRun([probs], labels=[0, 0, 1, 1], trusted=[True, True, True, False]))
    np.testing.assert_allclose(method.matrix.probs, [[0.5, 0.5], [0.005, 0.995]], atol=1e-12)


def test_forward_corrects_all_rows_and_other_methods_only_untrusted_rows(tmp_path):
    matrix = CorruptionMatrix.uniform(3, 0.6)
    for name, gold in (("forward", False), ("forward_gold", True), ("glc", True), ("true_matrix", True)):
        losses, logits, labels = two_losses(make_method(name, tmp_path, matrix=matrix), [True, False])
        corrected = -(logits.softmax(-1).double() @ torch.tensor(matrix.probs))[[0, 1], labels].log()
        plain = F.cross_entropy(logits, labels, reduction="none").double()
        expected = torch.stack([plain[0] if gold else corrected[0], corrected[1]])
        torch.testing.assert_close(losses.double(), expected, atol=1e-6, rtol=0)
