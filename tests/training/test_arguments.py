# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
from __future__ import annotations

import json

from glc_hf import GLCConfig, GLCTrainer
from glc_hf.training.arguments import arguments_that_differ
from tests.training.tiny import bert, config, noisy_text_rows


def test_only_arguments_that_were_changed_are_told(tmp_path):
    plain = GLCConfig(str(tmp_path), use_cpu=True)
    assert arguments_that_differ(plain) == {"use_cpu": True}
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
    assert arguments_that_differ(changed) == {
        "learning_rate": 1e-3,
        "lr_scheduler_type": "cosine",
        "use_cpu": True,
        "accelerator_config": {"split_batches": True},
        "method": "forward",
    }


def test_what_is_saved_holds_no_token_no_path_and_no_pickled_arguments(tmp_path):
    settings = config(tmp_path, save_strategy="steps", save_steps=2, hub_token="hf_secret")
    trainer = GLCTrainer(bert(), settings, train_dataset=noisy_text_rows(), eval_dataset=noisy_text_rows(30))
    trainer.train()
    trainer.save_model()
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert any(file.name == "training_args.json" for file in files)
    assert not any(file.name == "training_args.bin" for file in files)
    for file in files:
        content = file.read_bytes()
        assert b"hf_secret" not in content, file
        assert str(tmp_path).encode() not in content, file
    assert json.loads((tmp_path / "training_args.json").read_text())["save_steps"] == 2
