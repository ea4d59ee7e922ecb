# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
from __future__ import annotations

import numpy as np
import pytest
import torch
from datasets import Dataset

from glc_hf import CorruptionMatrix, GLCTrainer
from glc_hf.training.stage_trainer import StageTrainer
from tests.training.tiny import bert, config, noisy_text_rows, same_weights, text_rows, token_bert, weights


def test_a_stream_trains_both_stages_filtered_by_its_own_flag(tmp_path, monkeypatch):
    data = noisy_text_rows(rows=200)
    trusted_seen = {"stage 1": [], "stage 2": []}
    original = StageTrainer._with_ignored_labels

    def spy(self, batch):
        trusted_seen[self.stage_name.split(" of ")[0]] += batch["trusted"].tolist()
        return original(self, batch)

    monkeypatch.setattr(StageTrainer, "_with_ignored_labels", spy)
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


def test_flags_of_tokens_choose_within_a_row_of_a_stream(tmp_path):
    """Labels are counted token by token; -100, and columns that `map` made unknown, don't bring pairs out of step."""
    number = 40
    rows = Dataset.from_dict(
        {
            "input_ids": [[1, 2, 3, 4]] * number,
            "labels": [[0, 1, -100, 0], [2, 2, 1, 0]] * (number // 2),
            "noisy": [[0, 2, -100, 1], [2, 0, 0, 1]] * (number // 2),
            "trusted": [[True, False, False, False], [True, False, True, False]] * (number // 2),
        }
    )
    settings = config(tmp_path, estimator="paired", noisy_label_column="noisy", trusted_share=0, max_steps=1)
    found = []
    for data in (rows, rows.to_iterable_dataset(), rows.to_iterable_dataset().map(lambda row: row)):
        trainer = GLCTrainer(token_bert(), settings, train_dataset=data)
        trainer.train()
        found.append(trainer.corruption_matrix.probs)
    assert found[0].argmax(axis=1).tolist() == [0, 0, 2]
    np.testing.assert_allclose(found[1], found[0])
    np.testing.assert_allclose(found[2], found[0])


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ([None, True, True, True], "a row has None in 'trusted': flags are booleans"),
        (["maybe", "no", "no", "no"], "a row has 'maybe' in 'trusted': flags are booleans"),
        ([0.5, 1.0, 0.0, 0.0], "a row has 0.5 in 'trusted'"),
    ],
)
@pytest.mark.parametrize("method", ["true_matrix", "glc"])
def test_flags_of_a_stream_are_checked_as_they_come(tmp_path, flags, told, method):
    rows = Dataset.from_dict({"input_ids": [[1, 2, 3]] * 4, "label": [0, 1, 2, 0], "trusted": flags})
    matrix = CorruptionMatrix.flip(3, 0.6) if method == "true_matrix" else None
    trainer = GLCTrainer(
        bert(), config(tmp_path, method=method, trusted_share=0), train_dataset=rows.to_iterable_dataset(),
        corruption_matrix=matrix,
    )  # fmt: skip
    with pytest.raises(ValueError, match=told):
        trainer.train()


def test_a_stream_that_turns_out_to_have_no_flags_is_not_trained_on(tmp_path):
    rows = text_rows(40, trusted=None).to_iterable_dataset().map(lambda row: row)
    settings = config(tmp_path, method="true_matrix", trusted_share=0)
    trainer = GLCTrainer(bert(), settings, train_dataset=rows, corruption_matrix=CorruptionMatrix.flip(3, 0.6))
    with pytest.raises(ValueError, match="has no 'trusted', and the method needs to know"):
        trainer.train()


def test_a_method_that_needs_no_flags_takes_a_stream_without(tmp_path):
    rows = text_rows(40, trusted=None).to_iterable_dataset()
    trainer = GLCTrainer(bert(), config(tmp_path, method="no_correction"), train_dataset=rows)
    assert trainer.train().global_step == 4


def test_a_stream_of_another_kind_is_refused(tmp_path):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            yield {"input_ids": [1], "label": 0, "trusted": True}

    with pytest.raises(TypeError, match="train_dataset is a Stream; .*IterableDataset.from_generator"):
        GLCTrainer(bert(), config(tmp_path), train_dataset=Stream())
