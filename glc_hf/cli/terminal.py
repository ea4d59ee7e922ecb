# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""How far a run is: a bar with stage and time left on a terminal, one line a report in a log file."""

from __future__ import annotations

import logging
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
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


def set_up_messages(quiet: bool, main_process: bool = True) -> None:
    """
    The library's messages on stderr as plain lines, from one process.

    Args:
        quiet (`bool`): Without progress bars of other libraries: in a log file they are nothing but noise.
        main_process (`bool`): Other processes tell of errors alone.
    """
    handler = _ToStderr()
    handler.setFormatter(logging.Formatter("%(message)s"))
    library = logging.getLogger("glc_hf")
    library.handlers[:] = [handler]
    library.propagate = False
    library.setLevel(logging.INFO if main_process else logging.ERROR)
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    warnings.filterwarnings("ignore", message=".*pin_memory.*")  # said at each epoch on machines without a GPU
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # a bar for each file of weights would break into the stage's own
    if quiet:
        import datasets
        from huggingface_hub.utils import disable_progress_bars

        datasets.disable_progress_bars()
        disable_progress_bars()


class _ToStderr(logging.StreamHandler):
    """Writes to what `sys.stderr` is at the time: rich puts its own there, so that lines don't break into a bar."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one message."""
        self.stream = sys.stderr
        super().emit(record)


@contextmanager
def working(what: str) -> Iterator[None]:
    """A spinner with what is being done, on a terminal; nothing elsewhere."""
    if not sys.stdout.isatty():
        yield
        return
    from rich.console import Console

    with Console().status(what):
        yield


def print_facts(title: str, lines: list[tuple[str, str]], after: list[tuple[str, str]], good: str = "") -> None:
    """
    Names and values: a table on a terminal, plain lines elsewhere.

    Args:
        title (`str`): Above the table.
        lines (`list[tuple[str, str]]`): What it holds.
        after (`list[tuple[str, str]]`): What stands below it, where a narrow terminal does not cut it into pieces.
        good (`str`, *optional*): The name of the line to point out.
    """
    if not sys.stdout.isatty():
        for name, value in (*lines, *after):
            print(f"{name}: {value}")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in lines:
        table.add_row(name, value, style="green" if name == good else None)
    console = Console()
    console.print(table, markup=False)
    for name, value in after:
        console.print(f"{name}: {value}", markup=False, highlight=False, soft_wrap=True)


class SaveOnInterrupt(TrainerCallback):
    """
    The first Ctrl-C ends the run after the step it came in, with a checkpoint; the second at once.

    With several processes, which do not all hear of it in the same step, and where no checkpoints are wanted, Ctrl-C
    does what it always does.
    """

    def __init__(self) -> None:
        self.asked = False
        self.before: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Listens."""
        self.asked = False
        alone = args.world_size == 1 and threading.current_thread() is threading.main_thread()
        if alone and args.save_strategy != "no":
            self.before = signal.signal(signal.SIGINT, self._note)

    def _note(self, *_: Any) -> None:
        if self.asked:
            self._stop()
        self.asked = True
        print("\nwriting a checkpoint before stopping; Ctrl-C again stops at once.", file=sys.stderr, flush=True)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Asks for a checkpoint."""
        if self.asked:
            control.should_save = True

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """It is written: stop."""
        if self.asked:
            self._stop()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Listens no longer."""
        if self.asked:
            self._stop()
        self._restore()

    def _stop(self) -> None:
        self._restore()
        raise KeyboardInterrupt

    def _restore(self) -> None:
        if self.before is not None:
            signal.signal(signal.SIGINT, self.before)
            self.before = None


def how_to_go_on(argv: list[str]) -> str:
    """What to type after an interrupted `glc-hf train`."""
    flag = "--resume_from_checkpoint"
    resumes = any(word.replace("-", "_").startswith("__resume_from_checkpoint") for word in argv)
    command = shlex.join(["glc-hf", "train", *argv, *([] if resumes else [flag, "True"])])
    return f"Go on from the last checkpoint with:\n{command}"
