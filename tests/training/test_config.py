# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Changed arguments, and what is written to disk about them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from glc_hf import GLCConfig, GLCTrainer
from tests.training.tiny import bert, config, noisy_text_rows


def test_changed_arguments_has_only_non_default_and_public_values(tmp_path):
    plain = GLCConfig(str(tmp_path), use_cpu=True)
    assert plain.changed_arguments() == {"use_cpu": True}
    changed = GLCConfig(
        str(tmp_path),
        use_cpu=True,
        learning_rate=1e-3,
        method="forward",
        hub_token="hf_secret",
        run_name=str(tmp_path),
        accelerator_config={"split_batches": True},
        lr_scheduler_type="cosine",
    )
    assert changed.changed_arguments() == {
        "learning_rate": 1e-3,
        "lr_scheduler_type": "cosine",
        "use_cpu": True,
        "accelerator_config": {"split_batches": True},
        "method": "forward",
    }


# Files that Trainer needs to resume. They are in checkpoints, and never in what `save_model` writes.
CHECKPOINT_FILES = {"optimizer.pt", "scheduler.pt", "rng_state.pth"}


def test_saved_files_contain_no_token_user_name_path_or_pickle(tmp_path, monkeypatch):
    monkeypatch.setenv("USER", "a-user-name")
    monkeypatch.setenv("HF_TOKEN", "hf_from_the_environment")
    settings = config(
        tmp_path,
        save_strategy="steps",
        save_steps=2,
        eval_strategy="steps",
        eval_steps=2,
        trusted_eval_fraction=0.2,
        load_best_model_at_end=True,
        metric_for_best_model="trusted_accuracy",
        run_name="run of a-user-name",
        hub_token="hf_secret",
    )
    data = noisy_text_rows()
    trainer = GLCTrainer(bert(), settings, train_dataset=data, eval_dataset=noisy_text_rows(30))
    trainer.train()
    trainer.save_model()
    trainer.save_state()
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    names = {file.name for file in files}
    assert {"training_args.json", "trainer_state.json", "model.safetensors", "corruption_matrix.json"} <= names
    for file in files:
        if any(part.startswith("checkpoint-") for part in file.parts) and file.name in CHECKPOINT_FILES:
            names.discard(file.name)
        else:
            assert file.suffix in (".json", ".safetensors", ".md", ".png"), file
        content = file.read_bytes()
        for secret in ("hf_secret", "hf_from_the_environment", "a-user-name", str(tmp_path), str(Path.home())):
            assert secret.encode() not in content, (file, secret)
    assert not names & CHECKPOINT_FILES
    assert json.loads((tmp_path / "training_args.json").read_text())["save_steps"] == 2


def test_crash_during_saving_leaves_no_token_on_disk(tmp_path, monkeypatch):
    def crash(*args):
        raise KeyboardInterrupt

    trainer = GLCTrainer(bert(), config(tmp_path, hub_token="hf_secret"), train_dataset=noisy_text_rows())
    monkeypatch.setattr("glc_hf.training.config.GLCConfig.write_json", crash)
    with pytest.raises(KeyboardInterrupt):
        trainer.save_model()
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert any(file.name == "training_args.bin" for file in files)
    for file in files:
        assert b"hf_secret" not in file.read_bytes()
        assert str(tmp_path).encode() not in file.read_bytes()
    assert trainer.args.hub_token == "hf_secret"
