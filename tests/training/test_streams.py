# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Training on an `IterableDataset`."""

from __future__ import annotations

import numpy as np
import pytest
from datasets import Dataset

from glc_hf import CorruptionMatrix, GLCTrainer
from glc_hf.training.stage_trainer import StageTrainer
from tests.training.tiny import bert, config, noisy_text_rows, same_weights, text_rows, token_bert, weights


def test_stream_is_filtered_by_its_flags_in_both_stages(tmp_path, monkeypatch):
    data = noisy_text_rows(rows=200)
    flags = {"stage 1": [], "stage 2": []}
    original = StageTrainer.get_batch_samples

    def spy(self, *args):
        batches, num_items = original(self, *args)
        for batch in batches:
            flags[self.stage_name.split(" of ")[0]] += batch["trusted"].tolist()
        return batches, num_items

    monkeypatch.setattr(StageTrainer, "get_batch_samples", spy)
    trainer = GLCTrainer(
        bert(),
        config(tmp_path, max_steps=8, trusted_share=0),
        train_dataset=data.to_iterable_dataset(),
        eval_dataset=text_rows(40, trusted=None),
    )
    output = trainer.train()
    assert output.global_step == 8
    assert len(flags["stage 1"]) == 8 * 16
    assert not any(flags["stage 1"])
    assert flags["stage 2"][: len(data)] == data["trusted"][: 8 * 16]
    assert trainer.corruption_matrix.num_labels == 3
    assert "stage1_eval_accuracy" in output.metrics


def test_stream_gives_the_same_matrix_and_weights_as_a_dataset_in_the_same_order(tmp_path):
    data = noisy_text_rows(rows=200)
    trained, matrices = [], []
    for rows in (data, data.to_iterable_dataset()):
        settings = config(
            tmp_path, max_steps=8, trusted_share=0, refine_matrix=False, train_sampling_strategy="sequential"
        )
        trainer = GLCTrainer(bert(), settings, train_dataset=rows)
        trainer.train()
        trained.append(weights(trainer.model))
        matrices.append(trainer.corruption_matrix.probs)
    np.testing.assert_allclose(*matrices, atol=1e-7)
    assert same_weights(*trained)


def test_options_that_need_row_numbers_or_a_length_raise_for_a_stream(tmp_path):
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


def test_paired_labels_of_a_stream_are_counted_per_token(tmp_path):
    """Pairs stay aligned with ignored labels (-100), and after `map`, which makes the columns unknown."""
    num_rows = 40
    rows = Dataset.from_dict(
        {
            "input_ids": [[1, 2, 3, 4]] * num_rows,
            "labels": [[0, 1, -100, 0], [2, 2, 1, 0]] * (num_rows // 2),
            "noisy": [[0, 2, -100, 1], [2, 0, 0, 1]] * (num_rows // 2),
            "trusted": [[True, False, False, False], [True, False, True, False]] * (num_rows // 2),
        }
    )
    settings = config(tmp_path, estimator="paired", noisy_label_column="noisy", trusted_share=0, max_steps=1)
    matrices = []
    for data in (rows, rows.to_iterable_dataset(), rows.to_iterable_dataset().map(lambda row: row)):
        trainer = GLCTrainer(token_bert(), settings, train_dataset=data)
        trainer.train()
        matrices.append(trainer.corruption_matrix.probs)
    assert matrices[0].argmax(axis=1).tolist() == [0, 0, 2]
    np.testing.assert_allclose(matrices[1], matrices[0])
    np.testing.assert_allclose(matrices[2], matrices[0])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([None, True, True, True], "a row has None in 'trusted': flags are booleans"),
        (["maybe", "no", "no", "no"], "a row has 'maybe' in 'trusted': flags are booleans"),
        ([0.5, 1.0, 0.0, 0.0], "a row has 0.5 in 'trusted'"),
    ],
)
@pytest.mark.parametrize("method", ["true_matrix", "glc"])
def test_invalid_flag_in_a_stream_raises_when_it_is_read(tmp_path, flags, message, method):
    rows = Dataset.from_dict({"input_ids": [[1, 2, 3]] * 4, "label": [0, 1, 2, 0], "trusted": flags})
    matrix = CorruptionMatrix.flip(3, 0.6) if method == "true_matrix" else None
    trainer = GLCTrainer(
        bert(), config(tmp_path, method=method, trusted_share=0), train_dataset=rows.to_iterable_dataset(),
        corruption_matrix=matrix,
    )  # fmt: skip
    with pytest.raises(ValueError, match=message):
        trainer.train()


def test_stream_with_unknown_columns_and_no_flags_raises_in_training(tmp_path):
    rows = text_rows(40, trusted=None).to_iterable_dataset().map(lambda row: row)
    settings = config(tmp_path, method="true_matrix", trusted_share=0)
    trainer = GLCTrainer(bert(), settings, train_dataset=rows, corruption_matrix=CorruptionMatrix.flip(3, 0.6))
    with pytest.raises(ValueError, match="has no 'trusted', and the method needs to know"):
        trainer.train()


def test_method_without_flags_trains_on_a_stream_without_flags(tmp_path):
    rows = text_rows(40, trusted=None).to_iterable_dataset()
    trainer = GLCTrainer(bert(), config(tmp_path, method="no_correction"), train_dataset=rows)
    assert trainer.train().global_step == 4
