# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Ctrl-C, the command that resumes the run, progress bars and log lines."""

from __future__ import annotations

import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import TrainerControl, TrainerState

from glc_hf.cli.terminal import LogLines, ProgressBar, SaveOnInterrupt, clear_progress
from glc_hf.cli.train import when_interrupted

from .conftest import results_in, text_rows, write_csv


def _argv(folder: Path, data: Path, model: Path, method: str = "auto") -> list[Any]:
    return [
        "train", "--dataset", data, "--model", model, "--output-dir", folder, "--noise", "flip", "--max_steps", "9",
        "--trusted-fraction", "0.3", "--per_device_train_batch_size", "8", "--method", method,
    ]  # fmt: skip


@pytest.mark.parametrize(("method", "stage", "step"), [("glc", 1, 2), ("glc", 2, 2), ("auto", 2, 2)])
def test_run_resumed_after_ctrl_c_equals_an_uninterrupted_run(
    glc_hf, tmp_path: Path, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch, method: str, stage: int, step: int
) -> None:
    data = write_csv(tmp_path / "train.csv", text_rows(60))
    assert glc_hf(*_argv(tmp_path / "whole", data, tiny_bert, method)).code == 0

    def press(self: SaveOnInterrupt, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        in_stage = 1 if Path(args.output_dir).name == "stage1" else 2
        if (in_stage, state.global_step) == (stage, step - 1):
            signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        patch.setattr(SaveOnInterrupt, "on_step_begin", press)
        stopped = glc_hf(*_argv(tmp_path / "cut", data, tiny_bert, method))
    assert stopped.code == 130
    assert signal.getsignal(signal.SIGINT) is before
    assert "saving a checkpoint before stopping" in stopped.err
    assert "Traceback" not in stopped.err
    folder = tmp_path / "cut" / ("stage1" if stage == 1 else ".")
    assert (folder / f"checkpoint-{step}" / "trainer_state.json").is_file()
    assert not (tmp_path / "cut" / "results.json").exists()

    command = shlex.split(stopped.err.splitlines()[-1])
    assert command[0] == "glc-hf"
    assert glc_hf(*command[1:]).code == 0
    whole, cut = (results_in(tmp_path / name)["metrics"]["eval_loss"] for name in ("whole", "cut"))
    assert cut == pytest.approx(whole, abs=1e-6)


def test_a_second_ctrl_c_stops_at_once() -> None:
    saver = SaveOnInterrupt()
    saver.handle_interrupt()
    with pytest.raises(KeyboardInterrupt):
        saver.handle_interrupt()


def test_resume_option_is_added_once() -> None:
    assert when_interrupted(["--seed", "1"]).endswith("glc-hf train --seed 1 --resume_from_checkpoint True")
    assert when_interrupted(["--resume-from-checkpoint", "True"]).endswith(
        "glc-hf train --resume-from-checkpoint True"
    )


def test_progress_bar_shows_stage_and_time_left_and_restores_the_cursor(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("FORCE_COLOR", "1")
    bar, state = ProgressBar(), TrainerState(max_steps=10, is_world_process_zero=True)
    bar.stage_name = "stage 1 of 2"
    bar.on_train_begin(None, state, TrainerControl())
    state.global_step = 5
    bar.on_step_end(None, state, TrainerControl())
    bar.on_log(None, state, TrainerControl(), logs={"stage1_loss": 1.25})
    clear_progress()
    out = capsys.readouterr().out
    for text in ("stage 1 of 2", "5/10", "left", "loss 1.25", "\x1b[?25h"):
        assert text in out


def test_log_file_gets_one_plain_line_per_log_entry(capsys: pytest.CaptureFixture[str]) -> None:
    lines, state = LogLines(), TrainerState(max_steps=1200, global_step=500, is_world_process_zero=True)
    lines.stage_name = "stage 2 of 2 (glc)"
    lines.on_log(None, state, TrainerControl(), logs={"loss": 0.512345, "grad_norm": 3.0, "epoch": 1.0})
    lines.on_log(None, state, TrainerControl(), logs={"eval_accuracy": 0.98, "eval_runtime": 1.0})
    lines.on_log(None, state, TrainerControl(), logs={"train_runtime": 9.0})
    assert capsys.readouterr().out.splitlines() == [
        "stage 2 of 2 (glc): step 500 of 1,200, loss 0.5123",
        "stage 2 of 2 (glc): step 500 of 1,200, eval accuracy 0.98",
    ]
    assert not sys.stdout.isatty()
