# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Interrupted runs end with the same weights as uninterrupted ones."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from transformers import BertForSequenceClassification, TrainerCallback

from glc_hf import CorruptionMatrix, GLCTrainer
from glc_hf.correction.verdict import load_verdict
from glc_hf.methods import auto
from glc_hf.methods.auto_decision import ALL_ROWS, Decision
from glc_hf.methods.glc import GoldLossCorrection
from glc_hf.methods.matrix_files import load_matrices, save_matrices
from glc_hf.training.compare import compare_methods
from glc_hf.training.resume import ResumableTrainer
from tests.training.tiny import bert, config, noisy_text_rows, quick_pool, same_weights, weights


class Crash(Exception):
    """Ends a run."""


def _crash(*args):
    raise Crash


class CrashAt(TrainerCallback):
    """Ends the run after a step of stage 1 or 2."""

    def __init__(self, stage: int, step: int) -> None:
        self.stage, self.step = stage, step

    def on_step_end(self, args, state, control, **kwargs):
        stage = 1 if args.output_dir.endswith("stage1") else 2
        if (stage, state.global_step) == (self.stage, self.step):
            raise Crash


def _trainer(folder, callbacks=(), data=None, classes=3, **settings):
    arguments = {"save_strategy": "steps", "save_steps": 2, "max_steps": 6, **settings}
    # With dropout, so that the random state must be restored too.
    model = bert(classes, hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.2)
    return GLCTrainer(
        model,
        config(folder, **arguments),
        train_dataset=noisy_text_rows() if data is None else data,
        callbacks=list(callbacks),
    )


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    trainer = _trainer(tmp_path_factory.mktemp("uninterrupted"))
    trainer.train()
    return weights(trainer.model), trainer.corruption_matrix


@pytest.mark.parametrize(("stage", "step"), [(1, 1), (1, 3), (1, 6), (2, 1), (2, 5)])
def test_resumed_run_ends_with_the_same_weights(tmp_path, uninterrupted, stage, step):
    with pytest.raises(Crash):
        _trainer(tmp_path, [CrashAt(stage, step)]).train()
    trainer = _trainer(tmp_path)
    # A new process may have drawn another head: the initial weights of the first one must be restored.
    for parameter in trainer.model.parameters():
        parameter.data.add_(1.0)
    output = trainer.train(resume_from_checkpoint=True)
    assert same_weights(weights(trainer.model), uninterrupted[0])
    assert trainer.corruption_matrix == uninterrupted[1]
    assert output.global_step == 6
    names = {name for entry in trainer.state.log_history for name in entry}
    assert {"stage1_train_loss", "train_loss"} <= names


def test_model_from_a_file_with_other_names_of_weights_resumes_with_the_same_weights(tmp_path):
    # The names in the file of google-bert/bert-base-uncased.
    bert().save_pretrained(tmp_path / "old")
    file = tmp_path / "old" / "model.safetensors"
    renamed = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
        for name, value in load_file(file).items()
    }
    save_file(renamed, file, metadata={"format": "pt"})

    def trainer(folder, callbacks=()):
        settings = config(folder, save_strategy="steps", save_steps=2, max_steps=6)
        model = BertForSequenceClassification.from_pretrained(tmp_path / "old")
        return GLCTrainer(model, settings, train_dataset=noisy_text_rows(), callbacks=list(callbacks))

    whole = trainer(tmp_path / "whole")
    whole.train()
    with pytest.raises(Crash):
        trainer(tmp_path / "cut", [CrashAt(2, 5)]).train()
    resumed = trainer(tmp_path / "cut")
    resumed.train(resume_from_checkpoint=True)
    assert same_weights(weights(resumed.model), weights(whole.model))
    loaded = BertForSequenceClassification.from_pretrained(tmp_path / "cut" / "checkpoint-6")
    assert same_weights(weights(loaded), weights(whole.model))


class Steps(TrainerCallback):
    """Records the steps of each stage."""

    steps: list[tuple[str, int]]

    def __init__(self) -> None:
        self.steps = []

    def on_step_end(self, args, state, control, **kwargs):
        self.steps.append(("stage 1" if args.output_dir.endswith("stage1") else "stage 2", state.global_step))


@pytest.mark.parametrize(
    ("stage", "step", "expected"),
    [
        (1, 5, [("stage 1", step) for step in (5, 6)] + [("stage 2", step) for step in range(1, 7)]),
        (2, 3, [("stage 2", step) for step in range(3, 7)]),
    ],
)
def test_resumed_run_repeats_only_the_steps_after_the_checkpoint(tmp_path, stage, step, expected):
    with pytest.raises(Crash):
        _trainer(tmp_path, [CrashAt(stage, step)]).train()
    callback = Steps()
    _trainer(tmp_path, [callback]).train(resume_from_checkpoint=True)
    assert callback.steps == expected


def test_resume_path_can_be_of_either_stage(tmp_path, uninterrupted):
    _trainer(tmp_path).train()
    for checkpoint in ("stage1/checkpoint-4", "checkpoint-2"):
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path, copy, ignore=shutil.ignore_patterns("copy"))
        trainer = _trainer(copy)
        trainer.train(resume_from_checkpoint=str(copy / checkpoint))
        assert same_weights(weights(trainer.model), uninterrupted[0]), checkpoint
        shutil.rmtree(copy)


def test_resume_without_a_checkpoint_starts_from_the_beginning_with_one_warning(tmp_path, uninterrupted, caplog):
    trainer = _trainer(tmp_path)
    trainer.train(resume_from_checkpoint=True)
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING and "no checkpoint" in r.getMessage()]
    assert len(warnings) == 1
    assert same_weights(weights(trainer.model), uninterrupted[0])


@pytest.mark.parametrize("file_name", ["trainer_state.json", "model.safetensors", "optimizer.pt", "rng_state.pth"])
def test_truncated_checkpoint_falls_back_to_the_one_before_with_a_warning(tmp_path, uninterrupted, caplog, file_name):
    with pytest.raises(Crash):
        _trainer(tmp_path, [CrashAt(2, 5)]).train()
    file = tmp_path / "checkpoint-4" / file_name
    file.write_bytes(file.read_bytes()[:-20])
    trainer = _trainer(tmp_path)
    trainer.train(resume_from_checkpoint=True)
    assert any("checkpoint-4" in r.getMessage() and "is incomplete" in r.getMessage() for r in caplog.records)
    assert same_weights(weights(trainer.model), uninterrupted[0])


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"seed": 1}, "the seed was 42 and is now 1"),
        ({"method": "confusion_matrix"}, "the method was 'glc' and is now 'confusion_matrix'"),
        ({"data": "other"}, "the training data"),
        ({"trusted_eval_fraction": 0.25}, "the training data"),
        ({"classes": 4}, "the number of classes was 3 and is now 4"),
        ({"stage1": "probe"}, "the stages before the last one was .*'full'.* and is now .*'probe'"),
    ],
)
def test_checkpoint_of_another_run_raises_with_the_difference(tmp_path, change, match):
    with pytest.raises(Crash):
        _trainer(tmp_path, [CrashAt(2, 3)]).train()
    if "data" in change:
        change = {"data": noisy_text_rows(strength=0.3)}
    trainer = _trainer(tmp_path, **change)
    with pytest.raises(ValueError, match=match):
        trainer.train(resume_from_checkpoint=True)
    assert (tmp_path / "checkpoint-2" / "model.safetensors").exists()


def test_finished_run_keeps_only_its_estimate_beside_the_checkpoints(tmp_path):
    _trainer(tmp_path).train()
    assert sorted(file.name for file in (tmp_path / "_run_state").iterdir()) == [
        "corruption_matrix.json",
        "estimate.json",
        "glc_run.json",
    ]
    assert CorruptionMatrix.from_pretrained(tmp_path / "checkpoint-6").num_labels == 3


def test_resume_ignores_checkpoints_of_an_earlier_run_in_the_same_folder(tmp_path, uninterrupted):
    """A second run with another learning rate crashes in stage 1. Resuming it must not use the first run's end."""
    _trainer(tmp_path, learning_rate=1e-4).train()
    with pytest.raises(Crash):
        _trainer(tmp_path, [CrashAt(1, 3)]).train()
    trainer = _trainer(tmp_path)
    trainer.train(resume_from_checkpoint=True)
    assert same_weights(weights(trainer.model), uninterrupted[0])


def test_resume_accepts_a_renamed_checkpoint_and_raises_for_other_folders(tmp_path, uninterrupted):
    _trainer(tmp_path).train()
    (tmp_path / "checkpoint-2").rename(tmp_path / "best")
    trainer = _trainer(tmp_path)
    trainer.train(resume_from_checkpoint=str(tmp_path / "best"))
    assert same_weights(weights(trainer.model), uninterrupted[0])
    with pytest.raises(FileNotFoundError, match="no checkpoint at"):
        _trainer(tmp_path).train(resume_from_checkpoint=str(tmp_path))


@pytest.mark.parametrize("stage", [1, 2])
def test_incomplete_checkpoint_never_mixes_with_one_of_an_earlier_run(tmp_path, uninterrupted, stage):
    """The first run's checkpoint of the same step, with its optimizer and random state, is in the same folder."""
    _trainer(tmp_path, learning_rate=1e-4).train()
    checkpoint = tmp_path / ("stage1" if stage == 1 else "") / "checkpoint-2"

    class CrashWhileSaving(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            # Crash when only the weights and the record of the run are written.
            if (stage, state.global_step) == (1 if args.output_dir.endswith("stage1") else 2, 2):
                patch.setattr(ResumableTrainer, "_save_optimizer_and_scheduler", _crash)

    patch = pytest.MonkeyPatch()
    with pytest.raises(Crash):
        _trainer(tmp_path, [CrashWhileSaving()]).train()
    patch.undo()
    assert (checkpoint / "model.safetensors").exists()
    assert not (checkpoint / "optimizer.pt").exists()
    trainer = _trainer(tmp_path)
    trainer.train(resume_from_checkpoint=True)
    assert same_weights(weights(trainer.model), uninterrupted[0])


def test_run_that_crashed_at_its_start_does_not_use_state_of_an_earlier_run(tmp_path, uninterrupted, monkeypatch):
    """The second run crashes after it has claimed the folder and before it has removed the first run's weights."""
    with pytest.raises(Crash):
        _trainer(tmp_path, [CrashAt(2, 1)], learning_rate=1e-4).train()
    assert (tmp_path / "_run_state" / "stage1.safetensors").exists()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", _crash)
        with pytest.raises(Crash):
            _trainer(tmp_path).train()
    trainer = _trainer(tmp_path)
    trainer.train(resume_from_checkpoint=True)
    assert same_weights(weights(trainer.model), uninterrupted[0])


def test_resuming_a_finished_run_takes_no_more_steps(tmp_path, uninterrupted):
    _trainer(tmp_path).train()
    trainer = _trainer(tmp_path, [CrashAt(2, 7)])  # 6 steps are half an epoch
    assert trainer.train(resume_from_checkpoint=True).global_step == 6
    assert same_weights(weights(trainer.model), uninterrupted[0])


def test_finished_stage_is_not_trained_again_and_keeps_its_logs(tmp_path, uninterrupted, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(GoldLossCorrection, "estimate", _crash)
        with pytest.raises(Crash):
            _trainer(tmp_path).train()
    shutil.rmtree(tmp_path / "stage1")
    trainer = _trainer(tmp_path, [CrashAt(1, 1)])
    output = trainer.train(resume_from_checkpoint=True)
    assert "stage1_train_loss" in output.metrics
    assert same_weights(weights(trainer.model), uninterrupted[0])


def test_run_resumed_in_another_folder_does_not_need_the_first_one(tmp_path, uninterrupted):
    with pytest.raises(Crash):
        _trainer(tmp_path / "first", [CrashAt(1, 5)]).train()
    before = sorted(path.name for path in (tmp_path / "first").rglob("*"))
    with pytest.raises(Crash):
        _trainer(tmp_path / "second", [CrashAt(2, 3)]).train(str(tmp_path / "first" / "stage1" / "checkpoint-4"))
    assert sorted(path.name for path in (tmp_path / "first").rglob("*")) == before
    shutil.rmtree(tmp_path / "first")
    trainer = _trainer(tmp_path / "second")
    for parameter in trainer.model.parameters():
        parameter.data.add_(1.0)
    trainer.train(resume_from_checkpoint=True)
    assert same_weights(weights(trainer.model), uninterrupted[0])


class StopAt(TrainerCallback):
    """Stops the last stage after a step and saves, as a time limit does."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step and not args.output_dir.endswith("stage1"):
            control.should_save = control.should_training_stop = True


def test_run_stopped_by_a_callback_resumes(tmp_path, uninterrupted):
    assert _trainer(tmp_path, [StopAt(3)]).train().global_step == 3
    trainer = _trainer(tmp_path)
    assert trainer.train(resume_from_checkpoint=True).global_step == 6
    assert same_weights(weights(trainer.model), uninterrupted[0])


def test_resume_with_another_given_matrix_raises(tmp_path):
    def make_trainer(strength: float, *callbacks: TrainerCallback) -> GLCTrainer:
        arguments = config(tmp_path, method="true_matrix", save_strategy="steps", save_steps=2, max_steps=6)
        matrix = CorruptionMatrix.uniform(3, strength)
        return GLCTrainer(
            bert(), arguments, train_dataset=noisy_text_rows(), corruption_matrix=matrix, callbacks=list(callbacks)
        )

    with pytest.raises(Crash):
        make_trainer(0.2, CrashAt(2, 3)).train()
    with pytest.raises(ValueError, match="the given corruption matrix"):
        make_trainer(0.8).train(resume_from_checkpoint=True)
    assert make_trainer(0.2).train(resume_from_checkpoint=True).global_step == 6


def test_comparison_with_stage2_start_continue_resumes(tmp_path):
    def trainer_factory(folder: Path, *callbacks: TrainerCallback):
        def make(method: str) -> GLCTrainer:
            method_callbacks = callbacks if method == "confusion_matrix" else ()
            trainer = _trainer(folder / method, method_callbacks, method=method, stage2_start="continue", save_steps=4)
            trainer.eval_dataset = noisy_text_rows(20)
            return trainer

        return make

    methods = ["glc", "confusion_matrix"]
    compared = compare_methods(methods, trainer_factory(tmp_path / "uninterrupted"))
    expected = {trainer.args.method: weights(trainer.model) for trainer, _ in compared}
    with pytest.raises(Crash):
        list(compare_methods(methods, trainer_factory(tmp_path / "stopped", CrashAt(2, 1))))
    for trainer, _ in compare_methods(methods, trainer_factory(tmp_path / "stopped"), resume=True):
        assert same_weights(weights(trainer.model), expected[trainer.args.method])


def test_finished_run_without_its_checkpoints_runs_again(tmp_path):
    first = _trainer(tmp_path, method="finetune_on_trusted")
    first.train()
    for checkpoint in tmp_path.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    second = _trainer(tmp_path, method="finetune_on_trusted")
    second.train(resume_from_checkpoint=True)
    assert same_weights(weights(second.model), weights(first.model))


def test_bf16_run_that_crashed_before_the_estimate_ends_with_the_same_weights(tmp_path, monkeypatch):
    first = _trainer(tmp_path / "uninterrupted", bf16=True)
    first.train()

    with monkeypatch.context() as patch:
        patch.setattr(GoldLossCorrection, "estimate", _crash)
        with pytest.raises(Crash):
            _trainer(tmp_path / "stopped", bf16=True).train()
    trainer = _trainer(tmp_path / "stopped", bf16=True)
    trainer.train(resume_from_checkpoint=True)
    assert trainer.corruption_matrix == first.corruption_matrix
    assert same_weights(weights(trainer.model), weights(first.model))


class TwoSources(GoldLossCorrection):
    """A method with the matrix of a second source."""

    def estimate(self, run):
        super().estimate(run)
        self.matrices = {**self.matrices, "second/source": CorruptionMatrix.uniform(self.num_labels, 0.3)}


def test_matrices_of_all_sources_survive_refinement_resume_and_saving(tmp_path):
    method = f"{__name__}:TwoSources"
    with pytest.raises(Crash):
        _trainer(tmp_path, [CrashAt(2, 5)], method=method).train()
    trainer = _trainer(tmp_path, method=method)
    trainer.train(resume_from_checkpoint=True)
    assert trainer.corruption_matrices["second/source"] == CorruptionMatrix.uniform(3, 0.3)
    assert trainer.corruption_matrices["label"] == trainer.corruption_matrix
    trainer.save_model(tmp_path / "saved")
    assert load_matrices(tmp_path / "saved") == trainer.corruption_matrices
    save_matrices({"label": trainer.corruption_matrix}, tmp_path / "saved")
    assert list(load_matrices(tmp_path / "saved")) == ["label"]


# ---------------------------------------------------------------------- the decision and the judges of auto
@pytest.fixture(scope="module")
def _short_fits(tmp_path_factory):
    with quick_pool(tmp_path_factory.mktemp("cache"), iterations=10):
        yield


def _auto_trainer(folder, callbacks=()):
    """Stage 1 is a probe, and the last stage has eight steps. It is judged after the fifth."""
    return _trainer(folder, callbacks, data=noisy_text_rows(trusted=0.25), method="auto", pretrained=True, max_steps=8)


@pytest.fixture(scope="module")
def uninterrupted_auto(tmp_path_factory, _short_fits):
    trainer = _auto_trainer(tmp_path_factory.mktemp("auto"))
    assert trainer.train().global_step == 8
    assert trainer.verdict.final
    return trainer


@pytest.mark.parametrize(
    ("step", "resumed_from"),
    [
        (0, None),  # between the probe and the decision
        (1, None),  # between the estimate and the first checkpoint
        (3, "checkpoint-2"),  # before the last stage is judged
        (7, "checkpoint-6"),  # after it
    ],
)
def test_resumed_auto_ends_with_the_same_weights_and_verdict(
    tmp_path, uninterrupted_auto, monkeypatch, step, resumed_from
):
    decide = auto.decide
    if step == 0:
        monkeypatch.setattr(auto, "decide", _crash)
    with pytest.raises(Crash):
        _auto_trainer(tmp_path, [CrashAt(2, step)]).train()
    monkeypatch.setattr(auto, "decide", decide)
    if resumed_from is not None:
        assert (tmp_path / resumed_from).is_dir()
        assert load_verdict(tmp_path / resumed_from).final == (step > 5)
    callback = Steps()
    trainer = _auto_trainer(tmp_path, [callback])
    for parameter in trainer.model.parameters():
        parameter.data.add_(1.0)
    trainer.train(resume_from_checkpoint=True)
    first_step = int(resumed_from.rsplit("-", 1)[1]) + 1 if resumed_from is not None else 1
    assert callback.steps == [("stage 2", number) for number in range(first_step, 9)]
    assert trainer.verdict == uninterrupted_auto.verdict
    assert trainer.corruption_matrix == uninterrupted_auto.corruption_matrix
    assert trainer.method.mixed_part == uninterrupted_auto.method.mixed_part
    assert same_weights(weights(trainer.model), weights(uninterrupted_auto.model))


@pytest.mark.usefixtures("_short_fits")
def test_resumed_auto_has_the_corrected_loss_in_the_last_third(tmp_path, monkeypatch):
    """Estimated labels come back with the estimate, but the last third of the stage no longer uses them."""
    decision = Decision(ALL_ROWS, "Errors depend on the class.", class_errors=True, corrects=True)
    monkeypatch.setattr(auto, "decide", lambda *_: decision)
    whole = _auto_trainer(tmp_path / "whole")
    whole.train()
    with pytest.raises(Crash):
        _auto_trainer(tmp_path / "cut", [CrashAt(2, 7)]).train()
    trainer = _auto_trainer(tmp_path / "cut")
    trainer.train(resume_from_checkpoint=True)
    assert len(trainer.method.posterior_items) > 0
    assert same_weights(weights(trainer.model), weights(whole.model))


@pytest.mark.usefixtures("_short_fits")
def test_resumed_auto_needs_only_the_folder_of_a_checkpoint(tmp_path, uninterrupted_auto):
    """Without the state of the run, the first stage is repeated, and the checkpoint has what was refined since."""
    with pytest.raises(Crash):
        _auto_trainer(tmp_path / "first", [CrashAt(2, 7)]).train()
    shutil.copytree(tmp_path / "first" / "checkpoint-6", tmp_path / "second" / "checkpoint-6")
    steps = Steps()
    trainer = _auto_trainer(tmp_path / "third", [steps])
    trainer.train(resume_from_checkpoint=str(tmp_path / "second" / "checkpoint-6"))
    assert steps.steps == [("stage 2", 7), ("stage 2", 8)]
    assert trainer.verdict == uninterrupted_auto.verdict
    assert same_weights(weights(trainer.model), weights(uninterrupted_auto.model))
