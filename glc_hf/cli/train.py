# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`glc-hf train`: rows, model, every stage of the method, and a saved model with its matrix and results."""

from __future__ import annotations

import time


def main(argv: list[str]) -> int:
    """
    Runs the command.

    Args:
        argv (`list[str]`): The words after `glc-hf train`.
    """
    if "--help" in argv or "-h" in argv:
        from glc_hf.cli.options import train_help

        print(train_help())
        return 0
    started = time.perf_counter()
    from glc_hf.cli.parsing import parse, print_all_options
    from glc_hf.cli.terminal import clear_progress, set_up_messages

    if "--help-all" in argv:
        print_all_options()
        return 0
    options = parse(argv)
    set_up_messages(quiet=options.config.disable_tqdm, main_process=options.config.process_index == 0)
    from glc_hf.cli.run import run

    try:
        run(options, started)
    finally:
        clear_progress()
    return 0


def when_interrupted(argv: list[str]) -> str:
    """What to say after Ctrl-C."""
    from glc_hf.cli.terminal import how_to_go_on

    return how_to_go_on(argv)
