# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""What the last stage of `auto` trains on, for given predictions of the linear models."""

from __future__ import annotations

import pytest
import torch

from glc_hf.correction.pool.pool_data import _VOTES_MEMBERS, MEMBERS
from glc_hf.correction.pool.pooling import POOL
from glc_hf.methods.auto_decision import ALL_ROWS, BOTH, MIN_TRUSTED, Decision, decide, is_better


CLEAR = 5.0  # standard errors
OTHERS = [name for name in MEMBERS if name not in ("plain", "trusted", "stack")]


def flags(right: int, of: int = 100) -> torch.Tensor:
    return torch.arange(of) < right


def decided(right: dict[str, int], evidence: float | None = 0.0, of: int = 100, others: int = 0) -> Decision:
    """The decision where models predict these numbers of labels, and all others `others` labels."""
    members = MEMBERS if evidence is not None else _VOTES_MEMBERS
    everything = dict.fromkeys([*members, POOL], others) | right
    return decide({name: flags(number, of) for name, number in everything.items()}, evidence)


def case_of(decision: Decision) -> str:
    """The case of a decision. Every field but the reason depends on the case only."""
    cases = {
        "good": Decision(ALL_ROWS, decision.reason, 0.15, uses_pool=False),
        "class": Decision(ALL_ROWS, decision.reason, 0.3, uses_pool=True),
        "example": Decision(BOTH, decision.reason, 0.3, uses_pool=True),
    }
    (case,) = [name for name, expected in cases.items() if decision == expected]
    return case


# ---------------------------------------------------------------------- one source of labels
@pytest.mark.parametrize("evidence", [-20.0, 0.0, 20.0])
def test_noisy_labels_are_good_if_the_pool_is_not_better_than_plain_training(evidence):
    rest = "class" if evidence > CLEAR else "example"
    # Two more labels in 100 are better at the level 60 %, and one more is chance.
    found = {right: case_of(decided({"plain": 71, POOL: right}, evidence)) for right in (50, 71, 72, 73, 90)}
    assert found == {50: "good", 71: "good", 72: "good", 73: rest, 90: rest}


@pytest.mark.parametrize("other", [name for name in MEMBERS if name != "plain"])
def test_single_models_do_not_decide_if_the_noisy_labels_are_good(other):
    """The best of several models is better than plain training by chance more often than their pool is."""
    assert case_of(decided({"plain": 71, POOL: 71, other: 80})) == "good"
    assert case_of(decided({"plain": 71, POOL: 80, other: 60})) == "example"


@pytest.mark.parametrize(
    ("evidence", "case"),
    [(-20.0, "example"), (0.0, "example"), (CLEAR, "example"), (CLEAR + 0.01, "class"), (50.0, "class")],
)
@pytest.mark.parametrize("right", [{"glc": 90}, {"trusted": 90}, {"stack": 9}, {"plain": 40}])
def test_corrected_loss_needs_good_labels_or_a_matrix_that_clearly_explains_them(right, evidence, case):
    """How good single models are does not matter: a matrix can describe the errors where models of trusted rows are
    good, and not describe them where a model with it is good."""
    assert case_of(decided({POOL: 90, **right}, evidence)) == case


@pytest.mark.parametrize("trusted_model", ["trusted", "stack"])
def test_few_trusted_rows_show_good_labels_only_if_models_of_them_are_clearly_worse(trusted_model):
    def case(plain: int, model: int, number: int, evidence: float = 0.0) -> str:
        return case_of(decided({"plain": plain, POOL: plain, trusted_model: model}, evidence, number))

    few = MIN_TRUSTED - 1
    # Three more labels can be chance at the level 90 %, and four more can't.
    assert [case(20, 20 - more, few) for more in (-2, 0, 3, 4, 20)] == ["example"] * 3 + ["good"] * 2
    assert [case(20, 20 - more, MIN_TRUSTED) for more in (-2, 0, 3, 4, 20)] == ["good"] * 5
    assert case(20, 20, few, CLEAR + 1) == "class"


@pytest.mark.parametrize("other", OTHERS)
def test_few_trusted_rows_do_not_show_good_labels_if_the_pool_is_better(other):
    few = MIN_TRUSTED - 1
    assert case_of(decided({"plain": 20, POOL: 21, other: 22}, of=few)) == "good"
    assert case_of(decided({"plain": 20, POOL: 22, other: 21}, of=few)) == "example"


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
        4: "class",
        20: "class",
    }


def test_votes_are_never_taken_for_good_labels():
    assert case_of(decided({}, None)) == "example"
    assert case_of(decided({"plain": 90}, None)) == "class"


# ---------------------------------------------------------------------- reasons
@pytest.mark.parametrize(
    ("right", "evidence", "reason"),
    [
        (
            {"plain": 90, "glc": 92, "trusted": 70, POOL: 88},
            0.0,
            "The last stage trains on all rows with the corrected loss, because the noisy labels are good: a model of "
            "the labels as they are predicts 90.0% of 100 trusted labels, and a pool of models 88.0%.",
        ),
        (
            {"plain": 70, "glc": 90, POOL: 80},
            12.34,
            "The last stage trains on all rows with estimated labels, and then with the corrected loss, because "
            "errors depend on the class: the matrix explains the noisy labels better than a model of them (by 12.3 "
            "standard errors).",
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


# ---------------------------------------------------------------------- two models
def test_model_is_better_if_the_difference_is_not_chance():
    assert [is_better(flags(70 + more), flags(70)) for more in (-9, 0, 1, 2, 9)] == [False, False, False, True, True]
    assert [is_better(flags(70 + more), flags(70), 0.9) for more in (2, 3, 4)] == [False, False, True]
