# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`trainer.audit` for row labels and token labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import ClassLabel, Value
from sklearn.metrics import average_precision_score
from transformers import DataCollatorForTokenClassification

from glc_hf import CorruptionMatrix, GLCTrainer, corrupt_labels, mark_trusted
from glc_hf.audit.findings import Findings, verdicts_on
from tests.training.tiny import bert, config, noisy_text_rows, text_rows, token_bert, token_rows


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> GLCTrainer:
    folder = tmp_path_factory.mktemp("audit")
    trainer = GLCTrainer(bert(), config(folder, max_steps=60), train_dataset=noisy_text_rows(strength=0.4))
    trainer.train()
    return trainer


def test_verdicts_follow_bayes_rule_and_trusted_labels_are_never_wrong() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(50, 4, generator=generator)
    given = torch.randint(4, (50,), generator=generator)
    matrix = CorruptionMatrix.hierarchical([0, 0, 1, 1], 0.3)
    trusted = torch.arange(50) % 5 == 0
    verdicts = verdicts_on(logits, given, matrix, trusted)
    for row in range(50):
        joint = torch.softmax(logits[row].double(), 0).numpy() * matrix.probs[:, given[row]]
        posterior = joint / joint.sum()
        expected = 0.0 if trusted[row] else 1.0 - posterior[given[row]]
        assert verdicts.p_wrong[row] == pytest.approx(expected, abs=1e-12)
        assert verdicts.suggested[row] == (given[row] if trusted[row] else posterior.argmax())


def test_wrong_labels_have_the_largest_p_wrong(trainer: GLCTrainer) -> None:
    rows = trainer.train_dataset
    audited = trainer.audit(rows)
    wrong = np.asarray(audited["label"]) != np.asarray(audited["clean_label"])
    p_wrong = np.asarray(audited["p_wrong"])
    trusted = np.asarray(audited["trusted"])
    assert average_precision_score(wrong[~trusted], p_wrong[~trusted]) > 0.85 > 1.8 * wrong[~trusted].mean()
    corrected = np.asarray(audited["suggested_label"]) == np.asarray(audited["clean_label"])
    assert corrected.mean() > (~wrong).mean() + 0.1
    assert (p_wrong[trusted] == 0).all()


def test_audit_keeps_the_order_and_columns_of_the_rows(trainer: GLCTrainer) -> None:
    rows = trainer.train_dataset.shuffle(seed=1).select(range(50))
    rows = rows.add_column("note", [f"row {index}" for index in range(50)])
    audited = trainer.audit(rows)
    assert audited.column_names == [*rows.column_names, "given_label", "suggested_label", "p_wrong"]
    for name in rows.column_names:
        assert audited[name][:] == rows[name][:]
    assert audited["given_label"][:] == rows["label"][:]
    assert audited.features["given_label"] == ClassLabel(names=["class 0", "class 1", "class 2"])
    assert audited.features["p_wrong"] == Value("float64")
    whole = trainer.audit(trainer.train_dataset)
    by_text = {tuple(ids): p for ids, p in zip(whole["input_ids"], whole["p_wrong"], strict=True)}
    assert audited["p_wrong"][:] == pytest.approx([by_text[tuple(ids)] for ids in audited["input_ids"]], abs=1e-6)


def test_audit_columns_are_visible_in_a_formatted_dataset(trainer: GLCTrainer) -> None:
    rows = trainer.train_dataset.select(range(20)).with_format(
        "torch", columns=["input_ids", "attention_mask", "label"]
    )
    audited = trainer.audit(rows)
    assert isinstance(audited["p_wrong"][:], torch.Tensor)
    assert set(audited[0]) == {"input_ids", "attention_mask", "label", "given_label", "suggested_label", "p_wrong"}


def test_empty_dataset_raises_clear_error(trainer: GLCTrainer) -> None:
    with pytest.raises(ValueError, match="no rows to audit"):
        trainer.audit(trainer.train_dataset.select([]))


def test_rows_without_flags_are_all_audited(trainer: GLCTrainer) -> None:
    audited = trainer.audit(text_rows(40, seed=5, trusted=None))
    assert min(audited["p_wrong"]) > 0
    assert "trusted" not in audited.column_names


def test_audit_applies_and_keeps_the_transform(trainer: GLCTrainer) -> None:
    rows = trainer.train_dataset.select(range(30))

    def transform(batch: dict[str, Any]) -> dict[str, Any]:
        return {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"], "labels": batch["label"]}

    plain = trainer.audit(rows)
    transformed = trainer.audit(rows.with_transform(transform))
    assert transformed.with_format(None)["p_wrong"][:] == pytest.approx(plain["p_wrong"][:], abs=1e-6)
    assert set(transformed[0]) == {"input_ids", "attention_mask", "labels"}


def test_each_token_label_has_its_own_verdict(tmp_path: Path) -> None:
    rows = mark_trusted(token_rows(80), fraction=0.3, label_column="labels", level="token")
    rows = corrupt_labels(rows, CorruptionMatrix.flip(3, 0.3), label_column="labels")
    trainer = GLCTrainer(token_bert(), config(tmp_path, max_steps=80), train_dataset=rows, data_collator=_PadTokens())
    trainer.train()
    audited = trainer.audit(rows)
    wrong, p_wrong = [], []
    for row in audited:
        assert len(row["given_label"]) == len(row["labels"]) == len(row["p_wrong"]) == len(row["suggested_label"])
        assert row["given_label"] == row["labels"]
        items = zip(
            row["labels"], row["clean_label"], row["trusted"], row["suggested_label"], row["p_wrong"], strict=True
        )
        for label, clean, trusted, suggested, p in items:
            if label == -100 or trusted:
                assert (suggested, p) == (label, 0.0)
            else:
                wrong.append(label != clean)
                p_wrong.append(p)
    assert average_precision_score(wrong, p_wrong) > 2 * np.mean(wrong)
    findings = Findings.of(audited, trainer.corruption_matrix)
    assert len(findings) == sum(label != -100 for labels in rows["labels"] for label in labels)
    first = findings.most_suspect(1)[0]
    assert audited[int(findings.row[first])]["p_wrong"][findings.word[first]] == findings.p_wrong.max()


class _PadTokens(DataCollatorForTokenClassification):
    """Pad without a tokenizer."""

    def __init__(self) -> None:
        pass

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        longest = max(len(row["input_ids"]) for row in features)
        fill = {"input_ids": 0, "attention_mask": 0, "labels": -100}
        return {
            name: torch.tensor([[*row[name], *[value] * (longest - len(row[name]))] for row in features])
            for name, value in fill.items()
        }


def test_audit_with_missing_or_invalid_input_raises_clear_error(trainer: GLCTrainer, tmp_path: Path) -> None:
    plain = GLCTrainer(bert(), config(tmp_path, method="no_correction"), train_dataset=text_rows(20))
    with pytest.raises(ValueError, match="needs the corruption matrix, but method 'no_correction' has none"):
        plain.audit(text_rows(20))
    with pytest.raises(TypeError, match=r"needs a `datasets\.Dataset`, not a dict"):
        trainer.audit({"train": text_rows(20)})
    with pytest.raises(ValueError, match="already has a column 'p_wrong'"):
        trainer.audit(text_rows(20).add_column("p_wrong", [0.0] * 20))
    with pytest.raises(ValueError, match="label 3 in column 'label'"):
        trainer.audit(text_rows(20, num_labels=4))
