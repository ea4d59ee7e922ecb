# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Whether the errors of noisy labels depend on the class, on the example, or on nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from glc_hf.correction.linear import FeatureTable
from glc_hf.correction.pool.evidence import NoiseEvidence, classes_without_trusted_items, noise_evidence
from glc_hf.correction.pool.pool_data import PoolData
from tests.correction.test_pool import as_two_processes


NEXT_CLASS = 0.7 * torch.eye(3) + 0.3 * torch.eye(3).roll(1, dims=1)


def _items(noise: str, rows: int = 3000, trusted: int = 60, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Features of three overlapping Gaussian classes, given labels, and how many of the first rows are trusted."""
    generator = torch.Generator().manual_seed(seed)
    true = torch.randint(3, (rows,), generator=generator)
    points = 2 * torch.eye(3, 6)[true] + torch.randn(rows, 6, generator=generator)
    if noise == "class":  # the next class, for any example
        noisy = torch.multinomial(NEXT_CLASS[true], 1, generator=generator).squeeze(1)
    elif noise == "random":  # any class
        any_class = torch.randint(3, (rows,), generator=generator)
        noisy = torch.where(torch.rand(rows, generator=generator) < 0.4, any_class, true)
    else:  # a rule sees the example, and uses three features that say nothing about the class
        noisy = (points[:, :3] + points[:, 3:]).argmax(dim=-1)
    assert (noisy == true).double().mean() == pytest.approx(0.75, abs=0.08)
    return points, torch.where(torch.arange(rows) < trusted, true, noisy), trusted


def _data(table: FeatureTable, given: torch.Tensor, trusted: int) -> PoolData:
    return PoolData.of(table, given.numpy(), np.arange(trusted), np.arange(trusted, len(given)), 3, seed=0)


def _evidence(points: torch.Tensor, given: torch.Tensor, trusted: int) -> NoiseEvidence:
    return noise_evidence(_data(FeatureTable(points, torch.arange(len(points))), given, trusted), penalty=1e-4)


@pytest.mark.parametrize("trusted", [12, 60, 300])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_evidence_is_clear_for_errors_of_classes_and_negative_for_errors_of_a_rule(seed: int, trusted: int) -> None:
    assert _evidence(*_items("class", trusted=trusted, seed=seed)).matrix > 5
    assert _evidence(*_items("rule", trusted=trusted, seed=seed)).matrix < -5


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_random_errors_are_those_that_a_model_of_the_noisy_labels_can_not_learn(seed: int) -> None:
    random, rule = (_evidence(*_items(noise, trusted=200, seed=seed)).random for noise in ("random", "rule"))
    assert random > 2.5
    assert rule < -2.5


def test_randomness_grows_with_the_square_root_of_the_number_of_trusted_items() -> None:
    some, all_of_them = (_evidence(*_items("random", trusted=trusted)).random for trusted in (150, 600))
    assert all_of_them == pytest.approx(2 * some, rel=0.4)


def test_true_labels_that_are_drawn_like_noisy_ones_are_no_evidence_of_random_errors() -> None:
    found = []
    for seed in range(10):
        points, given, _ = _items("random", seed=seed)
        points, given = points[60:], given[60:]  # without the labels that are right
        found.append(_evidence(points, given, trusted=100).random)
    assert abs(np.mean(found)) < 1
    assert np.std(found) == pytest.approx(1, abs=0.5)


def test_evidence_is_that_of_items_that_the_models_were_not_fitted_to() -> None:
    """A model of random labels explains the labels that it was fitted to, and no others."""
    generator = torch.Generator().manual_seed(0)
    points, given = torch.randn(400, 40, generator=generator), torch.randint(3, (400,), generator=generator)
    assert _evidence(points, given, trusted=60).matrix > 0


def test_evidence_grows_with_the_square_root_of_the_number_of_untrusted_items() -> None:
    points, given, trusted = _items("class", rows=6000)
    some = _evidence(points[:1500], given[:1500], trusted).matrix
    assert _evidence(points, given, trusted).matrix == pytest.approx(2 * some, rel=0.4)


@pytest.mark.parametrize("untrusted", [0, 1, 2, 5, 20, 49])
def test_fewer_than_50_untrusted_items_are_no_evidence(untrusted: int) -> None:
    points, given, trusted = _items("class")

    def evidence(rows: int) -> NoiseEvidence:
        return _evidence(points[: trusted + rows], given[: trusted + rows], trusted)

    assert evidence(untrusted) == NoiseEvidence(0.0, 0.0)
    assert 0.0 not in (evidence(50).matrix, evidence(50).random)


@pytest.mark.parametrize("noise", ["class", "rule", "random"])
def test_evidence_does_not_depend_on_how_items_are_split_over_processes(noise: str) -> None:
    points, given, trusted = _items(noise, rows=1000)
    alone = _evidence(points, given, trusted)

    def run(rank: int, reduce: Callable) -> NoiseEvidence:
        # One process has four times as many items as the other, in reverse order.
        mine = torch.arange(1000).flip(0)
        mine = mine[(mine % 5 == 0) == (rank == 0)]
        return noise_evidence(_data(FeatureTable(points[mine], mine, reduce), given, trusted), penalty=1e-4)

    first, second = as_two_processes(run)
    assert first == second
    assert (first.matrix, first.random) == pytest.approx(
        (alone.matrix, alone.random), abs=0.05
    )  # the optimizer's path differs by rounding


# ---------------------------------------------------------------------- trusted items that are no random sample
def _missing(points: torch.Tensor, given: torch.Tensor, trusted: int) -> list[int]:
    table = FeatureTable(points, torch.arange(len(points)))
    data = _data(table, given, trusted)
    return classes_without_trusted_items(data, table.fit(data.untrusted, given[data.untrusted], 3, penalty=1e-4))


@pytest.mark.parametrize(("trusted", "missing"), [(4, []), (60, [2])])
def test_class_that_trusted_items_do_not_show_is_found_if_chance_does_not_explain_it(trusted, missing) -> None:
    points, given, _ = _items("class", trusted=0)
    shown = points[:, 2] < points[:, :2].amax(dim=1) - 1
    order = torch.cat([shown.nonzero().squeeze(1), (~shown).nonzero().squeeze(1)])
    points, given = points[order], given[order]
    given[:trusted] = points[:trusted, :2].argmax(dim=1)
    assert _missing(points, given, trusted) == missing


def test_class_that_only_the_noisy_labels_have_is_not_missing() -> None:
    points, given, trusted = _items("class")
    given[:trusted] %= 2  # the noisy labels have class 2 in a third of the rows, the trusted ones never
    assert _missing(points, given, trusted) == []


def test_class_of_all_noisy_labels_that_is_never_predicted_for_trusted_items_is_missing() -> None:
    points = torch.cat([-torch.ones(30, 1), torch.ones(300, 1)]) + 0.01 * torch.arange(330)[:, None] / 330
    given = torch.cat([torch.zeros(30, dtype=torch.int64), torch.full((300,), 2)])
    given[30:60], points[30:60] = 0, -1.0  # untrusted rows like the trusted ones
    assert _missing(points, given, 30) == [2]
