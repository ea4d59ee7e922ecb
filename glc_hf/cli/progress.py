# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""How far a run is: a bar with stage and time left on a terminal, one line a report in a log file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import PrinterCallback, ProgressCallback, TrainerCallback


if TYPE_CHECKING:
    from rich.progress import Progress

    from glc_hf.training.trainer import GLCTrainer

# Bars that are on the terminal now; an error or Ctrl-C must not leave one behind.
_shown: list[Progress] = []


def show_progress(trainer: GLCTrainer) -> None:
    """Puts one of the callbacks below in the place of transformers' own."""
    for usual in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(usual)
    trainer.add_callback(LogLines() if trainer.args.disable_tqdm else ProgressBar())


def clear_progress() -> None:
    """Takes every bar off the terminal."""
    while _shown:
        _shown.pop().stop()


class ProgressBar(TrainerCallback):
    """A bar of rich for each stage."""

    # Set by the trainer of the stage.
    stage_name = ""

    def __init__(self) -> None:
        self.progress: Progress | None = None
        self.task: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Shows it."""
        if not state.is_world_process_zero:
            return
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self.progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[report]}"),
        )
        self.task = self.progress.add_task(self.stage_name, total=state.max_steps, report="")
        self.progress.update(self.task, completed=state.global_step)
        self.progress.start()
        _shown.append(self.progress)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Moves it on."""
        if self.progress is not None:
            self.progress.update(self.task, completed=state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Shows the last figures beside it."""
        if self.progress is not None and logs:
            self.progress.update(self.task, report=report_of(logs) or self.progress.tasks[0].fields["report"])

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Leaves it as it is."""
        if self.progress is not None:
            self.progress.stop()
            if self.progress in _shown:
                _shown.remove(self.progress)
            self.progress = None


class LogLines(TrainerCallback):
    """A line for each report of the trainer."""

    # Set by the trainer of the stage.
    stage_name = ""

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Prints it."""
        report = report_of(logs or {})
        if state.is_world_process_zero and report:
            print(f"{self.stage_name}: step {state.global_step:,} of {state.max_steps:,}, {report}", flush=True)


def report_of(logs: dict[str, Any]) -> str:
    """Loss and measures of a report in short; empty for one about speed alone."""
    told = []
    for name, value in logs.items():
        name = name.removeprefix("stage1_").removeprefix("stage2_")
        wanted = name == "loss" or (name.startswith("eval_") and not name.endswith(("runtime", "_per_second")))
        if wanted and isinstance(value, (int, float)):
            told.append(f"{name.replace('_', ' ')} {value:.4g}")
    return ", ".join(told)
