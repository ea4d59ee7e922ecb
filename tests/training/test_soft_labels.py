# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Training on soft labels: a column with the probabilities of all classes."""

from __future__ import annotations

from typing import Any

import hypothesis
import numpy as np
import pytest
import torch
from datasets import Dataset, Features, List, Value
from hypothesis import strategies as st
from tokenizers import Tokenizer, models
from transformers import (
    BertForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    TrainerCallback,
)

from glc_hf import GLCTrainer
from glc_hf.labels.label_batch import LabelBatch, SoftLabelBatch, label_batch
from glc_hf.labels.reading import read_soft_labels
from glc_hf.methods import Method
from tests.training.tiny import (
    bert,
    bert_config,
    config,
    quick_pool,
    same_weights,
    soft_text_rows,
    token_rows,
    weights,
)


def with_column(data: Dataset, name: str, values: list) -> Dataset:
    return data.remove_columns([name] if name in data.column_names else []).add_column(name, values)


def make_trainer(folder: Any, data: Dataset, model: torch.nn.Module | None = None, **settings: Any) -> GLCTrainer:
    eval_dataset, collator = settings.pop("eval_dataset", None), settings.pop("data_collator", None)
    arguments = config(folder, **{"soft_label_column": "probs", **settings})
    return GLCTrainer(model or bert(), arguments, collator, data, eval_dataset)


class Recorder(GLCTrainer):
    """Keeps the labels of every loss, by stage."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.seen: dict[int, list[tuple[torch.Tensor, torch.Tensor]]] = {}
        super().__init__(*args, **kwargs)

    def compute_loss(self, model: Any, inputs: dict, *args: Any, **kwargs: Any) -> Any:
        number, seen, rows = (0 if self.first_stage is None else self.first_stage[0]), self.seen, inputs["__row__"]
        original = SoftLabelBatch.cross_entropy

        def keep(batch: SoftLabelBatch, logits: torch.Tensor) -> torch.Tensor:
            seen.setdefault(number, []).append((rows.clone(), batch.labels.clone()))
            return original(batch, logits)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SoftLabelBatch, "cross_entropy", keep)
            return super().compute_loss(model, inputs, *args, **kwargs)


# ---------------------------------------------------------------------- what is trained on
def test_untrusted_rows_get_the_most_probable_class_and_trusted_rows_keep_their_label(tmp_path):
    data, true = soft_text_rows()
    trainer = make_trainer(tmp_path, data)
    trusted, labels = np.array(data["trusted"]), np.array(trainer.train_dataset["label"])
    probs = np.array(data["probs"])
    assert (labels[trusted] == true[trusted]).all()
    assert (labels[~trusted] == probs.argmax(axis=1)[~trusted]).all()
    targets = trainer.training_data.soft_labels.targets.numpy()
    np.testing.assert_allclose(targets[~trusted], probs[~trusted], atol=1e-6)
    np.testing.assert_array_equal(targets[trusted], np.eye(3)[true[trusted]])
    assert "probs" in data.column_names


def test_label_of_an_untrusted_row_with_a_soft_label_does_not_matter(tmp_path):
    data, true = soft_text_rows()
    other = with_column(data, "label", np.where(data["trusted"], true, 2).tolist())
    first, second = (make_trainer(tmp_path, rows) for rows in (data, other))
    assert first.train_dataset["label"][:] == second.train_dataset["label"][:]
    assert first.training_data.fingerprint() == second.training_data.fingerprint()


def test_rows_without_a_soft_label_have_their_label(tmp_path):
    data, _ = soft_text_rows()
    untrusted = np.flatnonzero(~np.array(data["trusted"]))
    labels, probs = data["label"][:], data["probs"][:]
    probs[untrusted[0]], labels[untrusted[0]] = None, 1
    for row in np.flatnonzero(data["trusted"]):
        probs[row] = None
    trainer = make_trainer(tmp_path, with_column(with_column(data, "label", labels), "probs", probs))
    assert trainer.training_data.soft_labels.targets[untrusted[0]].tolist() == [0, 1, 0]
    assert trainer.train_dataset["label"][untrusted[0]] == 1
    trainer.train()


def test_no_correction_needs_neither_labels_nor_flags(tmp_path):
    data, _ = soft_text_rows()
    trainer = make_trainer(tmp_path, data.remove_columns(["label", "trusted"]), method="no_correction")
    assert trainer.train_dataset["labels"][:] == np.array(data["probs"]).argmax(axis=1).tolist()
    trainer.train()


def test_losses_of_both_stages_of_glc_use_the_soft_labels(tmp_path):
    data, true = soft_text_rows()
    trainer = Recorder(bert(), config(tmp_path, soft_label_column="probs"), train_dataset=data)
    trainer.train()
    probs, trusted = np.array(data["probs"]), np.array(data["trusted"])
    assert len(trainer.seen[1]) == 4
    for rows, labels in trainer.seen[1]:
        expected = torch.from_numpy(probs[rows]).float().masked_fill(torch.from_numpy(trusted[rows])[:, None], 0)
        torch.testing.assert_close(labels, expected)
    items = torch.arange(0, 120, 7)
    batch = label_batch(torch.from_numpy(true)[items], torch.from_numpy(trusted)[items])
    logits = torch.randn(len(items), 3, generator=torch.Generator().manual_seed(0))
    soft = trainer.training_data.soft_labels.batch(batch, items)
    losses = trainer.method.item_losses(logits, soft)
    log_noisy = (logits.double().softmax(-1) @ torch.tensor(trainer.corruption_matrix.probs)).log()
    corrected = -(torch.from_numpy(probs)[items] * log_noisy).sum(-1)
    plain = torch.nn.functional.cross_entropy(logits.double(), batch.labels, reduction="none")
    torch.testing.assert_close(losses.double(), torch.where(batch.trusted, plain, corrected), atol=1e-5, rtol=0)


@pytest.mark.parametrize("method", ["glc", "no_correction", "distillation", "reweight", "confusion_matrix"])
def test_certain_soft_labels_train_as_hard_labels_do(tmp_path, method):
    data, _ = soft_text_rows()
    hard = np.array(data["probs"]).argmax(axis=1)
    certain = with_column(data, "probs", np.eye(3)[hard].tolist())
    labels = [int(label) if given is None else given for given, label in zip(data["label"], hard, strict=True)]
    settings = {"method": method, "optim": "sgd", "learning_rate": 0.1, "trusted_min_updates": 3}
    soft = make_trainer(tmp_path / "soft", certain, **settings)
    plain = make_trainer(
        tmp_path / "hard",
        with_column(data, "label", labels).remove_columns("probs"),
        soft_label_column=None,
        **settings,
    )
    for trainer in (soft, plain):
        trainer.train()
    assert soft.method.takes_soft_labels
    for name, value in weights(plain.model).items():
        torch.testing.assert_close(weights(soft.model)[name], value, atol=1e-5, rtol=0, msg=name)


def test_uncertain_soft_labels_train_differently(tmp_path):
    data, _ = soft_text_rows()
    certain = with_column(data, "probs", np.eye(3)[np.array(data["probs"]).argmax(axis=1)].tolist())
    trainers = [make_trainer(tmp_path, rows, method="no_correction") for rows in (data, certain)]
    for trainer in trainers:
        trainer.train()
    assert not same_weights(*(weights(trainer.model) for trainer in trainers))


class HardOnly(Method):
    """A loss that indexes with labels."""

    def item_losses(self, logits: torch.Tensor, batch: LabelBatch) -> torch.Tensor:
        assert type(batch) is LabelBatch
        return -logits.float().log_softmax(-1).gather(1, batch.labels.unsqueeze(1)).squeeze(1)


def test_method_with_its_own_loss_trains_on_the_most_probable_class(tmp_path, caplog):
    data, _ = soft_text_rows()
    trainer = make_trainer(tmp_path, data, method=f"{__name__}:HardOnly")
    trainer.train()
    assert caplog.text.count("can't use soft labels: its last stage trains on the most probable class") == 1


# ---------------------------------------------------------------------- the matrix
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"calibrate": True},
        {"stage1": "probe"},
        {"estimator": "paired", "noisy_label_column": "noisy"},
        {"method": "auto", "pretrained": True},
    ],
)
def test_matrix_is_the_mean_soft_label_of_each_class(tmp_path, settings):
    """Every row is labeled with the same two distributions, so hard labels would have a matrix without noise."""
    data, true = soft_text_rows(300, 0.3)
    noise = np.array([[0.8, 0.15, 0.05], [0.1, 0.7, 0.2], [0.05, 0.35, 0.6]])
    data = with_column(data, "probs", noise[true].tolist()).add_column("noisy", true.tolist())
    with quick_pool(tmp_path / "cache"):
        trainer = make_trainer(
            tmp_path, data, bert(initializer_range=0.3), max_steps=60, learning_rate=5e-3, **settings
        )
        trainer.train()
    np.testing.assert_allclose(trainer.corruption_matrix.probs, noise, atol=0.08)


def test_audit_of_soft_labels(tmp_path):
    data, true = soft_text_rows()
    trainer = make_trainer(tmp_path, data)
    trainer.train()
    audited = trainer.audit(data)
    trusted = np.array(data["trusted"])
    assert audited.column_names[: len(data.column_names)] == data.column_names
    assert audited["label"][:] == data["label"][:]
    given = np.where(trusted, true, np.array(data["probs"]).argmax(axis=1))
    assert (np.array(audited["given_label"]) == given).all()
    assert (np.array(audited["p_wrong"])[trusted] == 0).all()


def test_labels_are_counted_by_their_probabilities(tmp_path):
    data, true = soft_text_rows()
    run = make_trainer(tmp_path, data).estimation_run([])
    probs, trusted = np.array(data["probs"]), np.array(data["trusted"])
    np.testing.assert_allclose(run.class_counts("untrusted"), probs[~trusted].sum(axis=0), atol=1e-4)
    assert run.class_counts("trusted").tolist() == np.bincount(true[trusted], minlength=3).tolist()


# ---------------------------------------------------------------------- batches, resume, processes
class OnlyKnownInputs(BertForSequenceClassification):
    """A model with an input of the column's name, which must never get it."""

    def forward(self, input_ids=None, attention_mask=None, probs=None, labels=None):
        assert probs is None
        assert labels is None
        return super().forward(input_ids=input_ids, attention_mask=attention_mask)


def padding_collator() -> DataCollatorWithPadding:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"x": 0}, "x")), pad_token="x")
    return DataCollatorWithPadding(tokenizer)


@pytest.mark.parametrize("remove_unused", [True, False])
@pytest.mark.parametrize("padding", [True, False])
def test_column_never_reaches_the_model(tmp_path, remove_unused, padding):
    data, true = soft_text_rows(60)
    evaluation = with_column(data, "label", true.tolist())
    collator = padding_collator() if padding else None
    for number, part in enumerate((evaluation, evaluation.remove_columns(["probs", "trusted"]))):
        trainer = make_trainer(
            tmp_path / str(number), data, OnlyKnownInputs(bert_config()), data_collator=collator,
            eval_dataset=part, remove_unused_columns=remove_unused, max_steps=2,
        )  # fmt: skip
        trainer.train()
        assert 0 <= trainer.evaluate()["eval_accuracy"] <= 1


def test_evaluation_uses_the_labels(tmp_path):
    data, true = soft_text_rows(60)
    evaluation = with_column(data, "label", true.tolist())
    trainer = make_trainer(tmp_path, data, eval_dataset=evaluation)
    logits = torch.from_numpy(trainer.predict(evaluation).predictions)
    expected = torch.nn.functional.cross_entropy(logits, torch.from_numpy(true))
    assert trainer.evaluate()["eval_loss"] == pytest.approx(float(expected), abs=1e-5)


def test_transform_and_shuffled_rows(tmp_path):
    data, _ = soft_text_rows()
    shuffled = data.shuffle(seed=3)
    viewed = shuffled.with_transform(lambda batch: {**batch, "labels": batch["label"]})
    first, second = (make_trainer(tmp_path / str(n), rows) for n, rows in enumerate((viewed, shuffled)))
    for trainer in (first, second):
        trainer.train()
    assert same_weights(weights(first.model), weights(second.model))
    probs, untrusted = np.array(shuffled["probs"]), ~np.array(shuffled["trusted"])
    np.testing.assert_allclose(first.training_data.soft_labels.targets[untrusted], probs[untrusted], atol=1e-6)


@pytest.mark.parametrize(("soft", "label"), [("labels", "label"), ("target", "category"), ("labels", None)])
def test_column_may_have_the_name_of_a_label_column(tmp_path, soft, label):
    data, _ = soft_text_rows()
    data = with_column(data, soft, data["probs"][:]).remove_columns("probs")
    if label is None:
        data = data.remove_columns(["label", "trusted"])
    elif label != "label":
        data = data.rename_column("label", label)
    trainer = make_trainer(tmp_path, data, soft_label_column=soft, method="glc" if label else "no_correction")
    assert trainer.label_column == (label or "labels")
    trainer.train()


def test_held_out_trusted_rows(tmp_path):
    data, true = soft_text_rows()
    trainer = make_trainer(tmp_path, data, trusted_eval_fraction=0.2)
    assert len(trainer.eval_dataset) == 6
    soft, kept = trainer.training_data.soft_labels, np.setdiff1d(np.arange(120), trainer.training_data.rows.held_out)
    np.testing.assert_array_equal(soft.trusted.numpy(), np.array(data["trusted"])[kept])
    assert (soft.labels.numpy() == true[kept])[soft.trusted.numpy()].all()
    trainer.train()
    assert "eval_accuracy" in trainer.evaluate()


class Crash(TrainerCallback):
    def __init__(self, stage: int, step: int) -> None:
        self.at = (stage, step)

    def on_step_end(self, args, state, control, **kwargs):
        if (1 if args.output_dir.endswith("stage1") else 2, state.global_step) == self.at:
            raise KeyboardInterrupt


RESUMABLE = {"max_steps": 6, "save_strategy": "steps", "save_steps": 2}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    data, _ = soft_text_rows()
    trainer = make_trainer(tmp_path_factory.mktemp("whole"), data, bert(hidden_dropout_prob=0.2), **RESUMABLE)
    trainer.train()
    return trainer


@pytest.mark.parametrize("at", [(1, 3), (2, 5)])
def test_resumed_run_ends_with_the_same_weights(tmp_path, uninterrupted, at):
    data, _ = soft_text_rows()
    cut = make_trainer(tmp_path, data, bert(hidden_dropout_prob=0.2), **RESUMABLE)
    cut.add_callback(Crash(*at))
    with pytest.raises(KeyboardInterrupt):
        cut.train()
    resumed = make_trainer(tmp_path, data, bert(hidden_dropout_prob=0.2), **RESUMABLE)
    resumed.train(resume_from_checkpoint=True)
    assert same_weights(weights(resumed.model), weights(uninterrupted.model))
    assert resumed.corruption_matrix == uninterrupted.corruption_matrix


def test_run_with_other_soft_labels_is_not_resumed(tmp_path, uninterrupted):
    data, _ = soft_text_rows()
    probs = data["probs"][:]
    row = int(np.flatnonzero(~np.array(data["trusted"]))[-1])
    largest = int(np.argmax(probs[row]))
    others = [place for place in range(3) if place != largest]
    probs[row][others[0]], probs[row][others[1]] = probs[row][others[1]], probs[row][others[0]]
    changed = make_trainer(tmp_path, with_column(data, "probs", probs), **RESUMABLE)
    with pytest.raises(ValueError, match="data"):
        changed.train(resume_from_checkpoint=f"{uninterrupted.args.output_dir}/checkpoint-6")


# ---------------------------------------------------------------------- several sources
def test_soft_labels_are_one_more_source(tmp_path):
    data, true = soft_text_rows(300)
    rng = np.random.default_rng(5)
    rule = [int(label) if rng.random() < 0.7 else None for label in rng.permutation(true)]
    probs = data["probs"][:]
    silent = np.flatnonzero(~np.array(data["trusted"]))[0]
    probs[silent], rule[silent] = None, 2
    data = with_column(with_column(data, "rule", rule), "probs", probs)
    trainer = make_trainer(tmp_path, data, source_columns=["rule"])
    trainer.train()
    assert list(trainer.corruption_matrices) == ["rule", "probs"]
    diagonals = {name: matrix.probs.diagonal().mean() for name, matrix in trainer.corruption_matrices.items()}
    assert diagonals["probs"] > 0.5 > diagonals["rule"]
    votes = trainer.training_data.votes
    assert votes.labels[votes.offsets[silent] : votes.offsets[silent + 1]].tolist() == [2]
    expected = [given for given in (rule[0], int(np.argmax(probs[0]))) if given is not None]
    assert votes.labels[: votes.offsets[1]].tolist() == expected


def test_soft_labels_next_to_lists_of_votes(tmp_path):
    data, true = soft_text_rows()
    data = data.add_column("votes", [[int(label), None] for label in true])
    with pytest.raises(ValueError, match="two sources with the name 'probs'"):
        make_trainer(tmp_path, data, votes_column="votes", source_names=["a", "probs"])
    trainer = make_trainer(tmp_path, data, votes_column="votes", method="no_correction")
    trainer.train()
    assert trainer.training_data.soft_labels is None
    assert trainer.training_data.votes.names == ("0", "1", "probs")


# ---------------------------------------------------------------------- reading
PROBABILITIES = st.lists(st.floats(0.0, 10.0), min_size=4, max_size=4).filter(lambda row: sum(row) > 0.1)


@hypothesis.settings(max_examples=30, deadline=None)
@hypothesis.given(
    st.lists(st.none() | PROBABILITIES, min_size=1, max_size=8).filter(any),
    st.floats(-9e-4, 9e-4),
    st.sampled_from(["float32", "float64"]),
    st.randoms(),
)
def test_sums_that_are_almost_one_are_corrected(rows, error, dtype, random):
    lists = [None if row is None else (np.array(row) / sum(row) * (1 + error)).tolist() for row in rows]
    data = Dataset.from_dict({"p": lists}, features=Features({"p": List(Value(dtype))}))
    order = random.sample(range(len(rows)), len(rows))
    read = read_soft_labels(data.select(order), "p")
    assert read.dtype == np.float32
    for found, row in zip(read, [rows[number] for number in order], strict=True):
        expected = np.zeros(4) if row is None else np.array(row) / sum(row)
        np.testing.assert_allclose(found, expected, atol=1e-6)


# ---------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([0.2, 0.2, 0.2], r"column 'probs' has \[0.2, 0.2, 0.2\] in row 5, .* sum to 0.6. Divide them by their sum"),
        ([0.5, 0.6, -0.1], r"in row 5, .* the value of class 2 is negative \(-0.1\)"),
        ([float("nan"), 0.5, 0.5], r"in row 5, .* the probability of class 0 is NaN"),
        ([float("inf"), 0.0, 0.0], r"in row 5, .* sum to inf"),
        (np.log([0.7, 0.2, 0.1]).tolist(), r"in row 5, .* log-probabilities. Exponentiate them"),
        ([0.0, float("-inf"), float("-inf")], r"in row 5, .* log-probabilities. Exponentiate them"),
        ([0.0, 0.0, 0.0], r"in row 5, .* sum to 0"),
        ([0.5, 0.5], r"row 5 has 2 probabilities in column 'probs', but there are 3 classes"),
        ([0.5, None, 0.5], r"row 5 has no probability \(None\) for class 1 in column 'probs'"),
    ],
)
def test_bad_soft_labels_name_row_column_and_fix(tmp_path, bad, message):
    data, _ = soft_text_rows(30)
    probs = data["probs"][:]
    probs[5] = bad
    probs[3] = [0.3333, 0.3333, 0.3333]  # within the tolerance
    with pytest.raises(ValueError, match=message):
        make_trainer(tmp_path, with_column(data, "probs", probs))


def test_row_with_neither_label_nor_soft_label_is_an_error(tmp_path):
    data, _ = soft_text_rows(30)
    row = int(np.flatnonzero(~np.array(data["trusted"]))[2])
    probs = data["probs"][:]
    probs[row] = None
    with pytest.raises(
        ValueError, match=f"row {row} has neither a soft label in column 'probs' nor a label in 'label'"
    ):
        make_trainer(tmp_path, with_column(data, "probs", probs))


def test_trusted_row_needs_its_label(tmp_path):
    data, _ = soft_text_rows(30)
    labels = data["label"][:]
    row = int(np.flatnonzero(data["trusted"])[1])
    labels[row] = None
    with pytest.raises(ValueError, match=f"row {row} is trusted, but has no label in column 'label'"):
        make_trainer(tmp_path, with_column(data, "label", labels))


def test_other_mistakes(tmp_path):
    data, _ = soft_text_rows(30)
    with pytest.raises(ValueError, match="there is no soft_label_column 'p'"):
        make_trainer(tmp_path, data, soft_label_column="p")
    with pytest.raises(ValueError, match="column 'p' holds string, first row 0: '.0.1, 0.9.'; soft labels are"):
        make_trainer(tmp_path, with_column(data, "p", ["[0.1, 0.9]"] * 30), soft_label_column="p")
    with pytest.raises(ValueError, match="has no soft labels"):
        make_trainer(tmp_path, with_column(data, "probs", [None] * 30))
    with pytest.raises(TypeError, match=r"soft labels need a `datasets.Dataset`, not a IterableDataset"):
        make_trainer(tmp_path, data.to_iterable_dataset())
    with pytest.raises(ValueError, match="there are 4 classes"):
        make_trainer(tmp_path, data, bert(4))
    arguments = config(tmp_path, soft_label_column="probs")
    with pytest.raises(ValueError, match="have 3 probabilities, but the model has 4 classes"):
        GLCTrainer(args=arguments, model_init=lambda: bert(4), train_dataset=data)
    for role in ("label_column", "trusted_column"):
        with pytest.raises(ValueError, match=f"'probs' is the {role} and can't be the soft_label_column too"):
            config(tmp_path, soft_label_column="probs", **{role: "probs"})
    with pytest.raises(ValueError, match="'probs' is the soft_label_column and can't be a column of votes too"):
        config(tmp_path, soft_label_column="probs", source_columns=["probs"])
    tokens = token_rows(20).add_column("trusted", [True, False] * 10).add_column("probs", [[1.0, 0.0, 0.0]] * 20)
    with pytest.raises(ValueError, match="'labels' has one label per token, .* token labels can't be soft"):
        make_trainer(tmp_path, tokens)
