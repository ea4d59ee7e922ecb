# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Rows to evaluate on, held out of the training split where a dataset has no split for it."""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from datasets import Dataset

from glc_hf.corruption.column_checks import IGNORED_LABEL
from glc_hf.corruption.columns import read_flags
from glc_hf.corruption.counter import random_words


if TYPE_CHECKING:
    from glc_hf.cli.parse import TrainOptions

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
    return np.argsort(random_words("command line", seed, np.arange(number)), kind="stable")


class _TrustedLabels:
    """Leaves out the labels of a row that are not trusted."""

    def __init__(self, label: str, flag: str) -> None:
        self.label, self.flag = label, flag

    def __call__(self, row: dict) -> dict:
        pairs = zip(row[self.label], row[self.flag], strict=True)
        return {self.label: [label if trusted else IGNORED_LABEL for label, trusted in pairs]}
