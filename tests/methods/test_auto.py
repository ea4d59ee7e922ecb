# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The method `auto`, trained with tiny networks: its stages, its decision, and its verdict."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Trainer, TrainingArguments

from glc_hf import CorruptionMatrix, corrected_cross_entropy
from glc_hf.correction.pool.pooling import POOL, Pool
from glc_hf.correction.verdict import load_verdict
from glc_hf.data import feature_files
from glc_hf.labels.label_batch import LabelBatch
from glc_hf.methods import auto, auto_decision
from glc_hf.methods.auto import Auto
from glc_hf.methods.auto_decision import ALL_ROWS, BOTH, Decision
from glc_hf.methods.base import Stage
from glc_hf.training import probe
from tests.methods.auto_runs import KINDS, Run, make_trainer, rows_of_kind, train
from tests.training.tiny import (
    bert,
    noisy_text_rows,
    quick_pool,
    same_weights,
    text_rows,
    weights,
)


LINEAR_WAYS = {"trusted_only", "glc", "pool"}


@pytest.fixture(scope="module", autouse=True)
def _fast_pool(tmp_path_factory) -> Iterator[None]:
    with quick_pool(tmp_path_factory.mktemp("cache"), iterations=60):  # the decision needs fits that have converged
        yield


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Callable[[str], Run]:
    """The run on labels of a kind, with two epochs; each is trained once."""
    trained: dict[str, Run] = {}

    def run(kind: str) -> Run:
        if kind not in trained:
            folder = tmp_path_factory.mktemp(kind.replace(" ", "-"))
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(auto_decision, "_CLEAR_EVIDENCE", 1.0)  # 540 untrusted rows are too few to be clear
                trained[kind] = train(folder, rows_of_kind(kind), max_steps=-1, num_train_epochs=2)
        return trained[kind]

    return run


# ---------------------------------------------------------------------- stages
def test_last_stage_starts_from_the_initial_weights_and_has_all_epochs_of_the_run(runs):
    run = runs("good")
    trainer, recorder = run.trainer, run.recorder
    assert trainer.method.first_stages() == [Stage("untrusted", mode="probe", most_embedded=0.6)]
    assert recorder.length == {"last": (76, 2)}  # two epochs of 600 rows in batches of 16, and no other training
    assert trainer.args.num_train_epochs == 2
    assert same_weights(recorder.begin["last"], weights(bert(initializer_range=0.3)))
    assert not same_weights(recorder.begin["last"], recorder.end["last"])
    assert "stage1_probe_penalty" in trainer.stage_metrics()


@pytest.mark.parametrize(
    ("length", "epochs"), [({"max_steps": 10}, 160 / 200), ({"max_steps": -1, "num_train_epochs": 2}, 2.0)]
)
def test_matrix_is_refined_with_a_share_of_the_rows_that_the_stage_trains_on(tmp_path, monkeypatch, length, epochs):
    found = []
    monkeypatch.setattr(auto, "refine_estimate", lambda run, matrix, seed, most, soft: found.append(most))
    data = rows_of_kind("good", 200, 0.3)
    train(tmp_path, data, refine_matrix=True, **length)
    assert found == [int(0.15 * epochs * sum(not flag for flag in data["trusted"]))]


@pytest.mark.parametrize("length", [{"max_steps": 10}, {"max_steps": -1, "num_train_epochs": 2}])
def test_last_stage_is_as_long_as_plain_training_and_features_are_those_before_it(tmp_path, monkeypatch, length):
    tables, fit = [], auto.fit_pool
    monkeypatch.setattr(auto, "fit_pool", lambda data, *rest: tables.append(data.table) or fit(data, *rest))
    data = rows_of_kind("good", 200, 0.3)
    run = train(tmp_path, data, **length)
    arguments = {"per_device_train_batch_size": 16, "use_cpu": True, "report_to": "none", "save_strategy": "no"}
    plain = Trainer(bert(), TrainingArguments(str(tmp_path), **arguments, **length), train_dataset=data)
    plain.train()
    assert run.recorder.length == {"last": (plain.state.global_step, plain.args.num_train_epochs)}
    assert run.trainer.args.max_steps == length["max_steps"]
    assert run.trainer.verdict.final
    with torch.no_grad():
        states = bert(initializer_range=0.3).eval().bert(torch.tensor(data["input_ids"][:])).last_hidden_state
    expected = states.mean(dim=1)[tables[0].numbers]
    torch.testing.assert_close(tables[0].features, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("total", [2, 3, 4, 5, 6, 7, 100])
def test_last_stage_is_judged_after_about_two_thirds_for_any_number_of_steps(tmp_path, total):
    trainer = make_trainer(tmp_path, rows_of_kind("good", 100, 0.6))
    method = trainer.method
    method.matrix = CorruptionMatrix.identity(3)
    method.judges, judged = torch.arange(3), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Auto, "_judge", lambda self, run: judged.append(step))
        patch.setattr(auto, "refine_estimate", lambda *args: None)
        for step in method.refinement_steps(total):
            method.refine(trainer.estimation_run([]), step / total)
    assert judged == [2 * total // 3]


def test_network_is_pretrained_if_its_configuration_names_a_model_or_the_option_says_so(tmp_path):
    def mode(name: str, **settings: Any) -> str:
        model = bert()
        model.config._name_or_path = name
        (stage,) = make_trainer(tmp_path, noisy_text_rows(), model, **settings).method.first_stages()
        return stage.mode

    assert mode("ann/base", pretrained=None) == "probe"
    assert mode("", pretrained=None) == "full"
    assert mode("ann/base", pretrained=False) == "full"
    assert mode("", pretrained=True) == "probe"


def test_short_runs_embed_only_some_untrusted_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(probe, "_FEWEST_EMBEDDED", 50)
    embedded = []
    write = feature_files.write_features
    monkeypatch.setattr(feature_files, "write_features", lambda path, batches: write(path, watched(batches)))

    def watched(batches: Any) -> Iterator[Any]:
        for features, numbers in batches:
            embedded.append(numbers)
            yield features, numbers

    rows = rows_of_kind("good", 300, 0.1)
    run = train(tmp_path, rows, max_steps=-1, num_train_epochs=1)
    numbers, trusted = torch.cat(embedded), torch.tensor(rows["trusted"])
    assert len(numbers) == len(numbers.unique()) == 30 + 180  # trusted rows, and 0.6 epochs of 300 rows
    assert int(trusted[numbers].sum()) == 30
    assert run.trainer.verdict is not None


# ---------------------------------------------------------------------- the decision
@pytest.mark.parametrize(
    ("kind", "share", "found"),
    [
        (
            "mostly flipped",
            0.3,
            "with estimated labels, and then with the corrected loss, because errors depend on the class: the matrix ",
        ),
        *(
            (kind, 0.15, "with estimated labels that are close to the given ones, because these are good: a model of ")
            for kind in ("good", "nearly right")
        ),
    ],
)
def test_good_noisy_labels_and_errors_of_classes_are_used_to_the_end(runs, kind, share, found):
    run = runs(kind)
    method = run.trainer.method
    assert method.mixed_part == ALL_ROWS
    assert method.last_stage() == Stage("all", trusted_share=share)
    epoch = torch.cat([trusted for _, trusted, _ in run.batches[:38]])
    assert (len(epoch), int(epoch.sum())) == (600, round(600 * share))
    (reason,) = run.trainer.verdict.decisions
    assert reason.startswith(f"The last stage trains on all rows {found}")
    assert run.probable > 0
    # Where errors depend on the class, the last third has the corrected loss.
    assert method.leaves_estimated == (kind == "mostly flipped")
    assert method.corrects == (kind == "mostly flipped")
    state = method.state()
    resumed = copy.copy(method)
    resumed.corrects = not method.corrects
    resumed.load_state(state)
    assert resumed.corrects == method.corrects


def test_rows_without_probable_labels_have_the_corrected_loss_if_noisy_labels_are_believed(runs, monkeypatch):
    method = runs("good").trainer.method
    monkeypatch.setattr(method, "posterior_items", torch.tensor([3, 7]))
    monkeypatch.setattr(method, "posteriors", torch.tensor([[0.7, 0.2, 0.1], [0.0, 0.5, 0.5]]))
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    labels, trusted = torch.tensor([0, 1, 2, 0]), torch.tensor([False, False, False, True])
    losses = method.item_losses(logits, LabelBatch(labels, trusted, torch.tensor([3, 7, 8, 9])))
    log_probs, matrix = logits.log_softmax(dim=-1), torch.tensor(method.matrix.probs).float()
    expected = [
        *-(method.posteriors * log_probs[:2]).sum(dim=-1),
        -(log_probs[2].exp() @ matrix[:, 2]).log(),
        -log_probs[3, 0],
    ]
    torch.testing.assert_close(losses, torch.stack(expected), atol=1e-5, rtol=1e-5)
    assert method.last_stage().untrusted_items is None


@pytest.mark.parametrize("length", [{"max_steps": -1, "num_train_epochs": 2}, {"max_steps": 20}])
def test_probable_labels_and_then_trusted_rows_are_used_if_errors_may_depend_on_the_example(
    tmp_path, monkeypatch, length
):
    monkeypatch.setattr(auto, "decide", lambda *_: Decision(BOTH, "Nothing is clear."))
    run = train(tmp_path, rows_of_kind("good"), **length)
    method = run.trainer.method
    assert method.last_stage() == Stage("all", trusted_share=0.3, mixed_part=BOTH)
    flags = torch.cat([trusted for _, trusted, _ in run.batches])
    total = 1200 if length["max_steps"] < 0 else 320  # two epochs of 600 rows, or 20 steps of 16 rows
    assert len(flags) == total
    mixed = round(BOTH * total)
    assert int(flags[:mixed].sum()) == pytest.approx(0.3 * mixed, abs=1)
    assert flags[mixed:].all()
    items = torch.cat([items for items, _, _ in run.batches])
    assert torch.isin(items[~flags], method.posterior_items).all()  # others have no probabilities
    targets, rows = method.posteriors.argmax(dim=1), rows_of_kind("good")
    true, given = (torch.tensor(rows[name])[method.posterior_items] for name in ("clean_label", "label"))
    assert (targets == true).double().mean() > 0.9 > (given == true).double().mean()
    assert run.trainer.verdict.decisions == ["Nothing is clear."]


def test_the_trusted_end_has_its_part_of_the_steps_if_an_epoch_is_one_batch(tmp_path, monkeypatch):
    monkeypatch.setattr(auto, "decide", lambda *_: Decision(BOTH, "Nothing is clear."))
    run = train(tmp_path, rows_of_kind("good", 100), max_steps=20, per_device_train_batch_size=256)
    assert [len(flags) for _, flags, _ in run.batches] == [100] * 20
    assert [bool(flags.all()) for _, flags, _ in run.batches] == [False] * 12 + [True] * 8


def test_useless_noisy_labels_are_replaced_by_probable_ones_and_the_end_is_trusted_rows(runs):
    run, data = runs("useless"), rows_of_kind("useless")
    method = run.trainer.method
    assert method.last_stage() == Stage("all", trusted_share=0.3, mixed_part=BOTH)
    targets = method.posteriors.argmax(dim=1)
    true, given = (torch.tensor(data[name])[method.posterior_items] for name in ("clean_label", "label"))
    assert (given == true).double().mean() < 0.5
    assert (targets == true).double().mean() > 0.7  # as the linear models on trusted rows
    items = torch.cat([items for items, _, _ in run.batches])
    trusted = np.flatnonzero(data["trusted"])
    assert torch.equal(items[round(BOTH * 1200) :].unique(), torch.from_numpy(trusted))
    counts = items.bincount()[trusted]
    assert counts.max() - counts.min() <= 1  # in the whole stage
    (reason,) = run.trainer.verdict.decisions
    assert reason.startswith("The last stage trains on all rows with estimated labels, and then on trusted rows: ")


@pytest.mark.parametrize(("class_errors", "weight"), [(False, 0.3), (True, 1.0)])
def test_probable_labels_to_the_end_use_the_given_ones_as_decided(tmp_path, monkeypatch, class_errors, weight):
    pools, fit = [], auto.fit_pool
    monkeypatch.setattr(auto, "fit_pool", lambda *words: pools.append(fit(*words)) or pools[-1])
    monkeypatch.setattr(auto, "decide", lambda *_: Decision(ALL_ROWS, "To the end.", class_errors=class_errors))
    method = train(tmp_path, rows_of_kind("good"), max_steps=6).trainer.method
    assert pools[0].given_weight == weight
    assert (method.mixed_part, method.trusted_share, method.corrects) == (ALL_ROWS, 0.3, False)
    # Rows that were not embedded have the corrected loss, or are left out because it would repeat their errors.
    left = method.last_stage().untrusted_items
    assert left is None if class_errors else torch.equal(left, method.posterior_items)
    resumed = copy.copy(method)
    resumed.class_errors = not class_errors
    resumed.load_state(method.state())
    assert resumed.class_errors == class_errors


def test_without_estimated_labels_all_rows_have_the_corrected_loss(tmp_path, monkeypatch):
    decision = Decision(ALL_ROWS, "Random errors.", 0.15, class_errors=True, estimates=False)
    monkeypatch.setattr(auto, "decide", lambda *_: decision)
    rows = rows_of_kind("good")
    run = train(tmp_path, rows, max_steps=6, refine_matrix=False)
    method = run.trainer.method
    assert len(method.posterior_items) == 0
    assert method.last_stage() == Stage("all", trusted_share=0.15)
    probs = run.trainer.corruption_matrix.probs
    assert np.unique(probs.round(12)).size == 2  # one noise rate
    assert 0.1 < 1 - probs[0, 0] < 0.3
    logits = torch.randn(3, 3, generator=torch.Generator().manual_seed(0))
    labels, trusted = torch.tensor([0, 1, -100]), torch.tensor([False, True, False])
    matrix = run.trainer.corruption_matrix
    expected = corrected_cross_entropy(logits, labels, matrix, trusted, reduction="none")
    torch.testing.assert_close(
        method.item_losses(logits, LabelBatch(labels, trusted, torch.tensor([3, 7, 8]))), expected
    )


def test_one_noise_rate_is_the_mean_over_trusted_items():
    probs = [[0.5, 0.5, 0.0], [0.1, 0.9, 0.0], [0.3, 0.3, 0.4]]
    matrix = auto.with_one_noise_rate(CorruptionMatrix(probs, ["a", "b", "c"], [10, 30, 0]))
    np.testing.assert_allclose(matrix.probs.diagonal(), 0.8)  # not that of c, which has no trusted item
    np.testing.assert_allclose(matrix.probs[0, 1:], 0.1)
    assert matrix.label_names == ["a", "b", "c"]
    assert matrix.trusted_rows.tolist() == [10, 30, 0]
    useless = auto.with_one_noise_rate(CorruptionMatrix([[0.1, 0.9], [0.9, 0.1]]))
    np.testing.assert_allclose(useless.probs, 0.5)


# ---------------------------------------------------------------------- items that judge
@pytest.mark.parametrize("kind", ["good", "useless"])
def test_items_that_judge_have_no_loss_before_two_thirds_of_the_steps(runs, kind):
    run = runs(kind)
    judged_after = 2 * len(run.batches) // 3
    trusted = np.flatnonzero(rows_of_kind(kind)["trusted"])
    assert len(run.judges) == 12
    assert np.isin(run.judges, trusted).all()
    seen = {"before": 0, "after": 0}
    for step, (items, _, losses) in enumerate(run.batches):
        judging = torch.isin(items, run.judges)
        seen["before" if step < judged_after else "after"] += int(judging.sum())
        assert (losses[~judging] > 0).all()
        assert (losses[judging] == 0).all() if step < judged_after else (losses[judging] > 0).all()
    assert min(seen.values()) > 10
    assert len(run.trainer.method.judges) == 0


def test_fewer_than_50_trusted_rows_judge_nothing_but_have_a_verdict(tmp_path):
    run = train(tmp_path, rows_of_kind("flipped", 200, 0.2), max_steps=8)
    verdict = run.trainer.verdict
    assert len(run.judges) == 0
    assert all((losses > 0).all() for _, _, losses in run.batches)
    assert (verdict.final, verdict.helps, verdict.trusted_rows) == (False, None, 40)
    why = "the training has 40 trusted labels, and 50 are needed"
    assert verdict.sentence == f"It can't be told if correction helps: {why}."
    assert verdict.ways.keys() == {"no_correction", "auto", *LINEAR_WAYS}
    assert verdict.ways["auto"].measured == "linear models, 40 trusted labels"


# ---------------------------------------------------------------------- the verdict
@pytest.mark.parametrize(("kind", "helps"), [("good", None), ("useless", True), ("flipped", True)])
def test_verdict_compares_all_ways_on_trusted_labels(runs, kind, helps):
    verdict = runs(kind).trainer.verdict
    assert verdict.final
    assert verdict.chosen == "auto"
    assert verdict.ways.keys() == {"no_correction", "auto", *LINEAR_WAYS}
    assert verdict.helps is helps
    assert verdict.sentence.startswith("Correction helps: " if helps else "It can't be told if correction helps: ")
    assert verdict.sentence.endswith(" points, 60 trusted labels).")
    assert verdict.trusted_rows == 60
    assert verdict.ways["auto"].measured.endswith("12 of 60 trusted labels")
    assert all(0 <= way.low <= way.accuracy <= way.high <= 1 for way in verdict.ways.values())


def test_accuracy_of_plain_training_is_that_of_a_linear_model_of_all_labels_without_the_fold(tmp_path, monkeypatch):
    pools, fit = [], auto.fit_pool
    monkeypatch.setattr(auto, "fit_pool", lambda *words: pools.append(fit(*words)) or pools[-1])
    run = train(tmp_path, rows_of_kind("flipped"), max_steps=3)
    members = pools[0].members
    data, prior = members.data, members.priors[0]
    assert data.num_untrusted == 540
    right = 0
    for held_out in data.splits:
        rows = torch.cat([data.trusted[~held_out], data.untrusted])
        head = data.table.fit(rows, data.labels[rows], 3, penalty=prior.penalty, prior=prior.root)
        left_out = data.trusted[held_out]
        right += int((data.table.logits(head, left_out).argmax(dim=-1) == data.labels[left_out]).sum())
    way = run.trainer.verdict.ways["no_correction"]
    assert way.accuracy == pytest.approx(right / 60, abs=1.01 / 60)  # the fit starts elsewhere
    assert way.measured == "linear model, 60 trusted labels"


@pytest.mark.parametrize("equal", [False, True])
def test_verdict_does_not_say_that_correction_helps_if_only_the_network_is_better(tmp_path, monkeypatch, equal):
    """A network that is better than a linear model of the noisy labels may be so without correction, too."""
    found = Pool.held_out_correct.fget
    if equal:
        monkeypatch.setattr(
            Pool, "held_out_correct", property(lambda pool: {**found(pool), POOL: found(pool)["plain"]})
        )
    verdict = train(tmp_path, rows_of_kind("flipped"), max_steps=-1, num_train_epochs=2).trainer.verdict
    assert verdict.final
    assert verdict.ways["auto"].low > verdict.ways["no_correction"].high
    assert verdict.helps is (None if equal else True)
    message = " Plain training is a linear model here, and several combined were not clearly better than it."
    assert verdict.sentence.endswith(message) is equal


def test_way_of_the_final_model_is_within_its_interval_of_new_rows(runs):
    for kind in KINDS:
        trainer = runs(kind).trainer
        way = trainer.verdict.ways["auto"]
        accuracy = trainer.evaluate(text_rows(300, seed=5, trusted=None))["eval_accuracy"]
        assert way.low - 0.02 <= accuracy <= way.high + 0.02, kind


def test_verdict_is_saved_with_the_model_its_card_and_its_summary(runs, tmp_path):
    trainer = runs("flipped").trainer
    trainer.save_model(tmp_path)
    assert load_verdict(tmp_path) == trainer.verdict
    facts = json.loads((tmp_path / "glc_summary.json").read_text(encoding="utf-8"))
    assert facts["verdict"] == json.loads(json.dumps(trainer.verdict.to_dict()))
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert trainer.verdict.sentence in " ".join(card.split())
    assert "| model | accuracy on true labels | 90% interval | measured |" in card
    for name, way in trainer.verdict.ways.items():
        shown = trainer.verdict.title_of(name)
        interval = f"{100 * way.low:.1f} to {100 * way.high:.1f}"
        assert f"| {shown} | {way.accuracy:.1%} | {interval} | {way.measured} |" in card


def test_model_without_a_verdict_removes_that_of_an_earlier_run_in_the_same_folder(runs, tmp_path):
    runs("flipped").trainer.save_model(tmp_path)
    trainer = make_trainer(tmp_path, noisy_text_rows(60), method="no_correction", max_steps=1)
    trainer.train()
    trainer.save_model()
    assert load_verdict(tmp_path) is None
    assert "| way |" not in (tmp_path / "README.md").read_text(encoding="utf-8")
