# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The loss of a stage in training, and evaluation."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from transformers import Trainer, TrainingArguments, default_data_collator

from glc_hf import CorruptionMatrix, GLCTrainer
from glc_hf.labels.label_batch import label_batch
from glc_hf.training.batches import ROW_KEY
from glc_hf.training.resume import last_complete_checkpoint
from tests.training.tiny import bert, config, noisy_text_rows, same_weights, text_rows, weights


def _batch(dataset) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(dataset[name][:]) for name in ("input_ids", "attention_mask")}


def test_training_loss_is_the_formula_of_the_paper(tmp_path):
    data, matrix = noisy_text_rows(rows=16), CorruptionMatrix.flip(3, 0.6)
    model = bert()
    with torch.no_grad():
        probs = model(**_batch(data)).logits.double().softmax(-1)
    labels, trusted = torch.tensor(data["label"][:]), torch.tensor(data["trusted"][:])
    noisy = -(probs @ torch.tensor(matrix.probs))[torch.arange(16), labels].log()
    clean = -probs[torch.arange(16), labels].log()
    expected = torch.where(trusted, clean, noisy).mean().item()
    settings = config(tmp_path, max_steps=1, trusted_share=0)
    trainer = GLCTrainer(model, settings, train_dataset=data, corruption_matrix=matrix)
    assert trainer.train().training_loss == pytest.approx(expected, abs=1e-6)


def test_model_gets_no_flags_labels_or_row_numbers(tmp_path):
    model = bert()
    seen: set[str] = set()
    original = model.forward

    @functools.wraps(original)
    def forward(*args, **kwargs):
        seen.update(kwargs)
        return original(*args, **kwargs)

    data = noisy_text_rows()
    for remove in (True, False):
        model.forward = forward
        settings = config(tmp_path, method="no_correction", remove_unused_columns=remove, evaluate_stages=False)
        columns = data if remove else data.remove_columns("clean_label")
        trainer = GLCTrainer(model, settings, train_dataset=columns, eval_dataset=columns)
        trainer.train()
        trainer.evaluate()
        trainer.predict(columns)
    assert {"input_ids", "attention_mask"} <= seen
    assert not seen & {"trusted", "labels", "label", "clean_label", ROW_KEY, "num_items_in_batch"}


def test_identity_matrix_gives_the_same_weights_as_no_correction(tmp_path):
    data = text_rows()
    plain = GLCTrainer(bert(), config(tmp_path, method="no_correction"), train_dataset=data)
    plain.train()
    corrected = GLCTrainer(
        bert(),
        config(tmp_path, trusted_share=0),
        train_dataset=data,
        corruption_matrix=CorruptionMatrix.identity(3),
    )
    corrected.train()
    assert same_weights(weights(plain.model), weights(corrected.model))


def test_no_correction_gives_the_same_weights_as_trainer(tmp_path):
    data = text_rows(rows=100)
    settings = config(tmp_path, method="no_correction", max_steps=-1, num_train_epochs=2)
    ours = GLCTrainer(bert(), settings, train_dataset=data)
    ours.train()
    stock_args = TrainingArguments(**{name: getattr(settings, name) for name in _SHARED_ARGUMENTS})
    stock = Trainer(bert(), stock_args, train_dataset=data.remove_columns("trusted"))
    stock.train()
    for name, value in weights(stock.model).items():
        torch.testing.assert_close(value, weights(ours.model)[name], atol=1e-6, rtol=0, msg=name)


_SHARED_ARGUMENTS = {
    "output_dir", "per_device_train_batch_size", "max_steps", "learning_rate", "save_strategy", "report_to",
    "disable_tqdm", "use_cpu", "num_train_epochs",
}  # fmt: skip


def test_nan_logits_raise_with_stage_and_step_and_keep_the_last_checkpoint(tmp_path):
    model = bert()
    original = model.forward
    calls = []

    @functools.wraps(original)
    def forward(*args, **kwargs):
        outputs = original(*args, **kwargs)
        calls.append(1)
        if len(calls) == 3:
            outputs.logits = outputs.logits * float("nan")
        return outputs

    trainer = GLCTrainer(
        model,
        config(tmp_path, save_strategy="steps", save_steps=1),
        train_dataset=noisy_text_rows(),
        corruption_matrix=CorruptionMatrix.flip(3, 0.6),
    )
    model.forward = forward
    with pytest.raises(FloatingPointError, match=r"NaN at step 2 of stage 1 of 1"):
        trainer.train()
    assert last_complete_checkpoint(tmp_path, processes=1) == str(tmp_path / "checkpoint-2")


def test_loss_is_fp32_under_bf16_autocast(tmp_path):
    trainer = GLCTrainer(
        bert(), config(tmp_path, bf16=True), train_dataset=noisy_text_rows(), corruption_matrix=np.full((3, 3), 1 / 3)
    )
    # With a uniform matrix the loss of untrusted rows is log 3. It has fp32 precision only if computed in fp32.
    logits = torch.randn(8, 3, dtype=torch.bfloat16)
    losses = trainer.method.item_losses(logits, label_batch(torch.zeros(8, dtype=torch.long)))
    assert losses.dtype == torch.float32
    torch.testing.assert_close(losses, torch.full((8,), np.log(3), dtype=torch.float32), atol=1e-6, rtol=0)
    trainer.train()
    assert next(trainer.model.parameters()).dtype == torch.float32


def test_evaluation_is_cross_entropy_against_the_given_labels(tmp_path):
    data = noisy_text_rows(rows=50)
    trainer = GLCTrainer(bert(), config(tmp_path), train_dataset=data, eval_dataset=data)
    trainer.train()
    metrics = trainer.evaluate()
    trainer.model.eval()
    with torch.no_grad():
        logits = trainer.model(**_batch(data)).logits
    given = torch.tensor(data["label"][:])
    assert metrics["eval_loss"] == pytest.approx(F.cross_entropy(logits, given).item(), abs=1e-5)
    assert metrics["eval_accuracy"] == pytest.approx((logits.argmax(-1) == given).float().mean().item())
    np.testing.assert_allclose(trainer.predict(data).predictions, logits.numpy(), atol=1e-5)


def test_batch_eval_metrics_gives_the_same_accuracy(tmp_path):
    data = noisy_text_rows(rows=50)
    accuracies = []
    for batched in (False, True):
        settings = config(tmp_path, batch_eval_metrics=batched, per_device_eval_batch_size=16)
        trainer = GLCTrainer(bert(), settings, train_dataset=data, eval_dataset=data)
        accuracies.append([trainer.evaluate()["eval_accuracy"] for _ in range(2)])
    assert accuracies[0] == accuracies[1]


def test_evaluate_needs_no_flags_and_predict_needs_no_labels(tmp_path):
    data = noisy_text_rows(rows=50)
    trainer = GLCTrainer(bert(), config(tmp_path), train_dataset=data)
    trainer.train()
    assert "eval_accuracy" in trainer.evaluate(data.remove_columns(["trusted", "clean_label"]))
    unlabeled = data.remove_columns(["trusted", "clean_label", "label"])
    prediction = trainer.predict(unlabeled)
    assert prediction.predictions.shape == (50, 3)
    assert prediction.label_ids is None


def test_compute_metrics_replaces_the_default_accuracy(tmp_path):
    def compute_metrics(prediction):
        return {"rows": len(prediction.predictions), "width": prediction.predictions.shape[1]}

    data = noisy_text_rows(rows=50)
    trainer = GLCTrainer(
        bert(), config(tmp_path), train_dataset=data, eval_dataset=data, compute_metrics=compute_metrics
    )
    metrics = trainer.evaluate()
    assert (metrics["eval_rows"], metrics["eval_width"]) == (50, 3)
    assert "eval_accuracy" not in metrics


@pytest.mark.parametrize("method", ["no_correction", "trusted_only"])
def test_probabilities_that_are_certain_train_like_classes(tmp_path, method):
    """Soft labels reach the loss, the count of items and the flags."""

    def soft(features):
        batch = default_data_collator(features)
        batch["labels"] = torch.nn.functional.one_hot(batch["labels"], 3).float()
        return batch

    losses, ends = [], []
    for name, collator in (("hard", default_data_collator), ("soft", soft)):
        settings = config(tmp_path / name, method=method, trusted_min_updates=0)
        trainer = GLCTrainer(bert(), settings, collator, train_dataset=noisy_text_rows())
        losses.append(trainer.train().training_loss)
        ends.append(weights(trainer.model))
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    for name, value in ends[0].items():
        torch.testing.assert_close(ends[1][name], value, atol=1e-5, rtol=1e-4)
