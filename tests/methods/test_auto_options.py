# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The default method: which options of `glc` it uses, and when its stages are those of `glc`."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from accelerate.utils import DistributedType
from datasets import Dataset

from glc_hf import CorruptionMatrix, GLCConfig, GLCTrainer, mark_trusted
from glc_hf.methods import auto
from glc_hf.methods.base import SharedOptions, Stage
from glc_hf.methods.glc import GLCOptions
from tests.training.tiny import bert, config, noisy_text_rows, pixels, quick_pool, same_weights, text_rows, weights


# Values that are not the default, for each option of `glc`.
OF_GLC = {
    "stage1": "short",
    "stage1_fraction": 0.5,
    "stage1_num_train_epochs": 2.0,
    "stage1_max_steps": 3,
    "stage1_learning_rate": 1e-4,
    "stage2_start": "continue",
    "trusted_share": 0.0,
    "calibrate": True,
    "match_base_rates": True,
    "base_rate_weight": 2.0,
    "missing_classes": "uniform",
}
USED = {
    "refine_matrix": False,
    "noisy_label_column": "noisy",
    "evaluate_stages": False,
    "trusted_eval_fraction": 0.2,
    "freeze": ["bert.embeddings"],
}
OF_OTHER_METHODS = {"trusted_min_updates"}


@pytest.fixture(scope="module", autouse=True)
def _fast_pool(tmp_path_factory) -> Iterator[None]:
    with quick_pool(tmp_path_factory.mktemp("cache")):
        yield


def named(model: torch.nn.Module, name: str = "ann/base") -> torch.nn.Module:
    """A model as after `from_pretrained`."""
    model.config._name_or_path = name
    return model


def make_trainer(folder: Any, data: Any = None, model: Any = None, matrix: Any = None, **settings: Any) -> GLCTrainer:
    """A trainer with the default method and a pretrained network, unless the settings say otherwise."""
    settings = {"method": GLCConfig.method, **settings}
    data = noisy_text_rows() if data is None else data
    model = named(bert()) if model is None else model
    return GLCTrainer(model, config(folder, **settings), train_dataset=data, corruption_matrix=matrix)


def with_noisy_column(data: Dataset) -> Dataset:
    """The rows with a second label, as of the noisy source."""
    return data.add_column("noisy", [(label + 1) % 3 for label in data["label"][:]])


# ---------------------------------------------------------------------- the default
def test_default_method_is_auto_in_the_configuration_and_without_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert GLCConfig(str(tmp_path)).method == "auto"
    assert GLCTrainer(bert(), train_dataset=noisy_text_rows()).method.name == "auto"


def test_default_trains_a_pretrained_network_as_auto_and_gives_a_verdict(tmp_path):
    data = noisy_text_rows(300, trusted=0.2)
    arguments = {"output_dir": str(tmp_path), "max_steps": 6, "report_to": "none", "use_cpu": True}
    trainer = GLCTrainer(named(bert()), GLCConfig(**arguments, disable_tqdm=True), train_dataset=data)
    trainer.train()
    assert [stage.mode for stage in trainer.method.first_stages()] == ["probe"]
    assert trainer.state.global_step == 6
    assert trainer.verdict.final
    trainer.save_model()
    assert "method" not in trainer.args.changed_arguments()
    card = " ".join((tmp_path / "README.md").read_text(encoding="utf-8").split())
    assert "a small number of trusted labels with the method `auto` from the library `glc_hf`." in card
    (decision,) = trainer.verdict.decisions
    assert f"in the last stage. {decision} Settings that differ" in card


@pytest.mark.parametrize("kind", ["from scratch", "stream", "given matrix"])
def test_default_ends_with_the_weights_of_glc_without_a_word_about_it(tmp_path, kind, caplog):
    matrix = CorruptionMatrix.flip(3, 0.6) if kind == "given matrix" else None

    def train(method: str) -> GLCTrainer:
        data = noisy_text_rows(120)
        data = data.to_iterable_dataset() if kind == "stream" else data
        model = bert() if kind == "from scratch" else named(bert())
        folder = tmp_path / method
        trainer = make_trainer(folder, data, model, matrix, method=method, trusted_share=0.0, save_strategy="steps")
        trainer.train()
        trainer.save_model()
        return trainer

    caplog.set_level(logging.WARNING, logger="glc_hf")
    default, glc = train(GLCConfig.method), train("glc")
    assert default.method.first_stages() == glc.method.first_stages()
    assert default.method.last_stage() == glc.method.last_stage()
    assert same_weights(weights(default.model), weights(glc.model))
    assert default.corruption_matrix == glc.corruption_matrix
    messages = [record.getMessage() for record in caplog.records]
    assert messages[: len(messages) // 2] == messages[len(messages) // 2 :]
    cards = [
        re.sub(r"\| `method` \|.*\n| The stages are those of glc: the network is not pretrained\.", "", text)
        for text in ((tmp_path / name / "README.md").read_text(encoding="utf-8") for name in ("auto", "glc"))
    ]
    assert cards[0].replace("`auto`", "`glc`").replace("auto", "glc") == cards[1]


# ---------------------------------------------------------------------- options
def test_every_option_of_glc_is_used_or_gives_the_stages_of_glc():
    options = {option.name for kind in (SharedOptions, GLCOptions) for option in dataclasses.fields(kind)}
    options |= {option.name for option in dataclasses.fields(GLCConfig) if option.name.startswith("stage")}
    assert options <= OF_GLC.keys() | USED.keys() | OF_OTHER_METHODS | {"estimator"}
    assert OF_GLC.keys() == {*auto._STAGE_OPTIONS, *auto._ESTIMATE_OPTIONS}


@pytest.mark.parametrize("name", OF_GLC)
def test_option_of_glc_gives_its_stages_and_a_warning(tmp_path, name, caplog):
    settings = {name: OF_GLC[name]}
    caplog.set_level(logging.WARNING, logger="glc_hf")
    auto.logger.warning_once.cache_clear()
    trainer, glc = make_trainer(tmp_path, **settings), make_trainer(tmp_path, method="glc", **settings)
    assert trainer.method.first_stages() == glc.method.first_stages()
    assert trainer.method.last_stage() == glc.method.last_stage()
    assert f"uses the stages of 'glc': {name}={OF_GLC[name]!r} can be set for them only." in caplog.text


@pytest.mark.parametrize("name", OF_GLC)
def test_option_of_glc_has_no_warning_where_the_stages_are_those_of_glc_anyway(tmp_path, name, caplog):
    settings = {name: OF_GLC[name]}
    caplog.set_level(logging.WARNING, logger="glc_hf")
    auto.logger.warning_once.cache_clear()
    assert not make_trainer(tmp_path, model=bert(), **settings).method.pretrained
    make_trainer(tmp_path, method="glc", **settings)
    make_trainer(tmp_path, pretrained=False, **settings)
    make_trainer(tmp_path, matrix=CorruptionMatrix.flip(3, 0.6), **settings)
    assert "uses the stages of" not in caplog.text


def test_all_options_of_glc_are_named_at_once(tmp_path):
    trainer = make_trainer(tmp_path, trusted_share=0.3, calibrate=True, stage1="probe")
    assert trainer.method.why_glc.startswith("stage1='probe' and trusted_share=0.3 and calibrate=True can be set")


def test_option_that_is_set_between_construction_and_training_counts_too(tmp_path):
    trainer = make_trainer(tmp_path)
    assert trainer.method.pretrained
    trainer.args.calibrate = True  # as a hyper-parameter search does
    trainer.train()
    assert not trainer.method.pretrained
    assert trainer.verdict.decisions == ["The stages are those of glc: calibrate=True can be set for them only."]


@pytest.mark.parametrize("name", USED)
def test_other_options_are_accepted(tmp_path, name):
    trainer = make_trainer(tmp_path, with_noisy_column(noisy_text_rows()), **{name: USED[name]})
    assert trainer.method.pretrained


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({"stage1_max_steps": 3}, 3),
        ({"stage1_num_train_epochs": 1}, 9),  # 144 untrusted rows in batches of 16
        ({"stage1_learning_rate": 1e-4}, 10),
        ({"stage2_start": "continue"}, 10),
    ],
)
def test_settings_of_a_trained_stage_1_give_the_weights_of_glc(tmp_path, settings, steps):
    trained = {}
    for method in ("auto", "glc"):
        trainer = make_trainer(tmp_path, noisy_text_rows(180), method=method, max_steps=10, **settings)
        trainer.train()
        trained[method] = weights(trainer.model)
        logged = {"stage1": [], "last": []}
        for entry in trainer.state.log_history:
            if "stage1_learning_rate" in entry or "learning_rate" in entry:
                logged["stage1" if "stage1_learning_rate" in entry else "last"].append(entry)
        assert {stage: entries[-1]["step"] for stage, entries in logged.items()} == {"stage1": steps, "last": 10}
        first = logged["stage1"][0]["stage1_learning_rate"]
        assert first == settings.get("stage1_learning_rate", 1e-2)
        assert logged["last"][0]["learning_rate"] == 1e-2
    assert same_weights(trained["auto"], trained["glc"])


def test_default_has_no_steps_before_the_last_stage(tmp_path):
    trainer = make_trainer(tmp_path, noisy_text_rows(180), max_steps=10)
    trainer.train()
    rates = [entry for entry in trainer.state.log_history if "learning_rate" in entry]
    assert [entry["step"] for entry in rates] == list(range(1, 11))
    assert rates[0]["learning_rate"] == 1e-2
    assert not any("stage1_learning_rate" in entry or "stage1_loss" in entry for entry in trainer.state.log_history)


def test_matrix_of_the_features_is_not_changed_without_refinement(tmp_path, monkeypatch):
    matrices = []
    original = auto.Auto._estimate_on_features
    monkeypatch.setattr(
        auto.Auto, "_estimate_on_features", lambda self, run: original(self, run) or matrices.append(self.matrix)
    )
    for refine in (False, True):
        trainer = make_trainer(tmp_path, noisy_text_rows(300), max_steps=12, refine_matrix=refine)
        trainer.train()
        assert (trainer.corruption_matrix == matrices[-1]) is not refine


@pytest.mark.parametrize("settings", [{}, {"missing_classes": "uniform"}, {"match_base_rates": True}])
def test_paired_labels_give_the_matrix_of_glc_also_for_classes_without_trusted_rows(tmp_path, settings):
    data = text_rows(200, trusted=None)
    chosen = [row for row, label in enumerate(data["label"][:]) if label != 2][:40]
    data = with_noisy_column(mark_trusted(data, indices=chosen))
    paired = {"estimator": "paired", "noisy_label_column": "noisy", "max_steps": 2, **settings}
    trained = [make_trainer(tmp_path / method, data, method=method, **paired) for method in ("auto", "glc")]
    for trainer in trained:
        with pytest.warns(UserWarning, match="no trusted row for 1 of 3 classes: class 2"):
            trainer.train()
    np.testing.assert_allclose(trained[0].corruption_matrix.probs, trained[1].corruption_matrix.probs)
    assert trained[0].verdict is not None


# ---------------------------------------------------------------------- networks that can't be probed
def test_network_without_a_linear_classifier_gets_the_stages_of_glc_and_a_warning(tmp_path, caplog):
    class Convolutional(torch.nn.Module):
        num_classes = 3

        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Conv2d(3, 3, 16)

        def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
            return self.head(pixel_values).flatten(1)

    auto.logger.warning_once.cache_clear()
    trainer = make_trainer(tmp_path, pixels(), Convolutional(), pretrained=True, stage1="short", max_steps=2)
    trainer.train()
    assert trainer.method.first_stages() == [Stage("untrusted", mode="short")]
    reason = "Convolutional has no linear layer with 3 outputs, whose input would be its features"
    assert caplog.text.count(f"method 'auto' uses the stages of 'glc': {reason}.") == 1
    assert trainer.verdict.decisions == [f"The stages are those of glc: {reason}."]


def test_network_that_fsdp_shards_gets_the_stages_of_glc(tmp_path, monkeypatch, caplog):
    trainer = make_trainer(tmp_path)
    assert [stage.mode for stage in trainer.method.first_stages()] == ["probe"]
    auto.logger.warning_once.cache_clear()
    monkeypatch.setattr(type(trainer.accelerator), "distributed_type", DistributedType.FSDP)
    assert trainer._make_method().first_stages() == [Stage("untrusted")]
    assert "method 'auto' uses the stages of 'glc': FSDP shards the network" in caplog.text


def test_more_than_1000_classes_have_the_stages_of_glc(tmp_path, monkeypatch):
    monkeypatch.setattr(auto, "_MAX_CLASSES", 3)
    assert [stage.mode for stage in make_trainer(tmp_path).method.first_stages()] == ["probe"]
    monkeypatch.setattr(auto, "_MAX_CLASSES", 2)
    assert make_trainer(tmp_path, trusted_share=0.0).method.first_stages() == [Stage("untrusted")]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_very_few_trusted_rows_are_enough_to_train(tmp_path, count):
    data = mark_trusted(text_rows(60, trusted=None), indices=range(count))
    trainer = make_trainer(tmp_path, data, max_steps=2)
    trainer.train()
    assert np.isfinite(trainer.corruption_matrix.probs).all()
    assert trainer.verdict.trusted_rows == count


# ---------------------------------------------------------------------- checkpoints
@pytest.mark.parametrize("pretrained", [True, False])
def test_run_with_checkpoints_stores_what_it_estimated(tmp_path, monkeypatch, pretrained):
    if pretrained:  # the predictions of the pool and of plain training are then one tensor
        found = auto.Pool.held_out_correct.fget
        same = property(lambda pool: (correct := found(pool)) | {auto.POOL: correct["plain"]})
        monkeypatch.setattr(auto.Pool, "held_out_correct", same)
    trainer = make_trainer(tmp_path, pretrained=pretrained, save_strategy="steps", save_steps=2)
    trainer.train()
    assert trainer.method.control is trainer.method.plain or not pretrained
    again = make_trainer(tmp_path, pretrained=pretrained, save_strategy="steps", save_steps=2)
    again.train(resume_from_checkpoint=True)
    assert torch.equal(again.method.plain, trainer.method.plain)
    assert same_weights(weights(again.model), weights(trainer.model))


def test_moved_checkpoint_from_scratch_resumes_without_stage_1_as_in_glc(tmp_path, caplog):
    settings = {"pretrained": False, "save_strategy": "steps", "save_steps": 1, "max_steps": 6}
    trainer = make_trainer(tmp_path / "run", **settings)
    trainer.train()
    (tmp_path / "run" / "checkpoint-3").rename(tmp_path / "checkpoint-3")
    caplog.set_level(logging.INFO, logger="glc_hf")
    caplog.clear()  # of the first run, if another test has changed the level
    again = make_trainer(tmp_path / "other", **settings)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert "stage 1 of 2" not in caplog.text
    assert again.corruption_matrix is not None
