# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The method `auto` with other networks and kinds of data: from scratch, streams, tokens, paired labels."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from glc_hf import CorruptionMatrix, GLCTrainer, corrupt_labels, mark_trusted
from glc_hf.methods import auto
from glc_hf.methods.auto_decision import BOTH
from tests.methods.auto_runs import KINDS, make_trainer, rows_of_kind, train
from tests.training.tiny import (
    noisy_text_rows,
    quick_pool,
    same_weights,
    text_rows,
    token_bert,
    token_collator,
    token_rows,
    weights,
)


@pytest.fixture(scope="module", autouse=True)
def _fast_pool(tmp_path_factory) -> Iterator[None]:
    with quick_pool(tmp_path_factory.mktemp("cache")):
        yield


def test_network_from_scratch_with_few_trusted_rows_ends_with_the_weights_of_glc(tmp_path):
    data = noisy_text_rows(120)
    trained = [make_trainer(tmp_path, data, pretrained=None, method=method) for method in ("auto", "glc")]
    for trainer in trained:
        trainer.train()
    first, second = trained
    assert first.method.first_stages() == second.method.first_stages()
    assert first.method.last_stage() == second.method.last_stage()
    assert same_weights(weights(first.model), weights(second.model))
    assert first.corruption_matrix == second.corruption_matrix
    assert second.verdict is None
    assert (first.verdict.final, first.verdict.helps, first.verdict.trusted_rows) == (False, None, 24)
    assert first.verdict.ways.keys() == {"no_correction"}


def test_network_from_scratch_is_judged_with_200_trusted_rows(tmp_path):
    run = train(tmp_path, noisy_text_rows(400, trusted=0.5), pretrained=False, max_steps=6, learning_rate=1e-3)
    verdict = run.trainer.verdict
    assert len(run.judges) == 40
    assert verdict.final
    assert verdict.ways.keys() == {"no_correction", "auto"}
    assert verdict.ways["auto"].measured.endswith("40 of 200 trusted labels")


def test_given_matrix_is_used_as_by_glc(tmp_path):
    matrix = CorruptionMatrix.flip(3, 0.6, seed=0)
    trained = [
        make_trainer(tmp_path, noisy_text_rows(120), method=method, corruption_matrix=matrix)
        for method in ("auto", "glc")
    ]
    for trainer in trained:
        trainer.train()
    assert trained[0].method.first_stages() == []
    assert trained[0].verdict is None
    assert np.array_equal(trained[0].corruption_matrix.probs, matrix.probs)
    assert same_weights(*(weights(trainer.model) for trainer in trained))


def test_stream_is_trained_as_by_glc(tmp_path):
    def trainer(method: str) -> GLCTrainer:
        stream = noisy_text_rows(120).to_iterable_dataset()
        return make_trainer(tmp_path, stream, method=method, trusted_share=0.0)

    trained = [trainer("auto"), trainer("glc")]
    for one in trained:
        one.train()
    assert trained[0].verdict is None
    assert trained[0].corruption_matrix == trained[1].corruption_matrix
    assert same_weights(*(weights(one.model) for one in trained))


def test_token_labels_are_judged_one_by_one(tmp_path):
    data = mark_trusted(token_rows(80), fraction=0.3, level="token", label_column="labels")
    data = corrupt_labels(data, CorruptionMatrix.flip(3, 0.5), label_column="labels")
    run = train(tmp_path, data, model=token_bert(), data_collator=token_collator(), max_steps=8)
    trusted = sum(
        flag and label != -100 for row in data for flag, label in zip(row["trusted"], row["labels"], strict=True)
    )
    assert run.trainer.verdict.final
    assert run.trainer.verdict.trusted_rows == trusted
    assert len(run.judges) == round(0.2 * trusted)
    for items, _, losses in run.batches[: 2 * len(run.batches) // 3]:
        assert (losses[torch.isin(items, run.judges)] == 0).all()


def _rows_without_trusted_class_2(trusted: int):
    data = text_rows(600, trusted=None)
    chosen = [row for row, label in enumerate(data["label"][:]) if label != 2][:trusted]
    return corrupt_labels(mark_trusted(data, indices=chosen), KINDS["good"])


def test_classes_without_trusted_rows_are_named_in_a_warning(tmp_path, caplog):
    trainer = make_trainer(tmp_path, _rows_without_trusted_class_2(5), max_steps=4)
    with caplog.at_level(logging.WARNING):
        trainer.train()
    assert "no trusted row for 1 of 3 classes: class 2" in caplog.text
    assert any("class 2" in warning for warning in trainer.warnings)
    assert np.isfinite(trainer.corruption_matrix.probs).all()


def test_a_class_that_trusted_rows_do_not_show_is_not_forgotten(tmp_path, caplog):
    data = _rows_without_trusted_class_2(60)
    trainer = make_trainer(tmp_path, data, max_steps=-1, num_train_epochs=4, learning_rate=1e-2)
    with caplog.at_level(logging.WARNING):
        trainer.train()
    why = "no trusted row has the class class 2, and few look like rows with this label"
    assert why in caplog.text
    assert trainer.verdict.sentence.startswith(f"It can't be told if correction helps: {why}")
    assert (trainer.verdict.ways, trainer.verdict.helps, trainer.verdict.trusted_rows) == ({}, None, 60)
    assert "class 2" in str(trainer.verdict)
    true = np.asarray(data["clean_label"][:])
    found = trainer.predict(data).predictions.argmax(axis=1)
    assert (found[true == 2] == 2).mean() > 0.9
    assert (found == true).mean() > 0.9


def test_one_trusted_row_judges_nothing(tmp_path):
    data = text_rows(200, trusted=None)
    trainer = make_trainer(tmp_path, corrupt_labels(mark_trusted(data, indices=[3]), KINDS["good"]), max_steps=4)
    trainer.train()
    assert trainer.verdict.ways == {}
    assert "one trusted label can't judge a model" in trainer.verdict.sentence
    assert trainer.corruption_matrix is not None


def test_dropping_the_last_batch_keeps_batches_whole_even_if_trusted_rows_are_fewer_than_one(tmp_path):
    """The end of the stage has trusted rows only, which are repeated to a batch."""
    run = train(
        tmp_path, rows_of_kind("useless", 300, 0.2), max_steps=-1, num_train_epochs=2, dataloader_drop_last=True,
        per_device_train_batch_size=64,
    )  # fmt: skip
    assert run.trainer.method.mixed_part == BOTH
    assert [len(items) for items, _, _ in run.batches] == [64] * 8  # two epochs of four whole batches
    assert run.batches[-1][1].all()
    assert run.trainer.verdict.final


def test_paired_labels_give_the_matrix_and_the_pool_the_verdict(tmp_path):
    data = rows_of_kind("flipped", 300, 0.3)
    noisy = corrupt_labels(data.remove_columns(["trusted", "label"]).rename_column("clean_label", "label"),
                           KINDS["flipped"], trusted_column=None, clean_column="true")  # fmt: skip
    data = data.add_column("noisy", noisy["label"][:])
    trainer = make_trainer(tmp_path, data, max_steps=6, estimator="paired", noisy_label_column="noisy")
    trainer.train()
    counted = make_trainer(
        tmp_path / "glc", data, method="glc", max_steps=1, estimator="paired", noisy_label_column="noisy"
    )
    counted.train()
    np.testing.assert_allclose(trainer.corruption_matrix.probs, counted.corruption_matrix.probs)
    assert trainer.verdict.final


@pytest.mark.parametrize(("shift", "known", "weight"), [(0, 300, 1.25), (1, 300, 0.0), (0, 150, 1.25)])
def test_paired_labels_decide_how_far_given_labels_are_believed(tmp_path, monkeypatch, shift, known, weight):
    """Noisy labels of trusted rows that are all right are believed, and those that are all wrong are not. They may be
    known for a part of the rows only."""
    data, pools, fit = rows_of_kind("good", 300, 0.3), [], auto.fit_pool
    noisy = ((np.array(data["clean_label"]) + shift) % 3).tolist()
    data = data.add_column("noisy", noisy[:known] + [None] * (300 - known))
    monkeypatch.setattr(auto, "fit_pool", lambda *words: pools.append(fit(*words)) or pools[-1])
    make_trainer(tmp_path, data, max_steps=4, estimator="paired", noisy_label_column="noisy").train()
    assert pools[0].given_weight == weight
