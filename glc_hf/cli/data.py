# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Training and evaluation rows of a run: loaded, checked, marked as trusted and, if noise is simulated, made noisy."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from datasets import Dataset, DatasetDict

from glc_hf.cli.answer_file import (
    add_answers,
    check_task,
    columns_of,
    columns_of_votes,
    number_of_soft_labels,
    with_label_column,
    with_missing_votes,
)
from glc_hf.cli.digits import digits_dataset
from glc_hf.cli.options import DEFAULT_TRUSTED_FRACTION
from glc_hf.data.data_files import choose_split, load_splits
from glc_hf.data.dataset_check import check_dataset
from glc_hf.data.label_values import EVAL, GOLD, TRAIN, normalize_labels, skip_missing
from glc_hf.hold_out import TooFewTrustedRows, held_out_trusted_rows, trusted_part, trusted_rows
from glc_hf.labels.columns import Columns, has_labels, is_list_feature, number_of_classes
from glc_hf.labels.encoding import check_words, encode_flags, encode_labels
from glc_hf.labels.reading import IGNORED_LABEL, read_flags, read_integers
from glc_hf.matrix import CorruptionMatrix
from glc_hf.methods import get_method
from glc_hf.noise.corrupt import corrupt_labels
from glc_hf.noise.families import WEAK, noise_families, noise_matrix
from glc_hf.randomness import random_uint64
from glc_hf.training.config import GLCConfig
from glc_hf.trusted import mark_trusted, merge_trusted
from glc_hf.voted.voted_rows import has_votes


if TYPE_CHECKING:
    from glc_hf.cli.options import NoiseArguments
    from glc_hf.cli.parsing import TrainOptions
    from glc_hf.data.data_report import DataReport


logger = logging.getLogger(__name__)
CLEAN_COLUMN = "clean_label"
# Shares of all rows and of the trusted rows that are held out if there is no evaluation split.
_SHARE, _SHARE_OF_TRUSTED = 0.1, 0.2


@dataclass
class Rows:
    """
    Rows to train and to evaluate on.

    Attributes:
        train: Inputs, labels as given, flags (if the method needs them), and `clean_label` if noise is simulated.
        evaluation: Inputs and labels; `None` if there are too few rows to hold any out.
        columns: Roles of the columns.
        label_names: Names of the classes, if they have any.
        num_labels: K.
        true_matrix: Matrix of the simulated noise.
    """

    train: Dataset
    evaluation: Dataset | None
    columns: Columns
    label_names: list[str] | None
    num_labels: int
    true_matrix: CorruptionMatrix | None = None


@dataclass
class Parts:
    """
    The datasets of a run as they are in the files, and the roles of their columns.

    Attributes:
        datasets: The training split, and the evaluation split and the trusted dataset if there are any.
        columns: Roles of the columns.
        notes: What `--normalize-labels` did.
    """

    datasets: dict[str, Dataset]
    columns: Columns
    notes: list[str]


def load_parts(options: TrainOptions) -> Parts:
    """Load all datasets that the options name; with `--normalize-labels`, merge the spellings of their classes."""
    data = options.data
    splits = digits_dataset() if data.dataset is None else _load(data.dataset, options, config=data.dataset_config)
    train = choose_split(splits, data.train_split, "--train-split")
    if data.answers is not None:
        train = add_answers(
            train, choose_split(_load(data.answers, options, "--answers"), "train", "--answers"), options
        )
    gold, evaluation = _trusted_dataset(options), _evaluation_dataset(options)
    others = [gold, evaluation, *(split for name, split in splits.items() if name != data.train_split)]
    others = [other for other in others if other is not None]
    train = with_label_column(train, others, options, options.model.task)
    columns = columns_of(train.features, options, options.model.task)
    if evaluation is not None:
        _check_evaluation_columns(evaluation, options, columns)
    else:
        evaluation = _evaluation_split(splits, train, options, columns)
    parts = {TRAIN: train}
    if evaluation is not None:
        parts[EVAL] = evaluation.select_columns([*columns.inputs, columns.label])
    if gold is not None:
        parts[GOLD] = with_missing_votes(gold, train, columns_of_votes(options.config))
    notes = []
    if data.normalize_labels:
        names = [columns.label, options.config.noisy_label_column, *(options.config.source_columns or ())]
        names += [options.config.votes_column]
        parts, spellings, classes = normalize_labels(parts, [name for name in names if name is not None])
        if classes < spellings:
            notes.append(f"--normalize-labels: {spellings} spellings of labels are {classes} classes.")
    return Parts(parts, columns, notes)


def check_parts(parts: Parts, options: TrainOptions, quick: bool = False) -> DataReport:
    """Look for problems in the datasets of a run."""
    method = get_method(options.config.method)
    report = check_dataset(
        parts.datasets[TRAIN],
        parts.datasets.get(EVAL),
        parts.datasets.get(GOLD),
        columns=parts.columns,
        trusted_column=options.config.trusted_column,
        vote_columns=[name for name in columns_of_votes(options.config) if name != options.config.soft_label_column],
        soft_label_column=options.config.soft_label_column,
        needs_trusted=method.needs_trusted and not options.noise.simulated,
        needs_untrusted=method.needs_untrusted,
        on_missing=options.data.on_missing,
        quick=quick,
    )
    report.notes += parts.notes
    return report


def load_rows(options: TrainOptions) -> Rows:
    """Load, check and mark the rows. Raises for every mistake in them, before a model is loaded."""
    data, noise, flag = options.data, options.noise, options.config.trusted_column
    loaded = load_parts(options)
    parts, columns = loaded.datasets, loaded.columns
    _check_source_of_trust(parts[TRAIN], options)
    sources = columns_of_votes(options.config)
    check_task(columns.task, options)
    needed = _needed_columns(parts, options, columns)
    if data.dataset is not None:
        _say_problems(loaded, options)
    if data.on_missing == "skip":
        parts = skip_missing(parts, columns.label, flag, votes=bool(sources))
    for part, dataset in parts.items():
        check_words(dataset, columns.inputs[0], columns.label, part)
    # Rows with votes need no label of their own.
    unlabeled = (TRAIN,) if sources else ()
    second, soft = options.config.noisy_label_column, options.config.soft_label_column
    votes = [name for name in sources if name != soft]
    parts, names = encode_labels(parts, columns.label, second, unlabeled=unlabeled, votes=votes)
    num_labels = 0
    if soft is None or names is not None or has_labels(parts[TRAIN], columns.label):
        others = [*votes, *filter(None, [second])]
        num_labels = number_of_classes(list(parts.values()), columns.label, names, others)
    train, evaluation = parts[TRAIN], parts.get(EVAL)
    num_labels = max(num_labels, number_of_soft_labels(train, options.config, names))
    rows = Rows(train, evaluation, columns, names, num_labels)
    if noise.simulated and noise.noise != WEAK:
        rows.true_matrix = _true_matrix(noise, train, rows, options.seed)
    marked = flag in train.column_names
    rows.train = _subset(train, data.max_train_samples, options.seed)
    rows.train = rows.train.select_columns([*needed, flag] if marked else needed)
    if evaluation is not None:
        rows.evaluation = _subset(evaluation, data.max_eval_samples, options.seed)
    if GOLD in parts:
        gold = parts[GOLD].select_columns(needed)
        if gold.features != rows.train.features:  # for example the string types of CSV and Parquet
            gold = gold.cast(rows.train.features)
        rows.train = merge_trusted(gold, rows.train, trusted_column=flag)
    elif marked:
        rows.train = encode_flags(rows.train, flag)
    if noise.simulated:
        return _simulate(rows, options)
    if rows.evaluation is None:
        _hold_out(rows, options, "trusted rows" if flag in rows.train.column_names else "rows")
    return rows


def _load(name: str, options: TrainOptions, option: str = "--dataset", config: str | None = None) -> DatasetDict:
    return load_splits(name, config, option, options.data.delimiter, options.data.encoding)


def _trusted_dataset(options: TrainOptions) -> Dataset | None:
    if options.data.trusted_dataset is None:
        return None
    splits = _load(options.data.trusted_dataset, options, "--trusted-dataset")
    name = options.data.train_split if options.data.train_split in splits else "train"
    return choose_split(splits, name, "--trusted-dataset")


def _evaluation_dataset(options: TrainOptions) -> Dataset | None:
    if options.data.eval_dataset is None:
        return None
    splits, name = _load(options.data.eval_dataset, options, "--eval-dataset"), options.data.eval_split
    if name is None:
        name = next((usual for usual in ("test", "validation") if usual in splits), "train")
    return choose_split(splits, name, "--eval-dataset")


def _say_problems(parts: Parts, options: TrainOptions) -> None:
    """Print the problems of the data in a few lines. Raises for those that would stop the run later."""
    report = check_parts(parts, options, quick=True)  # in every process: all of them must stop
    report.raise_for_rows()
    for line in [*parts.notes, *report.short_lines(f"glc-hf check {options.data.dataset}")]:
        logger.warning(line)


def _check_evaluation_columns(evaluation: Dataset, options: TrainOptions, columns: Columns) -> None:
    for column in (*columns.inputs, columns.label):
        if column not in evaluation.features:
            raise ValueError(
                f"--eval-dataset {options.data.eval_dataset} has no column {column!r}, which the training split has; "
                f"its columns are {', '.join(evaluation.column_names)}. Use the same names in both."
            )


def _evaluation_split(splits: DatasetDict, train: Dataset, options: TrainOptions, columns: Columns) -> Dataset | None:
    name = options.data.eval_split
    if name is not None:
        split = choose_split(splits, name, "--eval-split")
        if columns.label not in split.features:
            raise ValueError(f"--eval-split {name}: it has no column {columns.label!r} of labels.")
        return split
    for name in ("test", "validation"):
        if name in splits and splits[name] is not train and has_labels(splits[name], columns.label):
            return splits[name]
    return None


def _check_source_of_trust(train: Dataset, options: TrainOptions) -> None:
    """Raise if it is not clear which labels are correct."""
    noise, flag = options.noise, options.config.trusted_column
    marked, drawn = flag in train.column_names, noise.trusted_fraction or noise.trusted_count
    if options.data.trusted_dataset is not None and marked:
        raise ValueError(
            f"the training split has a column {flag!r} and --trusted-dataset is given too: use one of them "
            "(--trusted-column can name a column that does not exist)."
        )
    known = marked or options.data.trusted_dataset is not None
    if drawn and known:
        raise ValueError(
            "--trusted-fraction and --trusted-count draw trusted rows at random, but the data defines which rows are "
            "trusted: leave them out."
        )
    if drawn and not noise.simulated:
        raise ValueError(
            "--trusted-fraction and --trusted-count mark rows before noise is simulated (--noise). Marking labels "
            "that are noisy already does not correct them: name the correct ones with --trusted-column or "
            "--trusted-dataset."
        )
    # The votes of several sources can do without trusted rows; a column that was named must exist.
    optional = has_votes(options.config) and flag == GLCConfig.trusted_column
    if not (known or optional or noise.simulated) and get_method(options.config.method).needs_trusted:
        raise ValueError(
            f"no row is known to be trusted: there is no column {flag!r} (columns: {', '.join(train.column_names)}). "
            "Name the correct labels in one of three ways: a column of flags (--trusted-column NAME), a second file "
            "of carefully labeled rows (--trusted-dataset FILE), or, to try the method on clean labels, "
            "simulated noise (--noise uniform --trusted-fraction 0.05)."
        )


def _needed_columns(parts: dict[str, Dataset], options: TrainOptions, columns: Columns) -> list[str]:
    """Return the columns of training rows, except the flag, in the training split and in the trusted dataset."""
    roles = [*columns.inputs, columns.label, options.data.index_column, options.config.noisy_label_column]
    needed = [name for name in [*roles, *columns_of_votes(options.config)] if name is not None]
    for part in (TRAIN, GOLD):
        for name in needed:
            if part in parts and name not in parts[part].column_names:
                raise ValueError(
                    f"{part} has no column {name!r}; its columns are {', '.join(parts[part].column_names)}."
                )
    return needed


# ---------------------------------------------------------------------- rows to evaluate on
def _hold_out(rows: Rows, options: TrainOptions, what: str) -> None:
    """Move part of the training rows to the evaluation rows: trusted rows, or any rows."""
    train, label, flag, seed = rows.train, rows.columns.label, options.config.trusted_column, options.seed
    chosen = np.empty(0, dtype=np.int64)
    if what == "trusted rows":
        total = len(trusted_rows(train, flag))
        columns = {"label_column": label, "trusted_column": flag}
        with suppress(TooFewTrustedRows):
            # The rows that the Trainer would hold out; it must not hold out more of the rest.
            share = options.config.trusted_eval_fraction or _SHARE_OF_TRUSTED
            chosen = held_out_trusted_rows(train, share, seed=seed, **columns)
            options.config.trusted_eval_fraction = 0.0
    else:
        labeled = np.arange(len(train))
        if has_votes(options.config):  # labels that are not trusted are not used
            what, labeled = "trusted rows", labeled[:0]
        elif options.config.soft_label_column is not None:
            what, labeled = "rows with a label", np.flatnonzero(read_integers(train, label).values >= 0)
        total = len(labeled)
        chosen = np.sort(labeled[_random_order(total, seed)[: int(_SHARE * total)]])
    if len(chosen) == 0:
        logger.warning(
            f"There is no evaluation split, and {total:,} {what} are too few to hold any out: no accuracy is reported."
        )
        return
    verb = "is" if len(chosen) == 1 else "are"
    logger.info(
        f"There is no evaluation split, so {len(chosen):,} of the {total:,} {what} {verb} held out for "
        "evaluation (to use other rows: --eval-dataset FILE or --eval-split NAME)."
    )
    held_out = trusted_part(train, chosen, label, flag) if what == "trusted rows" else train.select(chosen)
    rows.evaluation = _subset(held_out, options.data.max_eval_samples, seed)
    rows.train = train.select(np.setdiff1d(np.arange(len(train)), chosen))


def _subset(dataset: Dataset, count: int | None, seed: int) -> Dataset:
    """Draw at most `count` rows at random and keep their order."""
    if count is None or count >= len(dataset):
        return dataset
    return dataset.select(np.sort(_random_order(len(dataset), seed)[:count]))


def _random_order(number: int, seed: int) -> np.ndarray:
    return np.argsort(random_uint64("command line", seed, np.arange(number)), kind="stable")


# ---------------------------------------------------------------------- simulated noise
def _simulate(rows: Rows, options: TrainOptions) -> Rows:
    """Hold rows out while labels are clean, mark the trusted ones, and make the labels of the rest noisy."""
    noise, seed = options.noise, options.seed
    names: dict[str, Any] = {
        "label_column": rows.columns.label,
        "trusted_column": options.config.trusted_column,
        "index_column": options.data.index_column,
    }
    if rows.evaluation is None:
        _hold_out(rows, options, "clean rows")
    if names["trusted_column"] not in rows.train.column_names:
        fraction, count = noise.trusted_fraction, noise.trusted_count
        if fraction is None and count is None:
            fraction = DEFAULT_TRUSTED_FRACTION
        draw: dict[str, Any] = {"seed": seed, "stratify": noise.stratify, "level": noise.trusted_level}
        rows.train = mark_trusted(rows.train, fraction=fraction, count=count, **draw, **names)
    if noise.noise != WEAK:  # weak labels are drawn when the rows are prepared for a network
        rows.train = corrupt_labels(rows.train, rows.true_matrix, seed=seed, clean_column=CLEAN_COLUMN, **names)
    return rows


def _true_matrix(noise: NoiseArguments, train: Dataset, rows: Rows, seed: int) -> CorruptionMatrix:
    """Return the matrix that `--noise` names: a family, or a file."""
    num_labels = rows.num_labels
    if noise.noise in noise_families():
        groups = None
        if noise.noise_groups is not None:
            groups = _groups(noise.noise_groups, train, rows.columns.label, num_labels)
        return noise_matrix(
            noise.noise, num_labels, noise.noise_strength, seed=seed, groups=groups, label_names=rows.label_names
        )
    matrix = read_matrix(noise.noise, "--noise")
    if matrix.num_labels != num_labels:
        raise ValueError(f"--noise {noise.noise} has {matrix.num_labels} classes, the labels have {num_labels}.")
    return matrix


def read_matrix(path: str, option: str) -> CorruptionMatrix:
    """Read a matrix from a file, a folder or a Hub repository; errors name the option."""
    try:
        return CorruptionMatrix.from_pretrained(Path(path).expanduser() if Path(path).expanduser().exists() else path)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{option} {path}: {error}") from error


def _groups(given: str, train: Dataset, label_column: str, num_labels: int) -> list[Any]:
    """Return the groups that `--noise-groups` gives: as a column of the training split, or as JSON."""
    if given in train.column_names:
        return _groups_from_column(given, train, label_column, num_labels)
    try:
        groups = json.loads(given)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"--noise-groups is a column ({', '.join(train.column_names)}) or a JSON list such as [[0, 1], [2, 3]]; "
            f"{given!r} is neither."
        ) from error
    if not isinstance(groups, list):
        raise ValueError(f"--noise-groups must be a list, got {given!r}.")
    classes = sum(len(group) if isinstance(group, list) else 1 for group in groups)
    if classes != num_labels:
        raise ValueError(f"--noise-groups covers {classes} classes, the labels have {num_labels}.")
    return groups


def _groups_from_column(column: str, train: Dataset, label_column: str, num_labels: int) -> list[int]:
    """Return the group of each class, which must be the same in all its rows; a class without rows is a group."""
    labels = read_integers(train, label_column).values
    names = np.asarray(train.select_columns([column]).with_format(None)[:][column])
    if len(names) != len(labels) or names.ndim != 1:
        raise ValueError(f"--noise-groups: column {column!r} must have one group per label.")
    groups = np.unique(names, return_inverse=True)[1]
    group_of_class = np.arange(num_labels) + len(labels)  # numbers that no row's group has
    for label in np.unique(labels[labels >= 0]):
        own = np.unique(groups[labels == label])
        if len(own) > 1:
            raise ValueError(
                f"--noise-groups: class {label} has rows in {len(own)} groups of column {column!r}; a class belongs "
                "to one group."
            )
        group_of_class[label] = own[0]
    return group_of_class.tolist()


# ---------------------------------------------------------------------- counts for reports
def count_changed_labels(rows: Rows) -> int | None:
    """Return the number of labels that the simulated noise changed; `None` without simulated noise."""
    if CLEAN_COLUMN not in rows.train.column_names:
        return None
    noisy, clean = (read_integers(rows.train, name).values for name in (rows.columns.label, CLEAN_COLUMN))
    return int((noisy != clean).sum())


def count_labels(rows: Rows, flag: str) -> dict[str, int]:
    """Count rows and labels, trusted and all; rows and labels differ for token labels only."""
    counts = {"train_rows": len(rows.train), "eval_rows": len(rows.evaluation) if rows.evaluation is not None else 0}
    labels = read_integers(rows.train, rows.columns.label)
    if flag in rows.train.column_names:
        flags = read_flags(rows.train, flag)
        counts["trusted"] = int(flags.values.sum())
        counts["untrusted"] = len(flags.values) - counts["trusted"]
    if is_list_feature(rows.train.features[rows.columns.label]):
        counts["train_labels"] = int((labels.values != IGNORED_LABEL).sum())
    return counts
