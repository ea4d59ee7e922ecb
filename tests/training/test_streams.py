# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
from __future__ import annotations

import numpy as np
import pytest

from glc_hf import GLCTrainer
from glc_hf.training.corrected import CorrectedTrainer
from tests.training.tiny import bert, config, noisy_text_rows, same_weights, text_rows, weights


def test_a_stream_trains_both_stages_filtered_by_its_own_flag(tmp_path, monkeypatch):
    data = noisy_text_rows(rows=200)
    trusted_seen = {"stage 1": [], "stage 2": []}
    original = CorrectedTrainer._with_masked_labels

    def spy(self, batch):
        trusted_seen[self.stage_name.split(" of ")[0]] += batch["trusted"].tolist()
        return original(self, batch)

    monkeypatch.setattr(CorrectedTrainer, "_with_masked_labels", spy)
    trainer = GLCTrainer(
        bert(),
        config(tmp_path, max_steps=8, trusted_share=0),
        train_dataset=data.to_iterable_dataset(),
        eval_dataset=text_rows(40, trusted=None),
    )
    output = trainer.train()
    assert output.global_step == 8
    assert not any(trusted_seen["stage 1"])
    assert trusted_seen["stage 2"][: len(data)] == data["trusted"][: 8 * 16]
    assert trainer.corruption_matrix.num_labels == 3
    assert "stage1_eval_accuracy" in output.metrics


def test_a_stream_in_order_trains_what_the_rows_in_order_train(tmp_path):
    """The same rows in the same order: the same matrix and the same weights, from memory or from a stream."""
    data = noisy_text_rows(rows=200)
    found = []
    for rows in (data, data.to_iterable_dataset()):
        settings = config(
            tmp_path, max_steps=8, trusted_share=0, refine_matrix=False, train_sampling_strategy="sequential"
        )
        trainer = GLCTrainer(bert(), settings, train_dataset=rows)
        trainer.train()
        found.append((weights(trainer.model), trainer.corruption_matrix.probs))
    np.testing.assert_allclose(found[0][1], found[1][1], atol=1e-7)
    assert same_weights(found[0][0], found[1][0])


def test_what_a_stream_can_not_serve_is_refused_before_training(tmp_path):
    stream = noisy_text_rows().to_iterable_dataset()
    for settings, match in (
        ({"method": "forward"}, "row numbers"),
        ({"method": "distillation"}, "row numbers"),
        ({"method": "reweight"}, "row numbers"),
        ({"calibrate": True}, "holds rows out"),
    ):
        with pytest.raises(ValueError, match=match):
            GLCTrainer(bert(), config(tmp_path, **settings), train_dataset=stream)
    with pytest.raises(ValueError, match=r"stream has no column 'trusted'.*mark_trusted"):
        GLCTrainer(bert(), config(tmp_path), train_dataset=stream.remove_columns("trusted"))
    with pytest.raises(ValueError, match="max_steps"):
        GLCTrainer(bert(), config(tmp_path, max_steps=-1), train_dataset=stream)
