# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Methods on token labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from glc_hf import CorruptionMatrix, GLCTrainer, corrupt_labels, mark_trusted
from glc_hf.methods import available_methods
from glc_hf.training.batches import ROW_KEY, FlaggedRows
from glc_hf.training.weak_training import label_by_weak_classifier
from tests.training.tiny import config, same_weights, token_bert, token_collator, token_rows, weights


NOISE = CorruptionMatrix.flip(3, 0.6)


@pytest.mark.parametrize("level", ["row", "token"])
@pytest.mark.parametrize("method", available_methods())
def test_every_method_trains_on_token_labels(tmp_path, method, level):
    data = mark_trusted(token_rows(), fraction=0.3, level=level, label_column="labels")
    data = corrupt_labels(data, NOISE, label_column="labels")
    trainer = GLCTrainer(
        token_bert(),
        config(tmp_path, method=method, max_steps=2, trusted_min_updates=2),
        train_dataset=data,
        eval_dataset=token_rows(20, seed=1),
        data_collator=token_collator(),
        corruption_matrix=NOISE if method == "true_matrix" else None,
    )
    before = weights(trainer.model)
    trainer.train()
    assert not same_weights(before, weights(trainer.model))
    assert 0 <= trainer.evaluate()["eval_accuracy"] <= 1


def test_soft_targets_belong_to_their_tokens(tmp_path):
    """Item numbers, which select the soft targets, point to the same tokens in a padded batch."""
    data = mark_trusted(token_rows(), fraction=0.3, level="token", label_column="labels")
    data = corrupt_labels(data, NOISE, label_column="labels")
    settings = config(tmp_path, method="distillation", distillation_lambda="0", max_steps=2, trusted_min_updates=2)
    trainer = GLCTrainer(token_bert(), settings, train_dataset=data, data_collator=token_collator())
    trainer.train()
    targets = trainer.method.soft_targets
    counted = [[label != -100 for label in row] for row in data["labels"]]
    flags = [flag for row, kept in zip(data["trusted"], counted, strict=True) for flag in np.array(row)[kept].tolist()]
    assert len(targets) == len(flags)
    assert (targets[torch.tensor(flags)] == 0).all()
    assert torch.allclose(targets[~torch.tensor(flags)].sum(-1), torch.tensor(1.0))
    collate = trainer.data_collator
    rows = [5, 17, 3]
    plain = data.remove_columns(["clean_label"])
    view = FlaggedRows(plain, np.array(rows), trainer.training_data.rows.flags, "trusted")
    batch = collate(view.__getitems__([0, 1, 2]))
    numbers = trainer.training_data.item_numbers(batch[ROW_KEY], batch["labels"])
    offsets = np.cumsum([0] + [sum(kept) for kept in counted])
    for index, row in enumerate(rows):
        kept = batch["labels"][index] != -100
        assert numbers[index][kept].tolist() == list(range(offsets[row], offsets[row + 1]))


def test_weak_classifier_labels_tokens(tmp_path):
    data = mark_trusted(token_rows(), fraction=0.2, level="token", label_column="labels")
    noisy, accuracy = label_by_weak_classifier(
        data, token_bert(), config(tmp_path, max_steps=-1), 1, label_column="labels", data_collator=token_collator()
    )
    pairs = [
        (given, true)
        for row in noisy
        for given, true, flag in zip(row["labels"], row["clean_label"], row["trusted"], strict=True)
        if true != -100 and not flag
    ]
    assert accuracy == pytest.approx(sum(g == t for g, t in pairs) / len(pairs))
    assert [[label == -100 for label in row] for row in noisy["labels"]] == [
        [label == -100 for label in row] for row in data["labels"]
    ]
