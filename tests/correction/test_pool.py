# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
from __future__ import annotations

import copy
import dataclasses
import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch

from glc_hf.correction.linear import FeatureTable, LinearHead, Prior
from glc_hf.correction.pool import pool_data as pool_data_module
from glc_hf.correction.pool import pooling
from glc_hf.correction.pool.members import Members, best_scale, combine, label_losses
from glc_hf.correction.pool.pool_data import DISCRIMINANTS, MEMBERS, PoolData
from glc_hf.correction.pool.pooling import POOL, FoldFits, Gain, Pool, fit_pool, pool_weights
from glc_hf.correction.refinement import smoothed_estimate


ROWS, TRUSTED, CLASSES = 1000, 60, 3
# Most labels are those of the next class.
MATRIX = 0.4 * torch.eye(CLASSES) + 0.6 * torch.eye(CLASSES).roll(1, dims=1)
PRIOR = torch.tensor(list(MEMBERS.values()))


def problem(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Features of three overlapping Gaussian classes, true labels, and given labels: the first rows are trusted."""
    generator = torch.Generator().manual_seed(seed)
    true = torch.randint(CLASSES, (ROWS,), generator=generator)
    centers = 1.2 * torch.randn(CLASSES, 4, generator=generator)
    points = centers[true] + torch.randn(ROWS, 4, generator=generator)
    noisy = torch.multinomial(MATRIX[true], 1, generator=generator).squeeze(1)
    return points, true, torch.where(torch.arange(ROWS) < TRUSTED, true, noisy)


def pool_data(table: FeatureTable, given: torch.Tensor, trusted: int = TRUSTED, seed: int = 0) -> PoolData:
    return PoolData.of(table, given.numpy(), np.arange(trusted), np.arange(trusted, len(given)), CLASSES, seed)


def table_of(points: torch.Tensor) -> FeatureTable:
    return FeatureTable(points, torch.arange(len(points)))


def noisy_head(data: PoolData) -> LinearHead:
    return data.table.fit(data.untrusted, data.labels[data.untrusted], CLASSES, penalty=1e-4)


@pytest.fixture(scope="module")
def fitted() -> Pool:
    points, _, given = problem()
    data = pool_data(table_of(points), given)
    return fit_pool(data, noisy_head(data), 1e-4)


# ---------------------------------------------------------------------- the matrix
def test_smoothed_estimate_adds_one_row_of_average_noise_per_class():
    sums = torch.tensor([[1.5, 0.5, 0.0], [0.2, 0.6, 0.2], [0.0, 0.0, 0.0]])
    counts = torch.tensor([2.0, 1.0, 0.0])
    diagonal = (1.5 / 2 + 0.6) / 2
    rest = (1 - diagonal) / 2
    expected = [
        [(1.5 + diagonal) / 3, (0.5 + rest) / 3, rest / 3],
        [(0.2 + rest) / 2, (0.6 + diagonal) / 2, (0.2 + rest) / 2],
        [rest, rest, diagonal],
    ]
    torch.testing.assert_close(smoothed_estimate(sums, counts), torch.tensor(expected).double())


def test_smoothed_estimate_without_trusted_items_is_the_identity():
    assert torch.equal(smoothed_estimate(torch.zeros(3, 3), torch.zeros(3)), torch.eye(3).double())


def test_matrix_is_close_to_the_true_one_and_better_than_the_gold_estimate(fitted):
    data = fitted.members.data
    softmax = data.table.logits(fitted.members.noisy, data.trusted).double().softmax(dim=-1)
    labels = data.labels[data.trusted]
    gold = torch.stack([softmax[labels == label].mean(dim=0) for label in range(CLASSES)])
    after, before = (float((matrix - MATRIX).abs().max()) for matrix in (fitted.matrix, gold))
    assert after < 0.08
    assert after < before / 2
    torch.testing.assert_close(fitted.matrix.sum(dim=1), torch.ones(CLASSES).double())


# ---------------------------------------------------------------------- the members and the pool
def test_held_out_predictions_do_not_depend_on_the_label_of_the_item():
    points, _, given = problem()
    data = pool_data(table_of(points), given)
    noisy, item = noisy_head(data), 7
    changed = dataclasses.replace(data, labels=data.labels.clone())
    changed.labels[item] = (changed.labels[item] + 1) % CLASSES

    def predictions(some: PoolData, fold: int) -> torch.Tensor:
        members = Members(some, noisy, Prior(1e-4), Prior(1e-3), Prior(1e-3), left_out=data.folds[0] == fold)
        members.complete(dict.fromkeys(["tuned", "glc_tuned", *DISCRIMINANTS], 0.8), PRIOR)
        return members.log_probs(torch.tensor([item]))

    own, other = int(data.folds[0, item]), int(data.folds[0, item] + 1) % pool_data_module.FOLDS
    torch.testing.assert_close(predictions(changed, own), predictions(data, own), atol=1e-6, rtol=0)
    difference = (predictions(changed, other) - predictions(data, other)).abs().amax(dim=-1)
    assert (difference > 1e-3).all()  # every member was fitted to this label


def test_pool_predicts_held_out_labels_of_all_members(fitted):
    _, true, _ = problem()
    members = [*MEMBERS, *DISCRIMINANTS]
    assert list(fitted.members.data.members) == members
    assert fitted.held_out.shape == (1, TRUSTED, len(members) + 1, CLASSES)
    assert torch.equal(fitted.labels, true[:TRUSTED])
    torch.testing.assert_close(fitted.held_out.exp().sum(dim=-1), torch.ones(1, TRUSTED, len(members) + 1))
    accuracies = (fitted.held_out[0].argmax(dim=-1) == fitted.labels[:, None]).double().mean(dim=0)
    named = dict(zip([*members, pooling.POOL], accuracies.tolist(), strict=True))
    assert named["plain"] < 0.6 < 0.8 < named["glc"]
    assert named[pooling.POOL] >= named["glc"] - 0.04
    # The fit on all trusted items differs from the fits of the folds, and predicts the true labels of new items.
    predicted = fitted.log_probs(torch.arange(TRUSTED, ROWS))
    torch.testing.assert_close(predicted.exp().sum(dim=-1), torch.ones(ROWS - TRUSTED))
    assert (predicted.argmax(dim=-1) == true[TRUSTED:]).double().mean() > 0.8
    assert fitted.log_probs(torch.arange(0)).shape == (0, CLASSES)


def test_pool_is_the_weighted_product_of_the_members():
    probs = torch.tensor([[[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]])
    product = probs[0, 0] ** 2 * probs[0, 1] ** 0.5
    expected = (product / product.sum()).log()
    torch.testing.assert_close(combine(probs.log(), torch.tensor([2.0, 0.5]))[0], expected)


def test_weights_are_the_prior_without_items():
    assert torch.equal(pool_weights(torch.empty(0, len(MEMBERS), 3), torch.empty(0, dtype=torch.int64)), PRIOR)
    assert float(PRIOR.sum()) == pytest.approx(1.0)


def predictions_of_one_good_member(items: int, good: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities of members of which one is right and the others predict at random, and the labels."""
    generator = torch.Generator().manual_seed(items + good)
    labels = torch.randint(CLASSES, (items,), generator=generator)
    logits = 2 * torch.randn(items, len(MEMBERS), CLASSES, generator=generator)
    logits[torch.arange(items), good, labels] += 4
    return logits.log_softmax(dim=-1), labels


@pytest.mark.parametrize("good", range(len(MEMBERS)))
def test_weights_are_not_negative_and_move_to_the_member_that_is_right(good):
    many = pool_weights(*predictions_of_one_good_member(2000, good))
    others = torch.arange(len(MEMBERS)) != good
    assert (many >= 0).all()
    assert many[good] > 0.7
    assert many[others].max() < 0.1
    few = pool_weights(*predictions_of_one_good_member(5, good))
    assert (few - PRIOR).abs().max() < (many - PRIOR).abs().max() / 2


def test_weights_minimize_the_loss_with_the_penalty():
    log_probs, labels = predictions_of_one_good_member(40, 2)

    def value(weights: torch.Tensor) -> float:
        loss = label_losses(combine(log_probs.double(), weights), labels).mean()
        return float(loss + 10 / 40 * (weights - PRIOR).square().sum())

    log_probs[:10, :, 0], labels[:10] = -20.0, 0  # all members are sure that these labels are wrong
    found = pool_weights(log_probs, labels)
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        step = 0.02 * torch.randn(len(MEMBERS), generator=generator)
        assert value((found + step).clamp(min=0)) >= value(found) - 1e-6


def test_loss_of_a_label_that_a_model_is_sure_is_wrong_is_bounded():
    log_probs = torch.tensor([[0.0, -50.0, -400.0], [0.5, 0.25, 0.25], [0.5, 0.25, 0.25]])
    log_probs[1:] = log_probs[1:].log()
    losses = label_losses(log_probs, torch.tensor([2, 0, 1]))
    expected = [0.02 / 3, 0.98 * 0.5 + 0.02 / 3, 0.98 * 0.25 + 0.02 / 3]
    torch.testing.assert_close(losses, -torch.tensor(expected).double().log())


# ---------------------------------------------------------------------- how sure the members are
@pytest.mark.parametrize("factor", [0.25, 1.0, 4.0])
def test_scale_makes_a_model_as_sure_as_its_predictions_are_right(factor):
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(4000, CLASSES, generator=generator)
    labels = torch.multinomial(logits.softmax(dim=-1), 1, generator=generator).squeeze(1)
    assert best_scale(factor * logits, labels) == pytest.approx(1 / factor, rel=0.1)
    few = best_scale(factor * logits[:3], labels[:3])
    assert abs(np.log(few)) < abs(np.log(factor)) + 0.3  # close to 1, the prior
    assert best_scale(logits[:0], labels[:0], expected=0.5) == pytest.approx(0.5, rel=0.1)


def test_scale_multiplies_the_logits_of_a_discriminant_and_those_that_a_tuned_model_starts_from(fitted):
    members, rows = copy.copy(fitted.members), torch.arange(ROWS)
    members.heads, members.scales = dict(members.heads), dict(members.scales)
    before = members.logits(rows, "discriminant")
    members.scale("discriminant", 0.5)
    torch.testing.assert_close(members.logits(rows, "discriminant"), before / 2)
    members.priors = (*members.priors[:2], Prior(1e4))  # as close as it can be
    members.tune("tuned", 0.3)
    expected = 0.3 * members.center_logits(rows, "tuned")
    torch.testing.assert_close(members.logits(rows, "tuned"), expected, atol=0.02, rtol=0.02)
    assert {name: members.scales[name] for name in ("discriminant", "tuned")} == {"discriminant": 0.5, "tuned": 0.3}


def test_scales_are_those_of_labels_that_the_models_were_not_fitted_to(monkeypatch):
    """The scale of a fold and the scale of all items are chosen on labels with these numbers."""
    seen, choose = [], pooling.best_scale

    def recorded(logits: torch.Tensor, labels: torch.Tensor, *rest, **options) -> float:
        seen.append((len(labels), options.get("expected", 1.0)))
        return choose(logits, labels, *rest, **options)

    points, _, given = problem()
    data = pool_data(table_of(points), given)
    monkeypatch.setattr(pooling, "best_prior", lambda *_: Prior(1e-3))
    monkeypatch.setattr(pooling, "best_scale", recorded)
    fit_pool(data, noisy_head(data), 1e-4)
    numbers = [*~data.splits, torch.ones(TRUSTED)]
    once = [int(chosen.sum()) for chosen in numbers]
    assert [number for number, _ in seen] == once * 4  # two tuned members and two discriminants
    assert [expected for _, expected in seen] == [1.0] * 12 + [0.3] * 12


def test_repeated_predictions_do_not_outweigh_the_priors_of_scales_and_weights():
    points, _, given = problem()
    data = pool_data(table_of(points), given)
    labels = data.labels[:20]
    logits = data.table.logits(noisy_head(data), torch.arange(20))
    for expected in (0.3, 1.0):
        once = best_scale(logits, labels, expected=expected)
        assert best_scale(logits.repeat(3, 1), labels.repeat(3), expected=expected, repeats=3) == once != expected
    log_probs = torch.stack([(scale * logits).log_softmax(dim=-1) for scale in (-1.0, 0.1, 1.0, 2.0, 4.0, 8.0)], dim=1)
    once = pool_weights(log_probs, labels, items=10.0)
    again = pool_weights(log_probs.repeat(3, 1, 1), labels.repeat(3), items=30.0)
    torch.testing.assert_close(again, once, atol=1e-4, rtol=0)


def test_pool_of_few_trusted_items_has_predictions_of_each_division_into_folds():
    points, _, given = problem()
    data = pool_data(table_of(points), given, trusted=30)
    pool = fit_pool(data, noisy_head(data), 1e-4)
    assert pool.held_out.shape == (3, 30, len(data.members) + 1, CLASSES)
    assert (pool.held_out[0] != pool.held_out[1]).flatten(1).any(dim=1).all()
    correct = pool.held_out.mean(dim=0).argmax(dim=-1) == pool.labels[:, None]
    for name, right in zip([*data.members, POOL], correct.t(), strict=True):
        assert torch.equal(pool.held_out_correct[name], right)

    def gain_of_division(division: int) -> float:
        members = copy.copy(pool.members)
        members.data = dataclasses.replace(data, folds=data.folds[[division]])
        return dataclasses.replace(pool, members=members, held_out=pool.held_out[[division]]).gain.total

    gains = [gain_of_division(division) for division in range(3)]
    assert pool.gain.total == pytest.approx(sum(gains) / 3)
    assert max(gains) - min(gains) > 0.01


@pytest.mark.parametrize("trusted", [TRUSTED, 30])
def test_scales_of_a_fold_have_not_seen_its_labels(trusted):
    points, _, given = problem()
    data = pool_data(table_of(points), given, trusted)
    noisy = noisy_head(data)
    fits = FoldFits(data, noisy, (Prior(1e-4), Prior(1e-3), Prior(1e-3)))
    repeats = 3 if trusted < pool_data_module.FEW_TRUSTED else 1
    *splits, (whole, everything, times) = fits
    assert len(splits) == len(data.splits) == 5 * repeats
    assert (whole is fits.whole, everything.all(), times) == (True, True, repeats)
    assert torch.equal(fits.labels, data.labels[:trusted].repeat(repeats))
    predicted = fits.predict(Members.center_logits, CLASSES, name="tuned").unflatten(0, (repeats, trusted))
    for split, (members, others, times) in enumerate(splits):
        division, left_out = data.division(split), data.splits[split]
        assert times == 1
        others = others.unflatten(0, (repeats, trusted))
        assert torch.equal(others[division], ~left_out)
        assert others.sum() == (~left_out).sum()  # predictions of this division only
        here = fits.left_out[split].unflatten(0, (repeats, trusted))
        assert torch.equal(here[division], left_out)
        assert here.sum() == left_out.sum()
        expected = data.table.logits(members.heads["plain"], data.trusted_numbers[left_out])
        torch.testing.assert_close(predicted[division, left_out], expected)


def test_members_completed_with_the_scales_of_a_pool_are_those_of_the_pool(fitted):
    data = fitted.members.data
    again = Members(data, fitted.members.noisy, *fitted.members.priors)
    again.complete(fitted.members.scales, fitted.first_weights)
    rows = torch.arange(ROWS)
    torch.testing.assert_close(again.log_probs(rows), fitted.members.log_probs(rows))


# ---------------------------------------------------------------------- good noisy labels
def gain_of(plain: torch.Tensor, tuned: torch.Tensor, pool: torch.Tensor, fitted: Pool) -> float:
    """The gain of a pool with these predictions, `(n, K)` logits, for the trusted items."""
    held_out = fitted.held_out.clone()
    for name, logits in {"plain": plain, "tuned": tuned, POOL: pool}.items():
        held_out[:, :, [*fitted.members.data.members, POOL].index(name)] = logits.log_softmax(dim=-1)
    return dataclasses.replace(fitted, held_out=held_out).gain.total


def test_gain_is_the_difference_of_the_losses_of_the_better_model_and_of_plain_training(fitted):
    right = 3.0 * torch.nn.functional.one_hot(fitted.labels, CLASSES)
    half = right * (torch.arange(TRUSTED) % 2)[:, None]
    nothing = torch.zeros(TRUSTED, CLASSES)
    assert gain_of(half, half, half, fitted) == pytest.approx(0.0)
    assert gain_of(right, nothing, half, fitted) < -10
    best = gain_of(nothing, right, nothing, fitted)
    assert best == gain_of(nothing, nothing, right, fitted) > 30
    assert gain_of(nothing, right, half, fitted) == best
    # A model that is only too sure, or not sure enough, is not worse.
    assert abs(gain_of(3 * half, half / 3, half, fitted)) < 5


def test_error_of_a_gain_is_the_standard_error_of_a_sum():
    differences = torch.randn(400, 1000, generator=torch.Generator().manual_seed(0)) + 0.1
    gains = [Gain.of(sample) for sample in differences]
    totals = torch.tensor([gain.total for gain in gains])
    assert float(totals.mean()) == pytest.approx(100, abs=5)
    # The error of each sample is that of the sums over all samples.
    assert sum(gain.error for gain in gains) / len(gains) == pytest.approx(float(totals.std()), rel=0.1)
    assert Gain.of(torch.full((7,), 0.5)) == (3.5, 0.0)


def test_gain_is_small_without_noise_and_large_with_it(fitted):
    assert fitted.gain.total > 20
    gains = []
    for seed in range(5):  # other trusted rows of the same kind
        points, true, _ = problem(seed)
        data = pool_data(table_of(points), true)
        gains.append(fit_pool(data, noisy_head(data), 1e-4).gain.total)
    assert sum(gain < 2.5 for gain in gains) >= 4


# ---------------------------------------------------------------------- processes
def as_two_processes(run: Callable[[int, Callable], object]) -> list:
    """Call `run(rank, reduce)` in two threads, with sums over both."""
    barrier, parts, results = threading.Barrier(2), {}, [None, None]

    def work(rank: int) -> None:
        calls = 0

        def reduce(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal calls
            parts[(calls, rank)] = tensor.clone()
            barrier.wait(30)
            total = parts[(calls, 0)] + parts[(calls, 1)]
            calls += 1
            barrier.wait(30)
            return total

        try:
            results[rank] = run(rank, reduce)
        except BaseException:
            barrier.abort()
            raise

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


def test_pool_does_not_depend_on_how_items_are_split_over_processes(fitted, monkeypatch):
    points, _, given = problem()
    # Searching all penalties in threads takes long.
    kept = tuple(sorted({prior.penalty for prior in fitted.members.priors[1:]}, reverse=True))
    monkeypatch.setattr(pooling, "_PENALTIES", kept)

    def run(rank: int, reduce: Callable) -> Pool:
        # One process has four times as many items as the other.
        mine = torch.arange(ROWS)[(torch.arange(ROWS) % 5 == 0) == (rank == 0)]
        data = pool_data(FeatureTable(points[mine], mine, reduce), given)
        head = data.table.fit(data.untrusted, data.labels[data.untrusted], CLASSES, penalty=1e-4)
        return fit_pool(data, head, 1e-4)

    first, second = as_two_processes(run)
    assert torch.equal(first.held_out, second.held_out)
    assert torch.equal(first.labels, second.labels)
    assert torch.equal(first.weights, second.weights)
    assert torch.equal(first.matrix, second.matrix)
    # The optimizer's path differs by rounding, so its end point differs slightly.
    assert torch.equal(first.labels, fitted.labels)
    torch.testing.assert_close(first.held_out.exp(), fitted.held_out.exp(), atol=2e-2, rtol=0)
    torch.testing.assert_close(first.matrix, fitted.matrix, atol=5e-3, rtol=0)
    torch.testing.assert_close(first.weights, fitted.weights, atol=2e-2, rtol=0)


# ---------------------------------------------------------------------- votes beside predictions
def _votes_case(copied: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Calibrated predictions, the likelihood of votes that repeat them or are made independently, and the labels."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(CLASSES, (2000,), generator=generator)

    def noisy(share: float) -> torch.Tensor:
        right = torch.rand(len(labels), generator=generator) < share
        return torch.where(right, labels, torch.randint(CLASSES, (len(labels),), generator=generator))

    rates = torch.full((CLASSES, CLASSES), 0.1).fill_diagonal_(0.8).log()
    predicted = noisy(0.7)
    return rates[predicted], rates[predicted if copied else noisy(0.7)], labels


def test_votes_that_repeat_the_prediction_add_nothing():
    assert pooling._best_weight(*_votes_case(copied=True)) <= 0.1
    assert pooling._best_weight(*_votes_case(copied=False)) >= 0.8


def test_weight_of_votes_without_trusted_labels_is_one():
    assert pooling._best_weight(torch.zeros(0, 3), torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)) == 1.0


# ---------------------------------------------------------------------- true labels of untrusted items
def test_posterior_is_the_prediction_of_the_pool_times_the_weighted_likelihood_of_the_given_label(fitted):
    data, rows = fitted.members.data, fitted.members.data.untrusted[:50]
    likelihood = fitted.matrix.float()[:, data.labels[rows]].t().clamp(min=1e-4)
    expected = fitted.log_probs(rows).exp() * likelihood**0.3
    torch.testing.assert_close(fitted.posterior(rows), expected / expected.sum(dim=1, keepdim=True))
    assert fitted.given_weight == 0.3


def test_posterior_of_a_soft_label_that_is_certain_is_that_of_the_hard_label(fitted):
    data, rows = fitted.members.data, fitted.members.data.untrusted[:50]
    certain = torch.nn.functional.one_hot(data.labels[rows], CLASSES).float()
    torch.testing.assert_close(fitted.posterior(rows, certain), fitted.posterior(rows))
    unknown = torch.full((50, CLASSES), 1 / CLASSES)
    assert not torch.allclose(fitted.posterior(rows, unknown), fitted.posterior(rows), atol=0.05)


def test_posterior_is_better_than_the_pool_and_than_the_given_labels(fitted):
    _, true, given = problem()
    rows = fitted.members.data.untrusted
    right = {
        "posterior": fitted.posterior(rows).argmax(dim=1) == true[rows],
        "pool": fitted.log_probs(rows).argmax(dim=1) == true[rows],
        "given": given[rows] == true[rows],
    }
    assert right["posterior"].sum() > right["pool"].sum() > right["given"].sum()


# ---------------------------------------------------------------------- the prior
@pytest.mark.parametrize("follows", [True, False])
def test_prior_is_correlated_where_that_predicts_trusted_labels_better(follows):
    """Twenty directions vary much and twenty little; the classes differ along either of them."""
    generator = torch.Generator().manual_seed(0)
    shared = torch.randn(ROWS, 2, generator=generator)
    points = torch.cat([shared[:, :1] + 0.3 * torch.randn(ROWS, 20, generator=generator),
                        torch.randn(ROWS, 20, generator=generator)], dim=1)  # fmt: skip
    labels = (points[:, :20].mean(1) > 0).long() if follows else (points[:, 20] > 0).long()
    data = PoolData.of(table_of(points), labels.numpy(), np.arange(TRUSTED), np.arange(TRUSTED, ROWS), 2, 0)
    best = pooling.best_prior(data, (None, data.table.correlated_prior()))
    assert (best.root is not None) == follows
