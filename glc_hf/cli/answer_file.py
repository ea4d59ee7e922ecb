# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Votes of several sources and soft labels on the command line: answers from a second file, and their columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from datasets import Dataset

from glc_hf.cli.options import ANSWER_COLUMNS
from glc_hf.labels.answers import VOTES_COLUMN, gather_votes
from glc_hf.labels.reading import read_soft_labels


if TYPE_CHECKING:
    from glc_hf.cli.parsing import TrainOptions
    from glc_hf.training.config import GLCConfig


def columns_of_votes(config: GLCConfig) -> list[str]:
    """Return the columns that hold votes or soft labels."""
    votes = [*(config.source_columns or ()), config.votes_column, config.soft_label_column]
    return [name for name in votes if name is not None]


def check_task(task: str, options: TrainOptions) -> None:
    """Raise if words have one list of votes, or of probabilities, per row."""
    if task == "token" and options.config.soft_label_column is not None:
        raise ValueError("--soft-label-column has one list of probabilities per row, but each word has a label.")
    if task == "token" and options.config.votes_column is not None:
        option = "--votes-column" if options.data.answers is None else "--answers"
        raise ValueError(
            f"{option} has one vote of each source per row, but each word has a label: use --source-columns, one "
            "column of lists per source."
        )


def number_of_soft_labels(train: Dataset, config: GLCConfig, label_names: list[str] | None) -> int:
    """Return the number of classes that the soft labels have, checked; 0 without soft labels."""
    if config.soft_label_column is None:
        return 0
    return read_soft_labels(train, config.soft_label_column, label_names and len(label_names)).shape[1]


def add_answers(train: Dataset, answers: Dataset, options: TrainOptions) -> Dataset:
    """Add the answers of `--answers` to the training rows, as the column of votes that the config then names."""
    row, source, label = options.data.answer_columns or ANSWER_COLUMNS
    for name in (row, source, label):
        if name not in answers.column_names:
            raise ValueError(
                f"--answers {options.data.answers} has no column {name!r}; its columns are "
                f"{', '.join(answers.column_names)}. Name those of the item, the source and the answer with "
                "--answer-columns."
            )
    try:
        train, names = gather_votes(answers, row=row, source=source, label=label, return_names=True, dataset=train)
    except ValueError as error:
        raise ValueError(f"--answers {options.data.answers}: {error}") from error
    options.config.votes_column, options.config.source_names = VOTES_COLUMN, names
    return train


def with_missing_votes(dataset: Dataset, like: Dataset, columns: list[str]) -> Dataset:
    """Return a dataset with the columns of votes that it lacks, empty: trusted rows need no votes."""
    for name in columns:
        if name not in dataset.column_names and name in like.column_names:
            nothing = pa.nulls(len(dataset), like.features.arrow_schema.field(name).type)
            dataset = dataset.add_column(name, nothing, feature=like.features[name])
    return dataset
