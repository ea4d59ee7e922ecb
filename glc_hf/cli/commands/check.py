# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`glc-hf check`: look for problems in a dataset before training on it."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from glc_hf.cli.options import (
    INPUT_COLUMNS,
    ON_MISSING,
    TASKS,
    DataArguments,
    ModelArguments,
    NoiseArguments,
    add_answer_options,
)


if TYPE_CHECKING:
    from glc_hf.cli.parsing import TrainOptions
    from glc_hf.data.data_report import DataReport


OK, ERRORS_FOUND = 0, 1
_SHOWN_CLASSES = 30
_OF_CONFIG = ("label_column", "trusted_column", "source_columns", "votes_column", "soft_label_column", "method")


def main(argv: list[str]) -> int:
    """Run the command with the arguments that follow `glc-hf check`. Returns 1 if an error would stop training."""
    arguments = parser().parse_args(argv)
    from glc_hf.cli.data import check_parts, load_parts
    from glc_hf.cli.terminal import set_up_messages, spinner
    from glc_hf.data.data_files import csv_format_of

    set_up_messages(quiet=not sys.stdout.isatty())
    options = _train_options(arguments)
    files_logger = logging.getLogger("glc_hf.data")
    files_logger.setLevel(logging.WARNING)  # the report says how files are written
    try:
        with spinner(f"checking {arguments.dataset}"):
            report = check_parts(load_parts(options), options)
    finally:
        files_logger.setLevel(logging.NOTSET)
    named = arguments.dataset, arguments.eval_dataset, arguments.trusted_dataset, arguments.answers
    files = [name for name in named if name is not None]
    formats = {name: csv_format_of(name, options.data.delimiter, options.data.encoding) for name in files}
    report.notes[:0] = [f"{Path(name).name} is {found}" for name, found in formats.items() if found is not None]
    if arguments.json is not None:
        content = json.dumps({"dataset": arguments.dataset, **report.to_dict()}, indent=2, ensure_ascii=False)
        Path(arguments.json).expanduser().write_text(content + "\n", encoding="utf-8")
    _print(report)
    return ERRORS_FOUND if report.errors else OK


def _print(report: DataReport) -> None:
    from glc_hf.cli.terminal import print_styled, print_table, say

    print_table("glc_hf: data", report.summary())
    shown = sorted(report.classes, key=lambda entry: -entry.train)[:_SHOWN_CLASSES]
    rows: list[tuple[str, ...]] = [(_visible(entry.name), *(f"{count:,}" for count in entry[1:])) for entry in shown]
    kind = "labels" if report.columns.task == "token" else "rows"
    header: tuple[str, ...] = ("class", f"training {kind}", "trusted", "evaluation")
    if not report.eval_rows:
        rows, header = [row[:-1] for row in rows], header[:-1]
    print_table("classes", rows, header=header)
    if len(report.classes) > len(shown):
        print(f"and {len(report.classes) - len(shown):,} smaller classes")
    for finding in report.findings:
        print_styled(f"{finding.severity}:", "red" if finding in report.errors else "yellow", finding.message)
        say(f"  {finding.fix}")
    if report.findings:
        counts = (len(report.errors), "error"), (len(report.warnings), "warning")
        errors, warnings = (f"{count} {word}{'' if count == 1 else 's'}" for count, word in counts)
        print(f"{errors} that would stop training, {warnings} (rows are counted from 0, without the header)")
    else:
        print("no problems found")


def _visible(name: str) -> str:
    """Return a name, in quotes if its spaces would be overlooked."""
    return name if name == " ".join(name.split()) else repr(name)


def _train_options(arguments: argparse.Namespace) -> TrainOptions:
    """Return the options of `glc-hf train` that load the same rows."""
    from glc_hf.cli.parsing import TrainOptions, check_place_of_votes
    from glc_hf.training.config import GLCConfig

    given = vars(arguments)
    names = [name for name in DataArguments.__dataclass_fields__ if name in given]
    config = {name: given[name] for name in _OF_CONFIG if given[name] is not None}
    options = TrainOptions(
        DataArguments(**{name: given[name] for name in names}),
        NoiseArguments(noise=arguments.noise, noise_groups="[]" if arguments.noise == "hierarchical" else None),
        ModelArguments(task=arguments.task),
        GLCConfig(output_dir=".", report_to="none", **config),
    )
    check_place_of_votes(options.data, options.config)
    return options


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = argparse.ArgumentParser(
        prog="glc-hf check",
        description="Look at a dataset before hours of training: rows, classes, trusted rows per class, missing "
        "labels and flags, spellings of class names, empty and repeated texts, texts in both training and "
        "evaluation, images that can't be read. The exit code is 1 if an error would stop training, 2 if the data "
        "or the options can't be read, and 0 otherwise. "
        "Options mean the same as for `glc-hf train`, which runs this check by itself and prints the problems only.",
    )
    add = parser.add_argument
    add("dataset", metavar="DATASET", help="Hub id, folder, or CSV, TSV, JSON, JSONL or Parquet file")
    add("--dataset-config", metavar="NAME", help="configuration of the dataset, if it has several")
    add("--train-split", metavar="NAME", default="train", help="split to train on (default: train)")
    add("--eval-split", metavar="NAME", help="split to evaluate on (default: test, else validation)")
    add("--eval-dataset", metavar="FILE", help="second dataset or file, to evaluate on")
    add("--trusted-dataset", metavar="FILE", help="second dataset or file, whose labels are all trusted")
    for name, content in INPUT_COLUMNS.items():
        add(
            f"--{name}-column",
            metavar="COLUMN",
            help=f"column of the {content}; default: found by type and usual names",
        )
    add("--label-column", metavar="COLUMN", help="column of the labels; default: found by its type and usual names")
    add("--trusted-column", metavar="COLUMN", help="column of the flags (default: trusted)")
    add("--source-columns", nargs="+", metavar="COLUMN", help="columns of votes, one per source")
    add("--votes-column", metavar="COLUMN", help="column of lists of votes")
    add_answer_options(parser, "file with one line per answer, whose votes are checked")
    add("--soft-label-column", metavar="COLUMN", help="column of lists of probabilities")
    add("--task", choices=TASKS, default="auto", help="type of input; auto finds it from the columns")
    add("--method", metavar="NAME", help="method to train with; some need no trusted rows")
    add("--noise", metavar="NAME", default="none", help="simulated noise, with which rows need no flag")
    add("--normalize-labels", action="store_true", help="merge class names that differ only in case or spaces")
    add(
        "--on-missing",
        choices=ON_MISSING,
        default="error",
        help="whether rows without a label or a flag stop training, or are left out (default: error)",
    )
    add("--delimiter", metavar="CHARACTER", help="delimiter of CSV files; default: found from a sample")
    add("--encoding", metavar="NAME", help="encoding of CSV files; default: found from a sample")
    add("--json", metavar="FILE", help="write the report to this file too")
    add("--debug", action="store_true", help="show the traceback of an error")
    return parser
