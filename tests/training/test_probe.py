# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`stage1="probe"` and `"short"`: a first stage for less."""

from __future__ import annotations

from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from transformers import ViTConfig, ViTForImageClassification

from glc_hf import CorruptionMatrix, GLCTrainer, corrupt_labels, mark_trusted
from glc_hf.training.compare import compare_methods
from glc_hf.training.probe import MappedRows, ProbeStage, read_features, write_features
from tests.training.test_models import pixels
from tests.training.tiny import bert, config, noisy_text_rows, same_weights, text_rows, token_bert, token_rows, weights


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """A cache folder of the test's own."""
    folder = tmp_path / "datasets_cache"
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", folder)
    return folder / "glc_hf_features"


@pytest.fixture
def probes(monkeypatch) -> list[ProbeStage]:
    """The probes that are trained."""
    made, train = [], ProbeStage.train

    def spy(self, *args, **kwargs):
        made.append(self)
        return train(self, *args, **kwargs)

    monkeypatch.setattr(ProbeStage, "train", spy)
    return made


def make(folder, model=None, data=None, **settings) -> GLCTrainer:
    data = noisy_text_rows() if data is None else data
    arguments = config(folder, **{"stage1": "probe", **settings})
    return GLCTrainer(model or bert(initializer_range=0.3), arguments, train_dataset=data, eval_dataset=text_rows(40))


def padded(**fill):
    """A collator that pads these columns."""

    def collate(rows):
        longest = max(len(row["input_ids"]) for row in rows)
        batch = {
            key: torch.tensor([list(row[key]) + [value] * (longest - len(row[key])) for row in rows])
            for key, value in fill.items()
        }
        return {"labels": torch.tensor([row["label"] for row in rows]), **batch} if "labels" not in fill else batch

    return collate


def test_the_features_of_a_text_are_the_mean_of_its_states(tmp_path, probes):
    model = bert()
    data = noisy_text_rows(60)
    short = {key: [row[: 3 + i % 4] for i, row in enumerate(data[key])] for key in ("input_ids", "attention_mask")}
    ragged = datasets.Dataset.from_dict({**data.to_dict(), **short})
    trainer = GLCTrainer(
        model,
        config(tmp_path / "run", stage1="probe", per_device_eval_batch_size=7),
        padded(input_ids=0, attention_mask=0),
        train_dataset=ragged,
    )
    start = weights(model)
    trainer.train()
    table = probes[0].table
    assert sorted(table.numbers.tolist()) == list(range(60))
    fresh = bert()
    fresh.load_state_dict(start)
    with torch.no_grad():
        for place, number in enumerate(table.numbers.tolist()):
            row = ragged[number]
            states = fresh.eval().bert(torch.tensor([row["input_ids"]])).last_hidden_state
            torch.testing.assert_close(table.features[place], states[0].mean(dim=0), atol=1e-5, rtol=1e-4)


def test_the_last_stage_starts_from_the_untouched_network(tmp_path):
    first = make(tmp_path / "probe", refine_matrix=False)
    first.train()
    second = GLCTrainer(
        bert(initializer_range=0.3),
        config(tmp_path / "given"),
        train_dataset=noisy_text_rows(),
        corruption_matrix=first.corruption_matrix,
    )
    second.train()
    assert same_weights(weights(first.model), weights(second.model))


def test_the_accuracy_before_correction_is_the_probes(tmp_path, probes):
    trainer = make(tmp_path)
    metrics = trainer.train().metrics
    probe = probes[0]
    rows = text_rows(40)
    with torch.no_grad():
        states = bert(initializer_range=0.3).eval().bert(torch.tensor(rows["input_ids"][:])).last_hidden_state
        guesses = probe._tap.head.logits(states.mean(dim=1)).argmax(dim=-1)
    expected = float((guesses == torch.tensor(rows["label"][:])).float().mean())
    assert metrics["stage1_eval_accuracy"] == pytest.approx(expected)
    assert metrics["stage1_probe_penalty"] == probe.penalty


def test_the_matrix_is_the_mean_softmax_of_the_probe(tmp_path, probes):
    trainer = make(tmp_path, refine_matrix=False)
    trainer.train()
    table, head = probes[0].table, probes[0]._tap.head
    data = noisy_text_rows()
    flags, labels = np.array(data["trusted"][:]), np.array(data["label"][:])
    softmax = table.logits(head, torch.argsort(table.numbers)).double().softmax(-1).numpy()
    for k in range(3):
        np.testing.assert_allclose(
            trainer.corruption_matrix.probs[k], softmax[flags & (labels == k)].mean(axis=0), atol=1e-6
        )


def test_a_linear_model_of_true_labels_makes_the_matrix_better(tmp_path):
    truth = CorruptionMatrix.flip(3, 0.6, seed=0)
    data = noisy_text_rows(1500, trusted=0.03)
    plain = make(tmp_path / "plain", data=data, refine_matrix=False, max_steps=1)
    plain.train()
    joint = make(tmp_path / "joint", data=data, max_steps=1)
    joint.train()
    before, after = truth.distance(plain.corruption_matrix), truth.distance(joint.corruption_matrix)
    assert after < before / 2


def test_features_are_kept_on_disk_by_network_and_rows(tmp_path, cache, monkeypatch):
    embedded = []
    embed = ProbeStage._embed

    def spy(self):
        embedded.append(self)
        return embed(self)

    monkeypatch.setattr(ProbeStage, "_embed", spy)
    first = make(tmp_path / "1")
    first.train()
    assert len(list(cache.iterdir())) == len(embedded) == 1
    second = make(tmp_path / "2", learning_rate=1e-3, seed=1)
    second.train()
    assert len(embedded) == 1
    make(tmp_path / "3", model=bert(seed=1, initializer_range=0.3)).train()
    assert len(embedded) == 2
    make(tmp_path / "4", data=noisy_text_rows(strength=0.3)).train()  # other labels
    assert len(embedded) == 3
    backwards = [row[::-1] for row in noisy_text_rows()["input_ids"]]
    make(tmp_path / "5", data=noisy_text_rows().remove_columns("input_ids").add_column("input_ids", backwards)).train()
    assert len(embedded) == len(list(cache.iterdir())) == 4


def test_features_are_those_of_the_collator_at_hand(tmp_path):
    """The same rows and network through another collator are other features."""

    def run(kept: int) -> np.ndarray:
        def collate(rows):
            ids = torch.tensor([row["input_ids"] for row in rows])
            ids[:, kept:] = 0
            labels = torch.tensor([row["label"] for row in rows])
            return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}

        trainer = GLCTrainer(
            bert(initializer_range=0.3), config(tmp_path, stage1="probe", max_steps=1), data_collator=collate,
            train_dataset=noisy_text_rows(),
        )  # fmt: skip
        trainer.train()
        return trainer.corruption_matrix.probs

    first, other, again = run(6), run(0), run(6)
    assert abs(first - other).max() > 0.05
    assert (first == again).all()


def test_a_file_that_was_cut_short_is_never_seen(tmp_path):
    def fail():
        yield torch.zeros(3, 2), torch.arange(3)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_features(tmp_path / "features.arrow", fail())
    assert list(tmp_path.iterdir()) == []


def test_more_than_fits_in_memory_is_mapped(tmp_path, monkeypatch):
    from glc_hf.training import probe as features

    monkeypatch.setattr(features, "_ROWS_PER_BATCH", 10)
    monkeypatch.setattr(features, "_MAX_IN_MEMORY", 50)
    rows, numbers = torch.randn(95, 4), torch.randperm(95)
    write_features(tmp_path / "f.arrow", zip(rows.split(7), numbers.split(7), strict=True))
    mapped, found = read_features(tmp_path / "f.arrow")
    assert isinstance(mapped, MappedRows)
    assert len(mapped.chunks) > 1
    assert torch.equal(found, numbers)
    places = torch.tensor([94, 0, 33, 33, 10, 9])
    assert torch.equal(mapped[places], rows[places])


def test_token_labels_have_a_feature_each(tmp_path, probes):
    data = token_rows(80)
    data = corrupt_labels(mark_trusted(data, fraction=0.3), CorruptionMatrix.flip(3, 0.5), label_column="labels")
    collate = padded(input_ids=0, attention_mask=0, labels=-100)
    trainer = GLCTrainer(token_bert(), config(tmp_path, stage1="probe"), collate, train_dataset=data)
    trainer.train()
    labels = [label for row in data["labels"] for label in row if label != -100]
    assert len(probes[0].table.numbers) == len(labels)
    batches = list(probes[0].infer("untrusted"))
    numbers = torch.cat([batch.items for batch in batches])
    assert torch.cat([batch.labels for batch in batches]).tolist() == [labels[number] for number in numbers]


def test_images_and_adapters(tmp_path, probes):
    vit = ViTForImageClassification(
        ViTConfig(
            image_size=16, patch_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=32, num_labels=3,
        )
    )  # fmt: skip
    trainer = GLCTrainer(vit, config(tmp_path / "vit", stage1="probe"), train_dataset=pixels())
    trainer.train()
    assert probes[-1].table.features.shape == (48, 16)
    pytest.importorskip("timm")
    from transformers import TimmWrapperConfig, TimmWrapperForImageClassification

    settings = TimmWrapperConfig(
        architecture="resnet10t", num_labels=3, model_args={"channels": (8, 8, 8, 16), "in_chans": 1}
    )
    GLCTrainer(
        TimmWrapperForImageClassification(settings),
        config(tmp_path / "timm", stage1="probe"),
        train_dataset=pixels(channels=1),
    ).train()
    assert probes[-1].table.features.shape == (48, 16)
    peft = pytest.importorskip("peft")
    lora = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query"], modules_to_save=["classifier"])
    make(tmp_path / "lora", model=peft.get_peft_model(bert(), lora)).train()
    assert probes[-1].table.features.shape == (240, 16)
    make(tmp_path / "plain", model=bert()).train()
    torch.testing.assert_close(probes[-1].table.features, probes[-2].table.features)


@pytest.mark.parametrize("method", ["confusion_matrix", "forward", "distillation"])
def test_other_methods_take_the_probe_too(tmp_path, probes, method):
    trainer = make(tmp_path, method=method, trusted_min_updates=4)
    metrics = trainer.train().metrics
    assert len(probes) == 1
    assert "stage1_probe_penalty" in metrics


def test_methods_share_one_probe(tmp_path, probes):
    results = list(compare_methods(["glc", "confusion_matrix"], lambda name: make(tmp_path / name, method=name)))
    assert len(probes) == 1
    assert results[1][1]["shared_stages"] == 1


def test_calibration_holds_rows_out_of_the_probe(tmp_path, probes):
    make(tmp_path, calibrate=True).train()
    held = torch.cat([batch.items for batch in probes[0].infer("untrusted", "held_out")])
    trained = torch.cat([batch.items for batch in probes[0].infer("untrusted", "trained")])
    assert len(held) == round(0.05 * 192)
    assert len(held) + len(trained) == 192
    assert not set(held.tolist()) & set(trained.tolist())


def test_a_run_goes_on_from_its_probe(tmp_path, monkeypatch):
    settings = {"save_strategy": "steps", "save_steps": 2}
    whole = make(tmp_path / "whole", **settings)
    whole.train()

    def die(self):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("glc_hf.training.stages.FirstStages._estimate", die)
        with pytest.raises(KeyboardInterrupt):
            make(tmp_path / "cut", **settings).train()
    trained = []
    monkeypatch.setattr(ProbeStage, "train", lambda self, *args, **kwargs: trained.append(self))
    again = make(tmp_path / "cut", **settings)
    again.train(resume_from_checkpoint=True)
    assert not trained  # the finished probe was taken over
    assert same_weights(weights(again.model), weights(whole.model))
    assert again.corruption_matrix == whole.corruption_matrix


def test_short_takes_a_share_of_the_steps(tmp_path):
    trainer = make(tmp_path, stage1="short", stage1_fraction=0.25, max_steps=8)
    trainer.train()
    steps = [entry["step"] for entry in trainer.state.log_history if "stage1_loss" in entry]
    assert max(steps) == 2
    trainer = make(tmp_path, stage1="short", stage1_fraction=0.5, max_steps=-1, num_train_epochs=2)
    trainer.train()
    epochs = [entry["epoch"] for entry in trainer.state.log_history if "stage1_loss" in entry]
    assert max(epochs) == pytest.approx(1.0)


def test_what_can_t_work_is_refused_before_training(tmp_path):
    with pytest.raises(ValueError, match="stage1 must be one of full, short, probe"):
        config(tmp_path, stage1="linear")
    with pytest.raises(ValueError, match="stage2_start='continue' has no weights"):
        config(tmp_path, stage1="probe", stage2_start="continue")
    with pytest.raises(ValueError, match="stage1_fraction must be in"):
        config(tmp_path, stage1="short", stage1_fraction=0.0)
    with pytest.raises(ValueError, match="by its number, which a stream has not"):
        make(tmp_path, data=noisy_text_rows().to_iterable_dataset(), trusted_share=0)

    class NoClassifier(torch.nn.Module):
        num_classes = 3

        def forward(self, input_ids, attention_mask=None):
            return torch.zeros(len(input_ids), 3, requires_grad=True)

    with pytest.raises(ValueError, match="no linear layer with 3 outputs"):
        make(tmp_path, model=NoClassifier())
