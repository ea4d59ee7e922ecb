# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`trainer.audit` with folds, and `trainer.suggest`, for networks that memorized wrong labels and for others."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from sklearn.metrics import average_precision_score
from transformers import BertForSequenceClassification

from glc_hf import CorruptionMatrix, GLCTrainer, corrupt_labels, mark_trusted
from glc_hf.audit.cross_fit import network_before_training
from glc_hf.audit.findings import COLUMNS
from glc_hf.audit.label_audit import audit_labels
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


STRENGTH = 0.4


@pytest.fixture(scope="module", autouse=True)
def _quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with quick_pool(tmp_path_factory.mktemp("features"), iterations=40):
        yield


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a network before training."""
    folder = tmp_path_factory.mktemp("base")
    bert(hidden_size=32).save_pretrained(folder)
    return folder


class _Memory(BertForSequenceClassification):
    """Predicts the labels it has seen, by the text."""

    seen: dict[tuple[int, ...], int]

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor | None = None):
        output = super().forward(input_ids, attention_mask)
        for row, text in enumerate(input_ids.tolist()):
            output.logits[row, self.seen[tuple(text)]] += 30.0
        return output


def _memorizing(rows: Dataset, base: Path, folder: Path, matrix: CorruptionMatrix | None = None) -> GLCTrainer:
    model = _Memory.from_pretrained(base)
    _Memory.seen = {tuple(text): label for text, label in zip(rows["input_ids"], rows["label"], strict=True)}
    matrix = matrix or CorruptionMatrix.flip(3, STRENGTH, seed=0)
    return GLCTrainer(model, config(folder), corruption_matrix=matrix)


def _wrong(rows: Dataset) -> np.ndarray:
    return np.asarray(rows["label"]) != np.asarray(rows["clean_label"])


def test_memorized_wrong_labels_are_found_out_of_sample(base: Path, tmp_path: Path, caplog) -> None:
    rows = noisy_text_rows(strength=STRENGTH)
    trainer = _memorizing(rows, base, tmp_path)
    untrusted, wrong = ~np.asarray(rows["trusted"]), _wrong(rows)
    before = weights(trainer.model)
    inside = trainer.audit(rows, folds=0)
    assert not any(inside["is_label_issue"])
    with caplog.at_level(logging.WARNING, "glc_hf"):
        logging.getLogger("glc_hf").addHandler(caplog.handler)
        outside = trainer.audit(rows)
        logging.getLogger("glc_hf").removeHandler(caplog.handler)
    precision = [
        average_precision_score(wrong[untrusted], np.asarray(audited["p_wrong"])[untrusted])
        for audited in (inside, outside)
    ]
    assert precision[1] > max(0.85, precision[0] + 0.2)
    assert "has learned more than half of the wrong labels" in caplog.text
    assert "5 folds" in caplog.text
    assert "features of the network before training" in caplog.text
    assert outside.column_names == [*rows.column_names, *COLUMNS]
    assert outside["input_ids"][:] == rows["input_ids"][:]
    assert outside["given_label"][:] == rows["label"][:]
    assert (np.asarray(outside["label_score"])[~untrusted] == 1).all()
    assert not np.asarray(outside["is_label_issue"])[~untrusted].any()
    assert same_weights(before, weights(trainer.model))
    assert trainer.predict(rows.select(range(2))).predictions.shape == (2, 3)  # logits, not features
    assert trainer.audit(rows)["p_wrong"][:] == outside["p_wrong"][:]


def test_network_that_did_not_memorize_is_used_as_it_is(tmp_path: Path) -> None:
    rows = noisy_text_rows(strength=STRENGTH)
    trainer = GLCTrainer(bert(), config(tmp_path, max_steps=60), train_dataset=rows)
    trainer.train()
    audit = audit_labels(trainer, rows)
    assert audit.note is None
    assert trainer.audit(rows)["p_wrong"][:] == trainer.audit(rows, folds=0)["p_wrong"][:]
    folded = audit_labels(trainer, rows, folds=3)
    assert "cross-fitted in 3 folds" in folded.note
    assert "features of the trained network" in folded.note
    assert not folded.is_surprising
    untrusted = ~np.asarray(rows["trusted"])
    p_wrong = np.asarray(folded.audited()["p_wrong"])
    assert average_precision_score(_wrong(rows)[untrusted], p_wrong[untrusted]) > 0.8


def test_rows_without_trusted_ones_are_cross_fitted_with_the_matrix_of_the_run(base: Path, tmp_path: Path) -> None:
    rows = noisy_text_rows(rows=400, strength=0.3)
    rows = rows.filter(lambda flag: not flag, input_columns="trusted").remove_columns("trusted")
    trainer = _memorizing(rows, base, tmp_path, CorruptionMatrix.flip(3, 0.3, seed=0))
    audited = trainer.audit(rows)
    assert average_precision_score(_wrong(rows), audited["p_wrong"]) > 0.7 > 2 * _wrong(rows).mean()


def test_token_labels_are_cross_fitted_per_token(tmp_path: Path) -> None:
    rows = mark_trusted(token_rows(60), fraction=0.3, label_column="labels", level="token")
    rows = corrupt_labels(rows, CorruptionMatrix.flip(3, 0.3), label_column="labels")
    matrix = CorruptionMatrix.flip(3, 0.3)
    trainer = GLCTrainer(token_bert(), config(tmp_path), data_collator=token_collator(), corruption_matrix=matrix)
    audited = trainer.audit(rows, folds=3)
    wrong, p_wrong = [], []
    for row in audited:
        for label, clean, trusted, p in zip(
            row["labels"], row["clean_label"], row["trusted"], row["p_wrong"], strict=True
        ):
            if label == -100 or trusted:
                assert p == 0
            else:
                wrong.append(label != clean)
                p_wrong.append(p)
    assert average_precision_score(wrong, p_wrong) > 1.5 * np.mean(wrong)
    suggested = trainer.suggest(rows, 5, folds=3)
    for row in suggested:
        token = int(row["reason"].split(":")[0].removeprefix("token "))
        assert row["labels"][token] != -100
        assert not row["trusted"][token]
        assert rows[row["row"]]["input_ids"] == row["input_ids"]


def test_refits_train_a_network_without_the_rows_that_it_predicts(base: Path, tmp_path: Path) -> None:
    rows = noisy_text_rows(rows=160, strength=0.3)
    # Enough steps to learn the labels of most rows.
    settings = config(tmp_path, method="glc", max_steps=120, learning_rate=5e-3, refine_matrix=False)
    trainer = GLCTrainer(BertForSequenceClassification.from_pretrained(base), settings, train_dataset=rows)
    trainer.train()
    before = weights(trainer.model)
    audited = trainer.audit(rows, folds=2, refit=True)
    assert audited.column_names == [*rows.column_names, *COLUMNS]
    assert audited["input_ids"][:] == rows["input_ids"][:]
    assert same_weights(before, weights(trainer.model))
    trusted = np.asarray(rows["trusted"])
    p_wrong = np.asarray(audited["p_wrong"])
    assert (p_wrong[trusted] == 0).all()
    assert average_precision_score(_wrong(rows)[~trusted], p_wrong[~trusted]) > 0.6 > 2 * _wrong(rows).mean()
    assert audited["p_wrong"][:] != trainer.audit(rows, folds=0)["p_wrong"][:]
    unknown = GLCTrainer(bert(), config(tmp_path), corruption_matrix=CorruptionMatrix.flip(3, 0.3))
    with pytest.raises(ValueError, match="refit=True trains from the network before training, which can't be found"):
        unknown.audit(rows, refit=True)


def test_bad_numbers_of_folds_and_networks_without_features_raise_clear_errors(tmp_path: Path) -> None:
    rows = noisy_text_rows(rows=40)
    matrix = CorruptionMatrix.flip(3, 0.6)
    trainer = GLCTrainer(bert(), config(tmp_path), corruption_matrix=matrix)
    with pytest.raises(ValueError, match="folds=-1: the number of folds can't be negative"):
        trainer.audit(rows, folds=-1)
    with pytest.raises(ValueError, match="folds=100: an audit of 32 untrusted labels"):
        trainer.audit(rows, folds=100)
    assert trainer.audit(rows, folds=1)["p_wrong"][:] == trainer.audit(rows, folds=0)["p_wrong"][:]
    trainer.model.classifier = torch.nn.Sequential(torch.nn.Linear(16, 2), _Widen())
    with pytest.raises(ValueError, match="folds=5: predictions can't be cross-fitted, because .* no linear layer"):
        trainer.audit(rows, folds=5)
    assert len(trainer.suggest(rows, 3)) == 3


class _Widen(torch.nn.Module):
    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return torch.cat([states, -states[:, :1]], dim=1)


# ---------------------------------------------------------------------- the network before training
def test_network_before_training_is_found_by_the_folder_of_the_run(base: Path, tmp_path: Path, monkeypatch) -> None:
    untrained = BertForSequenceClassification.from_pretrained(base)
    model = BertForSequenceClassification.from_pretrained(base)
    trainer = GLCTrainer(model, config(tmp_path / "run"), train_dataset=noisy_text_rows(60))
    trainer.train()
    trainer.save_model()
    assert same_weights(weights(network_before_training(trainer)), weights(untrained))
    saved = BertForSequenceClassification.from_pretrained(tmp_path / "run")
    auditor = GLCTrainer(saved, config(tmp_path / "audit"), corruption_matrix=trainer.corruption_matrix)
    # The run does not store the folders of paths: the model is found if it is in the working folder.
    assert network_before_training(auditor) is None
    monkeypatch.chdir(base.parent)
    assert same_weights(weights(network_before_training(auditor)), weights(untrained))
    # Another model of the same name is not taken for it.
    bert(hidden_size=64).save_pretrained(tmp_path / base.name)
    monkeypatch.chdir(tmp_path)
    assert network_before_training(auditor) is None
    facts = json.loads((tmp_path / "run" / "glc_summary.json").read_text())
    (tmp_path / "run" / "glc_summary.json").write_text(json.dumps({**facts, "base_model": None}))
    monkeypatch.chdir(base.parent)
    assert network_before_training(auditor) is None


def test_network_before_training_is_that_of_model_init(tmp_path: Path) -> None:
    trainer = GLCTrainer(
        args=config(tmp_path), train_dataset=noisy_text_rows(60), model_init=lambda: bert(hidden_size=32, seed=3)
    )
    trainer.train()
    assert same_weights(weights(network_before_training(trainer)), weights(bert(hidden_size=32, seed=3)))
    assert network_before_training(GLCTrainer(bert(), config(tmp_path))) is None


def test_network_before_training_has_no_adapters(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    rows = noisy_text_rows(40)
    settings = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"])
    model = peft.get_peft_model(bert(), settings)
    trainer = GLCTrainer(model, config(tmp_path), corruption_matrix=CorruptionMatrix.flip(3, 0.6))
    untrained = _features(trainer, rows)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "lora_B" in name:
                value += 1.0
    torch.testing.assert_close(_features(trainer, rows), untrained)
    assert trainer.model is model
    with pytest.raises(ValueError, match="refit=True trains from the network before training"):
        trainer.audit(rows, refit=True)


def _features(trainer: GLCTrainer, rows: Dataset) -> torch.Tensor:
    audit = audit_labels(trainer, rows, folds=0)
    assert audit.features_of == "the network before training"
    return audit.table.features


# ---------------------------------------------------------------------- the rows to check next
def test_suggested_rows_are_untrusted_distinct_and_numbered(base: Path, tmp_path: Path) -> None:
    rows = noisy_text_rows(strength=STRENGTH)
    trainer = _memorizing(rows, base, tmp_path)
    suggested = trainer.suggest(rows, 20)
    assert suggested.column_names == [*rows.column_names, *COLUMNS, "row", "reason"]
    numbers = suggested["row"][:]
    assert len(set(numbers)) == 20
    assert not any(suggested["trusted"])
    assert suggested["input_ids"][:] == rows.select(numbers)["input_ids"][:]
    assert all(line.startswith("the model predicts class ") for line in suggested["reason"])
    assert trainer.suggest(rows, 20)["row"][:] == numbers
    everything = trainer.suggest(rows, 10_000)
    assert sorted(everything["row"]) == np.flatnonzero(~np.asarray(rows["trusted"])).tolist()


def test_class_without_trusted_rows_is_suggested_more_and_named_in_the_reason(tmp_path: Path) -> None:
    rows = text_rows(200)
    true = np.asarray(rows["label"])
    settings = config(tmp_path, per_device_eval_batch_size=64)
    shares = []
    for trusted in (true == 0, np.arange(200) % 5 == 0):
        trainer = GLCTrainer(bert(), settings, corruption_matrix=CorruptionMatrix.uniform(3, 0.3))
        audit = audit_labels(trainer, rows.remove_columns("trusted").add_column("trusted", trusted.tolist()), folds=0)
        # A model that is as unsure of each class.
        audit.log_probs = torch.log(torch.full((200, 3), 0.25) + 0.25 * torch.eye(3)[torch.from_numpy(true)])
        suggested = audit.suggested(30)
        classes = true[np.asarray(suggested["row"])]
        assert not trusted[np.asarray(suggested["row"])].any()
        shares.append(np.mean(classes != 0))
        for label, reason in zip(classes, suggested["reason"], strict=True):
            assert ("few trusted rows of" in reason) == ((trusted & (true == label)).sum() < 5)
    assert shares[0] == 1.0 > shares[1]


def test_matrix_says_how_many_rows_of_a_class_were_trusted_if_none_of_the_dataset_is(tmp_path: Path) -> None:
    matrix = CorruptionMatrix(CorruptionMatrix.uniform(3, 0.3), trusted_rows=[50, 2, 50])
    trainer = GLCTrainer(bert(), config(tmp_path), corruption_matrix=matrix)
    audit = audit_labels(trainer, text_rows(60).remove_columns("trusted"), folds=0)
    audit.log_probs = torch.log(torch.eye(3)[torch.arange(60) % 3] * 0.5 + 1 / 6)
    suggested = audit.suggested(60)
    for row, reason in zip(suggested["row"], suggested["reason"], strict=True):
        assert reason.endswith("(2)") == (row % 3 == 1)


def test_suggest_with_bad_arguments_raises_clear_errors(tmp_path: Path) -> None:
    trainer = GLCTrainer(bert(), config(tmp_path), corruption_matrix=CorruptionMatrix.uniform(3, 0.3))
    with pytest.raises(ValueError, match="n=0: the number of rows to check is at least 1"):
        trainer.suggest(text_rows(20), 0)
    with pytest.raises(ValueError, match="already has a column 'row': rename it"):
        trainer.suggest(text_rows(20).add_column("row", list(range(20))), 3)
    with pytest.raises(ValueError, match="every label of these rows is trusted, so there is nothing left to check"):
        trainer.suggest(text_rows(20, trusted=1.0), 3)
    with pytest.raises(ValueError, match="an audit needs the corruption matrix"):
        GLCTrainer(bert(), config(tmp_path)).suggest(text_rows(20), 3)
