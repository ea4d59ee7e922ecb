# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Entry point of `glc-hf`: runs a command and turns errors into one line and an exit code.

The modules in `COMMANDS` import torch and transformers inside their functions, so that help is printed at once.
"""

from __future__ import annotations

import argparse
import errno
import os
import platform
import re
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from glc_hf import __version__


class Command(NamedTuple):
    """
    A command of `glc-hf`.

    Attributes:
        path: `module:function` below `glc_hf.cli`. The function takes the arguments that follow the command.
        help: What the command does.
        hint: Name of a function in the module that takes the same arguments and returns the text to print when the
            command is interrupted.
    """

    path: str
    help: str
    hint: str | None = None


COMMANDS = {
    "check": Command("commands.check:main", "Look for problems in a dataset before training on it."),
    "train": Command("train:main", "Train a model on noisy labels with a few trusted ones.", "when_interrupted"),
    "audit": Command("commands.audit:main", "Find the labels of a dataset that look wrong; write a table and a page."),
    "review": Command("commands.review:review", "Open the page of an audit, to decide on its labels."),
    "apply": Command("commands.review:apply", "Write a dataset with the labels that were decided on."),
    "card": Command("commands.card:main", "Write the model card of a trained folder again."),
    "sweep": Command(
        "commands.sweep:sweep", "Run the experiments of the paper and append to a results file.", "when_interrupted"
    ),
    "table": Command("commands.sweep:table", "Make the paper's tables from the results of a sweep."),
    "plot": Command("commands.sweep:plot", "Plot error curves and matrices from the results of a sweep."),
    "env": Command("main:env", "Print the versions that a bug report needs."),
}
OK, FAILED, BAD_INPUT, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143
# Control characters except tabs and ends of lines, and marks that reverse the direction of writing.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

# Filled by Ctrl-C.
_pressed: list[bool] = []


def main(argv: Sequence[str] | None = None) -> int:
    """
    Run `glc-hf` and return its exit code: 0 success, 2 bad input, 130 interrupted, 143 terminated, 1 other failures.

    Args:
        argv (`Sequence[str]`, *optional*): Arguments after the program name; by default those of the process.
    """
    argv, debug = _take_debug(list(sys.argv[1:] if argv is None else argv))
    if not argv:
        print(_help(), file=sys.stderr)
        return BAD_INPUT
    name, *rest = argv
    if name in ("-h", "--help", "help"):
        print(_help())
        return OK
    if name == "--version":
        print(f"glc_hf {__version__}")
        return OK
    if name not in COMMANDS:
        return _fail(f"there is no command {name!r}; the commands are {', '.join(COMMANDS)}.", BAD_INPUT)
    return _run(name, rest, debug)


class Terminated(KeyboardInterrupt):
    """The process got SIGTERM, which schedulers send before they end a job."""


def raise_if_interrupted() -> None:
    """Raise again for a Ctrl-C whose exception was lost, as in a destructor or in a callback of a library."""
    if _pressed:
        raise KeyboardInterrupt


def _note_interrupt(*_: Any) -> None:
    _pressed.append(True)
    raise KeyboardInterrupt


def _run(name: str, argv: list[str], debug: bool) -> int:
    _pressed.clear()
    handled = threading.current_thread() is threading.main_thread()
    handled &= signal.getsignal(signal.SIGINT) is not signal.SIG_IGN  # as `nohup` and shells do for background jobs
    before = signal.signal(signal.SIGINT, _note_interrupt) if handled else None
    try:
        return _run_command(name, argv, debug)
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _run_command(name: str, argv: list[str], debug: bool) -> int:
    module = None
    try:
        module_name, function = COMMANDS[name].path.split(":")
        module = import_module(f"glc_hf.cli.{module_name}")
        return getattr(module, function)(argv) or OK
    except KeyboardInterrupt as stop:
        terminated = isinstance(stop, Terminated)
        how = "terminated" if terminated else "interrupted"
        print(f"\n{how}. {_hint(module, name, argv)}".rstrip(), file=sys.stderr)
        return TERMINATED if terminated else INTERRUPTED
    except BrokenPipeError:  # the reader of the output, such as `head`, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        if _is_full_disk(error):
            return _fail(f"the disk is full ({error}): free some space. {_hint(module, name, argv)}", FAILED)
        if not isinstance(error, (ValueError, OSError, ImportError, FloatingPointError)):
            traceback.print_exc()
            return _fail(f"{type(error).__name__}: {error} (unexpected; a bug report needs `glc-hf env`)", FAILED)
        if debug:
            traceback.print_exc()
        # Diverged training and a failed push are not caused by bad input.
        failed = isinstance(error, (FloatingPointError, ConnectionError))
        return _fail(str(error) or type(error).__name__, FAILED if failed else BAD_INPUT)


def _hint(module: ModuleType | None, name: str, argv: list[str]) -> str:
    hint = COMMANDS[name].hint
    return getattr(module, hint)(argv) if module is not None and hint is not None else ""


def _is_full_disk(error: Exception) -> bool:
    """Whether an error, or one that it follows from, is a full disk. Writers of tensors have errors of their own."""
    texts = ("No space left on device", "Disk quota exceeded", "PytorchStreamWriter failed writing")
    cause: BaseException | None = error
    while cause is not None:
        full = getattr(cause, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        if full or any(text in str(cause) for text in texts):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _fail(message: str, code: int) -> int:
    print(f"error: {printable(' '.join(message.split()))}", file=sys.stderr)
    return code


def printable(text: str) -> str:
    """Return text that is safe on a terminal: codes that move the cursor, change colors or reverse the direction of
    writing are shown, as in `\\x1b`. File names, class names and texts can contain them."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _take_debug(argv: list[str]) -> tuple[list[str], bool]:
    """Remove `--debug`. Followed by a value it is the `debug` option of `TrainingArguments` and stays."""
    for index, argument in enumerate(argv):
        if argument == "--debug":
            following = argv[index + 1 : index + 2]
            if index == 0 or not following or following[0].startswith("-"):
                return argv[:index] + argv[index + 1 :], True
    return argv, False


def _help() -> str:
    commands = "\n".join(f"  {name:<12}{command.help}" for name, command in COMMANDS.items())
    return f"""usage: glc-hf COMMAND [options]

Train on bad labels with a few good ones: Gold Loss Correction for the Hugging Face stack.

commands:
{commands}

options:
  --help      Show this help, or the help of a command: glc-hf COMMAND --help.
  --debug     Show the traceback of an error.
  --version   Show the version.

`glc-hf train` without options trains on noisy digits as a demonstration (about a minute)."""


def env(argv: list[str]) -> int:
    """Run `glc-hf env`: print package versions and hardware for a bug report, without user names or paths."""
    from glc_hf._compat import versions

    parser = argparse.ArgumentParser(prog="glc-hf env", description="Print the versions that a bug report needs.")
    parser.parse_args(argv)
    # Not platform.platform(): a kernel release may contain the name of the machine's owner.
    system = f"{platform.system()} {platform.machine()}, {platform.python_implementation()}"
    facts = {**versions(), "platform": system, "CPU": _cpu(), "GPU": _gpu()}
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"{name:<{width}}  {value}")
    return 0


def _cpu() -> str:
    model = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    return f"{model or 'unknown'}, {os.cpu_count()} cores"


def _gpu() -> str:
    try:
        import torch
    except ImportError:
        return "unknown (torch is not installed)"
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(device) for device in range(torch.cuda.device_count())]
        return f"{', '.join(names)} (CUDA {torch.version.cuda})"
    return "Apple MPS" if torch.backends.mps.is_available() else "none"


if __name__ == "__main__":
    # The commands import this module by its name: it must be the same one.
    sys.exit(import_module("glc_hf.cli.main").main())
