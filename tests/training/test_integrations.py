# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Trackers and hyper-parameter search see every stage."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest
from transformers import TrainerCallback
from transformers.integrations import integration_utils

from glc_hf import GLCTrainer
from tests.training.tiny import bert, config, noisy_text_rows, text_rows


class Tracker(TrainerCallback):
    """Names metrics as the integrations of transformers do."""

    def __init__(self):
        self.names = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.names += integration_utils.rewrite_logs(logs)


def test_each_stage_is_a_group_of_metrics(tmp_path):
    tracker, before = Tracker(), integration_utils.rewrite_logs
    trainer = GLCTrainer(
        bert(),
        config(tmp_path, max_steps=1),
        train_dataset=noisy_text_rows(),
        eval_dataset=text_rows(20),
        callbacks=[tracker],
    )
    trainer.train()
    trainer.evaluate()
    assert {"stage1/loss", "stage1/eval_accuracy", "train/loss", "eval/accuracy"} <= set(tracker.names)
    assert not [name for name in tracker.names if name.startswith("train/stage")]
    assert integration_utils.rewrite_logs is before


def test_tensorboard_has_a_folder_and_a_group_per_stage(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    settings = config(tmp_path, max_steps=2, report_to="tensorboard")
    GLCTrainer(bert(), settings, train_dataset=noisy_text_rows(), eval_dataset=text_rows(20)).train()
    tags = {}
    for file in tmp_path.rglob("events.out.tfevents*"):
        events = EventAccumulator(str(file)).Reload()
        stage = "stage1" if "stage1" in file.relative_to(tmp_path).parts else "last"
        tags.setdefault(stage, set()).update(events.Tags()["scalars"])
    assert "stage1/loss" in tags["stage1"]
    assert "train/loss" in tags["last"]
    assert not any(tag.startswith("stage1/") for tag in tags["last"])


def _train_tracked(folder, evaluates_first=False, **settings):
    settings = config(folder, max_steps=2, logging_steps=1, eval_strategy="steps", eval_steps=2, **settings)
    trainer = GLCTrainer(bert(), settings, train_dataset=noisy_text_rows(), eval_dataset=text_rows(20))
    if evaluates_first:
        trainer.evaluate()  # starts the run of the tracker
    trainer.train()


def _check_logs(logs):
    """Each stage has its own group of metrics, with the steps of the stage."""
    steps = {"stage1/loss": [], "train/loss": []}
    for entry in logs:
        for name in steps.keys() & entry.keys():
            steps[name].append(entry["train/global_step"])
    assert steps == {"stage1/loss": [1, 2], "train/loss": [1, 2]}
    names = set().union(*logs)
    assert {"stage1/eval_accuracy", "eval/accuracy"} <= names
    assert not [name for name in names if name.startswith("train/stage")]


def test_wandb_has_one_run_with_a_group_per_stage(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    logs, log = [], wandb.Run.log
    monkeypatch.setattr(wandb.Run, "log", lambda run, data, *args: (logs.append(data), log(run, data, *args))[1])
    try:
        _train_tracked(tmp_path / "out", report_to=["wandb"])
        assert wandb.run.step == len(logs)
        assert {"stage1/loss", "train/loss"} <= set(dict(wandb.run.summary))
        assert wandb.run.config["output_dir"] == str(tmp_path / "out")
    finally:
        wandb.finish()
    assert len(list(tmp_path.glob("wandb/offline-run-*"))) == 1
    _check_logs(logs)


@pytest.mark.parametrize("evaluates_first", [False, True])
def test_trackio_has_one_run_with_a_group_per_stage(tmp_path, monkeypatch, evaluates_first):
    pytest.importorskip("trackio")
    from trackio import sqlite_storage, utils

    for module in (sqlite_storage, utils):
        monkeypatch.setattr(module, "TRACKIO_DIR", tmp_path / "trackio")
    _train_tracked(tmp_path / "out", evaluates_first, report_to=["trackio"], project="noisy")
    with closing(sqlite3.connect(tmp_path / "trackio" / "noisy.db")) as database:
        entries = database.execute("SELECT run_name, step, metrics FROM metrics ORDER BY id").fetchall()
        configs = database.execute("SELECT config FROM configs").fetchall()
    assert len({name for name, *_ in entries}) == 1
    assert [step for _, step, _ in entries] == list(range(len(entries)))
    _check_logs([json.loads(metrics) for *_, metrics in entries])
    assert [json.loads(content)["output_dir"] for (content,) in configs] == [str(tmp_path / "out")]


def test_hyperparameter_search_sets_both_stages(tmp_path):
    pytest.importorskip("optuna")
    seen = []

    class Spy(GLCTrainer):
        def create_optimizer(self, *args, **kwargs):
            seen.append((self.first_stage is not None, self.args.learning_rate))
            return super().create_optimizer(*args, **kwargs)

    def space(trial):
        return {
            "learning_rate": trial.suggest_float("learning_rate", 1e-3, 1e-2),
            "stage1_learning_rate": trial.suggest_float("stage1_learning_rate", 2e-2, 5e-2),
        }

    trainer = Spy(
        args=config(tmp_path, max_steps=1),
        model_init=lambda trial=None: bert(),
        train_dataset=noisy_text_rows(60),
        eval_dataset=text_rows(20),
    )
    best = trainer.hyperparameter_search(
        space, lambda metrics: metrics["eval_accuracy"], n_trials=2, direction="maximize", backend="optuna"
    )
    assert set(best.hyperparameters) == {"learning_rate", "stage1_learning_rate"}
    assert [first for first, _ in seen] == [True, False] * 2
    assert all((rate >= 2e-2) == first for first, rate in seen)
    assert len({rate for _, rate in seen}) == 4
