# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""What the last stage of `auto` trains on, decided by linear models and trusted items that they were not fitted to."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from glc_hf.correction.pool.evidence import NoiseEvidence
from glc_hf.correction.pool.pooling import POOL, Gain
from glc_hf.correction.verdict import difference_interval


# Fewest trusted items to evaluate the final model.
MIN_TRUSTED = 50
# Share of trusted rows while the last stage trains on all rows: in general, and where noisy labels are good.
CORRECTED_SHARE, PLAIN_SHARE = 0.3, 0.15
# Levels of the intervals that show that a model is better than another one, and that it clearly is.
_BETTER_LEVEL, _CLEAR_LEVEL = 0.6, 0.9
# Sum of the differences of losses by which trusted items show that a model is better than one of all labels as they
# are. By chance the better one of two gains one or two, whatever the number of items. Before the stage ends on trusted
# items only, the gain must be larger: few of them can't replace good labels.
_CLEAR_GAIN, _LARGE_GAIN = 2.5, 6.0
# Standard errors that a gain must have as well. With fewer than `MIN_TRUSTED` items they say too little.
_GAIN_ERRORS = 2.0
# Standard errors by which the matrix explains the noisy labels better than a model of them, if errors probably depend
# on the class, and if they clearly do.
_EVIDENCE, _CLEAR_EVIDENCE = 2.5, 5.0
# Standard errors by which a model of the noisy labels predicts true labels better than noisy ones, if errors are
# random, or worse, if it learns them.
_RANDOM = 2.5
# Parts of the last stage that train on all rows.
ALL_ROWS, BOTH = 1.0, 0.6
# Models that follow the votes, and models that learn from trusted labels how far to use the noisy ones.
_VOTES_MODELS, _TRUSTED_MODELS = ("plain", "glc"), ("trusted", "stack")


@dataclass(frozen=True)
class Decision:
    """
    What the last stage trains on.

    Attributes:
        mixed_part: Part of the stage that trains on all rows, with estimated labels; the rest trains on trusted rows.
        reason: Why, in one sentence.
        trusted_share: Share of trusted rows in the first part.
        class_errors: Whether errors depend on the class at most, so that the estimated labels use the given ones for
            all that they say.
        corrects: Whether the last third of the stage has the corrected loss.
        estimates: Whether there are estimated labels. Otherwise the whole stage has the corrected loss.
    """

    mixed_part: float
    reason: str
    trusted_share: float = CORRECTED_SHARE
    class_errors: bool = False
    corrects: bool = False
    estimates: bool = True


def decide(correct: dict[str, torch.Tensor], gain: Gain, evidence: NoiseEvidence | None) -> Decision:
    """
    Decide what the last stage trains on.

    With one source of labels, the first case that applies:

    1. No model predicts trusted labels better than a model of all labels as they are. That model repeats their
       errors, and the others learn to avoid them, so the labels are good: estimated labels to the end, in which the
       given ones have full weight. If the pool is clearly worse than that model, its estimates are no use: the
       corrected loss.
    2. The matrix explains the noisy labels clearly better than a model of them, so that errors depend on the class:
       the same, then the corrected loss, which would repeat errors that depend on the example.
    3. The gain is less than two standard errors: as in the first case.
    4. The gain is small, and a model of the noisy labels predicts trusted labels better than noisy ones, so that it
       can't learn the errors: the corrected loss. Estimated labels can have errors that a model learns.
    5. The matrix explains them better, but not clearly: as in the first case, with more trusted rows.
    6. The gain is small, and the model of the noisy labels does not predict trusted labels much worse than noisy ones:
       estimated labels to the end, in which the given ones have less weight.
    7. Otherwise such labels for a part of the stage, then trusted rows.

    Args:
        correct (`dict`): For each model and the pool, whether it predicts each trusted item that it was not fitted to.
        gain ([`~correction.pool.pooling.Gain`]): How much better trusted labels are predicted than by a model of all
            labels as they are.
        evidence ([`~correction.pool.evidence.NoiseEvidence`], *optional*): What kind of errors the noisy labels have;
            `None` if they are votes of several sources.
    """

    def best(names: tuple[str, ...]) -> torch.Tensor:
        return correct[max(names, key=lambda name: _mean(correct[name]))]

    def found(one: torch.Tensor, other: torch.Tensor, name: str) -> str:
        return f"predicts {_mean(one):.1%} of {len(one):,} trusted labels, and {name} {_mean(other):.1%}"

    start, plain, trusted = "The last stage trains on all rows", correct["plain"], best(_TRUSTED_MODELS)
    if evidence is None:
        votes = best(_VOTES_MODELS)
        why = f"the best model of the votes {found(votes, trusted, 'the best model of the trusted rows')}"
        if is_better(votes, trusted, _CLEAR_LEVEL):
            return Decision(ALL_ROWS, f"{start} with estimated labels: {why}.")
        if gain.total < _LARGE_GAIN:
            return Decision(ALL_ROWS, f"{start} with estimated labels, because the votes may be good: {why}.")
        return Decision(BOTH, f"{start} with estimated labels, and then on trusted rows: {why}.")
    why = f"a model of the labels as they are {found(plain, correct[POOL], 'a pool of models')}"
    if gain.total < _CLEAR_GAIN and is_better(plain, correct[POOL], _CLEAR_LEVEL):
        reason = f"{start} with the corrected loss, because the noisy labels are better than estimated ones: {why}."
        return Decision(ALL_ROWS, reason, PLAIN_SHARE, class_errors=True, estimates=False)
    close = f"{start} with estimated labels that are close to the given ones, because these"
    if gain.total < _CLEAR_GAIN:
        return Decision(ALL_ROWS, f"{close} are good: {why}.", PLAIN_SHARE, class_errors=True)
    better = (
        f"the matrix explains the noisy labels better than a model of them (by {evidence.matrix:.1f} standard errors)"
    )
    if evidence.matrix > _CLEAR_EVIDENCE:
        reason = (
            f"{start} with estimated labels, and then with the corrected loss, because errors depend on the class: "
            f"{better}."
        )
        return Decision(ALL_ROWS, reason, class_errors=True, corrects=True)
    if len(plain) >= MIN_TRUSTED and gain.total < _GAIN_ERRORS * gain.error:
        reason = f"{close} may be good: {why}, which can be chance."
        return Decision(ALL_ROWS, reason, PLAIN_SHARE, class_errors=True)
    if gain.total < _LARGE_GAIN and evidence.random > _RANDOM:
        reason = (
            f"{start} with the corrected loss, because errors are random: a model of the noisy labels predicts "
            f"trusted labels better than noisy ones (by {evidence.random:.1f} standard errors)."
        )
        return Decision(ALL_ROWS, reason, PLAIN_SHARE, class_errors=True, estimates=False)
    if evidence.matrix > _EVIDENCE:
        reason = f"{start} with estimated labels, because errors probably depend on the class: {better}."
        return Decision(ALL_ROWS, reason, class_errors=True)
    if gain.total < _LARGE_GAIN and evidence.random > -_RANDOM:
        return Decision(ALL_ROWS, f"{start} with estimated labels, because the noisy labels may be good: {why}.")
    return Decision(BOTH, f"{start} with estimated labels, and then on trusted rows: {why}.")


def is_better(one: torch.Tensor, other: torch.Tensor, level: float = _BETTER_LEVEL) -> bool:
    """Whether a model predicts more trusted items than another one, with some certainty."""
    return difference_interval(one.numpy(), other.numpy(), level)[0] > 0


def _mean(flags: torch.Tensor) -> float:
    """The share of `True`."""
    return float(flags.double().mean())
