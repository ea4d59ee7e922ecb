# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The rows of a run: training rows with their flags and, where it is simulated, their noise; evaluation rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from datasets import Dataset, DatasetDict

from glc_hf.cli.arguments import DEFAULT_TRUSTED_FRACTION
from glc_hf.cli.columns import Columns, find_columns, is_list
from glc_hf.cli.digits import digits_dataset
from glc_hf.cli.held_out import hold_out_rows, hold_out_trusted_rows, subset
from glc_hf.cli.labels import as_flags, encode_labels, has_labels, number_of_classes
from glc_hf.cli.load_data import choose_split, load_splits
from glc_hf.cli.noise import noise_matrix
from glc_hf.cli.words import check_words
from glc_hf.corruption.columns import read_flags, read_integers
from glc_hf.corruption.noise import corrupt_labels
from glc_hf.corruption.trusted import mark_trusted, merge_trusted
from glc_hf.methods import get_method


if TYPE_CHECKING:
    from glc_hf.cli.parse import TrainOptions
    from glc_hf.corruption.matrix import CorruptionMatrix

CLEAN_COLUMN = "clean_label"


@dataclass
class Rows:
    """
    What is trained on and judged by.

    Attributes:
        train: Inputs, labels as given, flags (where the method needs them), and `clean_label` where noise is
            simulated.
        evaluation: Inputs and labels; `None` where there are too few rows to hold any out.
        columns: What the columns are for.
        label_names: The classes' names, if they have any.
        num_labels: K.
        true_matrix: The matrix of the simulated noise.
    """

    train: Dataset
    evaluation: Dataset | None
    columns: Columns
    label_names: list[str] | None
    num_labels: int
    true_matrix: CorruptionMatrix | None = None


def load_rows(options: TrainOptions) -> Rows:
    """Loads, checks and marks the rows; every mistake in them is found here, before a model is loaded."""
    data, noise, flag = options.data, options.noise, options.config.trusted_column
    splits = digits_dataset() if data.dataset is None else load_splits(data.dataset, data.dataset_config)
    train = choose_split(splits, data.train_split, "--train-split")
    columns = find_columns(train.features, data, options.model.task, options.config.label_column, flag)
    evaluation = _evaluation_split(splits, train, options, columns)
    _check_trusted_are_told(train, options)

    parts = {"the training split": train}
    if evaluation is not None:
        parts["the evaluation split"] = evaluation.select_columns([*columns.inputs, columns.label])
    if data.trusted_dataset is not None:
        parts["the trusted dataset"] = _trusted_part(options)
    needed = _needed_columns(parts, options, columns)
    for part, dataset in parts.items():
        check_words(dataset, columns.inputs[0], columns.label, part)
    parts, names = encode_labels(parts, columns.label, options.config.noisy_label_column)
    num_labels = number_of_classes(list(parts.values()), columns.label, names)
    train, evaluation = parts["the training split"], parts.get("the evaluation split")
    rows = Rows(train, evaluation, columns, names, num_labels)
    if noise.simulated and noise.noise != "weak":
        rows.true_matrix = noise_matrix(noise, train, columns.label, num_labels, names, options.seed)
    rows.train = subset(train, data.max_train_samples, options.seed).select_columns(
        [*needed, flag] if flag in train.column_names else needed
    )
    if evaluation is not None:
        rows.evaluation = subset(evaluation, data.max_eval_samples, options.seed)
    if data.trusted_dataset is not None:
        rows.train = _merge(parts["the trusted dataset"].select_columns(needed), rows.train, flag)
    elif flag in train.column_names:
        rows.train = as_flags(rows.train, flag)
    if noise.simulated:
        return _simulate(rows, options)
    if rows.evaluation is None and flag in rows.train.column_names:
        rows.train, rows.evaluation = hold_out_trusted_rows(rows.train, columns.label, options)
    elif rows.evaluation is None:
        rows.train, rows.evaluation = hold_out_rows(rows.train, "rows", options)
    return rows


def _evaluation_split(splits: DatasetDict, train: Dataset, options: TrainOptions, columns: Columns) -> Dataset | None:
    name = options.data.eval_split
    if name is not None:
        found = choose_split(splits, name, "--eval-split")
        if columns.label not in found.features:
            raise ValueError(f"--eval-split {name}: there is no column {columns.label!r} of labels in it.")
        return found
    for name in ("test", "validation"):
        if name in splits and splits[name] is not train and has_labels(splits[name], columns.label):
            return splits[name]
    return None


def _check_trusted_are_told(train: Dataset, options: TrainOptions) -> None:
    """Refuses a run in which nobody says which labels are right."""
    noise, flag = options.noise, options.config.trusted_column
    marked, asked = flag in train.column_names, noise.trusted_fraction or noise.trusted_count
    if options.data.trusted_dataset is not None and marked:
        raise ValueError(
            f"the training split has a column {flag!r} and --trusted-dataset is given too: use one of them "
            "(--trusted-column can name a column that is not there)."
        )
    told = marked or options.data.trusted_dataset is not None
    if asked and told:
        raise ValueError(
            "--trusted-fraction and --trusted-count draw trusted rows at random, but the data says which rows are "
            "trusted: leave them out."
        )
    if asked and not noise.simulated:
        raise ValueError(
            "--trusted-fraction and --trusted-count mark rows before noise is simulated (--noise). Labels that are "
            "noisy already don't become right by being marked: say which are, with --trusted-column or "
            "--trusted-dataset."
        )
    if not told and not noise.simulated and get_method(options.config.method).needs_trusted:
        raise ValueError(
            f"no row is known to be trusted: there is no column {flag!r} (columns: {', '.join(train.column_names)}). "
            "Say which labels are right in one of three ways: a column of booleans (--trusted-column NAME), a second "
            "file of rows labelled with care (--trusted-dataset FILE), or, to try the method on clean labels, "
            "simulated noise (--noise uniform --trusted-fraction 0.05)."
        )


def _needed_columns(parts: dict[str, Dataset], options: TrainOptions, columns: Columns) -> list[str]:
    """The columns that training rows have, beside the flag, in the training split and the trusted dataset alike."""
    needed = [*columns.inputs, columns.label, options.data.index_column, options.config.noisy_label_column]
    needed = [name for name in needed if name is not None]
    for part in ("the training split", "the trusted dataset"):
        for name in needed:
            if part in parts and name not in parts[part].column_names:
                raise ValueError(
                    f"{part} has no column {name!r}; its columns are {', '.join(parts[part].column_names)}."
                )
    return needed


def _trusted_part(options: TrainOptions) -> Dataset:
    splits = load_splits(options.data.trusted_dataset, None, "--trusted-dataset")
    name = options.data.train_split
    return choose_split(splits, name if name in splits else "train", "--trusted-dataset")


def _merge(trusted: Dataset, untrusted: Dataset, flag: str) -> Dataset:
    if trusted.features != untrusted.features:  # such as the string types of CSV and Parquet
        trusted = trusted.cast(untrusted.features)
    return merge_trusted(trusted, untrusted, trusted_column=flag)


def _simulate(rows: Rows, options: TrainOptions) -> Rows:
    """Holds rows out while labels are right, marks the trusted ones, and makes the others noisy."""
    noise, flag, label, index = (
        options.noise, options.config.trusted_column, rows.columns.label, options.data.index_column,
    )  # fmt: skip
    if rows.evaluation is None:
        rows.train, rows.evaluation = hold_out_rows(rows.train, "rows, before noise", options)
    if flag not in rows.train.column_names:
        fraction = noise.trusted_fraction
        if fraction is None and noise.trusted_count is None:
            fraction = DEFAULT_TRUSTED_FRACTION
        rows.train = mark_trusted(
            rows.train,
            fraction=fraction,
            count=noise.trusted_count,
            seed=options.seed,
            stratify=noise.stratify,
            level=noise.trusted_level,
            label_column=label,
            trusted_column=flag,
            index_column=index,
        )
    if noise.noise == "weak":
        return rows  # drawn when the rows are prepared for a network
    rows.train = corrupt_labels(
        rows.train,
        rows.true_matrix,
        seed=options.seed,
        label_column=label,
        trusted_column=flag,
        index_column=index,
        clean_column=CLEAN_COLUMN,
    )
    return rows


def count_changed_labels(rows: Rows) -> int | None:
    """How many labels the simulated noise made wrong."""
    if CLEAN_COLUMN not in rows.train.column_names:
        return None
    noisy, clean = (read_integers(rows.train, name).values for name in (rows.columns.label, CLEAN_COLUMN))
    return int((noisy != clean).sum())


def count_labels(rows: Rows, flag: str) -> dict[str, int]:
    """Rows and labels, trusted and all; they differ for token labels only."""
    counts = {"train_rows": len(rows.train), "eval_rows": len(rows.evaluation) if rows.evaluation is not None else 0}
    labels = read_integers(rows.train, rows.columns.label)
    if flag in rows.train.column_names:
        flags = read_flags(rows.train, flag)
        counts["trusted"] = int(flags.values.sum())
        counts["untrusted"] = len(flags.values) - counts["trusted"]
    if is_list(rows.train.features[rows.columns.label]):
        counts["train_labels"] = int((labels.values != -100).sum())
    return counts
