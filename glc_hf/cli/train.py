# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`glc-hf train`: rows, model, every stage of the method, and a saved model with its matrix and results."""

from __future__ import annotations

import logging
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from glc_hf.cli.parse import TrainOptions

WHEN_INTERRUPTED = (
    "The same command with --resume_from_checkpoint True goes on from the last checkpoint (checkpoints are written "
    "unless --save_strategy is no)."
)


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
    from glc_hf.cli.parse import parse, print_all_options

    if "--help-all" in argv:
        print_all_options()
        return 0
    options = parse(argv)
    _set_up_messages(options)
    run(options, started)
    return 0


def run(options: TrainOptions, started: float | None = None) -> dict[str, Any]:
    """
    Trains, saves and reports; returns what `results.json` holds.

    Args:
        options (`TrainOptions`): What to do.
        started (`float`, *optional*): When the clock was started, in `time.perf_counter()`'s seconds.
    """
    from transformers import set_seed

    from glc_hf.cli.digits import use_one_thread
    from glc_hf.cli.load_model import load_model
    from glc_hf.cli.noise import read_matrix
    from glc_hf.cli.prepare import check_labels_fit, prepare
    from glc_hf.cli.report import print_results, results_of, write_results
    from glc_hf.cli.rows import load_rows
    from glc_hf.training.trainer import GLCTrainer

    started = time.perf_counter() if started is None else started
    noise, config = options.noise, options.config
    with config.main_process_first(desc="loading the data"):
        rows = load_rows(options)
        check_labels_fit(rows)
    matrix = read_matrix(noise.corruption_matrix, "--corruption-matrix") if noise.corruption_matrix else None
    if matrix is None and config.method == "true_matrix":
        matrix = rows.true_matrix
    if options.model.model is None:
        use_one_thread()
    set_seed(config.seed)
    model, processor, saved_processor = load_model(options.model, rows.columns.task, rows.num_labels, rows.label_names)
    with config.main_process_first(desc="preparing the data"):
        prepared = prepare(rows, processor, model, options)
    config.label_column = None  # the prepared one is called `labels`
    trainer = GLCTrainer(
        model=model,
        args=config,
        data_collator=prepared.collator,
        train_dataset=prepared.train,
        eval_dataset=prepared.evaluation,
        processing_class=saved_processor,
        corruption_matrix=matrix,
    )
    metrics = dict(trainer.train(resume_from_checkpoint=config.resume_from_checkpoint).metrics)
    if prepared.evaluation is not None:
        metrics.update(trainer.evaluate())
    # Not a public save yet: the results go with the model when it is pushed.
    trainer.save_model(config.output_dir, _internal_call=True)
    results = results_of(trainer, rows, options, metrics, time.perf_counter() - started)
    if trainer.is_world_process_zero():
        write_results(config.output_dir, results, trainer.corruption_matrix)
        print_results(results, config.output_dir)
    if config.push_to_hub:
        trainer.push_to_hub()
    return results


def _set_up_messages(options: TrainOptions) -> None:
    """The library's messages on stderr as plain lines, from one process; no progress bars unless on a terminal."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    library = logging.getLogger("glc_hf")
    library.handlers[:] = [handler]
    library.propagate = False
    library.setLevel(logging.INFO if options.config.process_index == 0 else logging.ERROR)
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    warnings.filterwarnings("ignore", message=".*pin_memory.*")  # said at each epoch on machines without a GPU
    if options.config.disable_tqdm:
        import datasets
        from transformers.utils import logging as transformers_logging

        datasets.disable_progress_bars()
        transformers_logging.disable_progress_bar()
