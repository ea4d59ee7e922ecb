# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Trusted rows kept out of the estimate and of every training, to judge the stages by."""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import datasets
import numpy as np
from datasets import Dataset

from glc_hf.labels.columns import find_label_column
from glc_hf.labels.reading import IGNORED_LABEL, read_flags, read_labels
from glc_hf.randomness import random_uint64
from glc_hf.trusted import smallest


if TYPE_CHECKING:
    from glc_hf.cli.parsing import TrainOptions
    from glc_hf.training.config import GLCConfig


# What the held-out rows are called beside an evaluation set of the user's.
TRUSTED_SET = "trusted"


def trusted_rows_to_evaluate(dataset: Any, args: GLCConfig) -> np.ndarray:
    """
    The numbers of the trusted rows that `trusted_eval_fraction` holds out, ascending; none at 0.

    They depend on the seed and the rows alone. Each class gives its share where labels are one a row, and keeps at
    least one row to estimate from.
    """
    fraction = args.trusted_eval_fraction
    if fraction == 0.0 or dataset is None or isinstance(dataset, dict):  # several splits are refused later
        return np.empty(0, dtype=np.int64)
    if not isinstance(dataset, datasets.Dataset):
        raise ValueError(
            f"trusted_eval_fraction={fraction} holds rows out, which a stream can't: use a `Dataset`, or give an "
            "eval_dataset of trusted rows that are not in the stream."
        )
    flags = read_flags(dataset, args.trusted_column)
    if flags.offsets is not None:
        raise ValueError(
            f"trusted_eval_fraction={fraction} holds whole rows out, but {args.trusted_column!r} has a flag for each "
            "token. Set rows apart yourself, label their untrusted tokens -100, and give them as eval_dataset."
        )
    trusted = np.flatnonzero(flags.values)
    labels = read_labels(dataset, find_label_column(dataset, args.label_column), None)
    classes = None
    if labels.offsets is None:
        trusted = trusted[labels.values[trusted] != IGNORED_LABEL]
        classes = labels.values[trusted]
    words = random_uint64("trusted evaluation", args.seed, trusted)
    # The first of each class (or the very first) stays.
    _, of_row = np.unique(np.zeros(len(trusted)) if classes is None else classes, return_inverse=True)
    order = np.lexsort((words, of_row))
    stays = np.zeros(len(trusted), dtype=bool)
    stays[order[np.unique(of_row[order], return_index=True)[1]]] = True
    number = max(round(fraction * len(trusted)), 1)
    if number > len(trusted) - stays.sum():
        raise ValueError(
            f"trusted_eval_fraction={fraction} would hold out {number} of {len(trusted)} trusted rows, and each class "
            "needs one to be estimated from: lower it, or mark more rows."
        )
    chosen = smallest(words[~stays], number, classes[~stays] if classes is not None else None)
    return np.sort(trusted[~stays][chosen])


def evaluation_sets(eval_dataset: Any, train_dataset: Any, rows: np.ndarray) -> tuple[Any, Any]:
    """
    What is evaluated on: `(eval_dataset, trusted)`.

    Without an `eval_dataset` the held-out rows are it; in a dictionary they get a name of their own; beside a single
    one they come second.
    """
    if rows is None or len(rows) == 0:
        return eval_dataset, None
    trusted = train_dataset.select(rows)
    if eval_dataset is None:
        return trusted, None
    if not isinstance(eval_dataset, dict):
        return eval_dataset, trusted
    if TRUSTED_SET in eval_dataset:
        raise ValueError(
            f"eval_dataset has a set called {TRUSTED_SET!r}, the name of the rows that trusted_eval_fraction holds "
            "out: rename yours."
        )
    return {**eval_dataset, TRUSTED_SET: trusted}, None


logger = logging.getLogger(__name__)
_SHARE, _SHARE_OF_TRUSTED = 0.1, 0.2


def hold_out_rows(train: Dataset, what: str, options: TrainOptions) -> tuple[Dataset, Dataset | None]:
    """
    Parts the rows into (train, evaluation), at random.

    Args:
        train (`Dataset`): The training split.
        what (`str`): What its rows are called in the message.
        options (`TrainOptions`): For the seed and the most rows to evaluate on.
    """
    return _part(train, np.arange(len(train)), _SHARE, what, options)


def hold_out_trusted_rows(train: Dataset, label: str, options: TrainOptions) -> tuple[Dataset, Dataset | None]:
    """
    Parts the rows into (train, evaluation), the latter from those with trusted labels: no other label can judge.

    Args:
        train (`Dataset`): The training split with its flags.
        label (`str`): The labels' column. In a held-out row with a flag for each token, labels that are not trusted
            become -100.
        options (`TrainOptions`): For the flags' column, the seed and the most rows to evaluate on.
    """
    flag = options.config.trusted_column
    flags = read_flags(train, flag)
    trusted = flags.values
    if flags.offsets is not None:
        trusted = np.array([trusted[start:stop].any() for start, stop in pairwise(flags.offsets)], dtype=bool)
    train, evaluation = _part(train, np.flatnonzero(trusted), _SHARE_OF_TRUSTED, "trusted rows", options)
    if flags.offsets is not None and evaluation is not None:
        evaluation = evaluation.map(_TrustedLabels(label, flag))
    return train, evaluation


def subset(dataset: Dataset, count: int | None, seed: int) -> Dataset:
    """At most `count` rows, drawn at random and left in their order."""
    if count is None or count >= len(dataset):
        return dataset
    return dataset.select(np.sort(_random_order(len(dataset), seed)[:count]))


def _part(
    train: Dataset, candidates: np.ndarray, share: float, what: str, options: TrainOptions
) -> tuple[Dataset, Dataset | None]:
    number = int(share * len(candidates))
    if number == 0:
        logger.warning(
            f"There is no split to evaluate on, and {len(candidates):,} {what} are too few to hold any out: no "
            "accuracy is reported."
        )
        return train, None
    logger.info(
        f"There is no split to evaluate on: {number:,} of {len(candidates):,} {what} are held out for it "
        "(--eval-split names a split)."
    )
    chosen = np.sort(candidates[_random_order(len(candidates), options.seed)[:number]])
    evaluation = subset(train.select(chosen), options.data.max_eval_samples, options.seed)
    return train.select(np.setdiff1d(np.arange(len(train)), chosen)), evaluation


def _random_order(number: int, seed: int) -> np.ndarray:
    return np.argsort(random_uint64("command line", seed, np.arange(number)), kind="stable")


class _TrustedLabels:
    """Leaves out the labels of a row that are not trusted."""

    def __init__(self, label: str, flag: str) -> None:
        self.label, self.flag = label, flag

    def __call__(self, row: dict) -> dict:
        pairs = zip(row[self.label], row[self.flag], strict=True)
        return {self.label: [label if trusted else IGNORED_LABEL for label, trusted in pairs]}


def held_out_trusted_rows(dataset, fraction, *, label_column=None, trusted_column="trusted", seed=0):
    from types import SimpleNamespace

    return trusted_rows_to_evaluate(
        dataset,
        SimpleNamespace(
            trusted_eval_fraction=fraction, label_column=label_column, trusted_column=trusted_column, seed=seed
        ),
    )
