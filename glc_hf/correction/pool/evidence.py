# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Whether the errors of noisy labels depend on the class, on the example, or on nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from glc_hf.correction.linear import LinearHead, Prior
from glc_hf.correction.pool.members import label_losses
from glc_hf.correction.pool.pool_data import PoolData
from glc_hf.correction.refinement import fit_with_matrix
from glc_hf.randomness import random_uint64


_FOLDS = 3
_FEWEST_ITEMS = 50  # with fewer untrusted items, differences can be equal by chance, and their standard error is 0
_LOWEST = 1e-6  # probability of a label
_BY_CHANCE = 1e-3  # trusted items that are drawn at random have so few of a class with at most this probability


@dataclass(frozen=True)
class NoiseEvidence:
    """
    What kind of errors the noisy labels have. Both numbers are in standard errors.

    Attributes:
        matrix: How much better a matrix explains noisy labels than a model of them that can follow any error which is
            linear in the features. It is positive if the errors depend on the class only, and negative if they depend
            on the example.
        random: How much better a model of the noisy labels predicts true labels than noisy ones. It is positive if a
            model can't learn the errors: they are spread over many classes, as those of uniform noise.
    """

    matrix: float
    random: float


def noise_evidence(data: PoolData, penalty: float) -> NoiseEvidence:
    """
    How clearly the errors of the noisy labels depend on the class only, and how clearly they are random.

    Two models are fitted to the untrusted items without a fold: one of the true labels with a matrix, and one of the
    noisy labels themselves. `matrix` is the mean difference of the log-probabilities that they give the noisy labels
    of the fold. Every untrusted label counts, so that few trusted items are enough. `random` compares the losses of
    the second model (see [`~correction.pool.members.label_losses`]) for trusted labels and for the noisy labels of the
    fold. Both are 0 with fewer than 50 untrusted items.

    Args:
        data ([`PoolData`]): The items.
        penalty (`float`): Weight decay of the models.
    """
    table, labels = data.table, data.labels
    draws = random_uint64("evidence", 0, table.numbers[data.untrusted].numpy())
    fold_of = torch.from_numpy((draws % np.uint64(_FOLDS)).astype(np.int64))
    sums = torch.zeros(7, dtype=torch.float64)
    for fold in range(_FOLDS):
        fitted, others = data.untrusted[fold_of != fold], data.untrusted[fold_of == fold]
        noisy = table.fit(fitted, labels[fitted], data.num_labels, penalty=penalty)
        matrix, head = fit_with_matrix(data, noisy, data.trusted, fitted, Prior(penalty), rounds=2)
        direct = table.logits(noisy, others).double().log_softmax(dim=-1)
        own = labels[others].unsqueeze(1)
        explained = (table.logits(head, others).double().softmax(dim=-1) @ matrix).clamp(min=_LOWEST).gather(1, own)
        difference = explained.log() - direct.exp().clamp(min=_LOWEST).gather(1, own).log()
        predicted = table.logits(noisy, data.trusted).double().log_softmax(dim=-1)
        of_noisy, of_true = label_losses(direct, labels[others]), label_losses(predicted, labels[data.trusted])
        sums += torch.stack(
            [
                torch.ones_like(difference).sum(),
                *(part.sum() for part in (difference, difference.square(), of_noisy, of_noisy.square())),
                torch.ones_like(of_true).sum(),
                of_true.sum(),
            ]
        )
    number, total, squares, losses, squared_losses, times, true_losses = table.reduce(sums).tolist()
    if number < _FEWEST_ITEMS:
        return NoiseEvidence(0.0, 0.0)
    variance = squares / number - (total / number) ** 2
    spread = squared_losses / number - (losses / number) ** 2
    return NoiseEvidence(
        total / math.sqrt(number * variance) if variance > 0 else 0.0,
        # Each trusted item has a loss for every fold.
        (losses / number - true_losses / times) / math.sqrt(spread * _FOLDS / times) if spread > 0 else 0.0,
    )


def classes_without_trusted_items(data: PoolData, noisy: LinearHead) -> list[int]:
    """
    The classes that trusted items lack because they are no random sample: none has such a label, and the model of the
    noisy labels predicts the class for clearly fewer of them than of the untrusted items. That it predicts the class
    as often means that only the noisy labels have it too often.

    Models that are chosen and judged by these items would forget the classes.

    Args:
        data ([`PoolData`]): The items.
        noisy ([`LinearHead`]): The model of the noisy labels.
    """
    classes = data.num_labels

    def predicted(rows: torch.Tensor) -> torch.Tensor:
        found = data.table.logits(noisy, rows).argmax(dim=-1) if len(rows) else rows
        return torch.bincount(found.cpu(), minlength=classes).double()

    counted = [predicted(data.trusted), predicted(data.untrusted)]
    counted += [
        torch.bincount(data.labels[rows], minlength=classes).double() for rows in (data.trusted, data.untrusted)
    ]
    of_trusted, of_untrusted, trusted, untrusted = data.table.reduce(torch.stack(counted)).numpy()
    # So few by chance: at most exp(-n · KL(share, rate)) by Chernoff's bound, and exactly that if there are none.
    number, rates = max(of_trusted.sum(), 1.0), of_untrusted / max(of_untrusted.sum(), 1.0)
    shares = np.minimum(of_trusted / number, rates)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        terms = shares * np.log(shares / rates), (1 - shares) * np.log((1 - shares) / (1 - rates))
        chances = np.exp(-number * sum(np.nan_to_num(term, nan=0.0) for term in terms))
    return np.flatnonzero((trusted == 0) & (untrusted > 0) & (chances < _BY_CHANCE)).tolist()
