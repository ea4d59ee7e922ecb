# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Progress, messages, tables and Ctrl-C: rich output on a terminal, plain lines in a log file or without rich."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from transformers import PrinterCallback, ProgressCallback, TrainerCallback

from glc_hf._compat import is_installed
from glc_hf.cli.main import INTERRUPTED, TERMINATED, Terminated, printable


if TYPE_CHECKING:
    from rich.progress import Progress

    from glc_hf.training.trainer import GLCTrainer


# Progress bars on the terminal now; an error or Ctrl-C must not leave one behind.
_shown: list[Progress] = []
# Seconds in which a signal that a launcher passes on arrives a second time.
_SAME_SIGNAL = 5.0


def show_progress(trainer: GLCTrainer) -> None:
    """Replace the progress callbacks of transformers by `ProgressBar` or `LogLines`."""
    trainer.remove_callback(PrinterCallback)
    trainer.remove_callback(ProgressCallback)
    bars = is_installed("rich") and not trainer.args.disable_tqdm
    trainer.add_callback(ProgressBar() if bars else LogLines())


def is_rich_terminal() -> bool:
    """Whether the output goes to a terminal, and rich can draw on it."""
    return sys.stdout.isatty() and is_installed("rich")


def clear_progress() -> None:
    """Stop every progress bar."""
    while _shown:
        _shown.pop().stop()


class ProgressBar(TrainerCallback):
    """A rich progress bar per stage."""

    stage_name = ""  # set by the trainer of the stage

    def __init__(self) -> None:
        self.progress: Progress | None = None
        self.task: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not state.is_world_process_zero:
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

        self.progress = Progress(
            "[bold]{task.description}",
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            "left",
            TimeRemainingColumn(),
            "{task.fields[report]}",
        )
        self.task = self.progress.add_task(self.stage_name, total=state.max_steps, report="")
        self.progress.update(self.task, completed=state.global_step)
        self.progress.start()
        _shown.append(self.progress)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.progress is not None:
            self.progress.update(self.task, completed=state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        report = format_logs(logs or {})
        if self.progress is not None and report:
            self.progress.update(self.task, report=report)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.progress is not None:
            clear_progress()
            self.progress = None


class LogLines(TrainerCallback):
    """One plain line per log entry of the trainer."""

    stage_name = ""  # set by the trainer of the stage

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        report = format_logs(logs or {})
        if state.is_world_process_zero and report:
            step = f"step {state.global_step:,} of {state.max_steps:,}, " if state.max_steps else ""  # none in a probe
            print(f"{self.stage_name}: {step}{report}", flush=True)


def format_logs(logs: dict[str, Any]) -> str:
    """Format the loss and the metrics of a log entry; empty if it contains neither."""
    parts = []
    for name, value in logs.items():
        name = name.removeprefix("stage1_").removeprefix("stage2_")
        is_metric = name.startswith("eval_") and not name.endswith(("runtime", "_per_second", "_time"))
        if (name == "loss" or is_metric) and isinstance(value, (int, float)):
            parts.append(f"{name.replace('_', ' ')} {value:.4g}")
    return ", ".join(parts)


def set_up_messages(quiet: bool, main_process: bool = True) -> None:
    """
    Print the messages of the library to stderr as plain lines.

    Args:
        quiet (`bool`): Disable the progress bars of other libraries, for log files.
        main_process (`bool`, *optional*, defaults to `True`): Other processes print errors only.
    """
    handler = _StderrHandler()
    handler.setFormatter(_PlainFormatter("%(message)s"))
    library = logging.getLogger("glc_hf")
    library.handlers[:] = [handler]
    library.propagate = False
    library.setLevel(logging.INFO if main_process else logging.ERROR)
    warnings.formatwarning = lambda message, *_, **__: f"warning: {printable(str(message))}\n"
    warnings.filterwarnings("ignore", message=".*pin_memory.*")  # repeated each epoch on machines without a GPU
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # one bar per weight file would break the bar of the stage
    if quiet:
        import datasets
        from huggingface_hub.utils import disable_progress_bars

        datasets.disable_progress_bars()
        disable_progress_bars()


class _PlainFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


class _StderrHandler(logging.StreamHandler):
    """Writes to the current `sys.stderr`: rich replaces it, so that messages don't break a progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


@contextmanager
def spinner(text: str) -> Iterator[None]:
    """Show a spinner with a text on a terminal."""
    if not is_rich_terminal():
        yield
        return
    from rich.console import Console

    with Console().status(text):
        yield


def print_table(
    title: str, rows: Sequence[tuple[str, ...]], header: tuple[str, ...] = (), highlight: str = ""
) -> None:
    """
    Print rows: a table on a terminal, aligned columns elsewhere, or lines `name: value` if there is no header.

    Args:
        title (`str`): Title of the table on a terminal.
        rows (`Sequence[tuple[str, ...]]`): The cells; pairs if there is no header.
        header (`tuple[str, ...]`, *optional*): Names of the columns.
        highlight (`str`, *optional*): First cell of the row to print in green.
    """
    rows = [tuple(map(printable, row)) for row in rows]
    if is_rich_terminal():
        from rich.console import Console
        from rich.table import Column, Table

        columns = header or (Column(style="bold"), Column(overflow="fold"))
        table = Table(*columns, title=title, title_justify="left", show_header=bool(header))
        for row in rows:
            table.add_row(*row, style="green" if row[0] == highlight else None)
        Console().print(table, markup=False)
    elif header:
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        for row in (header, *rows):
            print("  ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip())
    else:
        for name, value in rows:
            print(f"{name}: {value}")


def print_styled(start: str, style: str, rest: str) -> None:
    """Print a line whose start has a style of rich, if it is printed on a terminal."""
    rest = printable(rest)
    if not is_rich_terminal():
        print(f"{start} {rest}")
        return
    from rich.console import Console
    from rich.text import Text

    Console().print(Text(start, style=style), Text(rest))


def say(text: str) -> None:
    """Print a line that may contain texts of files."""
    print(printable(text))


class SaveOnInterrupt(TrainerCallback):
    """
    The first Ctrl-C or SIGTERM saves a checkpoint after the current step and stops the run; a second one stops it at
    once. Both have their usual effect if checkpoints are off.

    Several processes receive a signal in different steps, or only one of them receives it. So they compare after each
    step, and all of them save and stop after the same one. A launcher passes on signals that the processes have
    received themselves: with several processes, a second one within a few seconds is taken for the first.
    """

    def __init__(self) -> None:
        self.received: int | None = None  # the signal
        self.received_at = 0.0
        self.several = self.stopping = False
        self.main_process = True
        self.compares = False
        self.previous_handlers: dict[int, Any] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.received = None
        self.several, self.main_process = args.world_size > 1, args.process_index == 0
        self.compares = self.several and args.save_strategy != "no" and torch.distributed.is_initialized()
        handles = args.save_strategy != "no" and self.compares == self.several
        if handles and threading.current_thread() is threading.main_thread() and not self.previous_handlers:
            for number in (signal.SIGINT, signal.SIGTERM):
                self.previous_handlers[number] = signal.signal(number, self.handle_interrupt)

    def handle_interrupt(self, number: int = signal.SIGINT, *_: Any) -> None:
        """Handle SIGINT and SIGTERM."""
        if self.received is None:
            self.received, self.received_at = number, time.monotonic()
            if self.main_process:
                text = "saving a checkpoint before stopping; press Ctrl-C again to stop at once."
                print(f"\n{text}", file=sys.stderr, flush=True)
        elif not self.several or (not self.stopping and time.monotonic() - self.received_at > _SAME_SIGNAL):
            self._stop()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._is_interrupted(args):
            control.should_save = True

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._is_interrupted(args):  # a process that stops before the others have saved would end them, too
            self._stop()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._is_interrupted(args):
            self._stop()
        self._restore_handlers()

    def _is_interrupted(self, args: Any) -> bool:
        """Whether this process, or any of several, has received a signal. Returns the same in all of them."""
        if not self.compares:
            return self.received is not None
        number = torch.tensor(self.received or 0, device=args.device)
        torch.distributed.all_reduce(number, torch.distributed.ReduceOp.MAX)
        if number and self.received is None:
            self.handle_interrupt(int(number))
        return bool(number)

    def _stop(self) -> None:
        if not self.several:
            self._restore_handlers()
        # With several processes the handlers stay: the launcher terminates the others when the first one has ended.
        self.stopping, terminated = True, self.received == signal.SIGTERM
        if not self.main_process:
            sys.exit(TERMINATED if terminated else INTERRUPTED)  # the main process prints how to resume
        raise Terminated if terminated else KeyboardInterrupt

    def _restore_handlers(self) -> None:
        while self.previous_handlers:
            signal.signal(*self.previous_handlers.popitem())
