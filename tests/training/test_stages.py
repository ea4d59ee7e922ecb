# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The stages of a run: rows, initial weights, optimizers, arguments, logs and subclasses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, BertForSequenceClassification, TrainerCallback

from glc_hf import CorruptionMatrix, GLCTrainer, corrupt_labels
from glc_hf.methods.base import Stage
from glc_hf.methods.glc import GoldLossCorrection
from glc_hf.training.batches import ROW_KEY
from glc_hf.training.stage_trainer import StageTrainer
from glc_hf.training.stages import stage_arguments
from tests.training.tiny import bert, bert_config, config, noisy_text_rows, same_weights, text_rows, weights


class Spy(TrainerCallback):
    """Stores the weights and optimizer states at the start and end of each stage."""

    def __init__(self) -> None:
        self.starts = []
        self.ends = []

    def on_train_begin(self, args, state, control, model=None, optimizer=None, **kwargs):
        self.starts.append((weights(model), len(optimizer.state), state.max_steps, args.learning_rate))

    def on_train_end(self, args, state, control, model=None, optimizer=None, **kwargs):
        steps = {int(entry["step"]) for entry in optimizer.state.values()}
        self.ends.append((weights(model), steps))


@pytest.fixture
def seen_rows(monkeypatch):
    """The numbers of the rows with a loss in training, by stage."""
    rows: dict[str, list[int]] = {}
    original = StageTrainer.get_batch_samples

    def spy(self, *args):
        batches, num_items = original(self, *args)
        for batch in batches:
            kept = batch[self.label_name] != -100
            rows.setdefault(self.stage_name.split(" of ")[0], []).extend(batch[ROW_KEY][kept].tolist())
        return batches, num_items

    monkeypatch.setattr(StageTrainer, "get_batch_samples", spy)
    return rows


def test_stage_1_trains_on_untrusted_rows_and_stage_2_on_all_rows(tmp_path, seen_rows):
    data = noisy_text_rows()
    GLCTrainer(
        bert(), config(tmp_path, max_steps=-1, num_train_epochs=1, trusted_share=0.0), train_dataset=data
    ).train()
    untrusted = np.flatnonzero(~np.array(data["trusted"])).tolist()
    assert sorted(seen_rows["stage 1"]) == untrusted
    assert sorted(seen_rows["stage 2"]) == list(range(len(data)))


def test_trusted_rows_are_repeated_up_to_trusted_share_and_no_row_is_dropped(tmp_path, seen_rows):
    data = noisy_text_rows(rows=400, trusted=0.03)
    settings = config(tmp_path, max_steps=-1, num_train_epochs=1, trusted_share=0.25)
    GLCTrainer(bert(), settings, train_dataset=data).train()
    flags = np.array(data["trusted"])
    counts = np.bincount(seen_rows["stage 2"], minlength=len(data))
    assert (counts[~flags] == 1).all()
    assert flags[seen_rows["stage 2"]].mean() == pytest.approx(0.25, abs=0.002)
    assert counts[flags].max() - counts[flags].min() <= 1
    assert set(seen_rows["stage 1"]).isdisjoint(np.flatnonzero(flags).tolist())


def test_rows_are_not_repeated_if_trusted_rows_exceed_trusted_share(tmp_path, seen_rows):
    data = noisy_text_rows(trusted=0.5)
    settings = config(tmp_path, max_steps=-1, num_train_epochs=1, trusted_share=0.15)
    GLCTrainer(bert(), settings, train_dataset=data).train()
    assert sorted(seen_rows["stage 2"]) == list(range(len(data)))


def test_both_stages_start_from_the_initial_weights_with_a_new_optimizer(tmp_path):
    spy, model = Spy(), bert()
    before = weights(model)
    GLCTrainer(model, config(tmp_path, max_steps=5), train_dataset=noisy_text_rows(), callbacks=[spy]).train()
    (first, first_states, *_), (second, second_states, *_) = spy.starts
    assert same_weights(first, before)
    assert same_weights(second, before)
    assert first_states == second_states == 0
    assert [steps for _, steps in spy.ends] == [{5}, {5}]
    assert not same_weights(spy.ends[0][0], before)


def test_stage2_start_continue_starts_from_the_weights_of_stage_1(tmp_path):
    spy = Spy()
    settings = config(tmp_path, stage2_start="continue")
    GLCTrainer(bert(), settings, train_dataset=noisy_text_rows(), callbacks=[spy]).train()
    assert same_weights(spy.starts[1][0], spy.ends[0][0])
    assert spy.starts[1][1] == 0


def test_model_init_gives_both_stages_the_same_initial_weights(tmp_path):
    spy = Spy()

    def make_model() -> torch.nn.Module:
        return BertForSequenceClassification(bert_config())

    trainer = GLCTrainer(
        model_init=make_model, args=config(tmp_path), train_dataset=noisy_text_rows(), callbacks=[spy]
    )
    trainer.train()
    assert same_weights(spy.starts[0][0], spy.starts[1][0])
    assert trainer.model_init is make_model


def test_given_matrix_is_used_unchanged_and_skips_stage_1(tmp_path):
    spy, given = Spy(), CorruptionMatrix.flip(3, 0.6)
    trainer = GLCTrainer(
        bert(), config(tmp_path), train_dataset=noisy_text_rows(), corruption_matrix=given, callbacks=[spy]
    )
    trainer.train()
    assert len(spy.starts) == 1
    assert np.array_equal(trainer.corruption_matrix.probs, given.probs)
    assert trainer.corruption_matrix.label_names == ["class 0", "class 1", "class 2"]


def test_stage1_arguments_apply_only_to_stage_1(tmp_path):
    spy = Spy()
    settings = config(tmp_path, max_steps=3, stage1_max_steps=6, stage1_learning_rate=0.5e-2)
    GLCTrainer(bert(), settings, train_dataset=noisy_text_rows(), callbacks=[spy]).train()
    assert [(steps, rate) for *_, steps, rate in spy.starts] == [(6, 0.5e-2), (3, 1e-2)]
    epochs = config(tmp_path, max_steps=-1, num_train_epochs=1, stage1_num_train_epochs=2, trusted_share=0)
    spy = Spy()
    GLCTrainer(bert(), epochs, train_dataset=noisy_text_rows(rows=100, trusted=0.2), callbacks=[spy]).train()
    assert [steps for *_, steps, _ in spy.starts] == [2 * 5, 7]


@pytest.mark.parametrize(
    ("length", "steps"),
    [({"max_steps": 10}, [4, 7]), ({"max_steps": -1, "num_train_epochs": 2}, [8, 20])],  # 11 and 14 batches
)
def test_stages_of_a_method_can_have_a_fraction_of_the_run(tmp_path, monkeypatch, length, steps):
    monkeypatch.setattr(GoldLossCorrection, "first_stages", lambda self: [Stage("untrusted", fraction=0.35)])
    monkeypatch.setattr(GoldLossCorrection, "last_stage", lambda self: Stage("all", start="previous", fraction=0.7))
    spy, data = Spy(), noisy_text_rows(rows=200, trusted=0.2)
    settings = config(tmp_path, per_device_train_batch_size=15, trusted_share=0, **length)
    trainer = GLCTrainer(bert(), settings, train_dataset=data, callbacks=[spy])
    trainer.train()
    assert [taken for *_, taken, _ in spy.starts] == steps
    assert same_weights(spy.starts[1][0], spy.ends[0][0])
    assert {name: getattr(trainer.args, name) for name in length} == length


def test_settings_of_stage_1_do_not_change_the_length_of_a_probe(tmp_path):
    """It has no steps, and the length of the run says how many rows it may embed."""
    settings = config(tmp_path, max_steps=-1, num_train_epochs=3, stage1_num_train_epochs=1, stage1_max_steps=5)
    trainer = GLCTrainer(bert(), settings, train_dataset=noisy_text_rows())
    trainer.run_dir, lengths = str(tmp_path), {}
    for mode in ("probe", "full"):
        args = stage_arguments(trainer, 1, Stage("untrusted", mode=mode))
        lengths[mode] = (args.num_train_epochs, args.max_steps)
    assert lengths == {"probe": (3, -1), "full": (1, 5)}


def test_stage1_learning_rate_applies_with_optimizer_cls_and_kwargs(tmp_path):
    trainer = GLCTrainer(
        bert(), config(tmp_path, stage1_learning_rate=0.02, lr_scheduler_type="constant"), train_dataset=text_rows(),
        optimizer_cls_and_kwargs=(torch.optim.SGD, {"lr": 0.1, "momentum": 0.5}),
    )  # fmt: skip
    trainer.train()
    rates = {name: entry[name] for entry in trainer.state.log_history for name in entry if "learning_rate" in name}
    assert rates == {"stage1_learning_rate": 0.02, "learning_rate": 0.1}


def test_frozen_parameters_do_not_change_in_either_stage(tmp_path):
    spy, model = Spy(), bert()
    before = weights(model)
    settings = config(tmp_path, freeze=["bert.embeddings"])
    trainer = GLCTrainer(model, settings, train_dataset=noisy_text_rows(), callbacks=[spy])
    trainer.train()
    for after, _ in spy.ends:
        changed = {name for name in before if not torch.equal(before[name], after[name])}
        assert changed
        assert not any(name.startswith("bert.embeddings") for name in changed)


def test_freeze_prefix_that_matches_nothing_raises(tmp_path):
    trainer = GLCTrainer(bert(), config(tmp_path, freeze=["bert.encoderr"]), train_dataset=noisy_text_rows())
    with pytest.raises(ValueError, match=r"no parameter starts with 'bert.encoderr'"):
        trainer.train()


def test_logs_and_metrics_of_stage_1_have_a_prefix(tmp_path):
    trainer = GLCTrainer(
        bert(), config(tmp_path), train_dataset=noisy_text_rows(), eval_dataset=text_rows(60, trusted=None)
    )
    output = trainer.train()
    assert {"stage1_train_loss", "stage1_eval_accuracy", "train_loss"} <= output.metrics.keys()
    names = [name for entry in trainer.state.log_history for name in entry]
    assert names.index("stage1_loss") < names.index("loss")
    assert sum(name == "stage1_loss" for name in names) == sum(name == "loss" for name in names) == 4


def test_progress_bar_shows_the_stage(tmp_path, capsys):
    settings = config(tmp_path, disable_tqdm=False)
    GLCTrainer(bert(), settings, train_dataset=noisy_text_rows()).train()
    output = capsys.readouterr().err
    assert "stage 1 of 2 (untrusted labels)" in output
    assert "stage 2 of 2 (glc)" in output


def test_saved_model_is_a_plain_model_with_its_matrix(tmp_path):
    trainer = GLCTrainer(bert(), config(tmp_path), train_dataset=noisy_text_rows())
    trainer.train()
    trainer.save_model()
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert same_weights(weights(loaded), weights(trainer.model))
    assert CorruptionMatrix.from_pretrained(tmp_path) == trainer.corruption_matrix
    assert not (tmp_path / "training_args.bin").exists()
    assert (tmp_path / "training_args.json").exists()


def test_second_train_call_starts_with_a_new_optimizer(tmp_path):
    spy = Spy()
    trainer = GLCTrainer(bert(), config(tmp_path, max_steps=3), train_dataset=noisy_text_rows(), callbacks=[spy])
    trainer.train()
    trainer.train()
    assert [states for _, states, *_ in spy.starts] == [0, 0, 0, 0]
    assert [steps for _, steps in spy.ends] == [{3}] * 4


def test_evaluate_before_training_does_not_change_the_result(tmp_path):
    data, held_out = noisy_text_rows(), text_rows(40, trusted=None)
    results = []
    for evaluate_first in (False, True):
        trainer = GLCTrainer(bert(), config(tmp_path, bf16=True), train_dataset=data, eval_dataset=held_out)
        if evaluate_first:
            trainer.evaluate()
        trainer.train()
        results.append(weights(trainer.model))
    assert same_weights(*results)


def test_paired_estimator_counts_labels_of_trusted_rows_without_a_first_stage(tmp_path):
    """A noisy source labels all rows and experts relabel some. Counts of both labels on those rows give the matrix."""
    noise, clean = CorruptionMatrix.flip(3, 0.6), text_rows(300, trusted=0.3)
    crowd = np.array(corrupt_labels(clean, noise, trusted_column=None)["label"])
    flags, true = np.array(clean["trusted"]), np.array(clean["label"])
    data = clean.remove_columns("label").add_column("label", np.where(flags, true, crowd))
    known = [int(label) if flag else None for label, flag in zip(crowd, flags, strict=True)]
    data = data.add_column("crowd", known)  # needed for trusted rows only
    spy = Spy()
    settings = config(tmp_path, estimator="paired", noisy_label_column="crowd", smoothing=0.0)
    trainer = GLCTrainer(bert(), settings, train_dataset=data, callbacks=[spy])
    trainer.train()
    assert len(spy.starts) == 1
    expected = np.zeros((3, 3))
    np.add.at(expected, (true[flags], crowd[flags]), 1)
    np.testing.assert_allclose(trainer.corruption_matrix.probs, expected / expected.sum(1, keepdims=True))


def test_bf16_full_eval_does_not_change_the_weights_of_a_stage(tmp_path):
    starts = []

    class Start(TrainerCallback):
        def on_train_begin(self, args, state, control, model=None, **kwargs):
            starts.append(model.classifier.weight.detach().clone())

    trainer = GLCTrainer(
        bert(), config(tmp_path, method="finetune_on_trusted", bf16_full_eval=True), train_dataset=text_rows(),
        eval_dataset=text_rows(20), callbacks=[Start()],
    )  # fmt: skip
    trainer.train()
    assert starts[1].dtype == torch.float32
    assert not torch.equal(starts[1], starts[1].bfloat16().float())


def test_trusted_min_updates_holds_with_dataloader_drop_last(tmp_path):
    settings = config(
        tmp_path, method="trusted_only", max_steps=-1, num_train_epochs=4, dataloader_drop_last=True,
        trusted_min_updates=8,
    )  # fmt: skip
    trainer = GLCTrainer(bert(), settings, train_dataset=noisy_text_rows(trusted=0.1))  # 24 rows, batches of 16
    assert trainer.train().global_step == 8


class Custom(GLCTrainer):
    """A user's trainer with its own constructor argument and overrides."""

    def __init__(self, *args, note: str, **kwargs):
        self.note = note
        self.calls: list[tuple[str, str]] = []
        super().__init__(*args, **kwargs)

    def _record(self, name):
        self.calls.append((name, self.stage_name.split(" of ")[0]))
        assert self.note == "mine"

    def create_optimizer(self, *args, **kwargs):
        self._record("create_optimizer")
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        return self.optimizer

    def create_scheduler(self, *args, **kwargs):
        self._record("create_scheduler")
        return super().create_scheduler(*args, **kwargs)

    def compute_loss(self, *args, **kwargs):
        self._record("compute_loss")
        return super().compute_loss(*args, **kwargs)

    def training_step(self, *args, **kwargs):
        self._record("training_step")
        return super().training_step(*args, **kwargs)

    def log(self, logs, *args, **kwargs):
        self._record("log")
        super().log({**logs, "note": len(self.note)}, *args, **kwargs)

    def get_train_dataloader(self):
        self._record("get_train_dataloader")
        return super().get_train_dataloader()

    def train(self, *args, **kwargs):
        self.calls.append(("train", "all"))
        return super().train(*args, **kwargs)


def test_overrides_of_a_subclass_apply_in_every_stage(tmp_path):
    optimizers = []

    class Optimizers(TrainerCallback):
        def on_train_begin(self, args, state, control, optimizer=None, **kwargs):
            optimizers.append(type(optimizer.optimizer))

    trainer = Custom(
        bert(),
        config(tmp_path, max_steps=3, logging_steps=1),
        train_dataset=noisy_text_rows(),
        callbacks=[Optimizers()],
        note="mine",
    )
    trainer.train()
    names = ("create_optimizer", "create_scheduler", "compute_loss", "training_step", "log", "get_train_dataloader")
    for name in names:
        assert {stage for called, stage in trainer.calls if called == name} == {"stage 1", "stage 2"}, name
    assert trainer.calls.count(("train", "all")) == 1
    assert optimizers == [torch.optim.SGD, torch.optim.SGD]
    history = trainer.state.log_history
    assert any(entry.get("stage1_note") == 4 for entry in history)
    assert any(entry.get("note") == 4 for entry in history)


def test_subclass_without_overrides_gives_the_same_weights(tmp_path):
    class Unchanged(GLCTrainer):
        pass

    trained = []
    for cls in (GLCTrainer, Unchanged):
        model = bert()
        cls(model, config(tmp_path / cls.__name__), train_dataset=noisy_text_rows()).train()
        trained.append(weights(model))
    assert same_weights(*trained)


def test_corruption_matrices_contains_the_matrix_of_a_single_source(tmp_path):
    trainer = GLCTrainer(bert(), config(tmp_path), train_dataset=noisy_text_rows())
    assert trainer.corruption_matrices == {}
    trainer.train()
    assert trainer.corruption_matrices == {"label": trainer.corruption_matrix}


def test_a_given_matrix_is_saved_by_a_trainer_without_training_data(tmp_path):
    matrix = CorruptionMatrix.uniform(3, 0.2)
    trainer = GLCTrainer(bert(), config(tmp_path), corruption_matrix=matrix)
    assert trainer.corruption_matrices == {"label": matrix}
    trainer.save_model(tmp_path / "saved")
    assert CorruptionMatrix.from_pretrained(tmp_path / "saved") == matrix
