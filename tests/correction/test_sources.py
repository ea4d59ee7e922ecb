# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glc_hf.correction.sources import SourceModel, fit_sources, fitting, source_model, vote_counts
from glc_hf.labels.label_batch import Votes


def annotators(items, accuracies, num_labels, coverage=1.0, seed=0):
    """True classes, and dense votes of annotators who give any wrong class with the same probability."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(num_labels, size=items)
    columns = []
    for accuracy in accuracies:
        wrong = (classes + rng.integers(1, max(num_labels, 2), size=items)) % num_labels
        votes = np.where(rng.random(items) < accuracy, classes, wrong)
        columns.append(np.where(rng.random(items) < coverage, votes, -1))
    return classes, np.stack(columns, axis=1)


def rules(items, rates, seed=0):
    """Rule s votes for class s only, with probability `rates[s][y]`."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(len(rates), size=items)
    votes = [np.where(rng.random(items) < np.array(rate)[classes], s, -1) for s, rate in enumerate(rates)]
    return classes, np.stack(votes, axis=1)


def fit(classes, dense, trusted, num_labels=None, **kwargs):
    num_labels = num_labels or int(classes.max()) + 1
    votes = Votes.from_dense(dense)
    return votes, fit_sources(votes, num_labels, np.arange(trusted), classes[:trusted], **kwargs)


def accuracy(posterior, classes):
    return (posterior.argmax(axis=1) == classes).mean()


# ---------------------------------------------------------------------------------------------- properties
@settings(deadline=None, max_examples=40)
@given(
    st.integers(1, 30),
    st.integers(1, 5),
    st.integers(1, 5),
    st.integers(0, 10_000),
    st.integers(0, 12),
    st.booleans(),
)
def test_tables_are_distributions_for_any_votes(items, num_sources, num_labels, seed, trusted, with_probs):
    rng = np.random.default_rng(seed)
    dense = rng.integers(-2, num_labels, (items, num_sources)).clip(-1)
    classes = rng.integers(num_labels, size=items)
    probs = rng.dirichlet(np.ones(num_labels), items) if with_probs else None
    trusted = min(trusted, items)
    votes, model = fit(classes, dense, trusted, num_labels, class_probs=probs, seed=seed)
    np.testing.assert_allclose(model.given_vote.sum(axis=1), 1.0, atol=1e-12)
    assert (model.given_vote > 0).all()
    assert ((model.coverage > 0) & (model.coverage <= 1)).all()
    assert ((model.weights > 0) & (model.weights <= 1)).all()
    np.testing.assert_allclose(model.posterior(votes).sum(axis=1), 1.0)
    assert model.held_out.shape == (trusted, num_labels)
    assert np.isfinite(model.held_out).all()
    for source, matrix in enumerate(model.matrices().values()):
        voted = dense[:trusted, source] >= 0
        expected = np.bincount(classes[:trusted][voted], minlength=num_labels)
        np.testing.assert_array_equal(matrix.trusted_rows, expected)


@pytest.mark.parametrize("trusted", [0, 60])
@pytest.mark.parametrize("with_probs", [False, True])
def test_permutations_of_sources_items_and_classes_change_nothing(trusted, with_probs, monkeypatch):
    classes, dense = annotators(300, [0.9, 0.6, 0.7, 0.8], 3, coverage=0.6, seed=1)
    dense[:, 3] = np.where(dense[:, 3] == 2, 2, -1)  # a rule
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(3), 300) if with_probs else None
    # The folds depend on the numbers of the items, so they are fixed here.
    fold_of = {int(item): int(item) % 5 for item in range(300)}
    names = {"position": np.arange(300)}
    monkeypatch.setattr(
        fitting,
        "_folds",
        lambda items, labels, seed: torch.tensor([fold_of[int(names["position"][item])] for item in items]),
    )
    votes, model = fit(classes, dense, trusted, 3, class_probs=probs)
    expected = model.posterior(votes)

    order = rng.permutation(4)
    _, permuted = fit(classes, dense[:, order], trusted, 3, class_probs=probs)
    np.testing.assert_allclose(permuted.posterior(Votes.from_dense(dense[:, order])), expected, atol=1e-8)
    np.testing.assert_allclose(permuted.weights, model.weights[order], atol=1e-10)

    new_class = rng.permutation(3)
    renamed = np.where(dense >= 0, new_class[dense], -1)
    by_class = None if probs is None else probs[:, np.argsort(new_class)]
    renamed_votes, permuted = fit(new_class[classes], renamed, trusted, 3, class_probs=by_class)
    np.testing.assert_allclose(permuted.posterior(renamed_votes)[:, new_class], expected, atol=1e-8)

    order = rng.permutation(300)
    names["position"] = order
    where = np.argsort(order)[:trusted]
    votes = Votes.from_dense(dense[order])
    by_item = None if probs is None else probs[order]
    permuted = fit_sources(votes, 3, where, classes[:trusted], class_probs=by_item)
    np.testing.assert_allclose(permuted.posterior(votes), expected[order], atol=1e-8)


# ---------------------------------------------------------------------------------------------- copies
@pytest.mark.parametrize("trusted", [0, 80])
@pytest.mark.parametrize("kind", ["annotator", "rule"])
def test_exact_copies_count_as_one_source(trusted, kind):
    classes, dense = annotators(500, [0.75], 3, coverage=0.7)
    if kind == "rule":
        dense = np.where(dense == 1, 1, -1)
    votes, one = fit(classes, dense, trusted, 3)
    copied, model = fit(classes, dense.repeat(6, axis=1), trusted, 3)
    np.testing.assert_allclose(model.weights, 1 / 6, rtol=1e-9)
    assert model.temperature == pytest.approx(one.temperature, abs=1e-9)
    np.testing.assert_allclose(model.posterior(copied), one.posterior(votes), atol=1e-6)
    np.testing.assert_allclose(model.held_out, one.held_out, atol=1e-6)


def test_copies_share_their_weight_and_independent_sources_keep_theirs():
    classes, dense = annotators(2000, [0.8, 0.7, 0.75], 3, coverage=0.8)
    _, model = fit(classes, np.concatenate([dense, dense[:, :1]], axis=1), 100)
    np.testing.assert_allclose(model.weights, [0.5, 1.0, 1.0, 0.5], atol=0.05)


def test_annotators_of_the_same_batch_of_items_are_not_taken_for_copies():
    classes, dense = annotators(2000, [0.8] * 6, 3)
    for source in range(6):  # sources 0 and 1 answer the first third of the items, and so on
        asked = np.arange(2000) % 3 == source // 2
        dense[~asked, source] = -1
    _, model = fit(classes, dense, 200)
    assert model.weights.min() > 0.9


def test_rules_for_the_same_class_keep_their_weight_unless_they_vote_on_the_same_items():
    rng = np.random.default_rng(0)
    classes = rng.integers(2, size=4000)
    first, second = (np.where(rng.random(4000) < np.where(classes == 1, 0.5, 0.1), 1, -1) for _ in range(2))
    almost = np.where(rng.random(4000) < 0.9, first, -1)
    _, model = fit(classes, np.stack([first, second], axis=1), 200)
    assert model.weights.min() > 0.9
    _, model = fit(classes, np.stack([first, second, almost], axis=1), 200)
    assert model.weights[1] > 0.9
    assert max(model.weights[0], model.weights[2]) < 0.65


def test_posterior_with_copied_sources_is_not_overconfident():
    classes, dense = annotators(4000, [0.7, 0.7, 0.7, 0.8], 2)
    dense = np.concatenate([dense[:, :1].repeat(7, axis=1), dense[:, 1:]], axis=1)
    for trusted in (0, 200):
        votes, model = fit(classes, dense, trusted)
        posterior = model.posterior(votes)
        assert abs(posterior.max(axis=1).mean() - accuracy(posterior, classes)) < 0.05


# ---------------------------------------------------------------------------------------------- recovery
@pytest.mark.parametrize("trusted", [0, 300])
def test_source_that_is_always_right_gets_a_matrix_near_the_identity_and_decides(trusted):
    classes, dense = annotators(1500, [1.0, 0.6, 0.6], 3)
    votes, model = fit(classes, dense, trusted)
    assert np.diag(model.matrices()["0"].probs).min() > 0.85
    assert accuracy(model.posterior(votes), classes) > (0.97 if trusted else 0.94)


def test_random_source_has_almost_no_influence():
    classes, dense = annotators(1500, [0.8, 0.8, 1 / 3], 3)
    votes, model = fit(classes, dense, 300)
    without = np.where(np.arange(3) == 2, (dense + 1) % 3, dense)
    change = np.abs(model.posterior(votes) - model.posterior(Votes.from_dense(without)))
    assert change.mean() < 0.06
    assert accuracy(model.posterior(votes), classes) > 0.75


def test_rules_that_vote_for_one_class_are_used_by_when_they_vote():
    rates = [[0.5, 0.05, 0.05], [0.02, 0.2, 0.5], [0.01, 0.02, 0.3]]  # rule 1 is wrong more often than right
    classes, dense = rules(4000, rates)
    votes, model = fit(classes, dense, 300)
    np.testing.assert_allclose(model.coverage, rates, atol=0.12)
    majority = Votes.from_dense(dense).counts(3)
    assert accuracy(model.posterior(votes), classes) > accuracy(majority, classes) + 0.05


def test_rules_count_without_trusted_items_too():
    classes, dense = rules(4000, [[0.5, 0.05, 0.05], [0.02, 0.4, 0.1], [0.01, 0.02, 0.3]])
    votes, model = fit(classes, dense, 0, 3)
    assert accuracy(model.posterior(votes), classes) > accuracy(votes.counts(3), classes)


@pytest.mark.parametrize(("trusted", "with_probs"), [(0, False), (0, True), (200, True)])
def test_annotators_of_different_quality_are_recovered(trusted, with_probs):
    accuracies = np.array([0.95, 0.8, 0.65, 0.5, 0.9])
    classes, dense = annotators(3000, accuracies, 3, coverage=0.7)
    probs = np.full((3000, 3), 0.2)
    probs[np.arange(3000), classes] = 0.6
    votes, model = fit(classes, dense, trusted, class_probs=probs if with_probs else None)
    found = np.array([np.diag(matrix.probs).mean() for matrix in model.matrices().values()])
    np.testing.assert_allclose(found, accuracies, atol=0.08)
    majority = votes.counts(3)
    assert accuracy(model.posterior(votes), classes) > accuracy(majority, classes) + 0.02


def test_predictions_of_the_classes_improve_tables_from_few_trusted_items():
    classes, dense = annotators(3000, [0.95, 0.4, 0.4, 0.4], 4, coverage=0.5)
    probs = np.full((3000, 4), 0.02)
    probs[np.arange(3000), classes] = 0.94
    truth = np.array([0.95, 0.4, 0.4, 0.4])

    def error(model):
        return np.abs([np.diag(m.probs).mean() for m in model.matrices().values()] - truth).mean()

    _, counted = fit(classes, dense, 30)
    _, refined = fit(classes, dense, 30, class_probs=probs)
    assert error(refined) < error(counted)


@pytest.mark.parametrize("with_probs", [False, True])
def test_trusted_items_that_no_source_votes_on_leave_the_estimate_as_it_is(with_probs):
    classes, dense = annotators(600, [0.9, 0.6, 0.7], 3, coverage=0.6)
    probs = np.full((600, 3), 0.2) if with_probs else None
    if with_probs:
        probs[np.arange(600), classes] = 0.6
    silent = np.arange(0, 600, 3)
    dense[silent] = -1
    kept = np.setdiff1d(np.arange(600), silent)
    votes = Votes.from_dense(dense)
    found = fit_sources(votes, 3, silent, classes[silent], class_probs=probs)
    nobody = np.empty(0, dtype=np.int64)
    expected = fit_sources(votes.select(kept), 3, nobody, nobody, None if probs is None else probs[kept])
    for name in ("given_vote", "coverage", "weights", "class_rates", "trusted_votes"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert found.temperature == 1.0
    assert (found.held_out == np.zeros((200, 3))).all()
    assert np.diag(found.matrices()["0"].probs).mean() > 0.75


def test_held_out_likelihoods_do_not_know_the_label_of_their_item():
    rng = np.random.default_rng(0)
    classes = rng.integers(4, size=200)  # the votes know nothing
    dense = rng.integers(-1, 4, (200, 30))
    votes, model = fit(classes, dense, 200)

    def surplus(likelihood):
        return (likelihood[np.arange(200), classes] - likelihood.mean(axis=1)).mean()

    assert surplus(model.log_likelihood(votes)) > 0.05  # its own label is in the counts
    assert surplus(model.held_out) < 0.02
    assert model.temperature < 0.3


# ---------------------------------------------------------------------------------------------- size, files, errors
def test_many_annotators_and_many_classes_need_no_dense_arrays(monkeypatch):
    rng = np.random.default_rng(0)
    items, num_sources, each = 10_000, 5_000, 4
    classes = rng.integers(2, size=items)
    who = (np.arange(items)[:, None] * 7 + np.arange(each) * 1250) % num_sources
    who.sort(axis=1)
    answers = np.where(rng.random(items * each) < 0.8, classes.repeat(each), 1 - classes.repeat(each))
    votes = Votes(tuple(map(str, range(num_sources))), np.arange(0, items * each + 1, each), who.ravel(), answers)
    with torch.profiler.profile(profile_memory=True) as profile:
        model = fit_sources(votes, 2, np.arange(300), classes[:300])
    largest = max(event.self_cpu_memory_usage for event in profile.events())
    assert largest < items * num_sources / 8
    assert accuracy(model.posterior(votes), classes) > 0.85
    for module, name in (
        (source_model, "_NUMBERS_PER_CHUNK"),
        (vote_counts, "_NUMBERS_PER_CHUNK"),
        (fitting, "_MAX_NUMBERS"),
    ):
        monkeypatch.setattr(module, name, 2**16)
    with torch.profiler.profile(profile_memory=True) as profile:
        votes, model = fit(np.arange(600) % 300, rng.integers(300, size=(600, 20)), 300, 300)
    sizes = [event.self_cpu_memory_usage for event in profile.events()]
    tables = model.given_vote.nbytes
    assert sum(size >= tables for size in sizes) == 1  # the counts, which become the tables


def test_log_likelihood_is_that_of_the_table_of_the_loss():
    classes, dense = annotators(200, [0.9, 0.6, 0.7], 3, coverage=0.6)
    dense[:, 2] = classes  # always votes
    votes, model = fit(classes, dense, 50)
    table = model.vote_table(dtype=torch.float64)
    np.testing.assert_allclose(model.log_likelihood(votes), table.of_votes(votes).numpy(), atol=1e-10)
    dense[:50, 2] = -1
    missing = Votes.from_dense(dense)
    np.testing.assert_allclose(model.log_likelihood(missing), table.of_votes(missing).numpy(), atol=1e-10)


@pytest.mark.parametrize("trusted", [0, 30])
def test_model_survives_json(trusted):
    classes, dense = annotators(100, [0.9, 0.6], 3, coverage=0.6)
    votes, model = fit(classes, dense, trusted, 3)
    content = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in model.to_dict().items()}
    for loaded in (SourceModel.from_dict(model.to_dict()), SourceModel.from_dict(json.loads(json.dumps(content)))):
        np.testing.assert_array_equal(loaded.posterior(votes), model.posterior(votes))
        assert loaded.matrices() == model.matrices()
        np.testing.assert_array_equal(loaded.held_out, model.held_out)


def test_the_seed_alone_chooses_the_folds():
    classes, dense = annotators(100, [0.9, 0.6], 3, coverage=0.6)
    first, again, other = (fit(classes, dense, 60, seed=seed)[1] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.held_out, again.held_out)
    assert not np.array_equal(first.held_out, other.held_out)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trusted_items": [0, 9]}, "trusted item 9 has the item 9"),
        ({"trusted_labels": [0, 3]}, "trusted item 1 has the label 3"),
        ({"trusted_items": [1, 1]}, "item 1 is given twice"),
        ({"trusted_items": [1]}, "one label per item"),
        ({"num_labels": 2}, "source 'b' on item 1 is 2"),
        ({"class_probs": np.ones((4, 2))}, r"\(4, 3\)"),
        ({"class_probs": np.array([[1, 1, 1], [1, -1, 1], [1, 1, 1], [1, 1, 1]])}, "row 1 of class_probs"),
    ],
)
def test_invalid_arguments_raise_clear_errors(change, message):
    good = {
        "votes": Votes.from_dense(np.array([[0, -1], [1, 2], [-1, 0], [0, 0]]), ("a", "b")),
        "num_labels": 3,
        "trusted_items": [0, 1],
        "trusted_labels": [0, 1],
    }
    with pytest.raises(ValueError, match=message):
        fit_sources(**{**good, **change})


def test_votes_of_other_sources_raise():
    classes, dense = annotators(50, [0.9, 0.6], 3)
    _, model = fit(classes, dense, 10, 3)
    with pytest.raises(ValueError, match="the votes are of x, y"):
        model.posterior(Votes.from_dense(dense, ("x", "y")))
