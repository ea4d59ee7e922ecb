# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from glc_hf.correction.likelihood import IMPOSSIBLE_LABEL_LOSS
from glc_hf.correction.loss import corrected_cross_entropy
from glc_hf.correction.votes_loss import VoteTable, votes_cross_entropy
from glc_hf.labels.label_batch import Votes

from .problems import random_batch, random_matrix


PROBLEMS = st.tuples(st.integers(1, 12), st.integers(1, 6), st.integers(1, 6), st.integers(0, 10_000))


def random_sources(num_sources, num_labels, seed, zeros=False):
    """`given_vote[s, v, y]` and `coverage[s, y]`."""
    matrices = [random_matrix(num_labels, seed + 31 * source, zeros).T for source in range(num_sources)]
    generator = torch.Generator().manual_seed(seed)
    coverage = torch.rand(num_sources, num_labels, generator=generator, dtype=torch.float64)
    if zeros:  # some classes on which a source always or never votes
        coverage = (1.6 * coverage - 0.3).clamp(0, 1)
    return torch.stack(matrices), coverage


def random_votes(rows, num_sources, num_labels, seed):
    rng = np.random.default_rng(seed)
    return Votes.from_dense(rng.integers(-2, num_labels, (rows, num_sources)).clip(-1))


def textbook(votes, given_vote, coverage, weights, temperature=1.0):
    """t Σ_s w_s log J_s[y, vote_s], one vote at a time."""
    result = torch.zeros(len(votes), given_vote.shape[2], dtype=torch.float64)
    for item in range(len(votes)):
        own = slice(votes.offsets[item], votes.offsets[item + 1])
        voted = dict(zip(votes.sources[own].tolist(), votes.labels[own].tolist(), strict=True))
        for source in range(len(given_vote)):
            if source in voted:
                probs = given_vote[source, voted[source]] * coverage[source]
            elif (coverage[source] == 1).all():
                continue
            else:
                probs = 1 - coverage[source]
            result[item] += temperature * weights[source] * probs.log()
    return result


def loss_and_gradient(logits, *args, **kwargs):
    leaf = logits.clone().requires_grad_()
    loss = votes_cross_entropy(leaf, *args, **kwargs)
    (gradient,) = torch.autograd.grad(loss.sum(), leaf)
    return loss.detach(), gradient


# ---------------------------------------------------------------------------------------------- the log-likelihood
@settings(deadline=None, max_examples=80)
@given(PROBLEMS, st.booleans())
def test_log_likelihood_equals_the_textbook_formula(problem, zeros):
    rows, num_labels, num_sources, seed = problem
    given_vote, coverage = random_sources(num_sources, num_labels, seed, zeros)
    votes = random_votes(rows, num_sources, num_labels, seed)
    weights = torch.rand(num_sources, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.1
    table = VoteTable.of(given_vote, coverage, weights, 0.7, dtype=torch.float64)
    expected = textbook(votes, given_vote, coverage, weights, 0.7)
    torch.testing.assert_close(table.of_votes(votes), expected, rtol=1e-9, atol=1e-9)


@settings(deadline=None, max_examples=40)
@given(PROBLEMS)
def test_permuting_the_sources_changes_nothing(problem):
    rows, num_labels, num_sources, seed = problem
    given_vote, coverage = random_sources(num_sources, num_labels, seed, zeros=True)
    rng = np.random.default_rng(seed)
    dense = rng.integers(-2, num_labels, (rows, num_sources)).clip(-1)
    weights, order = rng.random(num_sources), rng.permutation(num_sources)
    before = VoteTable.of(given_vote, coverage, weights, dtype=torch.float64).of_votes(Votes.from_dense(dense))
    table = VoteTable.of(given_vote[order], coverage[order], weights[order], dtype=torch.float64)
    torch.testing.assert_close(table.of_votes(Votes.from_dense(dense[:, order])), before, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("copies", [2, 7])
def test_copies_with_divided_weights_equal_one_source(copies):
    given_vote, coverage = random_sources(1, 4, seed=0, zeros=True)
    dense = np.array([[-1], [0], [1], [2], [3]])
    one = VoteTable.of(given_vote, coverage, dtype=torch.float64).of_votes(Votes.from_dense(dense))
    table = VoteTable.of(
        given_vote.repeat(copies, 1, 1),
        coverage.repeat(copies, 1),
        np.full(copies, 1 / copies),
        dtype=torch.float64,
    )
    torch.testing.assert_close(table.of_votes(Votes.from_dense(dense.repeat(copies, 1))), one)


def test_source_of_weight_zero_is_left_out():
    given_vote, coverage = random_sources(3, 4, seed=5, zeros=True)
    votes = random_votes(20, 3, 4, seed=1)
    kept = votes.sources != 1
    others = VoteTable.of(given_vote[[0, 2]], coverage[[0, 2]], dtype=torch.float64)
    table = VoteTable.of(given_vote, coverage, [1.0, 0.0, 1.0], dtype=torch.float64)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(votes.items[kept], minlength=20))])
    reduced = Votes(("a", "b"), offsets, votes.sources[kept] // 2, votes.labels[kept])
    torch.testing.assert_close(table.of_votes(votes), others.of_votes(reduced))


def test_source_that_always_votes_for_some_classes_only_excludes_them_by_its_silence():
    given_vote = torch.full((1, 2, 2), 0.5)
    table = VoteTable.of(given_vote, torch.tensor([[1.0, 0.4]]))
    found = table.of_votes(Votes.from_dense(np.array([[-1], [0]])))
    assert found[0].tolist() == pytest.approx([-math.inf, math.log(0.6)])
    assert found[1].exp().tolist() == pytest.approx([0.5, 0.2])


def test_missing_vote_of_a_source_that_always_votes_says_nothing():
    given_vote, _ = random_sources(2, 3, seed=0)
    table = VoteTable.of(given_vote, torch.tensor([[1.0, 1.0, 1.0], [0.2, 0.3, 0.4]]))
    alone = VoteTable.of(given_vote[1:], torch.tensor([[0.2, 0.3, 0.4]]))
    found = table.of_votes(Votes.from_dense(np.array([[-1, 2]])))
    torch.testing.assert_close(found, alone.of_votes(Votes.from_dense(np.array([[2]]))))


def test_batches_without_items_or_without_votes():
    given_vote, coverage = random_sources(2, 3, seed=0)
    table = VoteTable.of(given_vote, coverage, dtype=torch.float64)
    assert table.of_votes(Votes.from_dense(np.empty((0, 2), dtype=np.int64))).shape == (0, 3)
    silent = table.of_votes(Votes.from_dense(np.full((2, 2), -1)))
    torch.testing.assert_close(silent, (1 - coverage).log().sum(dim=0).expand(2, 3))


# ---------------------------------------------------------------------------------------------- the loss
@settings(deadline=None, max_examples=60)
@given(st.integers(2, 8), st.integers(0, 10_000), st.booleans(), st.sampled_from([1.0, 30.0, 1e3]))
def test_one_source_that_always_votes_gives_the_corrected_cross_entropy(num_labels, seed, zeros, scale):
    matrix = random_matrix(num_labels, seed, zeros)
    logits, labels, trusted = random_batch(12, num_labels, seed, scale)
    table = VoteTable.of(matrix.T[None], torch.ones(1, num_labels), dtype=torch.float64)
    likelihood = table.of_votes(Votes.from_dense(labels.numpy()[:, None]))
    loss, gradient = loss_and_gradient(logits, likelihood, labels, trusted)
    leaf = logits.clone().requires_grad_()
    expected = corrected_cross_entropy(leaf, labels, matrix, trusted, reduction="none")
    (expected_gradient,) = torch.autograd.grad(expected.sum(), leaf)
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-6, atol=1e-6)


def test_trusted_items_have_the_plain_cross_entropy_whatever_their_votes():
    logits, labels, _ = random_batch(10, 5, seed=0)
    likelihood = torch.randn(10, 5).masked_fill(torch.rand(10, 5) < 0.5, -torch.inf)
    likelihood[0], likelihood[1] = -torch.inf, 0.0
    leaf = logits.clone().requires_grad_()
    expected = F.cross_entropy(leaf, labels, reduction="none")
    (expected_gradient,) = torch.autograd.grad(expected.sum(), leaf)
    loss, gradient = loss_and_gradient(logits, likelihood, labels, torch.ones(10, dtype=torch.bool))
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(gradient, expected_gradient)


def test_items_about_which_nothing_is_known_have_no_loss_and_no_gradient():
    logits = torch.randn(4, 3)
    likelihood = torch.tensor([[0.0] * 3, [-7.5] * 3, [-1.0, -2.0, -1.0], [-1.0, -2.0, -1.0]])
    loss, gradient = loss_and_gradient(logits, likelihood, torch.tensor([0, -1, 0, -100]))
    assert loss[[0, 1, 3]].tolist() == [0.0] * 3
    assert (gradient[[0, 1, 3]] == 0).all()
    assert loss[2] > 1
    assert (gradient[2] != 0).any()


def test_impossible_votes_have_a_constant_loss_and_no_gradient():
    logits = torch.tensor([[1.0, 2.0], [1e4, -1e4]])
    likelihood = torch.full((2, 2), -torch.inf)
    loss, gradient = loss_and_gradient(logits, likelihood, torch.tensor([0, 1]))
    assert loss.tolist() == pytest.approx([IMPOSSIBLE_LABEL_LOSS] * 2)
    assert (gradient == 0).all()


def test_zeros_of_the_tables_are_exact():
    likelihood = torch.tensor([[math.log(0.5), -torch.inf, -torch.inf]])
    loss, gradient = loss_and_gradient(torch.tensor([[0.0, 60.0, 0.0]]), likelihood, torch.tensor([1]))
    assert loss.item() == pytest.approx(60 + math.log(2), rel=1e-6)
    torch.testing.assert_close(gradient, torch.tensor([[-1.0, 1.0, 0.0]]))


def test_extreme_logits_and_many_votes_keep_their_precision():
    logits = torch.tensor([[3e38, -3e38, 0.0], [1e4, 0.0, -1e4], [0.3137, -0.1713, 0.0519]])
    likelihood = torch.tensor([[-5.0, 0.0, -1.0], [-torch.inf, -3.0, 0.0], [-4096.0, -4097.0, -4098.0]])
    loss, gradient = loss_and_gradient(logits, likelihood, torch.zeros(3, dtype=torch.int64))
    assert loss.isfinite().all()
    assert gradient.isfinite().all()
    assert loss[:2].tolist() == pytest.approx([5.0, 1e4 + 3])
    expected = logits[2].softmax(0) - (logits[2] + torch.tensor([0.0, -1.0, -2.0])).softmax(0)
    torch.testing.assert_close(gradient[2], expected)


def test_nan_logits_of_an_ignored_item_do_not_spread():
    logits = torch.randn(2, 3)
    logits[0] = torch.nan
    likelihood = torch.tensor([[0.0, -1.0, -2.0]] * 2)
    loss, gradient = loss_and_gradient(logits, likelihood, torch.tensor([-100, 0]))
    assert loss[0] == 0
    assert (gradient[0] == 0).all()
    assert loss[1].isfinite()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32_also_under_autocast(dtype):
    logits, labels, trusted = random_batch(16, 9, seed=3)
    likelihood = torch.randn(16, 9)
    half = logits.to(dtype)
    expected, expected_gradient = loss_and_gradient(half.float(), likelihood, labels, trusted)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, gradient = loss_and_gradient(half, likelihood, labels, trusted)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, expected)
    assert gradient.dtype == dtype
    torch.testing.assert_close(gradient, expected_gradient.to(dtype))


# ---------------------------------------------------------------------------------------------- derivatives
@pytest.fixture
def problem():
    logits, labels, trusted = random_batch(9, 4, seed=0, scale=2.0)
    generator = torch.Generator().manual_seed(1)
    likelihood = torch.randn(9, 4, generator=generator, dtype=torch.float64)
    likelihood = likelihood.masked_fill(torch.rand(9, 4, generator=generator) < 0.3, -torch.inf)
    likelihood[0], likelihood[1], labels[2] = -torch.inf, -3.0, -100
    trusted[:3] = False
    return logits, likelihood, labels, trusted


def test_first_and_second_derivatives_match_finite_differences(problem):
    logits, *others = problem

    def loss(x):
        return votes_cross_entropy(x, *others)

    leaf = logits.requires_grad_()
    assert torch.autograd.gradcheck(loss, leaf, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(loss, leaf)


def test_torch_func_and_compile_agree_with_backward(problem):
    logits, *others = problem
    loss, gradient = loss_and_gradient(logits, *others)
    torch.testing.assert_close(torch.func.grad(lambda x: votes_cross_entropy(x, *others).sum())(logits), gradient)
    per_item = torch.func.vmap(torch.func.grad(votes_cross_entropy))(logits, *others)
    torch.testing.assert_close(per_item, gradient)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: votes_cross_entropy(x, *others), backend="aot_eager")
    leaf = logits.clone().requires_grad_()
    result = compiled(leaf)
    torch.testing.assert_close(result.detach(), loss)
    torch.testing.assert_close(torch.autograd.grad(result.sum(), leaf)[0], gradient)


def test_token_shapes(problem):
    logits, likelihood, labels, trusted = problem
    flat, flat_gradient = loss_and_gradient(*problem)
    loss, gradient = loss_and_gradient(
        logits.reshape(3, 3, 4), likelihood.reshape(3, 3, 4), labels.reshape(3, 3), trusted.reshape(3, 3)
    )
    assert torch.equal(loss, flat.reshape(3, 3))
    assert torch.equal(gradient, flat_gradient.reshape(3, 3, 4))


# ---------------------------------------------------------------------------------------------- memory
@pytest.mark.parametrize(("num_labels", "num_sources", "each"), [(1000, 50, 20), (2, 5000, 40)])
def test_memory_of_a_step_is_a_few_times_the_logits(num_labels, num_sources, each):
    """Rows × sources × classes would take 26 MB with 1,000 classes and 5 MB with 5,000 sources."""
    rows = 128
    coverage = torch.full((num_sources, num_labels), 0.1)
    table = VoteTable.of(torch.full((num_sources, num_labels, num_labels), 1 / num_labels), coverage)
    sources = torch.stack([torch.randperm(num_sources)[:each].sort().values for _ in range(rows)]).reshape(-1)
    labels, offsets = torch.randint(num_labels, (rows * each,)), torch.arange(0, rows * each + 1, each)
    logits = torch.randn(rows, num_labels, requires_grad=True)
    with torch.profiler.profile(profile_memory=True) as profile:
        likelihood = table.log_likelihood(sources, labels, offsets)
        trusted = torch.arange(rows) % 3 == 0
        votes_cross_entropy(logits, likelihood, torch.zeros(rows, dtype=torch.int64), trusted).sum().backward()
    unit = logits.nbytes + sources.nbytes  # the votes of the batch count for few classes
    largest = max(event.self_cpu_memory_usage for event in profile.events())
    total = sum(max(event.self_cpu_memory_usage, 0) for event in profile.events())
    assert 0 < largest <= 3 * unit
    assert total <= 25 * unit


# ---------------------------------------------------------------------------------------------- errors
@pytest.mark.parametrize(
    ("sources", "labels", "message"),
    [([0, 2], [0, 0], "vote 1 of the batch has the source 2"), ([0, 1], [0, -1], "vote 1 of the batch has the class")],
)
def test_votes_outside_the_table_raise_and_name_the_vote(sources, labels, message):
    table = VoteTable.of(*random_sources(2, 3, seed=0))
    with pytest.raises(ValueError, match=message):
        table.log_likelihood(torch.tensor(sources), torch.tensor(labels), torch.tensor([0, 2]))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"labels": torch.zeros(3)}, TypeError, "integers"),
        ({"labels": torch.zeros(4, dtype=torch.int64)}, ValueError, r"labels of shape \(3,\)"),
        ({"labels": torch.tensor([0, 1, 4]), "trusted": torch.ones(3, dtype=torch.bool)}, ValueError, "item 2 .* 4"),
        ({"logits": torch.zeros(3, 4, dtype=torch.int64)}, TypeError, "floating"),
        ({"log_likelihood": torch.zeros(3, 5)}, ValueError, "same shape"),
        ({"log_likelihood": torch.zeros(3, 4, requires_grad=True)}, ValueError, "detach"),
        ({"trusted": torch.tensor([0, 1, 1])}, TypeError, r"trusted\.bool\(\)"),
        ({"trusted": torch.tensor([True, False])}, ValueError, r"trusted has shape \(2,\)"),
    ],
)
def test_invalid_arguments_raise_clear_errors(change, error, message):
    good = {
        "logits": torch.zeros(3, 4),
        "log_likelihood": torch.zeros(3, 4),
        "labels": torch.zeros(3, dtype=torch.int64),
    }
    with pytest.raises(error, match=message):
        votes_cross_entropy(**{**good, **change})
