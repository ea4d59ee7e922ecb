# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The last stage improves the matrix: when, by how much, and without harm to what else is promised."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import TrainerCallback

from glc_hf import CorruptionMatrix, GLCTrainer
from glc_hf.methods.glc import refinement_steps
from tests.training.tiny import bert, config, noisy_text_rows, same_weights, token_bert, token_rows, weights


class Matrices(TrainerCallback):
    """Which matrix was in place after each step of the last stage."""

    def __init__(self) -> None:
        self.trainer: GLCTrainer | None = None
        self.seen: dict[int, CorruptionMatrix] = {}

    def on_step_begin(self, args, state, control, **kwargs) -> None:
        if self.trainer is not None and state is self.trainer.state:
            self.seen[state.global_step] = self.trainer.corruption_matrix


def _trainer(folder: Path, **settings) -> tuple[GLCTrainer, Matrices]:
    watch = Matrices()
    given = settings.pop("corruption_matrix", None)
    settings = {"max_steps": 9, "stage1_max_steps": 40, **settings}
    data = noisy_text_rows(rows=600, trusted=0.05)
    trainer = GLCTrainer(
        bert(), config(folder, **settings), train_dataset=data, callbacks=[watch], corruption_matrix=given
    )
    watch.trainer = trainer
    return trainer, watch


def test_it_happens_after_one_and_two_thirds_of_the_steps(tmp_path: Path) -> None:
    assert refinement_steps(9) == (3, 6)
    assert refinement_steps(501) == (167, 334)
    assert refinement_steps(1) == ()
    assert refinement_steps(2) == (1,)
    trainer, watch = _trainer(tmp_path)
    trainer.train()
    before, between, after = (watch.seen[step] for step in (2, 5, 8))
    assert before == watch.seen[0]
    assert between == watch.seen[3]
    assert before != between
    assert between != after
    assert trainer.corruption_matrix == after
    assert after.label_names == ["class 0", "class 1", "class 2"]


def test_the_refined_matrix_is_closer_to_the_truth(tmp_path: Path) -> None:
    truth = CorruptionMatrix.flip(3, 0.6, seed=0)
    trainer, watch = _trainer(tmp_path, max_steps=90, stage1_max_steps=30)
    trainer.train()
    first, last = truth.distance(watch.seen[0]), truth.distance(trainer.corruption_matrix)
    assert last < 0.5 * first


def test_without_it_the_first_estimate_stays(tmp_path: Path) -> None:
    trainer, watch = _trainer(tmp_path, refine_matrix=False)
    trainer.train()
    assert len({id(matrix) for matrix in watch.seen.values()}) == 1


@pytest.mark.parametrize("method", ["glc", "true_matrix"])
def test_a_given_matrix_is_never_changed(tmp_path: Path, method: str) -> None:
    given = CorruptionMatrix.flip(3, 0.5)
    trainer, _ = _trainer(tmp_path, corruption_matrix=given, method=method)
    trainer.train()
    np.testing.assert_array_equal(trainer.corruption_matrix.probs, given.probs)


def test_other_methods_keep_their_matrix(tmp_path: Path) -> None:
    trainer, watch = _trainer(tmp_path, method="confusion_matrix")
    trainer.train()
    assert watch.seen[0] is trainer.corruption_matrix


@pytest.mark.parametrize("step", [1, 3, 4, 6, 8])
def test_a_run_stopped_around_a_refinement_ends_the_same(tmp_path: Path, step: int) -> None:
    class Stop(Exception):
        pass

    class StopAt(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs) -> None:
            if not args.output_dir.endswith("stage1") and state.global_step == step:
                raise Stop

    settings = {"save_strategy": "steps", "save_steps": 1, "stage1_max_steps": 4}
    whole, _ = _trainer(tmp_path / "whole", **settings)
    whole.train()
    stopped, _ = _trainer(tmp_path / "stopped", **settings)
    stopped.add_callback(StopAt())
    with pytest.raises(Stop):
        stopped.train()
    resumed, _ = _trainer(tmp_path / "stopped", **settings)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.corruption_matrix == whole.corruption_matrix
    assert same_weights(weights(resumed.model), weights(whole.model))


def test_it_looks_at_a_sample_of_many_items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from glc_hf.methods import glc as refinement

    seen: list[int] = []
    found = refinement.most_likely_matrix

    def count(probs, *args, **kwargs):
        seen.append(len(probs))
        return found(probs, *args, **kwargs)

    monkeypatch.setattr(refinement, "most_likely_matrix", count)
    monkeypatch.setattr(refinement, "_MIN_ITEMS", 100)
    monkeypatch.setattr(refinement, "_ITEMS_PER_CLASS", 50)
    trainer, _ = _trainer(tmp_path)
    trainer.train()
    assert seen == [150, 150]
    monkeypatch.setattr(refinement, "_MAX_PROBABILITIES", 29 * 3)  # fewer than ten items per class
    trainer, watch = _trainer(tmp_path)
    trainer.train()
    assert seen == [150, 150]
    assert trainer.corruption_matrix == watch.seen[0]


def test_untrusted_tokens_count_and_trusted_ones_don_t(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from glc_hf.methods import glc as refinement

    seen: list[int] = []
    found = refinement.most_likely_matrix
    monkeypatch.setattr(
        refinement,
        "most_likely_matrix",
        lambda probs, labels, *rest, **kwargs: seen.append(len(labels)) or found(probs, labels, *rest, **kwargs),
    )
    data = token_rows()
    flags = [[place % 2 == 0 for place, _ in enumerate(labels)] for labels in data["labels"]]
    data = data.add_column("trusted", flags)
    trainer = GLCTrainer(token_bert(), config(tmp_path, max_steps=3), train_dataset=data, data_collator=_pad)
    trainer.train()
    untrusted = sum(
        label != -100 and not flag
        for labels, row in zip(data["labels"], flags, strict=True)
        for label, flag in zip(labels, row, strict=True)
    )
    assert seen == [untrusted, untrusted]


def _pad(features: list[dict]) -> dict:
    import torch

    length = max(len(feature["input_ids"]) for feature in features)
    filling = {"input_ids": 0, "attention_mask": 0, "labels": -100}
    return {
        name: torch.tensor([[*feature[name], *[value] * (length - len(feature[name]))] for feature in features])
        for name, value in filling.items()
    }


class _Remembers(torch.nn.Module):
    """Keeps a tensor from one forward pass for the next, as some networks keep tables of positions."""

    num_classes = 3

    def __init__(self) -> None:
        super().__init__()
        self.embeddings, self.head = torch.nn.Embedding(40, 16), torch.nn.Linear(16, 3)
        self.kept = None

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        if not self.training or self.kept is None:
            self.kept = torch.ones(input_ids.shape[1], 1)
        return {"logits": self.head((self.embeddings(input_ids) * self.kept).mean(1))}


def test_networks_that_keep_tensors_train_on_after_it(tmp_path: Path) -> None:
    trainer = GLCTrainer(_Remembers(), config(tmp_path, max_steps=6), train_dataset=noisy_text_rows())
    assert trainer.train().global_step == 6
