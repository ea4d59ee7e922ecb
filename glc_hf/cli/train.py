# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
`glc-hf train`: parse the options, load rows and model, train, save, report.

The path of a run: `parsing` (options), `run`, `data` (load rows), `model` (load the model, prepare the rows for it),
`GLCTrainer`, `report`.
"""

from __future__ import annotations

import os
import shlex
import time

from glc_hf.cli.options import check_option_names, train_help


def main(argv: list[str]) -> int:
    """Run the command with the arguments that follow `glc-hf train`."""
    if "--help" in argv or "-h" in argv:
        print(train_help())
        return 0
    check_option_names(argv)
    started = time.perf_counter()
    from glc_hf.cli.parsing import TrainParser, parse
    from glc_hf.cli.terminal import clear_progress, set_up_messages

    if "--help-all" in argv:
        TrainParser().print_help()
        return 0
    import pyarrow

    # The handlers of pyarrow would lose a Ctrl-C if a file is read to its end before they check for it.
    pyarrow.enable_signal_handlers(False)
    options = parse(argv)
    set_up_messages(quiet=bool(options.config.disable_tqdm), main_process=options.config.process_index == 0)
    from glc_hf.cli.run import run

    try:
        run(options, started)
    finally:
        clear_progress()
    return 0


def when_interrupted(argv: list[str]) -> str:
    """Return the command that resumes an interrupted run."""
    resumes = any(word.replace("-", "_").startswith("__resume_from_checkpoint") for word in argv)
    extra = [] if resumes else ["--resume_from_checkpoint", "True"]
    shown = _without_tokens(argv)
    hint = "" if shown == argv else " (the token is not shown: set HF_TOKEN, or add it)"
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    launched = f", launched on {processes} processes again," if processes > 1 else ""
    return f"Resume from the last checkpoint{launched} with{hint}:\n{shlex.join(['glc-hf', 'train', *shown, *extra])}"


def _without_tokens(argv: list[str]) -> list[str]:
    """Leave out tokens: the command stays in logs and on screens."""
    kept, after_option = [], False
    for word in argv:
        name = word.partition("=")[0].replace("-", "_")
        if after_option and not word.startswith("--"):
            after_option = False
        elif name.startswith("__") and name.endswith("_token"):
            after_option = "=" not in word
        else:
            after_option = False
            kept.append(word)
    return kept
