# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`trainer.audit` for row labels and token labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import ClassLabel, Value
from hypothesis import given as drawn
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score
from transformers import DataCollatorForTokenClassification

from glc_hf import CorruptionMatrix, GLCTrainer, corrupt_labels, mark_trusted
from glc_hf.audit.findings import COLUMNS, Evidence, Findings, verdicts_on
from glc_hf.audit.label_audit import audit_labels
from glc_hf.intervals import wilson_interval
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
        assert verdicts.score[row] == pytest.approx(1.0 - expected, abs=1e-12)
        assert verdicts.suggested[row] == (given[row] if trusted[row] else posterior.argmax())


@pytest.mark.parametrize("rows", [0, 1, 50])
def test_verdicts_do_not_depend_on_how_many_rows_are_judged_at_once(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits, given = torch.randn(rows, 4), torch.randint(4, (rows,))
    matrix, trusted = CorruptionMatrix.hierarchical([0, 0, 1, 1], 0.3), torch.arange(rows) % 5 == 0
    whole = verdicts_on(logits, given, matrix, trusted)
    monkeypatch.setattr("glc_hf.audit.findings._PROBABILITIES_AT_ONCE", 28)
    for in_parts, at_once in zip(verdicts_on(logits, given, matrix, trusted), whole, strict=True):
        assert len(at_once) == rows
        np.testing.assert_array_equal(in_parts, at_once)


def test_given_label_that_is_as_probable_as_another_is_kept() -> None:
    given = torch.tensor([0, 1, 2])
    verdicts = verdicts_on(torch.zeros(3, 3), given, CorruptionMatrix([[1 / 3] * 3] * 3))
    assert verdicts.suggested.tolist() == [0, 1, 2]


def test_probabilities_close_to_one_keep_the_order_of_scores() -> None:
    logits = torch.tensor([[0.0, 50.0], [0.0, 60.0], [0.0, 55.0]])
    verdicts = verdicts_on(logits, torch.zeros(3, dtype=torch.int64), CorruptionMatrix.uniform(2, 0.5))
    assert (verdicts.p_wrong == 1.0).all()
    findings = _findings([0] * 3, verdicts.suggested, verdicts.p_wrong, verdicts.score)
    assert findings.ranked(3).tolist() == [1, 2, 0]


def _findings(given: Any, suggested: Any, p_wrong: Any, score: Any = None, trusted_rows: Any = None) -> Findings:
    matrix = CorruptionMatrix.uniform(2, 0.5)
    matrix = CorruptionMatrix(matrix, trusted_rows=trusted_rows)
    columns = (np.asarray(given), np.asarray(suggested), np.asarray(p_wrong, dtype=float))
    return Findings(matrix, np.arange(len(given)), None, *columns, score)


def test_issues_come_before_other_labels_with_a_lower_score() -> None:
    # With many classes, a label can be probably wrong without another one that is more probable.
    findings = _findings([0, 0, 0, 1], [0, 1, 1, 1], [0.7, 0.55, 0.9, 0.1])
    assert findings.is_issue.tolist() == [False, True, True, False]
    assert findings.num_issues == 2
    assert findings.ranked(10).tolist() == [2, 1, 0, 3]
    assert findings.corrections() == [("0", "1", 2)]


def test_issues_are_untrusted_labels_with_another_suggestion(trainer: GLCTrainer) -> None:
    audited = trainer.audit(trainer.train_dataset)
    given, suggested, issue, score, p_wrong, trusted = (
        np.asarray(audited[name])
        for name in ("given_label", "suggested_label", "is_label_issue", "label_score", "p_wrong", "trusted")
    )
    assert issue.dtype == bool
    assert 0 < issue.sum() < (~trusted).sum()
    assert (issue == (given != suggested)).all()
    assert not issue[trusted].any()
    np.testing.assert_allclose(score, 1 - p_wrong, atol=1e-12)
    findings = Findings.of(audited, trainer.corruption_matrix)
    assert (findings.is_issue == issue).all()
    assert (findings.score == score).all()


def test_interval_of_wrong_labels_combines_chance_and_the_matrix() -> None:
    p_wrong = np.full(400, 0.25)
    known = _findings([0] * 400, [0] * 400, p_wrong).total_wrong
    by_chance = 1.6449 * np.sqrt(400 * 0.25 * 0.75)
    assert known[:3] == pytest.approx((100, 100 - by_chance, 100 + by_chance), abs=1e-2)
    estimated = _findings([0] * 400, [0] * 400, p_wrong, trusted_rows=[50, 50])
    low, high = (bound[0] for bound in estimated.matrix.noise_rate_interval(0.9))
    total = estimated.total_wrong
    assert total.low == pytest.approx(100 - np.hypot(by_chance, 400 * (0.25 - low)), abs=1e-2)
    assert total.high == pytest.approx(100 + np.hypot(by_chance, 400 * (high - 0.25)), abs=1e-2)
    interval = f"90% interval {total.low:.0f} to {total.high:.0f}"
    assert str(total) == f"100 ({interval}, if errors depend on the class only)"
    # A class without trusted rows could have any noise rate, but there are no more wrong labels than untrusted ones.
    nothing = _findings([0] * 4, [0] * 4, [0.5, 0.5, 0.0, 0.0], trusted_rows=[0, 0]).total_wrong
    assert (nothing.low, nothing.high) == (0.0, 2.0)


@pytest.mark.parametrize("strength", [0.3, 0.6])
def test_interval_contains_the_number_of_wrong_labels(strength: float) -> None:
    """With the true posterior and a matrix counted on 100 trusted rows, in about 9 of 10 draws."""
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(200):
        true_matrix = CorruptionMatrix.uniform(3, strength)
        true = rng.integers(3, size=1100)
        given = (rng.random(1100)[:, None] > true_matrix.probs.cumsum(axis=1)[true]).sum(axis=1)
        counts = np.zeros((3, 3))
        np.add.at(counts, (true[:100], given[:100]), 1)
        matrix = CorruptionMatrix(counts / counts.sum(axis=1, keepdims=True), trusted_rows=counts.sum(axis=1))
        logits = torch.from_numpy(np.eye(3)[true[100:]] * 3 + rng.normal(size=(1000, 3)))
        verdicts = verdicts_on(logits, torch.from_numpy(given[100:]), matrix)
        total = Findings(matrix, np.arange(1000), None, given[100:], *verdicts).total_wrong
        inside += total.low <= (given[100:] != true[100:]).sum() <= total.high
    assert inside >= 170


def test_evidence_of_an_audit_compares_trusted_labels_with_those_of_the_noisy_source(trainer: GLCTrainer) -> None:
    data = trainer.train_dataset
    audit = audit_labels(trainer, data, folds=0)
    untrusted = ~np.asarray(data["trusted"])
    probs = torch.softmax(audit.log_probs.double(), dim=1).numpy()
    p_given = probs[np.arange(len(data)), np.asarray(data["label"])]
    assert audit.evidence() == (pytest.approx((1 - p_given)[untrusted].sum()), 0, 0)
    noisy = np.asarray(data["label"]).copy()
    first = np.flatnonzero(~untrusted)[:7]
    noisy[first] = (noisy[first] + 1) % 3
    trainer.args.noisy_label_column = "noisy"
    evidence = audit_labels(trainer, data.add_column("noisy", noisy.tolist()), folds=0).evidence()
    trainer.args.noisy_label_column = None
    assert evidence[1:] == ((~untrusted).sum(), 7)


def test_wrong_labels_are_counted_on_trusted_rows_with_noisy_labels() -> None:
    findings = _findings([0] * 500, [0] * 500, np.r_[np.full(400, 0.25), np.zeros(100)], trusted_rows=[50, 50])
    findings.evidence = Evidence(independent=90.0, compared=100, compared_wrong=60)
    total = findings.total_wrong
    low, high = wilson_interval(0.6, 100, 0.9)
    by_chance = 1.6449 * np.sqrt(0.24 / 400)
    assert total.expected == pytest.approx(240)
    assert total.low == pytest.approx(400 * (0.6 - np.hypot(0.6 - low, by_chance)), abs=1e-2)
    assert total.high == pytest.approx(400 * (0.6 + np.hypot(high - 0.6, by_chance)), abs=1e-2)
    assert str(total).endswith("counted on 100 trusted rows with their noisy labels)")


def test_without_noisy_labels_of_trusted_rows_the_interval_includes_both_kinds_of_errors() -> None:
    findings = _findings([0] * 500, [0] * 500, np.r_[np.full(400, 0.25), np.zeros(100)], trusted_rows=[50, 50])
    by_class = findings.total_wrong
    del findings.total_wrong
    findings.evidence = Evidence(independent=300.0)
    total = findings.total_wrong
    assert total.expected == pytest.approx(200)
    assert total.low == by_class.low
    assert total.high == pytest.approx(300 + 1.6449 * np.sqrt(400 * 0.75 * 0.25), abs=1e-2)
    assert str(total).endswith("estimated from 100 trusted rows, whose noisy labels are not known)")
    del findings.total_wrong
    findings.evidence = Evidence(independent=400.0)
    assert findings.total_wrong.high == 400


@drawn(st.integers(0, 50), st.integers(1, 50), st.integers(1, 300), st.floats(0, 1))
def test_total_is_in_its_interval_and_never_more_than_the_untrusted_labels(
    wrong: int, compared: int, number: int, share: float
) -> None:
    p_wrong = np.linspace(0.01, 0.99, number)
    for evidence in (None, Evidence(share * number), Evidence(share * number, compared, min(wrong, compared))):
        findings = _findings([0] * number, [0] * number, p_wrong, trusted_rows=[3, 3])
        findings.evidence = evidence
        total = findings.total_wrong
        assert -1e-9 <= total.low <= total.expected + 1e-9
        assert total.expected <= total.high + 1e-9 <= number + 1e-6


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
    assert audited.column_names == [*rows.column_names, *COLUMNS]
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
    assert set(audited[0]) == {"input_ids", "attention_mask", "label", *COLUMNS}


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
    first = findings.ranked(1)[0]
    row, word = audited[int(findings.row[first])], findings.word[first]
    assert row["is_label_issue"][word]
    assert row["label_score"][word] == findings.score[findings.is_issue].min()
    assert all(len(row[name]) == len(row["labels"]) for name in COLUMNS)


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
