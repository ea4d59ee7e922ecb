# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The estimate of `glc`, and its refinement in the last stage."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import TrainerCallback

from glc_hf import CorruptionMatrix, GLCTrainer
from glc_hf.methods import glc
from glc_hf.methods.glc import refinement_steps
from tests.methods.fake_run import FakeRun, make_method
from tests.training.tiny import bert, config, noisy_text_rows, same_weights, token_bert, token_rows, weights


def test_matrix_is_the_mean_softmax_of_trusted_rows_per_class(tmp_path):
    probs = [[0.9, 0.1], [0.7, 0.3], [0.2, 0.8], [0.5, 0.5]]
    method = make_method("glc", tmp_path, 2)
    method.estimate(FakeRun([probs], labels=[0, 0, 1, 1], trusted=[True, True, True, False]))
    np.testing.assert_allclose(method.matrix.probs, [[0.8, 0.2], [0.2, 0.8]], atol=1e-7)
    assert method.matrix.trusted_rows.tolist() == [2, 1]


def test_with_an_accurate_stage_1_glc_is_accurate_and_the_confusion_matrix_is_biased(tmp_path):
    """On separable data stage 1 returns the matrix row of the true class. With flip 0.7 its argmax is always wrong."""
    true_matrix, rng = CorruptionMatrix.flip(5, 0.7, seed=3), np.random.default_rng(0)
    labels = rng.integers(5, size=400)
    # The true row with sampling error, as from finite data.
    probs = true_matrix.probs[labels] + rng.normal(0, 0.02, size=(400, 5))
    probs = np.clip(probs, 1e-3, None)
    probs /= probs.sum(1, keepdims=True)
    run = FakeRun([probs], labels, trusted=np.ones(400))
    gold, confusion = make_method("glc", tmp_path, 5), make_method("confusion_matrix", tmp_path, 5)
    gold.estimate(run)
    confusion.estimate(run)
    assert true_matrix.distance(gold.matrix) < 0.03
    assert true_matrix.distance(confusion.matrix) == pytest.approx(0.3, abs=0.01)
    assert np.diag(confusion.matrix.probs).max() < 0.01
    assert confusion.matrix.trusted_rows.tolist() == np.bincount(labels).tolist()


def test_paired_estimator_counts_labels_without_a_first_stage(tmp_path):
    method = make_method("glc", tmp_path, 2, estimator="paired", noisy_label_column="crowd", smoothing=0.0)
    assert method.first_stages() == []
    method.estimate(FakeRun([], [0, 0, 0, 0, 1, 1, 1], [True] * 6 + [False], noisy=[0, 1, 1, 1, 1, 0, 1]))
    np.testing.assert_allclose(method.matrix.probs, [[0.25, 0.75], [0.5, 0.5]])
    assert method.matrix.trusted_rows.tolist() == [4, 2]
    method.estimate(FakeRun([], [0, 0, 0, 0, 1, 1, 1], [True] * 6 + [False], noisy=[0, 1, -1, 1, 1, -1, 1]))
    np.testing.assert_allclose(method.matrix.probs, [[1 / 3, 2 / 3], [0.0, 1.0]])  # -1: not known
    assert method.matrix.trusted_rows.tolist() == [3, 1]
    with pytest.raises(ValueError, match="no trusted row has a label in column 'crowd'"):
        method.estimate(FakeRun([], [0, 1], [True, True], noisy=[-1, -1]))


def test_calibration_corrects_overconfidence(tmp_path):
    """With logits three times too large, calibration recovers the matrix of the true probabilities."""
    rng = np.random.default_rng(0)
    true_probs = np.array([[0.4, 0.6], [0.7, 0.3]])
    classes = rng.integers(2, size=4000)
    labels = np.where(np.arange(4000) < 2000, classes, (rng.random(4000) > true_probs[classes, 0]).astype(int))
    overconfident = true_probs[classes] ** 3
    overconfident /= overconfident.sum(1, keepdims=True)
    run = FakeRun([overconfident], labels, trusted=np.arange(4000) < 2000, held_out=np.arange(2000, 4000))
    plain, calibrated = make_method("glc", tmp_path, 2), make_method("glc", tmp_path, 2, calibrate=True)
    assert calibrated.first_stages()[0].held_out > 0
    plain.estimate(run)
    calibrated.estimate(run)
    true_matrix = CorruptionMatrix(true_probs)
    assert true_matrix.distance(plain.matrix) > 0.1
    assert true_matrix.distance(calibrated.matrix) < 0.02


def test_match_base_rates_moves_the_matrix_towards_the_observed_label_frequencies(tmp_path):
    probs = np.array([[0.7, 0.3]] * 10 + [[0.3, 0.7]] * 10 + [[0.5, 0.5]] * 100)
    labels = [0] * 10 + [1] * 10 + [0] * 80 + [1] * 20
    run = FakeRun([probs], labels, trusted=[True] * 20 + [False] * 100)
    plain, matched = make_method("glc", tmp_path, 2), make_method("glc", tmp_path, 2, match_base_rates=True)
    plain.estimate(run)
    matched.estimate(run)
    b, target = np.array([0.5, 0.5]), np.array([0.8, 0.2])
    errors = [np.abs(b @ method.matrix.probs - target).sum() for method in (plain, matched)]
    assert errors[1] == pytest.approx(errors[0] / 2, abs=1e-6)  # λ = ‖b‖² halves the distance


class MatrixRecorder(TrainerCallback):
    """Stores the matrix that each step of the last stage uses."""

    def __init__(self) -> None:
        self.trainer: GLCTrainer | None = None
        self.matrices: dict[int, CorruptionMatrix] = {}

    def on_step_begin(self, args, state, control, **kwargs) -> None:
        if self.trainer is not None and self.trainer.first_stage is None:
            self.matrices[state.global_step] = self.trainer.corruption_matrix


def _trainer(folder: Path, **settings) -> tuple[GLCTrainer, MatrixRecorder]:
    recorder = MatrixRecorder()
    given = settings.pop("corruption_matrix", None)
    settings = {"max_steps": 9, "stage1_max_steps": 40, **settings}
    data = noisy_text_rows(rows=600, trusted=0.05)
    trainer = GLCTrainer(
        bert(), config(folder, **settings), train_dataset=data, callbacks=[recorder], corruption_matrix=given
    )
    recorder.trainer = trainer
    return trainer, recorder


def test_matrix_is_refined_after_one_third_and_two_thirds_of_the_steps(tmp_path: Path) -> None:
    assert refinement_steps(9) == (3, 6)
    assert refinement_steps(501) == (167, 334)
    assert refinement_steps(1) == ()
    assert refinement_steps(2) == (1,)
    trainer, recorder = _trainer(tmp_path)
    trainer.train()
    before, between, after = (recorder.matrices[step] for step in (2, 5, 8))
    assert before == recorder.matrices[0]
    assert between == recorder.matrices[3]
    assert before != between
    assert between != after
    assert trainer.corruption_matrix == after
    assert after.label_names == ["class 0", "class 1", "class 2"]
    data = trainer.train_dataset
    trusted = [label for label, flag in zip(data["label"], data["trusted"], strict=True) if flag]
    for matrix in (before, between, after):
        assert matrix.trusted_rows.tolist() == np.bincount(trusted).tolist()


def test_refined_matrix_is_closer_to_the_true_one(tmp_path: Path) -> None:
    truth = CorruptionMatrix.flip(3, 0.6, seed=0)
    trainer, recorder = _trainer(tmp_path, max_steps=90, stage1_max_steps=30)
    trainer.train()
    first, last = truth.distance(recorder.matrices[0]), truth.distance(trainer.corruption_matrix)
    assert last < 0.5 * first


def test_matrix_does_not_change_with_refine_matrix_false(tmp_path: Path) -> None:
    trainer, recorder = _trainer(tmp_path, refine_matrix=False)
    trainer.train()
    assert len({id(matrix) for matrix in recorder.matrices.values()}) == 1


@pytest.mark.parametrize("method", ["glc", "true_matrix"])
def test_given_matrix_is_not_refined(tmp_path: Path, method: str) -> None:
    given = CorruptionMatrix.flip(3, 0.5)
    trainer, _ = _trainer(tmp_path, corruption_matrix=given, method=method)
    trainer.train()
    np.testing.assert_array_equal(trainer.corruption_matrix.probs, given.probs)


def test_matrix_of_a_class_without_trusted_rows_has_the_whole_range_as_interval(tmp_path: Path) -> None:
    probs = [[0.9, 0.1], [0.7, 0.3], [0.2, 0.8], [0.5, 0.5]]
    method = make_method("glc", tmp_path, 2)
    with pytest.warns(UserWarning, match="no trusted row"):
        method.estimate(FakeRun([probs], labels=[0, 0, 1, 1], trusted=[True, True, False, False]))
    assert method.matrix.trusted_rows.tolist() == [2, 0]
    low, high = method.matrix.interval()
    assert low[1].tolist() == [0.0, 0.0]
    assert high[1].tolist() == [1.0, 1.0]
    assert any(warning.startswith("no trusted row for 1 of 2 classes: 1.") for warning in method.warnings())


def test_confusion_matrix_is_not_refined(tmp_path: Path) -> None:
    trainer, recorder = _trainer(tmp_path, method="confusion_matrix")
    trainer.train()
    assert recorder.matrices[0] is trainer.corruption_matrix


RESUMABLE = {"save_strategy": "steps", "save_steps": 1, "stage1_max_steps": 4}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> GLCTrainer:
    trainer, _ = _trainer(tmp_path_factory.mktemp("uninterrupted"), **RESUMABLE)
    trainer.train()
    return trainer


@pytest.mark.parametrize("step", [1, 3, 4, 6, 8])
def test_run_resumed_around_a_refinement_ends_with_the_same_weights(
    tmp_path: Path, uninterrupted: GLCTrainer, step: int
) -> None:
    class Stop(Exception):
        pass

    class StopAt(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs) -> None:
            if not args.output_dir.endswith("stage1") and state.global_step == step:
                raise Stop

    stopped, _ = _trainer(tmp_path / "stopped", **RESUMABLE)
    stopped.add_callback(StopAt())
    with pytest.raises(Stop):
        stopped.train()
    resumed, _ = _trainer(tmp_path / "stopped", **RESUMABLE)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.corruption_matrix == uninterrupted.corruption_matrix
    assert same_weights(weights(resumed.model), weights(uninterrupted.model))


def test_refinement_samples_items_and_needs_ten_per_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    num_items: list[int] = []
    original = glc.most_likely_matrix

    def count(probs, *args, **kwargs):
        num_items.append(len(probs))
        return original(probs, *args, **kwargs)

    monkeypatch.setattr(glc, "most_likely_matrix", count)
    monkeypatch.setattr(glc, "_MIN_ITEMS", 100)
    monkeypatch.setattr(glc, "_ITEMS_PER_CLASS", 50)
    trainer, _ = _trainer(tmp_path)
    trainer.train()
    assert num_items == [150, 150]
    monkeypatch.setattr(glc, "_MAX_PROBABILITIES", 29 * 3)  # fewer than ten items per class
    trainer, recorder = _trainer(tmp_path)
    trainer.train()
    assert num_items == [150, 150]
    assert trainer.corruption_matrix == recorder.matrices[0]


def test_refinement_uses_untrusted_tokens_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    num_items: list[int] = []
    original = glc.most_likely_matrix

    def count(probs, labels, *args, **kwargs):
        num_items.append(len(labels))
        return original(probs, labels, *args, **kwargs)

    monkeypatch.setattr(glc, "most_likely_matrix", count)
    data = token_rows()
    flags = [[index % 2 == 0 for index, _ in enumerate(labels)] for labels in data["labels"]]
    data = data.add_column("trusted", flags)
    trainer = GLCTrainer(token_bert(), config(tmp_path, max_steps=3), train_dataset=data, data_collator=_pad)
    trainer.train()
    untrusted = sum(
        label != -100 and not flag
        for labels, row in zip(data["labels"], flags, strict=True)
        for label, flag in zip(labels, row, strict=True)
    )
    assert num_items == [untrusted, untrusted]


def _pad(features: list[dict]) -> dict:
    length = max(len(feature["input_ids"]) for feature in features)
    padding = {"input_ids": 0, "attention_mask": 0, "labels": -100}
    return {
        name: torch.tensor([[*feature[name], *[value] * (length - len(feature[name]))] for feature in features])
        for name, value in padding.items()
    }


class _KeepsTensor(torch.nn.Module):
    """Keeps a tensor from one forward pass to the next, as some models keep their position tables."""

    num_classes = 3

    def __init__(self) -> None:
        super().__init__()
        self.embeddings, self.head = torch.nn.Embedding(40, 16), torch.nn.Linear(16, 3)
        self.kept = None

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        if not self.training or self.kept is None:
            self.kept = torch.ones(input_ids.shape[1], 1)
        return {"logits": self.head((self.embeddings(input_ids) * self.kept).mean(1))}


def test_models_that_keep_tensors_can_train_after_a_refinement(tmp_path: Path) -> None:
    trainer = GLCTrainer(_KeepsTensor(), config(tmp_path, max_steps=6), train_dataset=noisy_text_rows())
    assert trainer.train().global_step == 6
