# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The method `auto`, trained with tiny networks: its stages, its decision, and its verdict."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import TrainerCallback

from glc_hf import CorruptionMatrix, GLCTrainer, corrupt_labels, mark_trusted
from glc_hf.correction.verdict import Way, final_verdict, first_verdict, load_verdict
from glc_hf.data import feature_files
from glc_hf.labels.label_batch import LabelBatch
from glc_hf.methods import auto, auto_decision
from glc_hf.methods.auto import Auto
from glc_hf.methods.auto_decision import Decision
from glc_hf.methods.base import Stage
from glc_hf.training import probe
from tests.methods.test_auto_decision import flags
from tests.training.tiny import (
    bert,
    config,
    noisy_text_rows,
    quick_pool,
    same_weights,
    text_rows,
    token_bert,
    token_collator,
    token_rows,
    weights,
)


LINEAR_WAYS = {"trusted_only", "glc", "pool"}
# 60 of 600 rows are trusted. A linear model of 60 rows predicts about 75 % of the labels.
KINDS = {
    "good": CorruptionMatrix.uniform(3, 0.2),
    "useless": CorruptionMatrix.uniform(3, 1.0),
    "flipped": CorruptionMatrix.flip(3, 0.6, seed=0),
}


@pytest.fixture(scope="module", autouse=True)
def _fast_pool(tmp_path_factory) -> Iterator[None]:
    with quick_pool(tmp_path_factory.mktemp("cache")):
        yield


class Recorder(TrainerCallback):
    """Records steps, epochs and weights of the stages that train the network."""

    def __init__(self) -> None:
        self.begin, self.end, self.length = {}, {}, {}

    @staticmethod
    def _stage(args: Any) -> str:
        return "first" if args.output_dir.endswith("stage1") else "last"

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self.begin[self._stage(args)] = weights(model)

    def on_train_end(self, args, state, control, model=None, **kwargs):
        self.end[self._stage(args)] = weights(model)
        self.length[self._stage(args)] = (state.global_step, args.num_train_epochs)


@dataclass
class Run:
    """A finished run, with the items, flags and losses of each step of its last stage."""

    trainer: GLCTrainer
    recorder: Recorder
    batches: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = field(default_factory=list)
    judges: torch.Tensor | None = None
    probable: int = 0  # items with probable labels at the start of the last stage


def make_trainer(folder: Any, data: Any, model: Any = None, **settings: Any) -> GLCTrainer:
    arguments = {"method": "auto", "pretrained": True, "per_device_train_batch_size": 16, **settings}
    callbacks = arguments.pop("callbacks", None)
    collator = arguments.pop("data_collator", None)
    matrix = arguments.pop("corruption_matrix", None)
    return GLCTrainer(
        bert(initializer_range=0.3) if model is None else model,
        config(folder, **arguments),
        train_dataset=data,
        callbacks=callbacks,
        data_collator=collator,
        corruption_matrix=matrix,
    )


def train(folder: Any, data: Any, **settings: Any) -> Run:
    run = Run(None, Recorder())
    original, estimate = Auto.item_losses, Auto.estimate

    def spy(self, logits, batch):
        losses = original(self, logits, batch)
        run.batches.append((batch.items, batch.trusted, losses.detach()))
        return losses

    def keep_judges(self, estimation_run):
        estimate(self, estimation_run)
        run.judges, run.probable = self.judges, len(self.posterior_items)

    run.trainer = make_trainer(folder, data, callbacks=[run.recorder], **settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Auto, "item_losses", spy)
        patch.setattr(Auto, "estimate", keep_judges)
        run.trainer.train()
    return run


def rows_of_kind(kind: str, rows: int = 600, trusted: float = 0.1) -> Dataset:
    return corrupt_labels(text_rows(rows, trusted=trusted), KINDS[kind])


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Callable[[str], Run]:
    """The run on labels of a kind, with two epochs; each is trained once. Only with `plain_may_be_best`, it can be
    decided that no model is better than plain training."""
    trained: dict[tuple, Run] = {}

    def run(kind: str, plain_may_be_best: bool = False) -> Run:
        key = kind, plain_may_be_best
        if key not in trained:
            folder = tmp_path_factory.mktemp(kind)
            with pytest.MonkeyPatch.context() as patch:
                if not plain_may_be_best:
                    patch.setattr(auto_decision, "MIN_TRUSTED", 1000)
                patch.setattr(auto_decision, "_NOISY_LEVEL", 0.3)  # 60 trusted rows are too few for a clear difference
                trained[key] = train(folder, rows_of_kind(kind), max_steps=-1, num_train_epochs=2)
        return trained[key]

    return run


# ---------------------------------------------------------------------- stages
def test_stage_1_trains_on_a_third_of_the_epochs_and_the_last_stage_continues_from_it(runs):
    run = runs("good")
    trainer, recorder = run.trainer, run.recorder
    assert trainer.method.first_stages() == [
        Stage("untrusted", fraction=0.35),
        Stage("untrusted", mode="probe", most_embedded=0.3),
    ]
    assert recorder.length["first"] == (24, pytest.approx(0.7))  # 540 untrusted rows in batches of 16
    assert recorder.length["last"] == (54, pytest.approx(1.4))  # 1.4 epochs of 600 rows
    assert trainer.args.num_train_epochs == 2
    assert same_weights(recorder.begin["last"], recorder.end["first"])
    assert not same_weights(recorder.begin["first"], recorder.end["first"])
    assert "stage2_probe_penalty" in trainer.stage_metrics()


def test_max_steps_are_divided_like_epochs_and_features_are_those_before_stage_1(tmp_path, monkeypatch):
    tables, fit = [], auto.fit_pool
    monkeypatch.setattr(auto, "fit_pool", lambda data, *rest: tables.append(data.table) or fit(data, *rest))
    data = rows_of_kind("good", 200, 0.3)
    run = train(tmp_path, data, max_steps=10)
    assert {name: steps for name, (steps, _) in run.recorder.length.items()} == {"first": 4, "last": 7}
    assert run.trainer.args.max_steps == 10
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
    def first_stages(name: str, **settings: Any) -> int:
        model = bert()
        model.config._name_or_path = name
        return len(make_trainer(tmp_path, noisy_text_rows(), model, **settings).method.first_stages())

    assert first_stages("ann/base", pretrained=None) == 2
    assert first_stages("", pretrained=None) == 1
    assert first_stages("ann/base", pretrained=False) == 1
    assert first_stages("", pretrained=True) == 2


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
    assert len(numbers) == len(numbers.unique()) == 30 + 90  # trusted rows, and 0.3 epochs of 300 rows
    assert int(trusted[numbers].sum()) == 30
    assert run.trainer.verdict is not None


# ---------------------------------------------------------------------- the decision
@pytest.mark.parametrize(
    ("plain_may_be_best", "share", "found"),
    [
        (False, 0.3, "make probable, and then with the corrected loss: "),
        (True, 0.1, "on all rows with the corrected loss: no model is clearly better than plain training; "),
    ],
)
def test_good_noisy_labels_are_used_with_the_corrected_loss(runs, plain_may_be_best, share, found):
    run = runs("good", plain_may_be_best)
    method = run.trainer.method
    assert method.mixed_part == 1.0
    assert method.last_stage() == Stage("all", start="previous", fraction=0.7, trusted_share=share)
    epoch = torch.cat([trusted for _, trusted, _ in run.batches[:38]])
    assert (len(epoch), int(epoch.sum())) == (600, round(600 * share))
    (reason,) = run.trainer.verdict.decisions
    assert re.search(f"{found}(the network|a linear model) ", reason)
    assert (run.probable > 0) == (not plain_may_be_best)
    assert len(method.posterior_items) == 0  # since two thirds of the last stage, or from its start


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


@pytest.mark.parametrize(
    ("length", "mixed"), [({"max_steps": -1, "num_train_epochs": 2}, 420), ({"max_steps": 20}, 112)]
)
def test_noisy_labels_are_used_in_half_of_the_last_stage_if_nothing_is_clear(tmp_path, monkeypatch, length, mixed):
    monkeypatch.setattr(auto, "decide", lambda *_: Decision(0.5, "Nothing is clear."))
    run = train(tmp_path, rows_of_kind("good"), **length)
    method = run.trainer.method
    assert method.last_stage() == Stage("all", start="previous", fraction=0.7, trusted_share=0.3, mixed_part=0.5)
    flags = torch.cat([trusted for _, trusted, _ in run.batches])
    assert len(flags) >= 2 * mixed  # 1.4 epochs of 600 rows, or 14 steps of 16 rows
    assert int(flags[:mixed].sum()) == round(0.3 * mixed)
    assert flags[mixed:].all()
    items = torch.cat([items for items, _, _ in run.batches])
    assert torch.isin(items[~flags], method.posterior_items).all()  # others have no probabilities
    targets, rows = method.posteriors.argmax(dim=1), rows_of_kind("good")
    true, given = (torch.tensor(rows[name])[method.posterior_items] for name in ("clean_label", "label"))
    assert (targets == true).double().mean() > 0.9 > (given == true).double().mean()
    assert run.trainer.verdict.decisions == ["Nothing is clear."]


def test_useless_noisy_labels_are_not_used(runs):
    run = runs("useless")
    method = run.trainer.method
    assert method.mixed_part == 0.0
    assert len(method.posterior_items) == 0
    assert method.last_stage() == Stage("trusted", start="previous", fraction=0.7, trusted_share=1.0)
    items = torch.cat([items for items, _, _ in run.batches[:38]])
    trusted = np.flatnonzero(rows_of_kind("useless")["trusted"])
    assert torch.equal(items.unique(), torch.from_numpy(trusted))
    assert items.bincount()[trusted].tolist() == [10] * 60  # an epoch is as long as with all rows
    (reason,) = run.trainer.verdict.decisions
    assert reason.startswith("The last stage trains on trusted rows only: ")


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
    assert verdict.sentence == "It can't be told if correction helps with 40 trusted labels."
    assert verdict.ways.keys() == {"no_correction", "auto", *LINEAR_WAYS}
    assert verdict.ways["auto"].measured == "the best model before the last stage, 40 trusted labels"


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


def test_accuracy_of_plain_training_is_that_of_stage_1_on_trusted_rows(runs):
    run = runs("flipped")
    data = rows_of_kind("flipped")
    trusted = np.flatnonzero(data["trusted"])
    model = bert(initializer_range=0.3).eval()
    model.load_state_dict(run.recorder.end["first"])
    with torch.no_grad():
        predicted = model(torch.tensor(data["input_ids"][:])[trusted]).logits.argmax(dim=-1)
    expected = float((predicted == torch.tensor(data["label"][:])[trusted]).double().mean())
    assert run.trainer.verdict.ways["no_correction"].accuracy == pytest.approx(expected)


def test_way_of_the_final_model_is_within_its_interval_of_new_rows(runs):
    for kind in KINDS:
        trainer = runs(kind).trainer
        way = trainer.verdict.ways["auto"]
        accuracy = trainer.evaluate(text_rows(300, seed=5, trusted=None))["eval_accuracy"]
        assert way.low - 0.02 <= accuracy <= way.high + 0.02, kind


@pytest.mark.parametrize(
    ("interval", "helps", "start"),
    [
        ((0.01, 0.2), True, "Correction helps: "),
        ((-0.2, -0.01), False, "Correction does not help: "),
        ((-0.1, 0.1), None, "It can't be told if correction helps: "),
    ],
)
def test_correction_helps_if_the_interval_of_the_difference_excludes_zero(interval, helps, start):
    first = first_verdict(flags(60).numpy(), {})
    verdict = final_verdict(first, Way(0.7, 0.6, 0.8, "x"), interval)
    assert verdict.helps is helps
    assert verdict.sentence.startswith(f"{start}an estimated 70.0% of the predictions are right, against 60.0% ")
    assert f"(difference {100 * interval[0]:+.1f} to {100 * interval[1]:+.1f} points, " in verdict.sentence


def test_a_network_that_is_worse_than_its_linear_models_needs_more_training():
    ways = {"glc": Way(0.7, 0.6, 0.8, "linear model with the corrected loss, cross-fitted")}
    first = first_verdict(flags(60).numpy(), ways)
    advice = (
        "The network is worse than a linear model on its features (glc: 70.0%), so it has not been trained enough: "
    )
    assert advice in final_verdict(first, Way(0.1, 0.05, 0.3, "x"), (-0.6, -0.3)).sentence
    assert "linear model" not in final_verdict(first, Way(0.6, 0.5, 0.7, "x"), (-0.1, 0.1)).sentence


def test_verdict_is_saved_with_the_model_its_card_and_its_summary(runs, tmp_path):
    trainer = runs("flipped").trainer
    trainer.save_model(tmp_path)
    assert load_verdict(tmp_path) == trainer.verdict
    facts = json.loads((tmp_path / "glc_summary.json").read_text(encoding="utf-8"))
    assert facts["verdict"] == json.loads(json.dumps(trainer.verdict.to_dict()))
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert trainer.verdict.sentence in " ".join(card.split())
    assert "| way | accuracy on true labels | 90% interval | measured |" in card
    for name, way in trainer.verdict.ways.items():
        shown = "auto (this model)" if name == "auto" else name.replace("_", r"\_")
        interval = f"{100 * way.low:.1f} to {100 * way.high:.1f}"
        assert f"| {shown} | {way.accuracy:.1%} | {interval} | {way.measured} |" in card


def test_model_without_a_verdict_removes_that_of_an_earlier_run_in_the_same_folder(runs, tmp_path):
    runs("flipped").trainer.save_model(tmp_path)
    trainer = make_trainer(tmp_path, noisy_text_rows(60), method="no_correction", max_steps=1)
    trainer.train()
    trainer.save_model()
    assert load_verdict(tmp_path) is None
    assert "| way |" not in (tmp_path / "README.md").read_text(encoding="utf-8")


# ---------------------------------------------------------------------- other networks and data
def test_network_from_scratch_with_few_trusted_rows_ends_with_the_weights_of_glc(tmp_path):
    data = noisy_text_rows(120)
    trained = [make_trainer(tmp_path, data, pretrained=None, method=method) for method in ("auto", "glc")]
    for trainer in trained:
        trainer.train()
    first, second = trained
    assert first.method.first_stages() == second.method.first_stages()
    assert first.method.last_stage() == second.method.last_stage()
    assert same_weights(weights(first.model), weights(second.model))
    assert first.corruption_matrix == second.corruption_matrix
    assert second.verdict is None
    assert (first.verdict.final, first.verdict.helps, first.verdict.trusted_rows) == (False, None, 24)
    assert first.verdict.ways.keys() == {"no_correction"}


def test_network_from_scratch_is_judged_with_200_trusted_rows(tmp_path):
    run = train(tmp_path, noisy_text_rows(400, trusted=0.5), pretrained=False, max_steps=6, learning_rate=1e-3)
    verdict = run.trainer.verdict
    assert len(run.judges) == 40
    assert verdict.final
    assert verdict.ways.keys() == {"no_correction", "auto"}
    assert verdict.ways["auto"].measured.endswith("40 of 200 trusted labels")


def test_given_matrix_is_used_as_by_glc(tmp_path):
    matrix = CorruptionMatrix.flip(3, 0.6, seed=0)
    trained = [
        make_trainer(tmp_path, noisy_text_rows(120), method=method, corruption_matrix=matrix)
        for method in ("auto", "glc")
    ]
    for trainer in trained:
        trainer.train()
    assert trained[0].method.first_stages() == []
    assert trained[0].verdict is None
    assert np.array_equal(trained[0].corruption_matrix.probs, matrix.probs)
    assert same_weights(*(weights(trainer.model) for trainer in trained))


def test_stream_is_trained_as_by_glc(tmp_path):
    def trainer(method: str) -> GLCTrainer:
        stream = noisy_text_rows(120).to_iterable_dataset()
        return make_trainer(tmp_path, stream, method=method, trusted_share=0.0)

    trained = [trainer("auto"), trainer("glc")]
    for one in trained:
        one.train()
    assert trained[0].verdict is None
    assert trained[0].corruption_matrix == trained[1].corruption_matrix
    assert same_weights(*(weights(one.model) for one in trained))


def test_token_labels_are_judged_one_by_one(tmp_path):
    data = mark_trusted(token_rows(80), fraction=0.3, level="token", label_column="labels")
    data = corrupt_labels(data, CorruptionMatrix.flip(3, 0.5), label_column="labels")
    run = train(tmp_path, data, model=token_bert(), data_collator=token_collator(), max_steps=8)
    trusted = sum(
        flag and label != -100 for row in data for flag, label in zip(row["trusted"], row["labels"], strict=True)
    )
    assert run.trainer.verdict.final
    assert run.trainer.verdict.trusted_rows == trusted
    assert len(run.judges) == round(0.2 * trusted)
    for items, _, losses in run.batches[: 2 * len(run.batches) // 3]:
        assert (losses[torch.isin(items, run.judges)] == 0).all()


def test_classes_without_trusted_rows_are_named_in_a_warning(tmp_path, caplog):
    data = text_rows(200, trusted=None)
    chosen = [row for row, label in enumerate(data["label"][:]) if label != 2][:60]
    data = corrupt_labels(mark_trusted(data, indices=chosen), KINDS["good"])
    trainer = make_trainer(tmp_path, data, max_steps=4)
    with caplog.at_level(logging.WARNING):
        trainer.train()
    assert "no trusted row for 1 of 3 classes: class 2" in caplog.text
    assert any("class 2" in warning for warning in trainer.warnings)
    assert np.isfinite(trainer.corruption_matrix.probs).all()


def test_dropping_the_last_batch_keeps_batches_whole_even_if_trusted_rows_are_fewer_than_one(tmp_path):
    run = train(
        tmp_path, rows_of_kind("useless", 300, 0.2), max_steps=-1, num_train_epochs=2, dataloader_drop_last=True,
        per_device_train_batch_size=64,
    )  # fmt: skip
    assert run.trainer.method.mixed_part == 0.0
    assert [len(items) for items, _, _ in run.batches] == [64] * 6  # 1.4 epochs of four whole batches
    assert run.trainer.verdict.final


def test_paired_labels_give_the_matrix_and_the_pool_the_verdict(tmp_path):
    data = rows_of_kind("flipped", 300, 0.3)
    noisy = corrupt_labels(data.remove_columns(["trusted", "label"]).rename_column("clean_label", "label"),
                           KINDS["flipped"], trusted_column=None, clean_column="true")  # fmt: skip
    data = data.add_column("noisy", noisy["label"][:])
    trainer = make_trainer(tmp_path, data, max_steps=6, estimator="paired", noisy_label_column="noisy")
    trainer.train()
    counted = make_trainer(
        tmp_path / "glc", data, method="glc", max_steps=1, estimator="paired", noisy_label_column="noisy"
    )
    counted.train()
    np.testing.assert_allclose(trainer.corruption_matrix.probs, counted.corruption_matrix.probs)
    assert trainer.verdict.final


@pytest.mark.parametrize(("shift", "known", "weight"), [(0, 300, 1.25), (1, 300, 0.0), (0, 150, 1.25)])
def test_paired_labels_decide_how_far_given_labels_are_believed(tmp_path, monkeypatch, shift, known, weight):
    """Noisy labels of trusted rows that are all right are believed, and those that are all wrong are not. They may be
    known for a part of the rows only."""
    data, pools, fit = rows_of_kind("good", 300, 0.3), [], auto.fit_pool
    noisy = ((np.array(data["clean_label"]) + shift) % 3).tolist()
    data = data.add_column("noisy", noisy[:known] + [None] * (300 - known))
    monkeypatch.setattr(auto, "fit_pool", lambda *words: pools.append(fit(*words)) or pools[-1])
    make_trainer(tmp_path, data, max_steps=4, estimator="paired", noisy_label_column="noisy").train()
    assert pools[0].given_weight == weight
