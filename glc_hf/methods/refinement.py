# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""A better matrix while the last stage trains: its model knows true labels better than any trusted set is large."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from transformers.utils import logging

from glc_hf.correction.missing import enough_rows
from glc_hf.correction.refine import most_likely_matrix
from glc_hf.corruption.counter import random_words
from glc_hf.corruption.matrix import CorruptionMatrix


if TYPE_CHECKING:
    from glc_hf.methods.between import Between
    from glc_hf.training.config import GLCConfig

logger = logging.get_logger(__name__)

_ITEMS_A_CLASS = 200
_FEWEST_ITEMS = 2000
_NUMBERS_AT_ONCE = 20_000_000  # items × classes, in float64


def refinement_steps(total: int) -> tuple[int, ...]:
    """After a third of the steps, when the model knows most classes, and after two thirds."""
    return tuple(sorted({step for step in (total // 3, 2 * total // 3) if step > 0}))


def refine_on_features(run: Between, estimate: CorruptionMatrix, args: GLCConfig) -> CorruptionMatrix | None:
    """
    A better matrix before the last stage begins, where stage 1 is a linear head on fixed features: a linear model of
    the true labels is fitted on all items with the loss corrected by the matrix so far, trusted ones counting as in
    the last stage, and the matrix becomes the most likely one given this model. Twice: after that it hardly moves.

    The mean softmax over a class's trusted rows mixes in what the head takes for other classes, which a linear one
    does often; here that is part of the model. `None` where stage 1 is no such head.
    """
    probe, classes = run.probe(0), run.num_labels
    if probe is None or _too_many_classes(classes, len(run.item_numbers("untrusted"))):
        return None
    table = probe.table
    flags = torch.zeros(len(run.item_labels("all")), dtype=torch.bool)
    flags[torch.from_numpy(run.item_numbers("trusted"))] = True
    given = torch.from_numpy(np.asarray(run.item_labels("all")))[table.numbers]
    trusted = flags[table.numbers]
    counts = run.class_counts("trusted")
    number = float(counts.sum())
    # As the last stage repeats them: to their share, and never below what they are.
    weight = max(1.0, args.trusted_share / (1 - args.trusted_share) * (len(flags) - number) / number)
    everything = torch.arange(len(table.numbers))
    looked_at = (~trusted).nonzero().squeeze(1)
    chosen = _some_items(run, args.seed)
    if chosen is not None:
        looked_at = looked_at[torch.isin(table.numbers[looked_at], chosen)]
    first, matrix, head = torch.tensor(estimate.probs), torch.tensor(estimate.probs), None
    for _ in range(2):
        head = table.fit(
            everything,
            given,
            classes,
            penalty=probe.penalty,
            matrix=matrix,
            trusted=trusted,
            trusted_weight=weight,
            start=head,
        )
        matrix = most_likely_matrix(
            table.logits(head, looked_at).softmax(dim=-1),
            given[looked_at],
            first,
            counts.clamp(min=enough_rows(counts)),
            reduce=run.sum_over_processes,
        )
    return CorruptionMatrix(matrix, estimate.label_names)


def refine_estimate(run: Between, estimate: CorruptionMatrix, seed: int) -> CorruptionMatrix | None:
    """
    The matrix that explains the untrusted labels best, given the last stage's model as it is now and the first
    estimate; see [`~correction.refine.most_likely_matrix`].

    It looks at 200 untrusted items a class on the average (2,000 at least, all where there are fewer), the same ones
    each time, and never at more than 160 MB of probabilities; with so many classes that this leaves fewer than ten
    items a class it gives `None`.
    """
    classes, chosen = run.num_labels, _some_items(run, seed)
    if _too_many_classes(classes, len(run.item_numbers("untrusted"))):
        logger.info(f"The matrix is not refined: with {classes:,} classes it would take too much memory.")
        return None
    probs, labels = [torch.empty(0, classes)], [torch.empty(0, dtype=torch.int64)]
    for batch in run.infer(0, "untrusted", only=chosen):
        probs.append(batch.logits.softmax(dim=-1))
        labels.append(batch.labels)
    counts = run.class_counts("trusted")
    refined = most_likely_matrix(
        torch.cat(probs),
        torch.cat(labels),
        torch.tensor(estimate.probs),
        counts.clamp(min=enough_rows(counts)),
        reduce=run.sum_over_processes,
    )
    return CorruptionMatrix(refined, estimate.label_names)


def _wanted_items(classes: int) -> int:
    return min(max(_FEWEST_ITEMS, _ITEMS_A_CLASS * classes), _NUMBERS_AT_ONCE // classes)


def _too_many_classes(classes: int, items: int) -> bool:
    return _wanted_items(classes) < min(10 * classes, items)


def _some_items(run: Between, seed: int) -> torch.Tensor | None:
    """The numbers of the untrusted items to look at, the same ones each time; `None` for all of them."""
    numbers, wanted = run.item_numbers("untrusted"), _wanted_items(run.num_labels)
    if len(numbers) <= wanted:
        return None
    order = np.argsort(random_words("refine", seed, numbers), kind="stable")
    return torch.from_numpy(np.sort(numbers[order[:wanted]]))
