# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from glc_hf.correction.verdict import (
    VERDICT_FILE,
    Verdict,
    Way,
    difference_interval,
    difference_with_control,
    final_verdict,
    first_verdict,
    load_verdict,
    save_verdict,
    way_of,
    way_with_control,
)
from glc_hf.intervals import wilson_interval


VERDICT = Verdict(
    chosen="auto",
    ways={"no_correction": Way(0.7, 0.6, 0.8, "stage 1 of “ünïcode”"), "auto": Way(0.9, 0.85, 0.93, "the network")},
    sentence="Correction helps.",
    helps=True,
    trusted_rows=60,
    decisions=["The last stage trains on all rows with the corrected loss."],
    final=True,
)
SIMULATIONS = 400


# ---------------------------------------------------------------------- files
@pytest.mark.parametrize("helps", [True, False, None])
def test_verdict_is_the_same_after_json_and_files(tmp_path, helps):
    verdict = Verdict(**{**vars(VERDICT), "helps": helps})
    content = json.loads(json.dumps(verdict.to_dict()))
    assert Verdict.from_dict(content) == verdict
    save_verdict(verdict, tmp_path)
    assert load_verdict(tmp_path) == verdict
    assert json.loads((tmp_path / VERDICT_FILE).read_text(encoding="utf-8")) == content


def test_folder_without_a_verdict_has_none(tmp_path):
    assert load_verdict(tmp_path) is None


def test_text_has_the_sentence_and_one_line_per_way():
    assert str(VERDICT).splitlines() == [
        "Correction helps.",
        *(f"  {decision}" for decision in VERDICT.decisions),
        "  Accuracies on trusted rows that were not used for training, with 90% intervals:",
        "    plain training on the noisy labels: 70.0% (60.0 to 80.0; stage 1 of “ünïcode”)",
        "    this model: 90.0% (85.0 to 93.0; the network)",
    ]


def test_a_model_that_was_not_evaluated_is_not_called_this_model():
    first = replace(VERDICT, final=False)
    assert "    best model before the last stage: 90.0% " in str(first)
    assert "this model" not in str(first)
    assert first.title_of("my_own_way") == "my_own_way"


# ---------------------------------------------------------------------- intervals
def simulate(seed: int, items: int, rates: tuple[float, float, float], apart: float) -> np.ndarray:
    """
    Whether three ways with these accuracies predict each item: `(3, items)`. Some items are hard for all of them, and
    the ways differ from each other by noise: the third by up to 0.25, the first two from each other by up to `apart`.
    """
    generator = np.random.default_rng(seed)
    # Hardness plus noise is uniform except at its ends, so accuracies that are not close to 0 or 1 are as asked.
    hardness, shared = generator.random(items), 0.25 * (generator.random((2, items)) - 0.5)
    own = apart * (generator.random((2, items)) - 0.5)
    noise = np.stack([shared[0] + own[0], shared[0] + own[1], shared[1]])
    return hardness + noise < np.array(rates)[:, None]


def simulations(items: int, judges: int, rates: tuple[float, float, float], apart: float) -> list[tuple]:
    """(final on the judges, positions of the judges, control, other) of each simulation."""
    drawn = []
    for seed in range(SIMULATIONS):
        final, control, other = simulate(seed, items, rates, apart)
        held_out = np.sort(np.random.default_rng(seed + 10_000).choice(items, size=judges, replace=False))
        drawn.append((final[held_out], held_out, control, other))
    return drawn


CASES = [(60, 12, (0.8, 0.75, 0.6)), (300, 60, (0.6, 0.7, 0.65)), (100, 20, (0.8, 0.8, 0.8))]


@pytest.mark.parametrize("apart", [0.02, 0.3])
@pytest.mark.parametrize(("items", "judges", "rates"), CASES)
def test_intervals_with_control_cover_the_truth(items, judges, rates, apart):
    drawn = simulations(items, judges, rates, apart)
    ways = [way_with_control(final, held_out, control, "x") for final, held_out, control, _ in drawn]
    assert np.mean([way.low <= rates[0] <= way.high for way in ways]) >= 0.85
    assert np.mean([way.accuracy for way in ways]) == pytest.approx(rates[0], abs=0.02)
    low, high = np.transpose([difference_with_control(*one) for one in drawn])
    truth = rates[0] - rates[2]
    assert ((low <= truth) & (truth <= high)).mean() >= 0.85
    assert (low + high).mean() / 2 == pytest.approx(truth, abs=0.02)


def test_control_that_disagrees_is_not_used():
    """Twelve right of twelve are not 34 % to 100 %, whatever another model gets right."""
    control = np.arange(60) % 10 < 6
    way = way_with_control(np.ones(12, dtype=bool), np.arange(12), control, "x")
    alone = way_of(np.ones(12, dtype=bool), "x")
    assert (way.accuracy, way.low, way.high) == (alone.accuracy, alone.low, alone.high)
    assert way.low > 0.8


@pytest.mark.parametrize(("items", "judges", "rates"), [(60, 12, (0.7, 0.7, 0.6)), (300, 60, (0.7, 0.68, 0.65))])
def test_control_that_agrees_with_the_final_way_makes_intervals_narrower_than_the_judges_alone(items, judges, rates):
    drawn = simulations(items, judges, rates, apart=0.02)
    ways = [way_with_control(final, held_out, control, "x") for final, held_out, control, _ in drawn]
    alone = [way_of(final, "x") for final, *_ in drawn]
    assert np.mean([way.high - way.low for way in ways]) < 0.8 * np.mean([way.high - way.low for way in alone])
    low, high = np.transpose([difference_with_control(*one) for one in drawn])
    alone_low, alone_high = np.transpose(
        [difference_interval(final, other[held_out]) for final, held_out, _, other in drawn]
    )
    assert (high - low).mean() < 0.9 * (alone_high - alone_low).mean()


@pytest.mark.parametrize("rates", [(0.8, 0.6), (0.6, 0.8), (0.7, 0.7)])
def test_difference_interval_has_the_right_sign_and_covers_the_truth(rates):
    intervals = []
    for seed in range(SIMULATIONS):
        first, second, _ = simulate(seed, 100, (*rates, 0.5), apart=0.25)
        intervals.append(difference_interval(first, second))
        low, high = difference_interval(second, first)
        assert (-high, -low) == pytest.approx(intervals[-1])
    low, high = np.transpose(intervals)
    truth = rates[0] - rates[1]
    assert ((low <= truth) & (truth <= high)).mean() >= 0.85
    if truth:
        sure = low > 0 if truth > 0 else high < 0
        assert sure.mean() > 0.9
    else:
        assert ((low > 0) | (high < 0)).mean() <= 0.15


@pytest.mark.parametrize("judges", [1, 2, 10])
@pytest.mark.parametrize("value", [False, True])
def test_few_equal_items_never_give_zero_width(judges, value):
    equal, all_items = np.full(judges, value), np.full(5 * judges, value)
    positions = np.arange(judges)
    way = way_with_control(equal, positions, all_items, "x")
    assert way.accuracy == float(value)
    assert way.high - way.low > 0.02
    assert 0.0 <= way.low <= way.accuracy <= way.high <= 1.0
    for low, high in (
        difference_with_control(equal, positions, all_items, all_items),
        difference_interval(all_items, all_items),
    ):
        assert low < -0.01 < 0.01 < high
    single = way_of(equal, "x")
    assert single.high - single.low > 0.1


def test_control_that_judges_all_items_gives_the_plain_interval():
    """With every item held out, nothing is estimated from the control."""
    generator = np.random.default_rng(0)
    final, control = generator.random((2, 50)) < 0.7
    way = way_with_control(final, np.arange(50), control, "the network")
    assert way.accuracy == pytest.approx(final.mean())
    assert (way.low, way.high) == pytest.approx(wilson_interval(final.mean(), 50, 0.9))
    assert way.measured == "the network, 50 of 50 trusted labels"


def test_accuracy_is_clipped_and_intervals_follow_the_level():
    control = np.array([True] * 9 + [False])
    positions = np.array([0, 9])
    way = way_with_control(np.array([True, True]), positions, control, "x")
    assert way.accuracy == way.high == 1.0  # 0.9 + 0.5
    wide = way_with_control(np.array([True, True]), positions, control, "x", level=0.99)
    assert wide.low < way.low
    assert np.diff(difference_with_control(control[:2], positions, control, ~control, level=0.99)) > np.diff(
        difference_with_control(control[:2], positions, control, ~control)
    )


# ---------------------------------------------------------------------- the sentence
@pytest.mark.parametrize(
    ("interval", "helps", "start"),
    [
        ((0.01, 0.2), True, "Correction helps: "),
        ((-0.2, -0.01), False, "Correction does not help: "),
        ((-0.1, 0.1), None, "It can't be told if correction helps: "),
    ],
)
def test_correction_helps_if_the_interval_of_the_difference_excludes_zero(interval, helps, start):
    first = first_verdict(np.arange(100) < 60, {})
    verdict = final_verdict(first, Way(0.7, 0.6, 0.8, "x"), interval)
    assert verdict.helps is helps
    assert verdict.sentence.startswith(f"{start}an estimated 70.0% of the predictions are right, against 60.0% ")
    assert f"(difference {100 * interval[0]:+.1f} to {100 * interval[1]:+.1f} points, " in verdict.sentence


@pytest.mark.parametrize(
    ("interval", "helps", "start"),
    [
        ((0.01, 0.2), None, "It can't be told if correction helps: "),
        ((0.9, 1.0), None, "It can't be told if correction helps: "),
        ((-0.1, 0.2), None, "It can't be told if correction helps: "),
        ((-0.2, -0.1), False, "Correction does not help: "),
    ],
)
def test_a_better_network_is_not_called_a_gain_of_correction_if_linear_models_have_none(interval, helps, start):
    correct = np.arange(100) < 80
    first, way = first_verdict(correct, {}, measured="linear model"), way_of(correct, "network")
    verdict = final_verdict(first, way, interval, no_linear_gain=True)
    assert verdict.helps is helps
    assert verdict.sentence.startswith(start)
    message = " Plain training is a linear model here, and several combined were not clearly better than it."
    assert verdict.sentence.endswith(message) is (interval[0] > 0)
    assert verdict.final
    assert message not in final_verdict(first, way, interval).sentence


def test_a_network_that_is_worse_than_its_linear_models_needs_more_training():
    ways = {"glc": Way(0.7, 0.6, 0.8, "linear model")}
    first = first_verdict(np.arange(100) < 60, ways)
    advice = (
        "The network is worse than a linear model on its features (training with the corrected loss: 70.0%), so it "
        "has not been trained enough: "
    )
    verdict = final_verdict(first, Way(0.1, 0.05, 0.3, "x"), (-0.6, -0.3))
    assert advice in verdict.sentence
    assert verdict.helps is None  # that the network is worse does not say that correction is the reason
    assert verdict.sentence.startswith("It can't be told if correction helps: ")
    assert final_verdict(first, Way(0.5, 0.4, 0.55, "x"), (0.1, 0.3)).helps is True
    assert "linear model" not in final_verdict(first, Way(0.6, 0.5, 0.7, "x"), (-0.1, 0.1)).sentence


def test_a_network_that_is_worse_than_the_plain_linear_model_needs_more_training():
    first = first_verdict(np.arange(100) < 80, {"glc": Way(0.5, 0.4, 0.6, "linear model")}, measured="linear model")
    verdict = final_verdict(first, Way(0.4, 0.3, 0.5, "network"), (-0.5, -0.3))
    assert verdict.helps is None
    assert "(plain training on the noisy labels: 80.0%), so it has not been trained enough" in verdict.sentence
    # Plain training of a network is no reason to train longer.
    alone = first_verdict(np.arange(100) < 80, {})
    assert final_verdict(alone, Way(0.4, 0.3, 0.5, "network"), (-0.5, -0.3)).helps is False
