# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""A better matrix while the last stage trains: its model knows true labels better than any trusted set is large."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from transformers.utils import logging

from glc_hf.correction.refine import most_likely_matrix
from glc_hf.corruption.counter import random_words
from glc_hf.corruption.matrix import CorruptionMatrix


if TYPE_CHECKING:
    from glc_hf.methods.between import Between

logger = logging.get_logger(__name__)

_ITEMS_A_CLASS = 200
_FEWEST_ITEMS = 2000
_NUMBERS_AT_ONCE = 20_000_000  # items × classes, in float64


def refinement_steps(total: int) -> tuple[int, ...]:
    """After a third of the steps, when the model knows most classes, and after two thirds."""
    return tuple(sorted({step for step in (total // 3, 2 * total // 3) if step > 0}))


def refine_estimate(run: Between, estimate: CorruptionMatrix, seed: int) -> CorruptionMatrix | None:
    """
    The matrix that explains the untrusted labels best, given the last stage's model as it is now and the first
    estimate; see [`~correction.refine.most_likely_matrix`].

    It looks at 200 untrusted items a class on the average (2,000 at least, all where there are fewer), the same ones
    each time, and never at more than 160 MB of probabilities; with so many classes that this leaves fewer than ten
    items a class it gives `None`.
    """
    numbers, classes = run.item_numbers("untrusted"), run.num_labels
    wanted = min(max(_FEWEST_ITEMS, _ITEMS_A_CLASS * classes), _NUMBERS_AT_ONCE // classes)
    if wanted < min(10 * classes, len(numbers)):
        logger.info(f"The matrix is not refined: with {classes:,} classes it would take too much memory.")
        return None
    chosen = None
    if len(numbers) > wanted:
        order = np.argsort(random_words("refine", seed, numbers), kind="stable")
        chosen = torch.from_numpy(np.sort(numbers[order[:wanted]]))
    probs, labels = [torch.empty(0, classes)], [torch.empty(0, dtype=torch.int64)]
    for batch in run.infer(0, "untrusted", only=chosen):
        probs.append(batch.logits.softmax(dim=-1))
        labels.append(batch.labels)
    refined = most_likely_matrix(
        torch.cat(probs),
        torch.cat(labels),
        torch.tensor(estimate.probs),
        run.class_counts("trusted"),
        reduce=run.sum_over_processes,
    )
    return CorruptionMatrix(refined, estimate.label_names)
