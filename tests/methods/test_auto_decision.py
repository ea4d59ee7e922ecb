# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""What the last stage of `auto` trains on, for given predictions of the linear models."""

from __future__ import annotations

import pytest
import torch

from glc_hf.correction.pool.evidence import NoiseEvidence
from glc_hf.correction.pool.pool_data import _VOTES_MEMBERS, MEMBERS
from glc_hf.correction.pool.pooling import POOL, Gain
from glc_hf.methods.auto_decision import ALL_ROWS, BOTH, Decision, decide, is_better


CLEAR_GAIN, LARGE_GAIN = 2.5, 6.0  # sums of differences of losses
EVIDENCE, CLEAR, RANDOM = 2.5, 5.0, 2.5  # standard errors


def flags(right: int, of: int = 100) -> torch.Tensor:
    return torch.arange(of) < right


def decided(
    right: dict[str, int],
    evidence: float | None = 0.0,
    of: int = 100,
    others: int = 0,
    gain: float = 50.0,
    random: float = 0.0,
    error: float = 0.0,
) -> Decision:
    """The decision where models predict these numbers of labels, and all others `others` labels. Without `evidence`,
    the labels are votes."""
    members = MEMBERS if evidence is not None else _VOTES_MEMBERS
    everything = dict.fromkeys([*members, POOL], others) | right
    found = None if evidence is None else NoiseEvidence(evidence, random)
    return decide({name: flags(number, of) for name, number in everything.items()}, Gain(gain, error), found)


def case_of(decision: Decision) -> str:
    """The case of a decision. Every field but the reason depends on the case only."""
    cases = {
        "good": Decision(ALL_ROWS, decision.reason, 0.15, class_errors=True),
        "corrected": Decision(ALL_ROWS, decision.reason, 0.15, class_errors=True, estimates=False),
        "class": Decision(ALL_ROWS, decision.reason, 0.3, class_errors=True, corrects=True),
        "probably class": Decision(ALL_ROWS, decision.reason, 0.3, class_errors=True),
        "to the end": Decision(ALL_ROWS, decision.reason, 0.3),
        "example": Decision(BOTH, decision.reason, 0.3),
    }
    (case,) = [name for name, expected in cases.items() if decision == expected]
    return case


# ---------------------------------------------------------------------- one source of labels
@pytest.mark.parametrize("of", [10, 30, 1000])
@pytest.mark.parametrize("evidence", [-20.0, 0.0, 20.0])
def test_noisy_labels_are_good_if_no_model_is_clearly_better_than_plain_training(evidence, of):
    small, large = ("class", "class") if evidence > CLEAR else ("to the end", "example")
    gains = (-30.0, 0.0, CLEAR_GAIN - 0.01, CLEAR_GAIN, LARGE_GAIN - 0.01, LARGE_GAIN, 90.0)
    found = [case_of(decided({"plain": 7, POOL: 9}, evidence, of, gain=gain)) for gain in gains]
    assert found == ["good"] * 3 + [small] * 2 + [large] * 2


@pytest.mark.parametrize(
    ("evidence", "case"),
    [
        (-20.0, "example"),
        (0.0, "example"),
        (EVIDENCE, "example"),
        (EVIDENCE + 0.01, "probably class"),
        (CLEAR, "probably class"),
        (CLEAR + 0.01, "class"),
        (50.0, "class"),
    ],
)
@pytest.mark.parametrize("right", [{"glc": 90}, {"trusted": 90}, {"stack": 9}, {"plain": 95}])
def test_corrected_loss_needs_a_matrix_that_clearly_explains_the_labels(right, evidence, case):
    """How many labels single models predict does not matter: a matrix can describe the errors where models of trusted
    rows are good, and not describe them where a model with it is good."""
    assert case_of(decided({POOL: 90, **right}, evidence)) == case


@pytest.mark.parametrize(
    ("gain", "evidence", "random", "case"),
    [
        (CLEAR_GAIN - 0.01, 0.0, -20.0, "good"),
        (CLEAR_GAIN, 0.0, RANDOM + 0.01, "corrected"),
        (CLEAR_GAIN, EVIDENCE + 0.01, RANDOM + 0.01, "corrected"),
        (LARGE_GAIN - 0.01, -20.0, 20.0, "corrected"),
        (LARGE_GAIN, 0.0, 20.0, "example"),
        (CLEAR_GAIN, CLEAR + 0.01, 20.0, "class"),
        (CLEAR_GAIN, 0.0, RANDOM, "to the end"),
        (CLEAR_GAIN, EVIDENCE + 0.01, RANDOM, "probably class"),
        (CLEAR_GAIN, EVIDENCE + 0.01, -20.0, "probably class"),
        (CLEAR_GAIN, 0.0, -RANDOM + 0.01, "to the end"),
        (CLEAR_GAIN, 0.0, -RANDOM, "example"),
    ],
)
def test_errors_that_a_model_of_the_noisy_labels_learns_or_not_decide_where_the_gain_is_small(
    gain, evidence, random, case
):
    assert case_of(decided({"plain": 70, POOL: 78}, evidence, gain=gain, random=random)) == case


@pytest.mark.parametrize(("of", "case"), [(49, "example"), (50, "good"), (300, "good")])
@pytest.mark.parametrize("evidence", [-20.0, EVIDENCE + 0.01, CLEAR])
def test_a_gain_of_less_than_two_errors_can_be_chance_unless_items_are_few(of, case, evidence):
    right, gain = {"plain": 30, POOL: 35}, 30.0
    uncertain = decided(right, evidence, of, gain=gain, error=gain / 2 + 0.01)
    certain = case_of(decided(right, evidence, of, gain=gain, error=gain / 2))
    if case == "example" and evidence > EVIDENCE:
        case = "probably class"
    assert case_of(uncertain) == case
    assert certain == ("probably class" if evidence > EVIDENCE else "example")


def test_a_gain_may_be_uncertain_if_the_matrix_clearly_explains_the_labels():
    assert case_of(decided({"plain": 70, POOL: 78}, CLEAR + 0.01, gain=3.0, error=20.0)) == "class"
    assert case_of(decided({"plain": 70, POOL: 78}, CLEAR + 0.01, gain=CLEAR_GAIN - 0.01, error=20.0)) == "good"


# ---------------------------------------------------------------------- votes
@pytest.mark.parametrize("trusted_model", ["trusted", "stack"])
@pytest.mark.parametrize("votes_model", ["plain", "glc"])
def test_votes_are_used_to_the_end_if_a_model_of_them_is_clearly_better(votes_model, trusted_model):
    def case(more: int) -> str:
        return case_of(decided({votes_model: 70 + more, trusted_model: 70}, None, others=10))

    # Three more labels can be chance at the level 90 %, and four more can't.
    assert {more: case(more) for more in (-20, 0, 3, 4, 20)} == {
        -20: "example",
        0: "example",
        3: "example",
        4: "to the end",
        20: "to the end",
    }


def test_votes_are_used_to_the_end_unless_other_models_are_much_better_than_one_of_them():
    """Labels that are close to the most probable ones given the votes are never trained on: votes have a weight."""
    found = [case_of(decided({}, None, gain=gain)) for gain in (-50.0, LARGE_GAIN - 0.01, LARGE_GAIN, 50.0)]
    assert found == ["to the end", "to the end", "example", "example"]
    assert case_of(decided({"plain": 90}, None, gain=-50.0)) == "to the end"


# ---------------------------------------------------------------------- reasons
@pytest.mark.parametrize(
    ("right", "evidence", "reason"),
    [
        (
            {"plain": 70, "glc": 90, POOL: 80},
            12.34,
            "The last stage trains on all rows with estimated labels, and then with the corrected loss, because "
            "errors depend on the class: the matrix explains the noisy labels better than a model of them (by 12.3 "
            "standard errors).",
        ),
        (
            {"plain": 70, "glc": 90, POOL: 80},
            3.21,
            "The last stage trains on all rows with estimated labels, because errors probably depend on the class: "
            "the matrix explains the noisy labels better than a model of them (by 3.2 standard errors).",
        ),
        (
            {"plain": 70, "glc": 90, POOL: 85},
            -3.0,
            "The last stage trains on all rows with estimated labels, and then on trusted rows: a model of the labels "
            "as they are predicts 70.0% of 100 trusted labels, and a pool of models 85.0%.",
        ),
        (
            {"plain": 70, "glc": 80, "stack": 60, "tuned": 85, POOL: 90},
            None,
            "The last stage trains on all rows with estimated labels: the best model of the votes predicts 80.0% of "
            "100 trusted labels, and the best model of the trusted rows 60.0%.",
        ),
        (
            {"plain": 70, "stack": 90, "trusted": 80},
            None,
            "The last stage trains on all rows with estimated labels, and then on trusted rows: the best model of the "
            "votes predicts 70.0% of 100 trusted labels, and the best model of the trusted rows 90.0%.",
        ),
    ],
)
def test_reason_names_what_is_trained_on_and_the_numbers_behind_it(right, evidence, reason):
    assert decided(right, evidence).reason == reason


def test_estimates_of_a_pool_that_is_clearly_worse_than_plain_training_are_not_used():
    assert case_of(decided({"plain": 63, POOL: 62}, gain=0.0)) == "good"
    decision = decided({"plain": 63, POOL: 7}, gain=0.0)
    assert case_of(decision) == "corrected"
    assert decision.reason == (
        "The last stage trains on all rows with the corrected loss, because the noisy labels are better than "
        "estimated ones: a model of the labels as they are predicts 63.0% of 100 trusted labels, and a pool of models "
        "7.0%."
    )


def test_reason_of_good_labels_names_the_numbers_behind_it():
    assert decided({"plain": 90, POOL: 88}, gain=0.0).reason == (
        "The last stage trains on all rows with estimated labels that are close to the given ones, because these are "
        "good: a model of the labels as they are predicts 90.0% of 100 trusted labels, and a pool of models 88.0%."
    )


def test_reason_of_a_gain_that_can_be_chance_says_so():
    assert decided({"plain": 70, POOL: 78}, gain=8.0, error=4.1).reason == (
        "The last stage trains on all rows with estimated labels that are close to the given ones, because these may "
        "be good: a model of the labels as they are predicts 70.0% of 100 trusted labels, and a pool of models 78.0%, "
        "which can be chance."
    )


def test_reason_of_random_errors_names_the_number_behind_it():
    assert decided({"plain": 70, POOL: 78}, gain=3.0, random=3.21).reason == (
        "The last stage trains on all rows with the corrected loss, because errors are random: a model of the "
        "noisy labels predicts trusted labels better than noisy ones (by 3.2 standard errors)."
    )


def test_reason_of_votes_that_may_be_good_names_the_numbers_behind_it():
    assert decided({"plain": 70, "glc": 78, "trusted": 77}, None, gain=3.0).reason == (
        "The last stage trains on all rows with estimated labels, because the votes may be good: the best model of "
        "the votes predicts 78.0% of 100 trusted labels, and the best model of the trusted rows 77.0%."
    )


def test_reason_of_labels_that_may_be_good_names_the_numbers_behind_it():
    assert decided({"plain": 70, POOL: 78}, gain=3.0).reason == (
        "The last stage trains on all rows with estimated labels, because the noisy labels may be good: a model of "
        "the labels as they are predicts 70.0% of 100 trusted labels, and a pool of models 78.0%."
    )


# ---------------------------------------------------------------------- two models
def test_model_is_better_if_the_difference_is_not_chance():
    assert [is_better(flags(70 + more), flags(70)) for more in (-9, 0, 1, 2, 9)] == [False, False, False, True, True]
    assert [is_better(flags(70 + more), flags(70), 0.9) for more in (2, 3, 4)] == [False, False, True]
