# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The rows of a run: training rows with their flags and, where it is simulated, their noise; evaluation rows."""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets import Dataset, DatasetDict, load_dataset, load_from_disk
from datasets.exceptions import DatasetsError

from glc_hf.cli.digits import digits_dataset
from glc_hf.cli.options import DEFAULT_TRUSTED_FRACTION
from glc_hf.hold_out import hold_out_rows, hold_out_trusted_rows, subset
from glc_hf.labels.columns import Columns, find_columns, is_list_feature
from glc_hf.labels.encoding import check_words, encode_flags, encode_labels, has_labels, number_of_classes
from glc_hf.labels.reading import read_flags, read_integers
from glc_hf.methods import get_method
from glc_hf.noise.corrupt import corrupt_labels
from glc_hf.noise.families import noise_matrix_of_options
from glc_hf.trusted import mark_trusted, merge_trusted


if TYPE_CHECKING:
    from glc_hf.cli.parsing import TrainOptions
    from glc_hf.matrix import CorruptionMatrix


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
        rows.true_matrix = noise_matrix_of_options(noise, train, columns.label, num_labels, names, options.seed)
    rows.train = subset(train, data.max_train_samples, options.seed).select_columns(
        [*needed, flag] if flag in train.column_names else needed
    )
    if evaluation is not None:
        rows.evaluation = subset(evaluation, data.max_eval_samples, options.seed)
    if data.trusted_dataset is not None:
        rows.train = _merge(parts["the trusted dataset"].select_columns(needed), rows.train, flag)
    elif flag in train.column_names:
        rows.train = encode_flags(rows.train, flag)
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
    if is_list_feature(rows.train.features[rows.columns.label]):
        counts["train_labels"] = int((labels.values != -100).sum())
    return counts


# Only an empty cell is a missing one: pandas would take words such as "None", "NA" and "null" for missing too.
_CELLS = {"keep_default_na": False, "na_values": [""]}
# How each kind of file is read: the builder of `datasets`, and its options.
FILE_FORMATS: dict[str, tuple[str, dict[str, Any]]] = {
    ".csv": ("csv", _CELLS),
    ".tsv": ("csv", {"sep": "\t", **_CELLS}),
    ".json": ("json", {}),
    ".jsonl": ("json", {}),
    ".parquet": ("parquet", {}),
}
_SAVED_TO_DISK = ("dataset_dict.json", "state.json")


def load_splits(name: str, config: str | None = None, option: str = "--dataset") -> DatasetDict:
    """
    Every split of a dataset.

    Args:
        name (`str`): A Hub id, a folder (laid out as on the Hub, or written by `save_to_disk`), or a file.
        config (`str`, *optional*): The configuration, where the dataset has several.
        option (`str`): The option that named it, for messages.
    """
    path = Path(name).expanduser()
    try:
        if path.is_file():
            found = _load_file(path, option)
        elif path.is_dir():
            saved = any((path / marker).exists() for marker in _SAVED_TO_DISK)
            found = load_from_disk(str(path)) if saved else load_dataset(str(path), config)
        elif _looks_like_a_path(name):
            raise FileNotFoundError(f"{option}: there is no file or folder {name}.")
        else:
            found = _load_from_hub(name, config, option)
    except DatasetsError as error:
        cause = error.__cause__ or error
        raise ValueError(f"{option} {name} can't be read: {type(cause).__name__}: {cause}") from error
    return found if isinstance(found, dict) else DatasetDict({"train": found})


def _load_file(path: Path, option: str) -> DatasetDict:
    if path.suffix.lower() not in FILE_FORMATS:
        raise ValueError(f"{option} {path}: files end in {', '.join(FILE_FORMATS)}; this one in {path.suffix!r}.")
    builder, settings = FILE_FORMATS[path.suffix.lower()]
    if path.suffix.lower() == ".tsv" and _quotes_are_text(path):
        settings = {**settings, "quoting": csv.QUOTE_NONE}
    return load_dataset(builder, data_files=str(path), **settings)


def _quotes_are_text(path: Path) -> bool:
    """Whether every line is a whole row and some line has a quote that it doesn't close: as the opening of a quoted
    field, that quote would swallow all rows up to the next one."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        tabs = next(lines, "").count("\t")
        odd = False
        for line in lines:
            if line.strip() and line.count("\t") != tabs:
                return False
            odd = odd or line.count('"') % 2 == 1
    return odd


def _load_from_hub(name: str, config: str | None, option: str) -> DatasetDict:
    try:
        return load_dataset(name, config)
    except OSError as error:  # offline, no such repository, no rights
        raise OSError(
            f"{option}: the dataset {name!r} can't be reached on the Hub ({type(error).__name__}), and there is no "
            f"such file or folder here. For local data name a path: {option} ./data.csv or {option} ./my-dataset."
        ) from error
    except ValueError as error:
        if "onfig name" in str(error) or "BuilderConfig" in str(error):
            raise ValueError(f"{error} Choose one with --dataset-config.") from error
        raise


def _looks_like_a_path(name: str) -> bool:
    return (
        name.startswith((".", "~", os.sep))
        or name.count("/") > 1
        or Path(name).suffix.lower() in FILE_FORMATS
        or (os.sep != "/" and os.sep in name)
    )


def choose_split(splits: DatasetDict, name: str, option: str) -> Dataset:
    """A split by its name; where there is but one and the default name was kept, that one."""
    if name in splits:
        return splits[name]
    if len(splits) == 1 and name == "train":
        return next(iter(splits.values()))
    raise ValueError(f"{option}: there is no split {name!r}; the splits are {', '.join(map(str, splits))}.")
