# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Cheaper first stages: `stage1="probe"` and `stage1="short"`."""

from __future__ import annotations

from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
import transformers
from transformers import ViTConfig, ViTForImageClassification

from glc_hf import CorruptionMatrix, GLCTrainer, corrupt_labels, mark_trusted
from glc_hf.correction.linear import LinearHead
from glc_hf.data.feature_files import MappedRows, read_features, write_features
from glc_hf.methods.glc import GoldLossCorrection
from glc_hf.training import inference, probe
from glc_hf.training.compare import compare_methods
from glc_hf.training.probe import ProbeStage
from tests.training.tiny import (
    bert,
    config,
    noisy_text_rows,
    pixels,
    same_weights,
    text_rows,
    token_bert,
    token_rows,
    weights,
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """The folder of cached features, separate for each test."""
    folder = tmp_path / "datasets_cache"
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", folder)
    return folder / "glc_hf_features"


@pytest.fixture
def probes(monkeypatch) -> list[ProbeStage]:
    """The probes that are trained, in order."""
    trained, train = [], ProbeStage.train

    def spy(self, *args, **kwargs):
        trained.append(self)
        return train(self, *args, **kwargs)

    monkeypatch.setattr(ProbeStage, "train", spy)
    return trained


def head_of(probe: ProbeStage) -> LinearHead:
    return LinearHead(**{name: value for name, value in probe.weights().items() if name != "penalty"})


def make_trainer(folder, model=None, data=None, **settings) -> GLCTrainer:
    data = noisy_text_rows() if data is None else data
    arguments = config(folder, **{"stage1": "probe", **settings})
    return GLCTrainer(model or bert(initializer_range=0.3), arguments, train_dataset=data, eval_dataset=text_rows(40))


def padding_collator(**padding):
    """A collator that pads each named column with its value."""

    def collate(rows):
        longest = max(len(row["input_ids"]) for row in rows)
        batch = {
            key: torch.tensor([list(row[key]) + [value] * (longest - len(row[key])) for row in rows])
            for key, value in padding.items()
        }
        return {"labels": torch.tensor([row["label"] for row in rows]), **batch} if "labels" not in padding else batch

    return collate


@pytest.mark.parametrize(("layers", "used"), [(1, [1]), (2, [1, 2]), (5, [2, 5])])
def test_features_of_a_text_are_means_of_the_states_of_the_middle_and_last_layer(tmp_path, probes, layers, used):
    model = bert(num_hidden_layers=layers)
    data = noisy_text_rows(60)
    short = {key: [row[: 3 + i % 4] for i, row in enumerate(data[key])] for key in ("input_ids", "attention_mask")}
    ragged = datasets.Dataset.from_dict({**data.to_dict(), **short})
    trainer = GLCTrainer(
        model,
        config(tmp_path / "run", stage1="probe", per_device_eval_batch_size=7),
        padding_collator(input_ids=0, attention_mask=0),
        train_dataset=ragged,
    )
    start = weights(model)
    trainer.train()
    table = probes[0].table
    assert sorted(table.numbers.tolist()) == list(range(60))
    fresh = bert(num_hidden_layers=layers)
    fresh.load_state_dict(start)
    with torch.no_grad():
        for index, number in enumerate(table.numbers.tolist()):
            ids = torch.tensor([ragged[number]["input_ids"]])
            states = fresh.eval().bert(ids, output_hidden_states=True).hidden_states
            expected = torch.cat([states[layer][0].mean(dim=0) for layer in used])
            torch.testing.assert_close(table.features[index], expected, atol=1e-5, rtol=1e-4)


_SIZES = dict(hidden_size=16, num_hidden_layers=4, num_attention_heads=2, intermediate_size=16)


@pytest.mark.parametrize(
    ("name", "settings", "layers"),
    [
        ("Longformer", dict(_SIZES, attention_window=8), 2),  # pads texts to a multiple of the window
        ("XLNet", dict(d_model=16, n_head=2, n_layer=4, d_inner=16), 1),  # its layers return (tokens, rows, features)
        ("Canine", dict(_SIZES, num_hash_buckets=64), 1),  # its layers read fewer positions
        ("Albert", dict(_SIZES, embedding_size=8), 1),  # one layer, used several times
    ],
)
@pytest.mark.parametrize("length", [4, 6, 8])
def test_width_of_features_does_not_depend_on_the_length_of_the_texts(name, settings, layers, length):
    kind = getattr(transformers, f"{name}ForSequenceClassification")
    model = kind(kind.config_class(vocab_size=32, num_labels=3, **settings)).eval()
    probe.FeatureTap(model, num_labels=3)
    ids = torch.randint(3, 30, (4, length))
    with torch.no_grad():
        features = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
    assert features.shape == (4, layers * 16)


@pytest.mark.parametrize(
    ("fast", "fewest", "settings", "in_bf16"),
    [
        (True, 1, {}, True),
        (False, 1, {}, False),  # the device would be slower in bf16
        (True, 10**9, {}, False),  # the network is small
        (True, 1, {"bf16": True}, True),  # as training, and not for the sake of speed
    ],
)
def test_features_are_computed_in_bf16_where_it_is_faster(
    tmp_path, probes, monkeypatch, cache, fast, fewest, settings, in_bf16
):
    exact = make_trainer(tmp_path / "exact")
    exact.train()
    monkeypatch.setattr(inference, "has_fast_bf16", lambda device: fast)
    monkeypatch.setattr(inference, "_FEWEST_BF16_PARAMETERS", fewest)
    trainer = make_trainer(tmp_path / "run", **settings)
    precisions = []
    trainer.model.classifier.register_forward_hook(lambda module, inputs, output: precisions.append(output.dtype))
    assert inference.faster_in_bf16(trainer) == (in_bf16 and not settings)
    trainer.train()
    expected, features = (stage.table.features[torch.arange(len(stage.table.numbers))] for stage in probes)
    assert features.dtype == torch.float32
    assert torch.equal(features, expected) != in_bf16
    assert (features - expected).norm() < 0.02 * expected.norm()
    # Cached features have the precision of the run that finds them, and training has its own.
    assert len(list(cache.glob("*.json"))) == (2 if in_bf16 else 1)
    assert precisions[-1] == (torch.bfloat16 if "bf16" in settings else torch.float32)


def test_last_stage_starts_from_the_initial_weights(tmp_path):
    first = make_trainer(tmp_path / "probe", refine_matrix=False)
    first.train()
    second = GLCTrainer(
        bert(initializer_range=0.3),
        config(tmp_path / "given"),
        train_dataset=noisy_text_rows(),
        corruption_matrix=first.corruption_matrix,
    )
    second.train()
    assert same_weights(weights(first.model), weights(second.model))


def test_stage_1_accuracy_is_the_accuracy_of_the_probe(tmp_path, probes):
    trainer = make_trainer(tmp_path)
    metrics = trainer.train().metrics
    stage = probes[0]
    rows = text_rows(40)
    with torch.no_grad():
        states = bert(initializer_range=0.3).eval().bert(torch.tensor(rows["input_ids"][:])).last_hidden_state
        predicted = head_of(stage).logits(states.mean(dim=1)).argmax(dim=-1)
    expected = float((predicted == torch.tensor(rows["label"][:])).float().mean())
    assert metrics["stage1_eval_accuracy"] == pytest.approx(expected)
    assert metrics["stage1_probe_penalty"] == stage.penalty


def test_matrix_is_the_mean_softmax_of_the_probe_per_class(tmp_path, probes):
    trainer = make_trainer(tmp_path, refine_matrix=False)
    trainer.train()
    table, head = probes[0].table, head_of(probes[0])
    data = noisy_text_rows()
    flags, labels = np.array(data["trusted"][:]), np.array(data["label"][:])
    softmax = table.logits(head, torch.argsort(table.numbers)).double().softmax(-1).numpy()
    for k in range(3):
        np.testing.assert_allclose(
            trainer.corruption_matrix.probs[k], softmax[flags & (labels == k)].mean(axis=0), atol=1e-6
        )


def test_refinement_on_features_brings_the_matrix_closer_to_the_true_one(tmp_path):
    truth = CorruptionMatrix.flip(3, 0.6, seed=0)
    data = noisy_text_rows(1500, trusted=0.03)
    plain = make_trainer(tmp_path / "plain", data=data, refine_matrix=False, max_steps=1)
    plain.train()
    joint = make_trainer(tmp_path / "joint", data=data, max_steps=1)
    joint.train()
    before, after = truth.distance(plain.corruption_matrix), truth.distance(joint.corruption_matrix)
    assert joint.corruption_matrix.trusted_rows.tolist() == plain.corruption_matrix.trusted_rows.tolist()
    assert after < before / 2


def test_features_are_cached_by_weights_and_rows(tmp_path, cache, monkeypatch):
    written = []

    def spy(path, batches):
        written.append(path)
        write_features(path, batches)

    monkeypatch.setattr("glc_hf.data.feature_files.write_features", spy)
    first = make_trainer(tmp_path / "1")
    first.train()
    assert len(list(cache.glob("*.arrow"))) == len(written) == 1
    second = make_trainer(tmp_path / "2", learning_rate=1e-3, seed=1)
    second.train()
    assert len(written) == 1
    make_trainer(tmp_path / "3", model=bert(seed=1, initializer_range=0.3)).train()
    assert len(written) == 2
    make_trainer(tmp_path / "4", data=noisy_text_rows(strength=0.3)).train()  # other labels
    assert len(written) == 3
    data = noisy_text_rows()
    reversed_ids = [row[::-1] for row in data["input_ids"]]
    data = data.remove_columns("input_ids").add_column("input_ids", reversed_ids)
    make_trainer(tmp_path / "5", data=data).train()
    assert len(written) == len(list(cache.glob("*.arrow"))) == 4


@pytest.mark.parametrize("damage", ["flipped bit", "missing rows", "cut short", "no checksum"])
def test_damaged_cache_is_computed_again_and_named(tmp_path, cache, caplog, damage):
    first = make_trainer(tmp_path / "1", max_steps=1)
    first.train()
    (file,) = cache.glob("*.arrow")
    intact = file.read_bytes()
    if damage == "flipped bit":
        file.write_bytes(intact[:2000] + bytes([intact[2000] ^ 64]) + intact[2001:])
    elif damage == "missing rows":
        features, numbers = read_features(file)
        write_features(file, [(features[:-5], numbers[:-5])])
    elif damage == "cut short":
        file.write_bytes(intact[: len(intact) // 2])
    else:
        file.with_suffix(".json").unlink()
    second = make_trainer(tmp_path / "2", max_steps=1)
    second.train()
    assert f"the cached features in {file}" in caplog.text
    assert "computed again" in caplog.text
    assert file.read_bytes() == intact
    assert second.corruption_matrix == first.corruption_matrix


def test_features_that_are_not_numbers_name_the_row(tmp_path):
    model = bert(initializer_range=0.3)
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight.fill_(float("nan"))
    with pytest.raises(
        FloatingPointError, match=r"NaN or infinite features for row \d+ of the training set in stage 1"
    ):
        make_trainer(tmp_path, model=model).train()


def test_cached_features_are_not_used_with_another_collator(tmp_path):
    def train(num_tokens: int) -> np.ndarray:
        def collate(rows):
            ids = torch.tensor([row["input_ids"] for row in rows])
            ids[:, num_tokens:] = 0
            labels = torch.tensor([row["label"] for row in rows])
            return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}

        trainer = GLCTrainer(
            bert(initializer_range=0.3), config(tmp_path, stage1="probe", max_steps=1), data_collator=collate,
            train_dataset=noisy_text_rows(),
        )  # fmt: skip
        trainer.train()
        return trainer.corruption_matrix.probs

    first, other, again = train(6), train(0), train(6)
    assert abs(first - other).max() > 0.05
    assert (first == again).all()


def test_interrupted_writing_leaves_no_file(tmp_path):
    def fail():
        yield torch.zeros(3, 2), torch.arange(3)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_features(tmp_path / "features.arrow", fail())
    assert list(tmp_path.iterdir()) == []


def test_large_features_are_memory_mapped(tmp_path, monkeypatch):
    monkeypatch.setattr("glc_hf.data.feature_files._ROWS_PER_BATCH", 10)
    monkeypatch.setattr("glc_hf.data.feature_files._MAX_IN_MEMORY", 50)
    rows, numbers = torch.randn(95, 4), torch.randperm(95)
    write_features(tmp_path / "f.arrow", zip(rows.split(7), numbers.split(7), strict=True))
    mapped, numbers_read = read_features(tmp_path / "f.arrow")
    assert isinstance(mapped, MappedRows)
    assert len(mapped.chunks) > 1
    assert torch.equal(numbers_read, numbers)
    for positions in ([94, 0, 33, 33, 10, 9], [3, 9, 10, 10, 70, 94], [], range(95)):
        wanted = torch.tensor(positions, dtype=torch.int64)
        assert torch.equal(mapped[wanted], rows[wanted])


def test_each_token_label_has_its_own_features(tmp_path, probes):
    data = token_rows(80)
    data = corrupt_labels(mark_trusted(data, fraction=0.3), CorruptionMatrix.flip(3, 0.5), label_column="labels")
    collate = padding_collator(input_ids=0, attention_mask=0, labels=-100)
    trainer = GLCTrainer(token_bert(), config(tmp_path, stage1="probe"), collate, train_dataset=data)
    trainer.train()
    labels = [label for row in data["labels"] for label in row if label != -100]
    assert len(probes[0].table.numbers) == len(labels)
    batches = list(probes[0].infer("untrusted"))
    numbers = torch.cat([batch.items for batch in batches])
    assert torch.cat([batch.labels for batch in batches]).tolist() == [labels[number] for number in numbers]


def test_probe_works_with_image_models_timm_and_lora(tmp_path, probes):
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
    make_trainer(tmp_path / "lora", model=peft.get_peft_model(bert(), lora)).train()
    assert probes[-1].table.features.shape == (240, 16)
    make_trainer(tmp_path / "plain", model=bert()).train()
    torch.testing.assert_close(probes[-1].table.features, probes[-2].table.features)


@pytest.mark.parametrize("method", ["confusion_matrix", "forward", "distillation"])
def test_other_methods_with_a_first_stage_can_use_a_probe(tmp_path, probes, method):
    trainer = make_trainer(tmp_path, method=method, trusted_min_updates=4)
    metrics = trainer.train().metrics
    assert len(probes) == 1
    assert "stage1_probe_penalty" in metrics


def test_compared_methods_share_one_probe(tmp_path, probes):
    results = list(
        compare_methods(["glc", "confusion_matrix"], lambda name: make_trainer(tmp_path / name, method=name))
    )
    assert len(probes) == 1
    assert results[1][1]["shared_stages"] == 1


def test_calibration_holds_out_rows_of_the_probe(tmp_path, probes):
    make_trainer(tmp_path, calibrate=True).train()
    held_out = torch.cat([batch.items for batch in probes[0].infer("untrusted", "held_out")])
    trained = torch.cat([batch.items for batch in probes[0].infer("untrusted", "trained")])
    assert len(held_out) == round(0.05 * 192)
    assert len(held_out) + len(trained) == 192
    assert not set(held_out.tolist()) & set(trained.tolist())


def test_resumed_run_reuses_its_finished_probe(tmp_path, monkeypatch):
    settings = {"save_strategy": "steps", "save_steps": 2}
    first = make_trainer(tmp_path / "uninterrupted", **settings)
    first.train()

    def crash(self, run):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(GoldLossCorrection, "estimate", crash)
        with pytest.raises(KeyboardInterrupt):
            make_trainer(tmp_path / "stopped", **settings).train()
    trained = []
    monkeypatch.setattr(ProbeStage, "train", lambda self, *args, **kwargs: trained.append(self))
    resumed = make_trainer(tmp_path / "stopped", **settings)
    resumed.train(resume_from_checkpoint=True)
    assert not trained
    assert same_weights(weights(resumed.model), weights(first.model))
    assert resumed.corruption_matrix == first.corruption_matrix


def test_short_stage_trains_for_a_fraction_of_the_steps_or_epochs(tmp_path):
    trainer = make_trainer(tmp_path, stage1="short", stage1_fraction=0.25, max_steps=8)
    trainer.train()
    steps = [entry["step"] for entry in trainer.state.log_history if "stage1_loss" in entry]
    assert max(steps) == 2
    trainer = make_trainer(tmp_path, stage1="short", stage1_fraction=0.5, max_steps=-1, num_train_epochs=2)
    trainer.train()
    epochs = [entry["epoch"] for entry in trainer.state.log_history if "stage1_loss" in entry]
    assert max(epochs) == pytest.approx(1.0)


def test_unsupported_options_raise_before_training(tmp_path):
    with pytest.raises(ValueError, match="stage1 must be one of full, short, probe"):
        config(tmp_path, stage1="linear")
    with pytest.raises(ValueError, match="stage2_start='continue' has no weights"):
        config(tmp_path, stage1="probe", stage2_start="continue")
    with pytest.raises(ValueError, match="stage1_fraction must be in"):
        config(tmp_path, stage1="short", stage1_fraction=0.0)
    with pytest.raises(ValueError, match="by its number, which a stream does not have: use a `Dataset`"):
        make_trainer(tmp_path, data=noisy_text_rows().to_iterable_dataset(), trusted_share=0)

    class NoClassifier(torch.nn.Module):
        num_classes = 3

        def forward(self, input_ids, attention_mask=None):
            return torch.zeros(len(input_ids), 3, requires_grad=True)

    with pytest.raises(ValueError, match="no linear layer with 3 outputs"):
        make_trainer(tmp_path, model=NoClassifier())
