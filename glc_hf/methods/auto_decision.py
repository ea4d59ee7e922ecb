# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""What the last stage of `auto` trains on, decided by linear models and trusted items that they were not fitted to."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from glc_hf.correction.verdict import PLAIN, difference_interval


# Fewest trusted items that judge the final model, and that can show that noisy labels are good.
MIN_TRUSTED = 50
# Share of trusted rows while the last stage trains on all rows: in general, and where noisy labels are good.
CORRECTED_SHARE, _PLAIN_SHARE = 0.3, 0.1
# Levels of the intervals that decide for the noisy labels, and for trusted rows. Votes do less harm than one label.
_NOISY_LEVEL, _TRUSTED_LEVEL, _VOTES_TRUSTED_LEVEL = 0.9, 0.7, 0.95
# Level of the interval that shows that another model is better than plain training.
_PLAIN_LEVEL = 0.6
# Parts of the last stage that train on all rows: all of it, none, and where neither is clearly better.
ALL_ROWS, TRUSTED, BOTH = 1.0, 0.0, 0.5
NOISY_MODELS = {
    PLAIN: "the network of stage 1",
    "plain": "a linear model of all labels",
    "glc": "a linear model with the corrected loss",
}
_PROBABLE = {
    False: "the labels that linear models and the given labels make probable",
    True: "the labels that linear models and the votes make probable",
}
VOTES_MODEL = "a linear model with the votes of all sources"
_TRUSTED_MODELS = {
    "trusted": "a linear model of the trusted rows",
    "stack": "one of the trusted rows and the predicted noisy labels",
}
_PLAIN_MODELS = {name: NOISY_MODELS[name] for name in (PLAIN, "plain")}
_OTHER_MODELS = {
    "glc": NOISY_MODELS["glc"],
    **_TRUSTED_MODELS,
    "tuned": "one of all labels that is tuned on trusted rows",
    "glc_tuned": "one with the corrected loss that is tuned on trusted rows",
}


@dataclass(frozen=True)
class Decision:
    """
    What the last stage trains on.

    Attributes:
        mixed_part: Part of the stage that trains on all rows; the rest trains on trusted rows.
        reason: Why, in one sentence.
        trusted_share: Share of trusted rows in the first part.
        uses_pool: Whether the first part trains on labels that the linear models make probable.
    """

    mixed_part: float
    reason: str
    trusted_share: float = CORRECTED_SHARE
    uses_pool: bool = True


def decide(
    correct: dict[str, torch.Tensor], noisy_models: dict[str, str] = NOISY_MODELS, votes: bool = False
) -> Decision:
    """
    Decide what the last stage trains on.

    Models that believe the noisy labels, up to a matrix, are compared with models that learn from trusted labels how
    far to believe them. It takes more to decide for the noisy labels alone: where their errors depend on the example,
    the corrected loss loses much more than training on trusted rows loses elsewhere. But if no model is better than
    one of all labels as they are, there are no such errors: that model repeats them, and others learn to avoid them.
    The network then learns more from the given labels than from linear models.

    Args:
        correct (`dict`): For each model, whether it predicts each trusted item that it was not trained on.
        noisy_models (`dict`, *optional*): The models that believe the noisy labels, and what to call them.
        votes (`bool`, *optional*, defaults to `False`): Whether the noisy labels are votes of several sources.
    """

    def compare(models: dict[str, str], others: dict[str, str], *levels: float) -> tuple[str, list]:
        """What the best of these models and of the others predict, and the intervals of their difference."""
        one, other = (max(names, key=lambda name: mean(correct[name])) for names in (models, others))
        found = (
            f"{models[one]} predicts {mean(correct[one]):.1%} of {len(correct[one]):,} trusted labels, and "
            f"{others[other]} {mean(correct[other]):.1%}"
        )
        pair = correct[one].numpy(), correct[other].numpy()
        return found, [difference_interval(*pair, level) for level in levels]

    then = "" if votes else ", and then with the corrected loss"
    on_all_rows = f"The last stage trains on all rows with {_PROBABLE[votes]}"
    if not votes and len(correct[PLAIN]) >= MIN_TRUSTED:
        found, [(_, high)] = compare(_PLAIN_MODELS, _OTHER_MODELS, _PLAIN_LEVEL)
        if high >= 0:
            loss = "The last stage trains on all rows with the corrected loss"
            reason = f"{loss}: no model is clearly better than plain training; {found}."
            return Decision(ALL_ROWS, reason, _PLAIN_SHARE, uses_pool=False)
    levels = _NOISY_LEVEL, _VOTES_TRUSTED_LEVEL if votes else _TRUSTED_LEVEL
    found, [(low, _), (_, high)] = compare(noisy_models, _TRUSTED_MODELS, *levels)
    if low > 0:
        return Decision(ALL_ROWS, f"{on_all_rows}{then}: {found}.")
    if high < 0:
        return Decision(TRUSTED, f"The last stage trains on trusted rows only: {found}.")
    return Decision(BOTH, f"{on_all_rows}, and then on trusted rows: {found}, which is not a clear difference.")


def mean(flags: torch.Tensor) -> float:
    """The share of `True`."""
    return float(flags.double().mean())
