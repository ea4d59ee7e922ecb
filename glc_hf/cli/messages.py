# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""What commands say and how: plain lines on stderr, tables and bars on a terminal alone."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


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
