# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Votes of several sources and soft labels on the command line: answers from a second file, and their columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from datasets import Dataset, Features, List, Value

from glc_hf.cli.options import ANSWER_COLUMNS
from glc_hf.data.label_values import read_given_flags
from glc_hf.labels.answers import VOTES_COLUMN, gather_votes
from glc_hf.labels.columns import (
    USUAL_LABEL_COLUMNS,
    Columns,
    NoLabelColumn,
    check_plain_values,
    find_columns,
    find_label_column,
    is_list_feature,
)
from glc_hf.labels.reading import read_soft_labels
from glc_hf.labels.storage import column_in_order, flat_values


if TYPE_CHECKING:
    from glc_hf.cli.parsing import TrainOptions
    from glc_hf.training.config import GLCConfig


def columns_of_votes(config: GLCConfig) -> list[str]:
    """Return the columns that hold votes or soft labels."""
    votes = [*(config.source_columns or ()), config.votes_column, config.soft_label_column]
    return [name for name in votes if name is not None]


def columns_of(features: Features, options: TrainOptions, task: str) -> Columns:
    """Return the roles of the columns, those named by options first."""
    data, config = options.data, options.config
    inputs = {
        "token": (data.tokens_column,),
        "image": (data.image_column,),
        "text": (data.text_column, data.text_pair_column),
    }
    sources = columns_of_votes(config)
    rest = Features({name: feature for name, feature in features.items() if name not in sources})
    columns = find_columns(rest, inputs, task, config.label_column, config.trusted_column)
    for name in (columns.label, config.trusted_column):
        if name in features:
            check_plain_values(name, features[name])
    return columns


def with_label_column(dataset: Dataset, others: Sequence[Dataset], options: TrainOptions, task: str) -> Dataset:
    """
    Return rows that have votes or soft labels, with an empty column of labels if they have none and none is trusted.

    Args:
        dataset (`Dataset`): The rows.
        others (`Sequence[Dataset]`): Trusted file and other splits; the column gets the name of their labels.
        options (`TrainOptions`): The options of the command.
        task (`str`): `"auto"`, or the task.
    """
    config, names = options.config, dataset.column_names
    if not columns_of_votes(config) or _label_column(dataset, config) is not None:
        return dataset
    if config.trusted_column in names and len(read_given_flags(dataset, config.trusted_column).rows_with(1)):
        return dataset  # trusted rows need labels: `find_columns` says that there are none
    found = next(filter(None, (_label_column(other, config) for other in others)), None)
    if found is None and config.label_column is not None:
        return dataset  # `find_columns` says that there is no such column
    name = found or next(name for name in ("label", *USUAL_LABEL_COLUMNS) if name not in names)
    sources = [source for source in config.source_columns or () if source in names]
    if not any(is_list_feature(dataset.features[source]) for source in sources):
        return dataset.add_column(name, pa.nulls(len(dataset), pa.int64()), feature=Value("int64"))
    feature = List(Value("int64"))
    words = columns_of(Features({**dataset.features, name: feature}), options, task).inputs[0]
    _, offsets = flat_values(column_in_order(dataset, words))
    assert offsets is not None  # words are lists
    empty = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.nulls(int(offsets[-1]), pa.int64()))
    return dataset.add_column(name, empty, feature=feature)


def _label_column(dataset: Dataset, config: GLCConfig) -> str | None:
    """Return the column of the labels; `None` without one. Empty if several could be it: `find_columns` says so."""
    sources = columns_of_votes(config)
    rest = dataset.select_columns([name for name in dataset.column_names if name not in sources])
    if config.label_column is not None:
        return config.label_column if config.label_column in rest.column_names else None
    try:
        return find_label_column(rest, None, config.trusted_column)
    except NoLabelColumn:
        return None
    except ValueError:
        return ""


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
    number = None if label_names is None else len(label_names)
    return read_soft_labels(train, config.soft_label_column, number).shape[1]


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
