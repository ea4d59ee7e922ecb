# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Subclasses of `GLCTrainer` and callbacks, which run in every stage; the speed metrics of a run."""

from __future__ import annotations

import functools
from types import MethodType

import pytest
import torch
from transformers import TrainerCallback

from glc_hf import CorruptionMatrix, GLCTrainer
from tests.training.tiny import bert, config, noisy_text_rows, same_weights, text_rows, weights


class Events(TrainerCallback):
    """The events of a run, with the state and the arguments that came with them."""

    def __init__(self):
        self.seen: list[tuple] = []
        self.steps = 0

    def _add(self, name, args, state):
        # The state itself, not its id: a new state could get the id of one that was freed.
        self.seen.append((name, args.output_dir, state.global_step, state.max_steps, state))

    def on_train_begin(self, args, state, control, **kwargs):
        self._add("train_begin", args, state)

    def on_step_end(self, args, state, control, **kwargs):
        self.steps += 1
        assert self.steps == state.global_step  # a stage starts with a new copy

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        assert "eval_loss" in metrics
        self._add("evaluate", args, state)

    def on_save(self, args, state, control, **kwargs):
        self._add("save", args, state)

    def on_train_end(self, args, state, control, **kwargs):
        self._add("train_end", args, state)


def test_callbacks_see_every_stage_with_its_own_state(tmp_path):
    events = Events()
    settings = config(
        tmp_path, max_steps=4, stage1_max_steps=2, eval_strategy="steps", eval_steps=2, save_strategy="steps",
        save_steps=2,
    )  # fmt: skip
    GLCTrainer(
        bert(), settings, train_dataset=noisy_text_rows(), eval_dataset=text_rows(32, trusted=None), callbacks=[events]
    ).train()
    first, second = ([entry for entry in events.seen if ("stage1" in entry[1]) == first] for first in (True, False))
    names = ["train_begin", "evaluate", "save", "train_end"]
    assert [entry[:4:2] for entry in first] == list(zip(names, (0, 2, 2, 2), strict=True))
    names = ["train_begin", "evaluate", "save", "evaluate", "save", "train_end"]
    assert [entry[:4:2] for entry in second] == list(zip(names, (0, 2, 2, 4, 4, 4), strict=True))
    assert {entry[3] for entry in first} == {2}
    assert {entry[3] for entry in second} == {4}
    assert {id(entry[4]) for entry in first}.isdisjoint(id(entry[4]) for entry in second)
    assert events.seen == first + second


def test_a_callback_that_holds_the_trainer_works_on_the_model_of_the_stage(tmp_path):
    class Evaluates(TrainerCallback):
        losses: list[tuple[float, float]] = []  # noqa: RUF012  (shared by the copies)

        def on_train_end(self, args, state, control, model=None, **kwargs):
            held_out = text_rows(32, trusted=None, seed=1)
            batch = {name: torch.tensor(held_out[name][:]) for name in ("input_ids", "attention_mask")}
            with torch.no_grad():
                logits = model.eval()(**batch).logits
            expected = torch.nn.functional.cross_entropy(logits, torch.tensor(held_out["label"][:])).item()
            self.losses.append((self.evaluate(held_out)["eval_loss"], expected))
            assert self.trainer.model is model

    callback = Evaluates()
    trainer = GLCTrainer(bert(), config(tmp_path), train_dataset=noisy_text_rows(), callbacks=[callback])
    callback.trainer, callback.evaluate = trainer, trainer.evaluate
    trainer.train()
    assert len(callback.losses) == 2
    for found, expected in callback.losses:
        assert found == pytest.approx(expected, abs=1e-5)
    assert callback.trainer is trainer


def test_a_method_replaced_on_the_object_runs_in_every_stage(tmp_path):
    trainer = GLCTrainer(bert(), config(tmp_path, max_steps=2), train_dataset=noisy_text_rows())
    seen = []

    def training_step(self, model, *args, **kwargs):
        seen.append((self.stage_name[:7], self.model is model))
        return type(self).training_step(self, model, *args, **kwargs)

    trainer.training_step = MethodType(training_step, trainer)
    trainer.train()
    assert seen == [("stage 1", True)] * 2 + [("stage 2", True)] * 2


class Momentum(GLCTrainer):
    """Another optimizer, another schedule, and a loss that is scaled."""

    def create_optimizer(self, *args, **kwargs):
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        return self.optimizer

    def create_scheduler(self, num_training_steps, optimizer=None):
        self.lr_scheduler = torch.optim.lr_scheduler.StepLR(optimizer or self.optimizer, 1, gamma=0.9)
        return self.lr_scheduler

    def compute_loss(self, *args, **kwargs):
        return 0.5 * super().compute_loss(*args, **kwargs)


def test_a_subclass_resumes_exactly_in_either_stage(tmp_path):
    class Stop(TrainerCallback):
        def __init__(self, stage):
            self.stage = stage

        def on_save(self, args, state, control, **kwargs):
            if ("stage1" in args.output_dir) == (self.stage == "stage1"):
                raise KeyboardInterrupt

    def run(folder, callbacks=(), resume=None, **settings):
        settings = config(tmp_path / folder, max_steps=3, save_steps=2, **settings)
        trainer = Momentum(bert(), settings, train_dataset=noisy_text_rows(96), callbacks=list(callbacks))
        trainer.train(resume_from_checkpoint=resume)
        return weights(trainer.model)

    whole = run("whole")
    for stage in ("stage1", "last"):
        with pytest.raises(KeyboardInterrupt):
            run(stage, [Stop(stage)], save_strategy="steps")
        assert same_weights(run(stage, resume=True, save_strategy="steps"), whole)


def test_speed_metrics_cover_the_whole_run_and_each_stage(tmp_path):
    class Copies(GLCTrainer):
        def log(self, logs, *args, **kwargs):
            super().log(dict(logs), *args, **kwargs)

    for cls in (GLCTrainer, Copies):
        trainer = cls(bert(), config(tmp_path, max_steps=6, stage1_max_steps=4), train_dataset=noisy_text_rows())
        metrics = trainer.train().metrics
        parts = metrics["stage1_train_runtime"] + metrics["stage2_train_runtime"]
        assert metrics["train_runtime"] >= parts - 1e-3
        for rate, total in (("train_steps_per_second", 10), ("train_samples_per_second", 160)):
            assert {f"stage1_{rate}", f"stage2_{rate}"} <= metrics.keys()
            assert metrics[rate] * metrics["train_runtime"] == pytest.approx(total, rel=0.02)
        last = trainer.state.log_history[-1]
        assert {name: last[name] for name in metrics if name in last} == {
            name: value for name, value in metrics.items() if name in last
        }
        assert "stage2_train_runtime" in last


def test_speed_metrics_of_a_single_stage_are_those_of_trainer(tmp_path):
    matrix = CorruptionMatrix.flip(3, 0.6)
    trainer = GLCTrainer(bert(), config(tmp_path), train_dataset=noisy_text_rows(), corruption_matrix=matrix)
    metrics = trainer.train().metrics
    assert {name for name in metrics if name.startswith("stage")} == set()
    assert metrics["train_steps_per_second"] * metrics["train_runtime"] == pytest.approx(4, rel=0.02)


# ---------------------------------------------------------------------- overrides that can't make sense
class Weighted(GLCTrainer):
    """As on many web pages."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = torch.nn.functional.cross_entropy(outputs.logits, labels, weight=torch.ones(3))
        return (loss, outputs) if return_outputs else loss


class SameRows(GLCTrainer):
    def get_train_dataloader(self):
        return torch.utils.data.DataLoader(self.train_dataset, batch_size=8, collate_fn=self.data_collator)


class OwnBatches(GLCTrainer):
    def get_batch_samples(self, epoch_iterator, num_batches, device):
        return [next(epoch_iterator) for _ in range(num_batches)], None


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (Weighted, r"Weighted\.compute_loss does not call super\(\)\.compute_loss.*item_losses"),
        (SameRows, r"SameRows\.get_train_dataloader .*every stage would train on the same rows.*self\.stage_rows\(\)"),
        (OwnBatches, r"OwnBatches\.get_batch_samples .*Call it"),
    ],
)
def test_an_override_that_replaces_what_stages_need_is_refused_at_construction(tmp_path, cls, message):
    with pytest.raises(TypeError, match=message):
        cls(bert(), config(tmp_path), train_dataset=noisy_text_rows())

    class Derived(cls):
        pass

    with pytest.raises(TypeError, match="Derived"):
        Derived(bert(), config(tmp_path), train_dataset=noisy_text_rows())


def _logged(function):
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


class Helper(GLCTrainer):
    def compute_loss(self, *args, **kwargs):
        return self._scaled(*args, **kwargs)

    def _scaled(self, *args, **kwargs):
        return 2 * super().compute_loss(*args, **kwargs)


class ByName(GLCTrainer):
    def compute_loss(self, *args, **kwargs):
        return GLCTrainer.compute_loss(self, *args, **kwargs)


class Decorated(GLCTrainer):
    @_logged
    def compute_loss(self, *args, **kwargs):
        return super().compute_loss(*args, **kwargs)


class Mixin:
    def compute_loss(self, *args, **kwargs):
        return super().compute_loss(*args, **kwargs)

    training_step = functools.partialmethod(GLCTrainer.training_step)


class Mixed(Mixin, GLCTrainer):
    pass


class StageRows(GLCTrainer):
    def get_train_dataloader(self):
        rows = self.stage_rows()
        sampler = torch.utils.data.RandomSampler(rows, num_samples=16)
        loader = torch.utils.data.DataLoader(rows, batch_size=8, collate_fn=self.data_collator, sampler=sampler)
        return self.accelerator.prepare(loader)


@pytest.mark.parametrize("cls", [Helper, ByName, Decorated, Mixed, StageRows])
def test_an_override_that_calls_what_it_replaces_trains(tmp_path, cls):
    trainer = cls(bert(), config(tmp_path, max_steps=1), train_dataset=noisy_text_rows())
    assert trainer.train().global_step == 1


def test_an_optimizer_of_another_stages_model_is_refused(tmp_path):
    class Early(GLCTrainer):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.made = torch.optim.SGD(self.model.parameters(), lr=0.1)

        def create_optimizer(self, *args, **kwargs):
            self.optimizer = self.made
            return self.optimizer

    trainer = Early(bert(), config(tmp_path), train_dataset=noisy_text_rows())
    with pytest.raises(ValueError, match=r"stage1 has no parameter of the model that it trains.*self\.model"):
        trainer.train()


def test_overrides_that_a_probe_does_not_run_are_named(tmp_path, caplog):
    GLCTrainer(bert(), config(tmp_path, stage1="probe"), train_dataset=noisy_text_rows())
    assert "has no training steps" not in caplog.text
    Momentum(bert(), config(tmp_path, stage1="probe"), train_dataset=noisy_text_rows())
    assert (
        "create_optimizer, create_scheduler, compute_loss of Momentum will run in the last stage only" in caplog.text
    )
