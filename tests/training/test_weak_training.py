# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Noisy labels drawn from a weak classifier."""

from __future__ import annotations

import numpy as np
import pytest

from glc_hf import GLCTrainer
from glc_hf.training.weak_training import label_by_weak_classifier
from tests.training.tiny import bert, config, same_weights, text_rows, weights


def test_weak_classifier_labels_untrusted_rows_and_reports_its_accuracy(tmp_path):
    clean, model = text_rows(400, trusted=0.1), bert()
    before = weights(model)
    settings = config(tmp_path, max_steps=-1, learning_rate=3e-3, logging_steps=1000)
    accuracies = {}
    for epochs, temperature in ((1, 5.0), (6, 5.0), (6, 1.0)):
        noisy, accuracy = label_by_weak_classifier(clean, model, settings, epochs, temperature)
        given, true, flags = (np.array(noisy[name]) for name in ("label", "clean_label", "trusted"))
        assert (given[flags] == true[flags]).all()
        assert accuracy == (given[~flags] == true[~flags]).mean()
        assert true.tolist() == clean["label"][:]
        accuracies[epochs, temperature] = accuracy
    assert accuracies[1, 5.0] < accuracies[6, 5.0] < accuracies[6, 1.0]
    assert same_weights(before, weights(model))
    again, accuracy = label_by_weak_classifier(clean, model, settings, 6, 1.0)
    assert accuracy == accuracies[6, 1.0]
    trainer = GLCTrainer(bert(), config(tmp_path), train_dataset=again)
    trainer.train()
    assert trainer.corruption_matrix is not None


def test_held_out_rows_get_weak_labels_too(tmp_path):
    settings = config(tmp_path, trusted_eval_fraction=0.2, logging_steps=1000)
    clean = text_rows()
    noisy, accuracy = label_by_weak_classifier(clean, bert(), settings, 1)
    changed = np.array(noisy["label"][:]) != np.array(clean["label"][:])
    untrusted = ~np.array(clean["trusted"][:])
    assert noisy["clean_label"][:] == clean["label"][:]
    assert accuracy == pytest.approx(1 - changed[untrusted].mean())
    # No row is left out: the noise reaches every part of the dataset.
    assert all(part.any() for part in np.array_split(changed[untrusted], 6))
