# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Ctrl-C leaves a folder that the printed command goes on from; bars belong on terminals."""

from __future__ import annotations

import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import TrainerControl, TrainerState

from glc_hf.cli.terminal import LogLines, ProgressBar, SaveOnInterrupt, clear_progress, how_to_go_on

from .conftest import results_in, text_rows, write_csv


def _words(folder: Path, data: Path, model: Path) -> list[Any]:
    return [
        "train", "--dataset", data, "--model", model, "--output-dir", folder, "--noise", "flip", "--max_steps", "6",
        "--trusted-fraction", "0.3", "--per_device_train_batch_size", "8",
    ]  # fmt: skip


@pytest.mark.parametrize(("stage", "step"), [(1, 3), (2, 2)])
def test_ctrl_c_saves_and_the_printed_command_ends_where_an_uninterrupted_run_does(
    glc_hf, tmp_path: Path, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch, stage: int, step: int
) -> None:
    data = write_csv(tmp_path / "train.csv", text_rows(60))
    assert glc_hf(*_words(tmp_path / "whole", data, tiny_bert)).code == 0

    def press(self: SaveOnInterrupt, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        in_stage = 1 if Path(args.output_dir).name == "stage1" else 2
        if (in_stage, state.global_step) == (stage, step - 1):
            signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        patch.setattr(SaveOnInterrupt, "on_step_begin", press)
        stopped = glc_hf(*_words(tmp_path / "cut", data, tiny_bert))
    assert stopped.code == 130
    assert signal.getsignal(signal.SIGINT) is before
    assert "writing a checkpoint before stopping" in stopped.err
    assert "Traceback" not in stopped.err
    place = tmp_path / "cut" / ("stage1" if stage == 1 else ".")
    assert (place / f"checkpoint-{step}" / "trainer_state.json").is_file()
    assert not (tmp_path / "cut" / "results.json").exists()

    command = shlex.split(stopped.err.splitlines()[-1])
    assert command[0] == "glc-hf"
    assert glc_hf(*command[1:]).code == 0
    whole, cut = (results_in(tmp_path / name)["metrics"]["eval_loss"] for name in ("whole", "cut"))
    assert cut == pytest.approx(whole, abs=1e-6)


def test_a_second_ctrl_c_stops_at_once() -> None:
    saver = SaveOnInterrupt()
    saver._note()
    with pytest.raises(KeyboardInterrupt):
        saver._note()


def test_the_command_to_go_on_with_is_not_lengthened_twice() -> None:
    assert how_to_go_on(["--seed", "1"]).endswith("glc-hf train --seed 1 --resume_from_checkpoint True")
    assert how_to_go_on(["--resume-from-checkpoint", "True"]).endswith("glc-hf train --resume-from-checkpoint True")


def test_a_bar_shows_stage_and_time_left_and_leaves_the_terminal_as_it_was(
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
    for shown in ("stage 1 of 2", "5/10", "left", "loss 1.25", "\x1b[?25h"):
        assert shown in out


def test_a_log_file_gets_one_plain_line_a_report(capsys: pytest.CaptureFixture[str]) -> None:
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
