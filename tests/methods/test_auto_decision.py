# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""What the last stage of `auto` trains on, for given predictions of the linear models."""

from __future__ import annotations

import pytest
import torch

from glc_hf.correction.pool import MEMBERS
from glc_hf.methods import auto_decision
from glc_hf.methods.auto_decision import decide


def flags(right: int, of: int = 100) -> torch.Tensor:
    return torch.arange(of) < right


@pytest.mark.parametrize(
    ("right", "mixed_part", "share"),
    [
        (
            {"plain": 90, "trusted": 70, "tuned": 95},
            1.0,
            0.3,
        ),  # a model that is tuned stays close to that of all labels
        ({"glc": 90, "stack": 70}, 1.0, 0.3),
        (
            {"plain": 70, "glc": 72, "trusted": 70},
            0.5,
            0.3,
        ),  # clear enough for trusted rows, not for the corrected loss
        ({"plain": 69, "glc": 71, "trusted": 71}, 0.5, 0.3),  # chance
        ({"glc": 70, "trusted": 72}, 0.0, 0.3),
        ({"trusted": 70}, 0.0, 0.3),
        ({"glc": 80, "stack": 90}, 0.0, 0.3),
        # No model is clearly better than plain training.
        ({"no_correction": 90, "trusted": 70}, 1.0, 0.1),
        ({"plain": 71, "glc": 71, "trusted": 70}, 1.0, 0.1),
        ({"plain": 71, "tuned": 71}, 1.0, 0.1),
        ({"plain": 71, "tuned": 74, "stack": 74}, 0.0, 0.3),
    ],
)
def test_noisy_labels_are_used_if_they_are_good_or_a_model_of_them_is_clearly_better(right, mixed_part, share):
    everything = dict.fromkeys((*MEMBERS, "no_correction"), 50) | right
    decision = decide({name: flags(number) for name, number in everything.items()})
    assert (decision.mixed_part, decision.trusted_share) == (mixed_part, share)
    assert decision.uses_pool == (share == 0.3)
    ones, others = auto_decision.NOISY_MODELS, auto_decision._TRUSTED_MODELS
    if share == 0.1:
        ones, others = auto_decision._PLAIN_MODELS, auto_decision._OTHER_MODELS
    one, other = (max(everything[name] for name in names) for names in (ones, others))
    assert f"predicts {one}.0% of 100 trusted labels, and " in decision.reason
    assert f" {other}.0%" in decision.reason


def test_few_trusted_rows_and_votes_do_not_show_that_noisy_labels_are_good():
    def decided(number: int, votes: bool = False) -> float:
        return decide(
            {name: flags(number // 2, number) for name in (*MEMBERS, "no_correction")}, votes=votes
        ).mixed_part

    assert (decided(50), decided(49), decided(50, votes=True)) == (1.0, 0.5, 0.5)
