# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Bad input: an error before any training that names the cause and the fix, or a warning."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from accelerate.utils import DistributedType
from datasets import DatasetDict, Value
from transformers import Trainer, TrainingArguments

from glc_hf import CorruptionMatrix, GLCTrainer, mark_trusted
from glc_hf.training.checks import check_devices
from tests.training.tiny import bert, config, noisy_text_rows, text_rows


@pytest.fixture(autouse=True)
def _no_training(monkeypatch):
    """Fail if a training step runs: errors must come before."""

    def step(*args, **kwargs):
        raise AssertionError("a training step ran")

    monkeypatch.setattr(Trainer, "training_step", step)


def assert_raises(tmp_path, match, error=ValueError, data=None, model=None, settings=None, **kwargs):
    with pytest.raises(error, match=match):
        GLCTrainer(
            model if model is not None else bert(),
            config(tmp_path, **(settings or {})),
            train_dataset=noisy_text_rows() if data is None else data,
            **kwargs,
        ).train()


def test_missing_trusted_column_raises(tmp_path):
    assert_raises(tmp_path, r"'glc'.*'trusted'.*mark_trusted", data=text_rows(trusted=None))


def test_flags_that_are_not_boolean_raise(tmp_path):
    data = noisy_text_rows()
    flags = data["trusted"][:]
    numbers = data.remove_columns("trusted").add_column("trusted", [2, *map(int, flags[1:])])
    assert_raises(tmp_path, r"'trusted' has 2 in row 0, .*1/0.*mark_trusted", data=numbers)
    words = ["maybe", *("yes" if flag else "no" for flag in flags[1:])]
    words = data.remove_columns("trusted").add_column("trusted", words)
    assert_raises(tmp_path, r"'trusted' has 'maybe' in row 0, .*yes/no.*mark_trusted", data=words)


def test_only_trusted_rows_raises(tmp_path):
    data = mark_trusted(text_rows(trusted=None), fraction=1.0)
    assert_raises(tmp_path, r"'glc' needs untrusted rows.*'trusted'.*mark_trusted", data=data)


def test_only_untrusted_rows_raises(tmp_path):
    data = text_rows(trusted=None)
    data = data.add_column("trusted", [False] * len(data))
    assert_raises(tmp_path, r"'glc' needs trusted rows.*'trusted'.*mark_trusted", data=data)


def test_label_outside_the_classes_of_the_model_raises(tmp_path):
    data = text_rows(num_labels=3).cast_column("label", Value("int64"))
    first = data["label"][:].index(2)
    message = rf"label 2 .*row {first}\b.*0…1.*num_labels=3 in the model. Otherwise drop such rows"
    assert_raises(tmp_path, message, data=data, model=bert(num_labels=2))


def test_labels_that_are_not_integers_raise(tmp_path):
    data = text_rows().remove_columns("label").add_column("label", [0.5] * 240)
    assert_raises(tmp_path, r"'label'.*row 0: 0\.5", data=data)


def test_missing_label_raises(tmp_path):
    data = text_rows().remove_columns("label").add_column("label", [0, 1, None] + [2] * 237)
    assert_raises(tmp_path, r"'label'.*None.*row 2", data=data)


def test_missing_label_column_raises(tmp_path):
    assert_raises(tmp_path, r"label_column", data=text_rows().remove_columns("label"))


@pytest.mark.parametrize(
    ("probs", "match"),
    [
        (np.ones((2, 3)) / 3, "square"),
        (np.array([[1.5, -0.5, 0], [0, 1, 0], [0, 0, 1]]), "row 0.*negative"),
        (np.array([[1, 0, 0], [0.5, 0.6, 0], [0, 0, 1]]), r"row 1.*sums to 1.1"),
        (np.array([[1, 0, 0], [0, 1, 0], [0, 0, np.nan]]), "row 2.*NaN"),
        (np.eye(4), "4 classes.*3"),
    ],
)
def test_invalid_matrix_raises(tmp_path, probs, match):
    assert_raises(tmp_path, match, corruption_matrix=probs)


@pytest.mark.parametrize(
    ("problem", "match"), [("multi_label_classification", "multi label"), ("regression", "regression")]
)
def test_multi_label_and_regression_heads_raise(tmp_path, problem, match):
    assert_raises(tmp_path, match, model=bert(problem_type=problem))


def test_head_with_one_logit_raises(tmp_path):
    assert_raises(tmp_path, r"num_labels=1.*num_labels=2", model=bert(num_labels=1))


class _NoConfig(torch.nn.Module):
    """A network that does not say how many classes it has."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier = torch.nn.Linear(6, 3)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.classifier(input_ids.float())


@pytest.mark.parametrize("votes", [False, True])
def test_model_without_a_number_of_classes_raises(tmp_path, votes):
    data = noisy_text_rows()
    settings = {}
    if votes:
        data, settings = data.add_column("rule", data["label"]), {"source_columns": ["rule"]}
    assert_raises(tmp_path, "does not say how many classes", data=data, model=_NoConfig(), settings=settings)


def test_given_optimizer_raises(tmp_path):
    model = bert()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert_raises(tmp_path, r"`optimizers`.*optimizer_cls_and_kwargs", model=model, optimizers=(optimizer, None))
    factory = torch.optim.lr_scheduler.LinearLR
    message = r"`optimizers`.* given schedule would serve one.*lr_scheduler_type.*`create_scheduler` of a subclass"
    assert_raises(tmp_path, message, model=model, optimizers=(None, factory))
    assert_raises(tmp_path, r"optimizer and schedule would", model=model, optimizers=(optimizer, factory(optimizer)))


def test_compute_loss_func_raises(tmp_path):
    assert_raises(tmp_path, "compute_loss_func", compute_loss_func=lambda outputs, labels, **_: outputs.logits.sum())


def test_label_smoothing_raises(tmp_path):
    assert_raises(tmp_path, "label_smoothing_factor=0.1", settings={"label_smoothing_factor": 0.1})


def test_checkpoints_on_a_signal_raise(tmp_path):
    assert_raises(tmp_path, "enable_jit_checkpoint=True is not supported", settings={"enable_jit_checkpoint": True})


def test_gradient_checkpointing_raises_for_reweight(tmp_path):
    settings = {"method": "reweight", "gradient_checkpointing": True}
    message = "'reweight' uses forward-mode derivatives.*gradient_checkpointing=False"
    assert_raises(tmp_path, message, settings=settings)


def test_accelerate_that_starts_one_process_in_place_of_several_raises(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_CPU", "True")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    assert_raises(tmp_path, r"starts one process whatever --num_processes says.*torchrun --nproc_per_node")


def test_processes_that_are_not_connected_raise(tmp_path, monkeypatch):
    args = config(tmp_path)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=r"2 processes were launched.*not connected.*use_cpu=True"):
        GLCTrainer(bert(), args, train_dataset=noisy_text_rows(24))


def test_data_parallel_raises(tmp_path, monkeypatch):
    monkeypatch.setattr(TrainingArguments, "n_gpu", property(lambda self: 2))
    assert_raises(tmp_path, r"DataParallel.*accelerate launch")


@pytest.mark.parametrize(
    ("distributed_type", "plugin", "fsdp", "match"),
    [
        (DistributedType.DEEPSPEED, None, None, r"DeepSpeed is not supported.*FSDP2"),
        (DistributedType.FSDP, SimpleNamespace(fsdp_version=1), True, r"version 1 is not supported.*'version': 2"),
        (DistributedType.MULTI_CPU, None, True, r"does not shard parameters on the CPU"),
    ],
)
def test_unsupported_distribution_raises(distributed_type, plugin, fsdp, match):
    accelerator = SimpleNamespace(distributed_type=distributed_type, state=SimpleNamespace(fsdp_plugin=plugin))
    with pytest.raises(ValueError, match=match):
        check_devices(SimpleNamespace(n_gpu=1, fsdp=fsdp, stage1="full"), accelerator)


def test_fsdp2_is_supported_except_for_a_probe():
    state = SimpleNamespace(fsdp_plugin=SimpleNamespace(fsdp_version=2))
    accelerator = SimpleNamespace(distributed_type=DistributedType.FSDP, state=state)
    check_devices(SimpleNamespace(n_gpu=1, fsdp=True, stage1="full"), accelerator)
    with pytest.raises(ValueError, match="whole network in each process.*stage1='short'"):
        check_devices(SimpleNamespace(n_gpu=1, fsdp=True, stage1="probe"), accelerator)


def test_plain_training_arguments_raise(tmp_path):
    arguments = TrainingArguments(str(tmp_path), use_cpu=True)
    with pytest.raises(TypeError, match="GLCConfig"):
        GLCTrainer(bert(), arguments, train_dataset=noisy_text_rows())


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"method": "gold"}, r"'gold'.*glc"),
        ({"method": "true_matrix"}, r"true_matrix.*corruption_matrix"),
        ({"trusted_share": 1.0}, "trusted_share"),
        ({"trusted_share": -0.1}, "trusted_share"),
        ({"stage2_start": "again"}, r"stage2_start.*restart"),
        ({"missing_classes": "guess"}, r"missing_classes.*average"),
        ({"stage1_learning_rate": 0.0}, "stage1_learning_rate"),
        ({"estimator": "paired"}, "noisy_label_column"),
        ({"method": "distillation", "distillation_lambda": "1.5"}, r"distillation_lambda.*1.5"),
        ({"method": "distillation", "distillation_lambda": "often"}, r"distillation_lambda.*often"),
        ({"method": "forward", "anchor_percentile": 101}, r"anchor_percentile.*101"),
        ({"smoothing": 2.0}, "smoothing"),
    ],
)
def test_invalid_setting_raises(tmp_path, settings, match):
    assert_raises(tmp_path, match, settings=settings)


def test_matrix_for_a_method_without_matrix_raises(tmp_path):
    assert_raises(
        tmp_path,
        r"'no_correction' does not use a corruption matrix",
        settings={"method": "no_correction"},
        corruption_matrix=np.eye(3),
    )


def test_matrix_with_classes_in_another_order_raises(tmp_path):
    swapped = CorruptionMatrix(np.eye(3), ["class 2", "class 1", "class 0"])
    assert_raises(tmp_path, r"another order \(class 2", corruption_matrix=swapped)


def test_invalid_evaluation_label_raises_before_training(tmp_path):
    bad = text_rows(trusted=None).remove_columns("label").add_column("label", [0] * 239 + [7])
    for eval_dataset in (bad, {"own": bad}):
        assert_raises(tmp_path, r"eval_dataset.*label 7 .*row 239", eval_dataset=eval_dataset)


def test_dataset_dict_as_train_dataset_raises(tmp_path):
    data = noisy_text_rows()
    splits = DatasetDict(train=data, test=data)
    for settings in ({}, {"trusted_eval_fraction": 0.2}):
        assert_raises(tmp_path, r"train, test.*data\['train'\]", TypeError, data=splits, settings=settings)


def test_fewer_rows_than_one_batch_raises_with_drop_last(tmp_path):
    settings = {"dataloader_drop_last": True, "per_device_train_batch_size": 220, "max_steps": -1}
    assert_raises(tmp_path, r"stage 1 of 2.* has 192 rows, fewer than one batch of 220", settings=settings)


def test_class_without_trusted_rows_gets_the_average_row_and_one_warning(tmp_path, monkeypatch):
    monkeypatch.undo()  # these runs do train
    data = noisy_text_rows()
    clean, flags = np.array(data["clean_label"]), np.array(data["trusted"])
    keep = np.flatnonzero(~(flags & (clean == 1)))
    settings = config(tmp_path, refine_matrix=False)
    trainer = GLCTrainer(bert(), settings, train_dataset=data.select(keep))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.train()
    messages = [str(w.message) for w in caught if "no trusted row" in str(w.message)]
    assert len(messages) == 1
    assert "class 1" in messages[0]
    probs = trainer.corruption_matrix.probs
    mean_diagonal = (probs[0, 0] + probs[2, 2]) / 2
    np.testing.assert_allclose(probs[1], [(1 - mean_diagonal) / 2, mean_diagonal, (1 - mean_diagonal) / 2], atol=1e-12)


def test_matrix_close_to_singular_gives_one_warning_with_the_classes(tmp_path, monkeypatch, caplog):
    monkeypatch.undo()  # these runs do train
    singular = CorruptionMatrix([[0.5, 0.5, 0], [0.5, 0.49, 0.01], [0, 0, 1]], ["cat", "dog", "fish"])
    trainer = GLCTrainer(bert(), config(tmp_path), train_dataset=noisy_text_rows(), corruption_matrix=singular)
    trainer.train()
    messages = [record.getMessage() for record in caplog.records if "singular" in record.getMessage()]
    assert len(messages) == 1
    assert "cat/dog" in messages[0]
    assert "fish" not in messages[0]


def test_stage_1_that_learned_nothing_gives_one_warning(tmp_path, monkeypatch, caplog):
    monkeypatch.undo()  # these runs do train
    GLCTrainer(bert(), config(tmp_path, learning_rate=1e-9), train_dataset=noisy_text_rows()).train()
    messages = [record.getMessage() for record in caplog.records if "same row for every class" in record.getMessage()]
    assert len(messages) == 1
    assert "higher learning rate" in messages[0]
