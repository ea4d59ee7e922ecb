# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`glc-hf train`: rows, model, every stage of the method, and a saved model with its matrix and results."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from glc_hf.cli.parse import TrainOptions
    from glc_hf.cli.set_up import Ready


def main(argv: list[str]) -> int:
    """
    Runs the command.

    Args:
        argv (`list[str]`): The words after `glc-hf train`.
    """
    if "--help" in argv or "-h" in argv:
        from glc_hf.cli.help import train_help

        print(train_help())
        return 0
    started = time.perf_counter()
    from glc_hf.cli.messages import set_up_messages
    from glc_hf.cli.parse import parse, print_all_options

    if "--help-all" in argv:
        print_all_options()
        return 0
    options = parse(argv)
    set_up_messages(quiet=options.config.disable_tqdm, main_process=options.config.process_index == 0)
    try:
        run(options, started)
    finally:
        from glc_hf.cli.progress import clear_progress

        clear_progress()
    return 0


def when_interrupted(argv: list[str]) -> str:
    """What to say after Ctrl-C."""
    from glc_hf.cli.interrupt import how_to_go_on

    return how_to_go_on(argv)


def run(options: TrainOptions, started: float | None = None) -> dict:
    """
    Trains, saves and reports; returns what `results.json` holds (of a comparison: `comparison.json`).

    Args:
        options (`TrainOptions`): What to do.
        started (`float`, *optional*): When the clock was started, in `time.perf_counter()`'s seconds.
    """
    from glc_hf.cli.set_up import set_up

    started = time.perf_counter() if started is None else started
    ready = set_up(options)
    if options.model.compare:
        from glc_hf.cli.comparison import run_comparison

        return run_comparison(ready, options)
    return run_one(ready, options, started)


def run_one(ready: Ready, options: TrainOptions, started: float) -> dict:
    """One method, from set-up rows and model to a saved one."""
    from glc_hf.cli.report import print_results, results_of, tell_card, write_results

    config = options.config
    trainer = ready.trainer(config, ready.model)
    tell_card(trainer, ready.rows, options, ready.label_accuracy)
    metrics = dict(trainer.train(resume_from_checkpoint=config.resume_from_checkpoint).metrics)
    if trainer.eval_dataset is not None:
        metrics.update(trainer.evaluate())
    seconds = time.perf_counter() - started
    results = results_of(trainer, ready.rows, options, metrics, seconds, ready.label_accuracy)
    # Not a public save yet: the results go with the model when it is pushed.
    trainer.save_model(config.output_dir, _internal_call=True)
    if trainer.is_world_process_zero():
        write_results(config.output_dir, results)
        print_results(results, config.output_dir)
    if config.push_to_hub:
        trainer.push_to_hub()
    return results
