# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Interrupted runs with the votes of several sources end with the same weights as uninterrupted ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from datasets import Dataset

from glc_hf import GLCTrainer
from glc_hf.hub.model_card import ModelCardCallback
from glc_hf.methods.glc import GoldLossCorrection
from tests.training.test_resume import Crash, CrashAt
from tests.training.test_voted_rows import make_trainer, token_trainer, voted_rows, voted_token_rows, votes_on
from tests.training.tiny import quick_pool, same_weights, text_rows, weights


PEOPLE = {"source_columns": None, "votes_column": "votes"}


def people_rows(rows: int = 150, people: int = 12) -> Dataset:
    """Rows with the answers of people who each saw a part of them, in lists. Only trusted rows have a label."""
    data = text_rows(rows, trusted=0.3)
    true = np.array(data["label"])
    answers = [votes_on(true, 0.3 + 0.05 * person, 0.3, person) for person in range(people)]
    labels = [int(label) if flag else None for label, flag in zip(true, data["trusted"], strict=True)]
    data = data.remove_columns("label").add_column("label", labels)
    return data.add_column("votes", [list(votes) for votes in zip(*answers, strict=True)])


def trained(make: Callable[..., GLCTrainer], folder: Any, crash_at: int | None = None, **settings: Any) -> GLCTrainer:
    """A trainer after six steps; with `crash_at`, after a run that ended at this step of the last stage."""
    settings = {"max_steps": 6, "save_strategy": "no" if crash_at is None else "steps", "save_steps": 2, **settings}
    if crash_at is not None:
        crashed = make(folder, **settings)
        crashed.add_callback(CrashAt(2, crash_at))
        with pytest.raises(Crash):
            crashed.train()
    trainer = make(folder, **settings)
    trainer.train(resume_from_checkpoint=crash_at is not None)
    return trainer


@pytest.fixture(autouse=True)
def no_cards(monkeypatch) -> None:
    """Drawing the matrices for the cards of all checkpoints takes most of the time."""
    monkeypatch.setattr(ModelCardCallback, "save", lambda self, folder: None)


@pytest.fixture
def refinements(monkeypatch) -> list[np.ndarray]:
    """The tables of the sources after each refinement."""
    tables: list[np.ndarray] = []
    original = GoldLossCorrection._refine_sources

    def spy(self: GoldLossCorrection, run: Any) -> None:
        original(self, run)
        tables.append(self.sources.given_vote)

    monkeypatch.setattr(GoldLossCorrection, "_refine_sources", spy)
    return tables


@pytest.mark.parametrize(
    ("method", "crash_at", "repeated"), [("glc", 1, 0), ("glc", 3, 0), ("glc", 4, 1), ("glc", 5, 0), ("auto", 5, 0)]
)
def test_sources_that_were_refined_stay_refined(tmp_path, refinements, method, crash_at, repeated):
    """They are refined after steps 2 and 4. The crash at step 4 is after the refinement and before the checkpoint."""

    def make(folder: Any, **settings: Any) -> GLCTrainer:
        return make_trainer(folder, people_rows(), method=method, **PEOPLE, **settings)

    whole = trained(make, tmp_path)
    first = list(refinements)
    assert len(first) == 2
    assert not np.allclose(first[0], first[1])
    resumed = trained(make, tmp_path, crash_at)
    assert len(refinements) == 4 + repeated
    assert np.array_equal(refinements[-1], first[1])
    assert_same(resumed, whole)
    assert str(resumed.sources()) == str(whole.sources())


@pytest.mark.parametrize("crash_at", [1, 3, 5])
def test_auto_with_a_pretrained_network(tmp_path, crash_at):
    """The model is judged after the fourth of six steps."""
    data, _ = voted_rows(260)

    def make(folder: Any, **settings: Any) -> GLCTrainer:
        return make_trainer(folder, data, method="auto", pretrained=True, **settings)

    with quick_pool(tmp_path / "features"):
        whole, resumed = trained(make, tmp_path), trained(make, tmp_path, crash_at)
    assert whole.verdict.final
    assert resumed.verdict == whole.verdict
    assert_same(resumed, whole)


def test_votes_on_tokens(tmp_path, refinements):
    def make(folder: Any, **settings: Any) -> GLCTrainer:
        return token_trainer(folder, voted_token_rows(), **settings)

    whole, resumed = trained(make, tmp_path), trained(make, tmp_path, 5)
    assert len(refinements) == 4
    assert_same(resumed, whole)


def assert_same(resumed: GLCTrainer, whole: GLCTrainer) -> None:
    assert same_weights(weights(resumed.model), weights(whole.model))
    assert resumed.corruption_matrices == whole.corruption_matrices
    assert resumed.method.sources.temperature == whole.method.sources.temperature
