# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`compare_methods`."""

from __future__ import annotations

import pytest

from glc_hf import CorruptionMatrix, GLCTrainer, corrupt_labels
from glc_hf.training.compare import compare_methods
from tests.training.tiny import bert, config, text_rows


def test_methods_with_the_same_first_stage_share_it_and_get_the_same_results_as_alone(tmp_path):
    noise = CorruptionMatrix.flip(3, 0.6)
    train = corrupt_labels(text_rows(300, trusted=0.1), noise)
    held_out = text_rows(100, seed=5, trusted=None)

    def make_trainer(method):
        settings = config(tmp_path / method, method=method, max_steps=10, trusted_min_updates=10)
        return GLCTrainer(bert(), settings, train_dataset=train, eval_dataset=held_out)

    names = ["confusion_matrix", "glc", "no_correction", "distillation"]
    together = {row["method"]: row for _, row in compare_methods(names, make_trainer)}
    assert [together[name]["shared_stages"] for name in names] == [0, 1, 0, 1]
    for name in names:
        alone = make_trainer(name)
        alone.train()
        assert alone.evaluate()["eval_loss"] == pytest.approx(together[name]["eval_loss"], abs=1e-7), name


def test_unknown_method_raises_before_the_first_training(tmp_path):
    def make_trainer(method):
        raise AssertionError("a trainer was made")

    with pytest.raises(ValueError, match="unknown method 'gold'"):
        next(compare_methods(["glc", "gold"], make_trainer))
