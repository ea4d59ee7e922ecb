# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Trusted rows held out of training and of the matrix, and the decisions based on them in both stages."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from transformers import EarlyStoppingCallback, TrainerCallback

from glc_hf import GLCTrainer, mark_trusted
from glc_hf.hold_out import held_out_trusted_rows
from glc_hf.training.inference import TrainedStages
from glc_hf.training.stage_trainer import StageTrainer
from tests.training.tiny import (
    bert,
    config,
    noisy_text_rows,
    same_weights,
    text_rows,
    token_bert,
    token_collator,
    token_rows,
    weights,
)


def _held_out(trainer) -> np.ndarray:
    return trainer.training_data.rows.held_out


def test_a_share_of_each_class_is_held_out_and_depends_only_on_the_seed(tmp_path):
    data = noisy_text_rows(rows=300)
    labels, trusted = np.array(data["label"]), np.array(data["trusted"])
    found = []
    for seed in (0, 0, 1):
        settings = config(tmp_path, trusted_eval_fraction=0.25, seed=seed)
        found.append(_held_out(GLCTrainer(bert(), settings, train_dataset=data)))
    rows = found[0]
    assert np.array_equal(rows, found[1])
    assert not np.array_equal(rows, found[2])
    assert len(rows) == round(0.25 * trusted.sum())
    assert trusted[rows].all()
    natural = np.bincount(labels[trusted]) / trusted.sum()
    assert np.abs(np.bincount(labels[rows]) / len(rows) - natural).max() < 0.1
    assert set(labels[np.setdiff1d(np.flatnonzero(trusted), rows)]) == {0, 1, 2}


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_no_stage_and_no_estimate_uses_a_held_out_row(tmp_path, monkeypatch, share):
    data = noisy_text_rows()
    seen = {"trained": set(), "estimated": set()}
    masked, infer = StageTrainer._with_ignored_labels, TrainedStages.infer

    def spy_on_training(self, batch):
        seen["trained"].update(batch["__row__"].tolist())
        return masked(self, batch)

    def spy_on_estimation(self, *args, **kwargs):
        for batch in infer(self, *args, **kwargs):
            seen["estimated"].update(batch.items.tolist())
            yield batch

    monkeypatch.setattr(StageTrainer, "_with_ignored_labels", spy_on_training)
    monkeypatch.setattr(TrainedStages, "infer", spy_on_estimation)
    settings = config(tmp_path, max_steps=-1, num_train_epochs=1, trusted_eval_fraction=0.25, trusted_share=share)
    trainer = GLCTrainer(bert(), settings, train_dataset=data)
    trainer.train()
    rows = _held_out(trainer)
    assert len(rows) == 12
    assert seen["trained"] == set(range(len(data))) - set(rows.tolist())
    # Items are numbered without the held-out rows: trusted ones for the estimate, untrusted ones to refine it.
    assert seen["estimated"] == set(range(len(data) - len(rows)))


def test_held_out_rows_are_the_evaluation_set_if_none_is_given(tmp_path):
    data = noisy_text_rows()
    settings = config(tmp_path, trusted_eval_fraction=0.25, eval_strategy="steps", eval_steps=2)
    trainer = GLCTrainer(bert(), settings, train_dataset=data)
    output = trainer.train()
    assert "stage1_eval_accuracy" in output.metrics
    held = data.select(_held_out(trainer))
    with torch.no_grad():
        predicted = trainer.model.eval()(torch.tensor(held["input_ids"][:])).logits.argmax(-1)
    right = (predicted == torch.tensor(held["label"][:])).float().mean().item()
    assert trainer.evaluate()["eval_accuracy"] == pytest.approx(right)


def test_held_out_rows_are_evaluated_next_to_a_given_evaluation_set(tmp_path):
    data, other = noisy_text_rows(), text_rows(50, trusted=None)
    reported = []

    class Listener(TrainerCallback):
        def on_evaluate(self, args, state, control, metrics, **kwargs):
            reported.append(dict(metrics))

    settings = config(tmp_path, trusted_eval_fraction=0.25)
    trainer = GLCTrainer(bert(), settings, train_dataset=data, eval_dataset=other, callbacks=[Listener()])
    trainer.train()
    metrics = trainer.evaluate()
    assert metrics["eval_accuracy"] == trainer.evaluate(other)["eval_accuracy"]
    assert metrics["eval_trusted_accuracy"] == trainer.evaluate(data.select(_held_out(trainer)))["eval_accuracy"]
    assert {"eval_accuracy", "eval_trusted_accuracy"} <= reported[0].keys()  # stage 1, both in one call
    named = GLCTrainer(bert(), settings, train_dataset=data, eval_dataset={"test": other})
    assert {"eval_test_accuracy", "eval_trusted_accuracy"} <= named.evaluate().keys()


def test_impossible_hold_outs_raise_an_error(tmp_path):
    settings = config(tmp_path, trusted_eval_fraction=0.9)
    with pytest.raises(ValueError, match="each class needs one"):
        GLCTrainer(bert(), settings, train_dataset=noisy_text_rows(rows=40, trusted=0.1))
    with pytest.raises(ValueError, match="a stream can't"):
        GLCTrainer(bert(), settings, train_dataset=noisy_text_rows().to_iterable_dataset())
    data, few = noisy_text_rows(), config(tmp_path, trusted_eval_fraction=0.2)
    with pytest.raises(ValueError, match="called 'trusted'"):
        GLCTrainer(bert(), few, train_dataset=data, eval_dataset={"trusted": data})
    with pytest.raises(ValueError, match=r"trusted_eval_fraction must be in \[0, 1\)"):
        config(tmp_path, trusted_eval_fraction=1.0)


def test_rows_with_trusted_tokens_are_held_out_and_judged_by_those_tokens(tmp_path):
    data = mark_trusted(token_rows(), fraction=0.1, level="token", label_column="labels").shuffle(seed=0)
    flags = data["trusted"][:]
    settings = config(tmp_path, trusted_eval_fraction=0.25)
    rows = held_out_trusted_rows(data, 0.25, seed=settings.seed)
    some = [row for row, row_flags in enumerate(flags) if any(row_flags)]
    assert len(rows) == round(0.25 * len(some))
    assert set(rows) <= set(some)
    trainer = GLCTrainer(token_bert(), settings, token_collator(), train_dataset=data)
    assert np.array_equal(_held_out(trainer), rows)
    assert trainer.eval_dataset["input_ids"][:] == data.select(rows)["input_ids"][:]
    for row, labels in zip(rows, trainer.eval_dataset["labels"], strict=True):
        given = data[int(row)]["labels"]
        assert labels == [label if flag else -100 for label, flag in zip(given, flags[row], strict=True)]
    assert data["labels"][:] == trainer.train_dataset["labels"][:]
    trainer.train()
    assert 0.0 <= trainer.evaluate()["eval_accuracy"] <= 1.0


def test_a_fraction_of_zero_holds_no_row_out():
    assert len(held_out_trusted_rows(noisy_text_rows(), 0.0)) == 0
    assert len(held_out_trusted_rows(None, 0.5)) == 0


# ---------------------------------------------------------------------- decisions
# The metric is given, so that the best step and the stop are known: steps 2, 4, 6, … of each stage.
SCORES = [0.1, 0.7, 0.3, 0.2, 0.9, 0.9]


class GivenScores(TrainerCallback):
    """Given metrics that go up and down, the same in each stage and after a crash."""

    def on_train_begin(self, args, state, control, **kwargs):
        GivenScores.evaluations = state.global_step // 2

    def __call__(self, prediction):
        GivenScores.evaluations += 1
        return {"score": SCORES[GivenScores.evaluations - 1]}


class Weights(TrainerCallback):
    """The weights at each evaluation, by stage and step."""

    def __init__(self) -> None:
        self.at = {}

    def on_evaluate(self, args, state, control, model, **kwargs):
        stage = 1 if args.output_dir.endswith("stage1") else 2
        self.at.setdefault((stage, state.global_step), weights(model))


def _decided(folder, callbacks=(), **settings):
    arguments = {
        "trusted_eval_fraction": 0.25,
        "eval_strategy": "steps",
        "eval_steps": 2,
        "save_strategy": "steps",
        "save_steps": 2,
        "max_steps": 12,
        "load_best_model_at_end": True,
        "metric_for_best_model": "score",
        "greater_is_better": True,
        "evaluate_stages": False,
        **settings,
    }
    scores = GivenScores()
    return GLCTrainer(
        bert(hidden_dropout_prob=0.2),
        config(folder, **arguments),
        train_dataset=noisy_text_rows(),
        compute_metrics=scores,
        callbacks=[scores, *callbacks],
    )


@pytest.mark.parametrize("limit", [None, 1])
def test_the_best_step_is_loaded_and_early_stopping_works_in_both_stages(tmp_path, monkeypatch, limit):
    seen, first = Weights(), {}
    finish = StageTrainer._finalize_training

    def finalize(self, *args, **kwargs):
        output = finish(self, *args, **kwargs)
        if self.first_stage is not None:
            first.update(step=self.state.global_step, best=self.state.best_global_step, weights=weights(self.model))
        return output

    monkeypatch.setattr(StageTrainer, "_finalize_training", finalize)
    trainer = _decided(tmp_path, [seen, EarlyStoppingCallback(early_stopping_patience=2)], save_total_limit=limit)
    output = trainer.train()
    # The second evaluation is the best; two worse ones end the stage at the fourth.
    assert (first["step"], first["best"]) == (8, 4)
    assert (output.global_step, trainer.state.best_global_step) == (8, 4)
    assert same_weights(first["weights"], seen.at[1, 4])
    assert same_weights(weights(trainer.model), seen.at[2, 4])
    assert not same_weights(seen.at[2, 4], seen.at[2, 8])
    for folder in (tmp_path / "stage1", tmp_path):
        kept = sorted(int(path.name.split("-")[1]) for path in folder.glob("checkpoint-*"))
        assert kept == ([2, 4, 6, 8] if limit is None else [4])


def test_a_stage_that_stopped_early_stays_stopped_after_resuming(tmp_path):
    whole = _decided(
        tmp_path / "whole", [EarlyStoppingCallback(early_stopping_patience=2)], load_best_model_at_end=False
    )
    expected = whole.train()
    assert expected.global_step == 8
    again = _decided(
        tmp_path / "whole", [EarlyStoppingCallback(early_stopping_patience=2)], load_best_model_at_end=False
    )
    output = again.train(resume_from_checkpoint=True)
    assert output.global_step == 8
    assert same_weights(weights(again.model), weights(whole.model))


def test_early_stopping_patience_is_kept_after_a_crash(tmp_path):
    class Crash(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 7 and not args.output_dir.endswith("stage1"):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _decided(tmp_path, [EarlyStoppingCallback(early_stopping_patience=2), Crash()]).train()
    trainer = _decided(tmp_path, [EarlyStoppingCallback(early_stopping_patience=2)])
    output = trainer.train(resume_from_checkpoint=True)
    assert (output.global_step, trainer.state.best_global_step) == (8, 4)


def test_a_moved_checkpoint_has_no_paths_and_finds_its_best_step(tmp_path):
    _decided(tmp_path / "here").train()
    for file in (tmp_path / "here").rglob("trainer_state.json"):
        assert json.loads(file.read_text())["best_model_checkpoint"] is None
        assert str(tmp_path) not in file.read_text()
    (tmp_path / "here").rename(tmp_path / "there")
    trainer = _decided(tmp_path / "there")
    trainer.train(resume_from_checkpoint=True)
    best = trainer.state.best_global_step
    assert trainer.state.best_model_checkpoint == str(tmp_path / "there" / f"checkpoint-{best}")
