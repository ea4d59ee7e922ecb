# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Flags, labels and columns on their way from the dataset to the batch."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from datasets import Dataset, Features, Image, Value
from tokenizers import Tokenizer, models
from transformers import DataCollatorForTokenClassification, PreTrainedTokenizerFast, default_data_collator

from glc_hf import CorruptionMatrix, GLCTrainer, corrupt_labels, mark_trusted
from glc_hf.labels.reading import Column
from glc_hf.training.batches import ROW_KEY, FlagCollator, FlaggedRows, MixedSampler
from glc_hf.training.stage_trainer import StageTrainer
from tests.training.tiny import bert, config, noisy_text_rows, same_weights, token_bert, token_rows, weights


def _image_rows(rows: int = 24) -> Dataset:
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 255, size=(8, 8), dtype=np.uint8) for _ in range(rows)]
    dataset = Dataset.from_dict(
        {"image": images, "label": [i % 3 for i in range(rows)], "comment": ["x"] * rows},
        features=Features({"image": Image(), "label": Value("int64"), "comment": Value("string")}),
    )
    return corrupt_labels(mark_trusted(dataset, fraction=0.5), CorruptionMatrix.flip(3, 0.6))


class _TinyVision(torch.nn.Module):
    """A plain torch module without config that returns its logits as a tensor."""

    num_classes = 3

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(64, 3)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        return self.linear(pixel_values.flatten(1))


def _to_pixels(batch: dict) -> dict:
    pixels = [torch.tensor(np.asarray(image), dtype=torch.float32) / 255 for image in batch["image"]]
    return {"pixel_values": pixels, "labels": batch["label"]}


@pytest.mark.parametrize("remove_unused_columns", [True, False])
def test_flags_reach_the_loss_when_a_transform_drops_their_column(tmp_path, remove_unused_columns, monkeypatch):
    data = _image_rows()
    seen: dict[int, bool] = {}
    original = GLCTrainer.compute_loss

    def spy(self, model, inputs, **kwargs):
        if "trusted" in inputs:
            seen.update(zip(inputs[ROW_KEY].tolist(), inputs["trusted"].tolist(), strict=True))
        return original(self, model, inputs, **kwargs)

    monkeypatch.setattr(GLCTrainer, "compute_loss", spy)
    settings = config(
        tmp_path, remove_unused_columns=remove_unused_columns, max_steps=-1, num_train_epochs=1, trusted_share=0
    )
    transformed = data.with_transform(_to_pixels)
    trainer = GLCTrainer(_TinyVision(), settings, train_dataset=transformed, eval_dataset=transformed)
    trainer.train()
    assert seen == dict(enumerate(data["trusted"]))
    assert trainer.corruption_matrix is not None
    assert 0.0 <= trainer.evaluate()["eval_accuracy"] <= 1.0


def test_labels_of_a_transformed_dataset_are_checked_without_decoding_images(tmp_path):
    broken = Dataset.from_dict(
        {
            "image": [{"bytes": b"not an image", "path": None}] * 6,
            "label": [0, 1, 2, 7, 1, 2],
            "trusted": [True, False] * 3,
        },
        features=Features({"image": Image(), "label": Value("int64"), "trusted": Value("bool")}),
    )
    with pytest.raises(ValueError, match=r"label 7 .*row 3"):
        GLCTrainer(_TinyVision(), config(tmp_path), train_dataset=broken.with_transform(_to_pixels))


def test_data_loader_workers_give_the_same_weights(tmp_path):
    trained = []
    for workers in (0, 2):
        trainer = GLCTrainer(
            bert(), config(tmp_path, dataloader_num_workers=workers), train_dataset=noisy_text_rows(rows=64)
        )
        trainer.train()
        trained.append(weights(trainer.model))
    assert same_weights(*trained)


@pytest.mark.parametrize("level", ["row", "token"])
def test_token_classification_with_flags_per_row_or_per_token(tmp_path, level, monkeypatch):
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"x": 0}, "x")), pad_token="x")
    clean = token_rows()
    data = mark_trusted(clean, fraction=0.3, level=level, label_column="labels")
    data = corrupt_labels(data, CorruptionMatrix.flip(3, 0.6), label_column="labels")
    counted = {"stage 1": 0, "stage 2": 0}
    original = StageTrainer.get_batch_samples

    def spy(self, *args):
        batches, num_items = original(self, *args)
        for batch in batches:
            kept = batch["labels"] != -100
            if self.stage_name.startswith("stage 1"):
                assert not batch["trusted"][kept].any()
            counted[self.stage_name.split(" of ")[0]] += int(kept.sum())
        return batches, num_items

    monkeypatch.setattr(StageTrainer, "get_batch_samples", spy)
    trainer = GLCTrainer(
        token_bert(),
        config(tmp_path, max_steps=-1, num_train_epochs=1, trusted_share=0),
        train_dataset=data,
        eval_dataset=clean,
        data_collator=DataCollatorForTokenClassification(tokenizer),
    )
    trainer.train()
    labels = [label for row in data["labels"] for label in row if label != -100]
    flags = data["trusted"]
    if level == "row":
        flags = [[flag] * len(row) for flag, row in zip(flags, data["labels"], strict=True)]
    trusted = sum(
        flag
        for row_flags, row in zip(flags, data["labels"], strict=True)
        for flag, label in zip(row_flags, row, strict=True)
        if label != -100
    )
    assert counted == {"stage 1": len(labels) - trusted, "stage 2": len(labels)}
    metrics = trainer.evaluate()
    trainer.model.eval()
    correct = total = 0
    for row in clean:
        with torch.no_grad():
            predicted = trainer.model(torch.tensor([row["input_ids"]])).logits.argmax(-1)[0]
        kept = torch.tensor(row["labels"]) != -100
        correct += int((predicted == torch.tensor(row["labels"]))[kept].sum())
        total += int(kept.sum())
    assert metrics["eval_accuracy"] == pytest.approx(correct / total)


def test_token_flags_are_padded_on_the_side_of_the_labels():
    class Tokenizer:
        padding_side = "left"

    class Collator:
        tokenizer = Tokenizer()

        def __call__(self, features):
            width = max(len(f["labels"]) for f in features)
            return {"labels": torch.tensor([[-100] * (width - len(f["labels"])) + f["labels"] for f in features])}

    features = [{"labels": [1, 2], "trusted": [True, False]}, {"labels": [1, 2, 0], "trusted": [False, True, True]}]
    batch = FlagCollator(Collator(), "trusted")(features)
    assert batch["trusted"].tolist() == [[False, True, False], [False, True, True]]


def test_label_column_can_have_any_name(tmp_path):
    data = noisy_text_rows().rename_column("label", "topic")
    data = data.with_transform(
        lambda batch: {
            "input_ids": batch["input_ids"],
            "attention_mask": batch["attention_mask"],
            "labels": batch["topic"],
        }
    )
    trainer = GLCTrainer(bert(), config(tmp_path, label_column="topic"), train_dataset=data)
    trainer.train()
    assert trainer.corruption_matrix.label_names == ["class 0", "class 1", "class 2"]


def _columns(labels):
    return {"x": torch.randn(5, 3).tolist(), "trusted": [True, False, False, True, False], **labels}


@pytest.mark.parametrize(
    "labels",
    [{"label": [0, 2, 1, 1, 0]}, {"label": [0.5, 1, 2, 3, 4]}, {"label_ids": [[0, 1]] * 5}, {"labels": [0] * 5}],
)
@pytest.mark.parametrize("data_format", [None, "torch", "numpy"])
def test_collating_whole_columns_equals_the_default_collator_on_rows(labels, data_format):
    data = Dataset.from_dict(_columns(labels))
    plain = data.remove_columns("trusted").with_format(data_format)
    flags = Column(np.array(data["trusted"]), None)
    rows = np.array([4, 0, 0, -1 - 3])
    batch = FlagCollator(default_data_collator, "trusted")(
        FlaggedRows(plain, rows, flags, "trusted").__getitems__(range(4))
    )
    expected = default_data_collator([plain[row] for row in (4, 0, 0, 3)])
    if "label_ids" in labels and expected["labels"].is_floating_point():
        pytest.skip("this version of transformers turns class numbers of a numpy label_ids column into floats")
    assert batch.pop(ROW_KEY).tolist() == rows.tolist()
    trusted = batch.pop("trusted")
    assert trusted.shape == expected["labels"].shape
    assert trusted.reshape(4, -1)[:, 0].tolist() == [False, True, True, True]
    assert batch.keys() == expected.keys()
    for name, values in expected.items():
        assert batch[name].dtype == values.dtype
        assert torch.equal(batch[name], values)


def test_changing_a_batch_in_place_does_not_change_tensors_of_the_transform():
    tensor = torch.zeros(5, 3)
    data = Dataset.from_dict({"row": list(range(5))}).with_transform(lambda batch: {"x": tensor[: len(batch["row"])]})
    batch = FlagCollator(default_data_collator, "trusted")(
        FlaggedRows(data, np.arange(5), None, "trusted").__getitems__([1, 2])
    )
    batch["x"] += 1
    assert (tensor == 0).all()


def test_ragged_columns_are_collated_row_by_row():
    data = Dataset.from_dict({"x": [[1], [1, 2]], "labels": [0, 1]}).with_format("torch")
    features = FlaggedRows(data, np.arange(2), Column(np.array([True, False]), None), "trusted").__getitems__([0, 1])
    seen = []
    FlagCollator(lambda rows: seen.extend(rows) or {"labels": torch.tensor([0, 1])}, "trusted")(features)
    assert [row.keys() for row in seen] == [{"x", "labels"}] * 2
    with pytest.raises(RuntimeError, match="equal size"):
        FlagCollator(default_data_collator, "trusted")(features)


def test_transform_that_drops_rows_raises():
    data = Dataset.from_dict({"x": [1, 2, 3]}).with_transform(lambda batch: {"x": batch["x"][:1]})
    with pytest.raises(ValueError, match="returned 1 values of 'x' for 3 rows"):
        FlaggedRows(data, np.arange(3), None, "trusted").__getitems__([0, 1, 2])


def test_deleted_trainer_frees_its_rows(tmp_path):
    trainer = GLCTrainer(bert(), config(tmp_path, max_steps=1), train_dataset=noisy_text_rows())
    trainer.train()
    rows = weakref.ref(trainer.training_data.rows)
    assert rows().fingerprint
    del trainer
    gc.collect()
    assert rows() is None


# ---------------------------------------------------------------------- a fixed share of trusted rows
def _epochs(sampler: MixedSampler, number: int) -> list[list[int]]:
    epochs = []
    for epoch in range(number):
        sampler.set_epoch(epoch)
        epochs.append(list(sampler))
    return epochs


# Of 50 rows, every row below `trusted` is trusted.
@pytest.mark.parametrize(
    ("trusted", "share", "size"),
    [(5, 0.3, 50), (10, 0.3, 50), (40, 0.3, 50), (7, 0.55, 33), (5, 1.0, 20), (5, 0.0, 50)],
)
def test_mixed_sampler_has_the_exact_share_and_repeats_no_row_before_all_of_its_kind(trusted, share, size):
    sampler = MixedSampler(np.arange(50) < trusted, share, size, seed=3)
    epochs = _epochs(sampler, 7)
    assert len(sampler) == size
    for epoch in epochs:
        assert len(epoch) == size
        assert sum(position < trusted for position in epoch) == round(share * size)
    # Across epochs, no row is drawn for the n-th time before every row of its kind was drawn n − 1 times.
    for kind in (range(trusted), range(trusted, 50)):
        drawn = np.zeros(50, dtype=int)
        for epoch in epochs:
            drawn += np.bincount(epoch, minlength=50)
            counts = drawn[kind.start : kind.stop]
            assert counts.max() - counts.min() <= 1


def test_mixed_sampler_depends_only_on_seed_and_epoch():
    trusted = np.arange(50) % 4 == 0
    epochs = _epochs(MixedSampler(trusted, 0.3, 50, seed=3), 3)
    again = MixedSampler(trusted, 0.3, 50, seed=3)
    again.set_epoch(2)  # as a resumed run, without the epochs before
    assert list(again) == list(again) == epochs[2]
    assert epochs[0] != epochs[1]
    assert _epochs(MixedSampler(trusted, 0.3, 50, seed=4), 1)[0] != epochs[0]


def test_mixed_sampler_mixes_the_kinds():
    epoch = _epochs(MixedSampler(np.arange(1000) < 100, 0.3, 1000, seed=0), 1)[0]
    for tenth in np.split(np.array(epoch) < 100, 10):
        assert 0.1 < tenth.mean() < 0.5


def test_mixed_sampler_without_untrusted_rows_draws_trusted_ones_only():
    (epoch,) = _epochs(MixedSampler(np.ones(4, dtype=bool), 0.3, 10, seed=0), 1)
    assert len(epoch) == 10
    assert sorted(np.bincount(epoch).tolist()) == [2, 2, 3, 3]


# Rows 0 to 119 are mixed: two epochs of 50 and 20 rows of the third.
def test_mixed_sampler_draws_trusted_rows_only_after_the_mixed_part():
    trusted = np.arange(50) < 10
    epochs = _epochs(MixedSampler(trusted, 0.3, 50, seed=3, mixed=120), 4)
    assert epochs[:2] == _epochs(MixedSampler(trusted, 0.3, 50, seed=3), 2)
    flags = [trusted[np.array(epoch)] for epoch in epochs[2:]]
    assert flags[0][:20].sum() == 6
    assert flags[0][20:].all()
    assert flags[1].all()
    drawn = np.bincount(np.concatenate(epochs), minlength=50)
    for kind in (drawn[:10], drawn[10:]):
        assert kind.max() - kind.min() <= 1
    assert drawn[:10].sum() == 2 * 15 + 6 + 30 + 50
