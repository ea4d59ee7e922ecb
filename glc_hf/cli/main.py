# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Entry point of `glc-hf`: runs a command and turns errors into one line and an exit code.

A command is a module with `main(argv)` and, optionally, `when_interrupted(argv)`, the text to print after Ctrl-C. The
modules in `COMMANDS` import torch and transformers inside their functions, so that help is printed at once.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module

from glc_hf import __version__


COMMANDS = {  # name: (module, help)
    "check": ("glc_hf.cli.commands.check", "Look for problems in a dataset before training on it."),
    "train": ("glc_hf.cli.train", "Train a model on noisy labels with a few trusted ones."),
    "audit": ("glc_hf.cli.commands.audit", "Find the labels of a dataset that look wrong; write a table and a page."),
    "review": ("glc_hf.cli.commands.review", "Open the page of an audit, to decide on its labels."),
    "apply": ("glc_hf.cli.commands.apply", "Write a dataset with the labels that were decided on."),
    "card": ("glc_hf.cli.commands.card", "Write the model card of a trained folder again."),
    "sweep": ("glc_hf.cli.commands.sweep", "Run the experiments of the paper and append to a results file."),
    "table": ("glc_hf.cli.commands.table", "Make the paper's tables from the results of a sweep."),
    "plot": ("glc_hf.cli.commands.plot", "Plot error curves and matrices from the results of a sweep."),
    "env": ("glc_hf.cli.commands.env", "Print the versions that a bug report needs."),
}
OK, FAILED, BAD_INPUT, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143
# Control characters except tabs and ends of lines, and marks that reverse the direction of writing.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def main(argv: Sequence[str] | None = None) -> int:
    """
    Run `glc-hf` and return its exit code: 0 success, 2 bad input, 130 interrupted, 1 any other failure.

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


def _run(name: str, argv: list[str], debug: bool) -> int:
    module = None
    try:
        module = import_module(COMMANDS[name][0])
        return module.main(argv) or OK
    except KeyboardInterrupt:
        explain = getattr(module, "when_interrupted", None)
        print(f"\ninterrupted. {explain(argv) if explain else ''}".rstrip(), file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of the output, such as `head`, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (ValueError, OSError, ImportError, FloatingPointError) as error:
        if debug:
            traceback.print_exc()
        # Diverged training and a failed push are not caused by bad input.
        failed = isinstance(error, (FloatingPointError, ConnectionError))
        return _fail(str(error) or type(error).__name__, FAILED if failed else BAD_INPUT)
    except Exception as error:
        traceback.print_exc()
        return _fail(f"{type(error).__name__}: {error} (unexpected; a bug report needs `glc-hf env`)", FAILED)


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
    commands = "\n".join(f"  {name:<12}{text}" for name, (_, text) in COMMANDS.items())
    return f"""usage: glc-hf COMMAND [options]

Train on bad labels with a few good ones: Gold Loss Correction for the Hugging Face stack.

commands:
{commands}

options:
  --help      Show this help, or the help of a command: glc-hf COMMAND --help.
  --debug     Show the traceback of an error.
  --version   Show the version.

`glc-hf train` without options trains on noisy digits as a demonstration (about a minute)."""


if __name__ == "__main__":
    sys.exit(main())
