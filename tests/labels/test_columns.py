# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Which column is trained on, of which kind its numbers are, and what the built-in accuracy is taken from."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from datasets import Dataset, Value
from transformers import DataCollatorWithFlattening

from glc_hf import CorruptionMatrix, GLCTrainer
from tests.training.tiny import bert, config, text_rows


def _predicted(trainer: GLCTrainer, rows: Dataset) -> np.ndarray:
    ids = torch.tensor(rows["input_ids"][:])
    with torch.no_grad():
        return trainer.model.eval()(ids).logits.argmax(-1).numpy()


@pytest.mark.parametrize("stream", [False, True], ids=["rows", "stream"])
@pytest.mark.parametrize("beside", ["label", "labels", None])
def test_the_named_column_is_the_one_trained_and_evaluated_on(tmp_path, beside, stream):
    rows = text_rows()
    other = [(label + 1) % 3 for label in rows["label"]]
    rows = rows.add_column("topic", other)
    rows = rows.rename_columns({"label": beside or "unused"}) if beside != "label" else rows
    settings = config(tmp_path, label_column="topic", method="no_correction", max_steps=40)
    trainer = GLCTrainer(
        bert(), settings, train_dataset=rows.to_iterable_dataset() if stream else rows, eval_dataset=rows
    )
    trainer.train()
    assert (_predicted(trainer, rows) == other).mean() > 0.95
    assert trainer.evaluate()["eval_accuracy"] > 0.95


def test_the_only_column_of_classes_is_trained_on_and_audited_by(tmp_path):
    rows = text_rows().rename_column("label", "topic")
    settings, known = config(tmp_path, method="true_matrix", max_steps=40), CorruptionMatrix.identity(3)
    trainer = GLCTrainer(bert(), settings, train_dataset=rows, corruption_matrix=known)
    trainer.train()
    assert (_predicted(trainer, rows) == np.array(rows["topic"])).mean() > 0.95
    assert trainer.audit(rows)["given_label"][:] == rows["topic"][:]


@pytest.mark.parametrize("kind", ["int8", "int32", "uint16"])
@pytest.mark.parametrize(
    "settings", [{"stage1": "probe"}, {"estimator": "paired", "noisy_label_column": "noisy"}], ids=["probe", "paired"]
)
def test_labels_may_be_whole_numbers_of_any_size(tmp_path, kind, settings):
    rows = text_rows().cast_column("label", Value(kind))
    rows = rows.add_column("noisy", np.array(rows["label"], dtype=kind))
    trainer = GLCTrainer(bert(), config(tmp_path, **settings), train_dataset=rows)
    trainer.train()
    assert trainer.corruption_matrix is not None


class _Features(torch.nn.Module):
    """Gives its features before its logits."""

    num_classes = 3

    def __init__(self) -> None:
        super().__init__()
        self.embeddings, self.head = torch.nn.Embedding(40, 16), torch.nn.Linear(16, 3)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        features = self.embeddings(input_ids).mean(1)
        return {"features": features, "logits": self.head(features)}


def test_the_accuracy_is_that_of_the_logits_wherever_they_stand(tmp_path):
    torch.manual_seed(0)
    rows = text_rows(100, seed=5)
    settings = config(tmp_path, method="no_correction", max_steps=60)
    trainer = GLCTrainer(_Features(), settings, train_dataset=text_rows(), eval_dataset=rows)
    trainer.train()
    right = trainer.model(torch.tensor(rows["input_ids"][:]))["logits"].argmax(-1).numpy() == np.array(rows["label"])
    assert right.mean() > 0.9
    assert trainer.evaluate()["eval_accuracy"] == pytest.approx(right.mean())
    own = GLCTrainer(
        trainer.model, settings, train_dataset=text_rows(), compute_metrics=lambda found: {"n": len(found.predictions)}
    )
    features, logits = own.predict(rows).predictions  # in the model's own order for metrics of the user's own
    assert (features.shape, logits.shape) == ((100, 16), (100, 3))


class _Sign(torch.nn.Module):
    num_classes = 2

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": torch.stack([x, -x], dim=-1) + self.weight}


@pytest.mark.parametrize("whole", [True, False])
def test_the_accuracy_is_that_of_all_batches(tmp_path, whole):
    train = Dataset.from_dict({"x": [1.0] * 4, "label": [0] * 4, "trusted": [True, False] * 2})
    rows = Dataset.from_dict({"x": [1.0] * 100, "label": [0] * 8 + [1] * 92})
    settings = config(tmp_path, per_device_eval_batch_size=8, eval_do_concat_batches=whole)
    trainer = GLCTrainer(_Sign(), settings, train_dataset=train, eval_dataset=rows)
    assert trainer.evaluate()["eval_accuracy"] == 0.08


def test_a_collator_that_makes_one_row_of_several_is_named(tmp_path):
    rows = text_rows().remove_columns("attention_mask")
    trainer = GLCTrainer(
        bert(),
        config(tmp_path, method="true_matrix"),
        train_dataset=rows,
        data_collator=DataCollatorWithFlattening(),
        corruption_matrix=CorruptionMatrix.flip(3, 0.4),
    )
    with pytest.raises(ValueError, match="the collator returned 1 rows of labels for 16 rows"):
        trainer.train()
