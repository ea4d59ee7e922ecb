# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Ctrl-C while data load, and SIGTERM."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from glc_hf.cli import run
from glc_hf.cli.terminal import SaveOnInterrupt


@pytest.mark.parametrize("swallowed", [False, True])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_while_data_load_stops_the_run(
    train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swallowed: bool
) -> None:
    load_rows = run.load_rows

    class Destroyed:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)  # Python ignores exceptions here

    def load(options: Any) -> Any:
        rows = load_rows(options)
        if swallowed:
            Destroyed()
        else:
            signal.raise_signal(signal.SIGINT)
        return rows

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(run, "load_rows", load)
    outcome = train()
    assert outcome.code == 130
    assert "\ninterrupted. Resume from the last checkpoint with:" in outcome.err
    assert not (tmp_path / "out").exists()
    assert signal.getsignal(signal.SIGINT) is before


def test_sigterm_saves_a_checkpoint(train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def terminate(self: SaveOnInterrupt, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 1:
            signal.raise_signal(signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patch:
        patch.setattr(SaveOnInterrupt, "on_step_begin", terminate)
        outcome = train("--save_strategy", "steps", "--max_steps", "5", "--method", "no_correction")
    assert outcome.code == 143
    assert signal.getsignal(signal.SIGTERM) is before
    assert "saving a checkpoint before stopping" in outcome.err
    assert "\nterminated. Resume from the last checkpoint with:" in outcome.err
    assert (tmp_path / "out" / "checkpoint-2" / "trainer_state.json").is_file()
    again = ["--save_strategy", "steps", "--max_steps", "5", "--method", "no_correction"]
    assert train(*again, "--resume_from_checkpoint", "True").code == 0
    assert (tmp_path / "out" / "checkpoint-5").is_dir()
