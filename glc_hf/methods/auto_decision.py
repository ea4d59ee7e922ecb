# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""What the last stage of `auto` trains on, decided by linear models and trusted items that they were not fitted to."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from glc_hf.correction.verdict import PLAIN, difference_interval


# Fewest trusted items to evaluate the final model, and to show that noisy labels are good.
MIN_TRUSTED = 50
# Share of trusted rows while the last stage trains on all rows: in general, and where noisy labels are good.
CORRECTED_SHARE, _PLAIN_SHARE = 0.3, 0.1
# Levels of the intervals that decide for the noisy labels, and for trusted rows. Votes do less harm than one label.
_NOISY_LEVEL, _TRUSTED_LEVEL, _VOTES_TRUSTED_LEVEL = 0.9, 0.7, 0.95
# Level of the interval that shows that another model is better than plain training.
_PLAIN_LEVEL = 0.6
# Parts of the last stage that train on all rows: all of it, none, and where neither is clearly better.
ALL_ROWS, TRUSTED, BOTH = 1.0, 0.0, 0.5
# Models that follow the noisy labels, up to a matrix, and models that learn from trusted labels how far to use them.
_NOISY_MODELS, _TRUSTED_MODELS = (PLAIN, "plain", "glc"), ("trusted", "stack")
# Models that follow the noisy labels as they are, and all others.
_PLAIN_MODELS, _OTHER_MODELS = (PLAIN, "plain"), ("glc", *_TRUSTED_MODELS, "tuned", "glc_tuned")


@dataclass(frozen=True)
class Decision:
    """
    What the last stage trains on.

    Attributes:
        mixed_part: Part of the stage that trains on all rows; the rest trains on trusted rows.
        reason: Why, in one sentence.
        trusted_share: Share of trusted rows in the first part.
        uses_pool: Whether the first part trains on labels that are estimated with linear models.
    """

    mixed_part: float
    reason: str
    trusted_share: float = CORRECTED_SHARE
    uses_pool: bool = True


def decide(correct: dict[str, torch.Tensor], votes: bool = False) -> Decision:
    """
    Decide what the last stage trains on.

    Models that follow the noisy labels, up to a matrix, are compared with models that learn from trusted labels how
    far to use them. It takes more to decide for the noisy labels alone: where their errors depend on the example,
    the corrected loss loses much more than training on trusted rows loses elsewhere. But if no model is better than
    one of all labels as they are, there are no such errors: that model repeats them, and others learn to avoid them.
    The network then learns more from the given labels than from linear models.

    Args:
        correct (`dict`): For each model, whether it predicts each trusted item that it was not trained on.
        votes (`bool`, *optional*, defaults to `False`): Whether the noisy labels are votes of several sources.
    """

    def compare(models: tuple[str, ...], others: tuple[str, ...], *levels: float) -> tuple[tuple[str, str], list]:
        """Accuracies of the best of these models and of the others, and the intervals of their difference."""
        one, other = (correct[max(names, key=lambda name: mean(correct[name]))] for names in (models, others))
        found = f"{mean(one):.1%} of {len(one):,} trusted labels", f"{mean(other):.1%}"
        return found, [difference_interval(one.numpy(), other.numpy(), level) for level in levels]

    start = "The last stage trains on"
    then = "" if votes else ", and then with the corrected loss"
    if not votes and len(correct[PLAIN]) >= MIN_TRUSTED:
        found, [(_, high)] = compare(_PLAIN_MODELS, _OTHER_MODELS, _PLAIN_LEVEL)
        if high >= 0:
            reason = (
                f"{start} all rows with the corrected loss, because the noisy labels are good: plain training on them "
                f"predicts {found[0]}, and the best other model {found[1]}."
            )
            return Decision(ALL_ROWS, reason, _PLAIN_SHARE, uses_pool=False)
    levels = _NOISY_LEVEL, _VOTES_TRUSTED_LEVEL if votes else _TRUSTED_LEVEL
    found, [(low, _), (_, high)] = compare(_NOISY_MODELS, _TRUSTED_MODELS, *levels)
    why = (
        f"the best model of the {'votes' if votes else 'noisy labels'} predicts {found[0]}, and the best model of the "
        f"trusted rows {found[1]}"
    )
    if low > 0:
        return Decision(ALL_ROWS, f"{start} all rows with estimated labels{then}: {why}.")
    if high < 0:
        return Decision(TRUSTED, f"{start} trusted rows only: {why}.")
    return Decision(
        BOTH,
        f"{start} all rows with estimated labels, and then on trusted rows: {why}, which is not a clear difference.",
    )


def mean(flags: torch.Tensor) -> float:
    """The share of `True`."""
    return float(flags.double().mean())
