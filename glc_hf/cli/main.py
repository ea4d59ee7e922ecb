# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
The entry point of `glc-hf`: finds the command, runs it, and turns what goes wrong into one line and an exit code.

A command is a module with `main(argv)`; adding one means adding a line to `COMMANDS`. Nothing heavy is imported before
a command needs it, so that help answers at once.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from glc_hf.version import __version__


class Command(NamedTuple):
    """Where a command lives and what it is for."""

    module: str
    help: str


COMMANDS = {
    "train": Command("glc_hf.cli.train", "Train a model on noisy labels with a few trusted ones."),
    "audit": Command(
        "glc_hf.cli.commands.audit", "List the labels of a dataset that look wrong, with a page to look through."
    ),
    "card": Command("glc_hf.cli.commands.card", "Make the model card of a trained folder anew."),
    "sweep": Command("glc_hf.cli.commands.sweep", "Run the experiments of the paper, into a results file."),
    "table": Command("glc_hf.cli.commands.table", "Make the paper's tables from the results of a sweep."),
    "plot": Command("glc_hf.cli.commands.plot", "Draw error curves and matrices from the results of a sweep."),
    "env": Command("glc_hf.cli.commands.env", "Print the versions that a bug report needs."),
}
OK, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
# What a user can put right: bad options and data, files and Hub repositories out of reach, packages not installed.
_BAD_INPUT_ERRORS = (ValueError, OSError, ImportError)


def main(argv: Sequence[str] | None = None) -> int:
    """
    Runs `glc-hf` and returns its exit code: 0 done, 2 bad input, 130 interrupted, 1 anything else.

    Args:
        argv (`Sequence[str]`, *optional*): The arguments after the program's name, by default those of the process.
    """
    arguments, debug = _take_debug(list(sys.argv[1:] if argv is None else argv))
    if not arguments:
        print(_help(), file=sys.stderr)
        return BAD_INPUT
    name, *rest = arguments
    if name in ("-h", "--help", "help"):
        print(_help())
        return OK
    if name == "--version":
        print(f"glc_hf {__version__}")
        return OK
    if name not in COMMANDS:
        return _complain(f"there is no command {name!r}; the commands are {', '.join(COMMANDS)}.", BAD_INPUT)
    return _run(name, rest, debug)


def _run(name: str, argv: list[str], debug: bool) -> int:
    module = None
    try:
        module = import_module(COMMANDS[name].module)
        return module.main(argv) or OK
    except KeyboardInterrupt:
        explain = getattr(module, "when_interrupted", None)
        print(f"\ninterrupted. {explain(argv) if explain else ''}".rstrip(), file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of the output, such as `head`, had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    # Training that diverged, a push that failed: nothing is wrong with the input, and the message says all there is.
    except (FloatingPointError, ConnectionError) as error:
        if debug:
            traceback.print_exc()
        return _complain(str(error), FAILED)
    except _BAD_INPUT_ERRORS as error:
        if debug:
            traceback.print_exc()
        return _complain(str(error) or type(error).__name__, BAD_INPUT)
    except Exception as error:
        traceback.print_exc()
        return _complain(f"{type(error).__name__}: {error} (unexpected; a bug report needs `glc-hf env`)", FAILED)


def _complain(message: str, code: int) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return code


def _take_debug(argv: list[str]) -> tuple[list[str], bool]:
    """Takes out `--debug`. With a value behind it, it is the `debug` option of `TrainingArguments`, and stays."""
    for place, argument in enumerate(argv):
        if argument == "--debug":
            following = argv[place + 1 : place + 2]
            if place == 0 or not following or following[0].startswith("-"):
                return argv[:place] + argv[place + 1 :], True
    return argv, False


def _help() -> str:
    width = max(map(len, (*COMMANDS, "--version"))) + 3
    lines = [f"  {name:<{width}}{command.help}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: glc-hf COMMAND [options]",
            "",
            "Train on bad labels with a few good ones: Gold Loss Correction for the Hugging Face stack.",
            "",
            "commands:",
            *lines,
            "",
            "options:",
            f"  {'--help':<{width}}Show this, or with a command the command's options.",
            f"  {'--debug':<{width}}Show the traceback of an error.",
            f"  {'--version':<{width}}Show the version.",
            "",
            "`glc-hf train` with no option trains on noisy digits, as a demonstration (about a minute).",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
