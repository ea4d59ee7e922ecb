# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Trusted rows kept out of the estimate and of every training, to judge the stages by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import datasets
import numpy as np

from glc_hf.corruption.columns import find_label_column, read_flags, read_labels
from glc_hf.corruption.counter import random_words
from glc_hf.corruption.drawing import smallest
from glc_hf.methods.base import IGNORED


if TYPE_CHECKING:
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
        trusted = trusted[labels.values[trusted] != IGNORED]
        classes = labels.values[trusted]
    words = random_words("trusted evaluation", args.seed, trusted)
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
    if len(rows) == 0:
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
