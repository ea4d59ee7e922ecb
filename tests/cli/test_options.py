# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The help of `train` is made without importing what it speaks of: it must say the same."""

from __future__ import annotations

import dataclasses

from transformers import TrainingArguments

from glc_hf import GLCConfig
from glc_hf.cli.options import (
    CONFIG_DEFAULTS,
    DataArguments,
    ModelArguments,
    NoiseArguments,
    config_options,
    method_names,
    train_help,
)
from glc_hf.methods import available_methods


def test_help_has_every_option_that_the_configuration_adds_with_its_default() -> None:
    inherited = {field.name for field in dataclasses.fields(TrainingArguments)}
    added = [field for field in dataclasses.fields(GLCConfig) if field.name not in inherited]
    expected = [(field.name, field.default, field.metadata["help"]) for field in added]
    assert [(option.name, option.default, option.help) for option in config_options()] == expected


def test_help_names_every_method() -> None:
    assert method_names() == available_methods()
    text = " ".join(train_help().split())
    assert all(f" {name}" in text for name in available_methods())


def test_help_has_every_option_of_the_command() -> None:
    text = train_help()
    for arguments in (DataArguments, NoiseArguments, ModelArguments):
        for field in dataclasses.fields(arguments):
            assert f"  --{field.name.replace('_', '-')} " in text or f"  --{field.name.replace('_', '-')}\n" in text


def test_help_shows_the_defaults_that_differ_from_the_trainers() -> None:
    text = " ".join(train_help().split())
    assert CONFIG_DEFAULTS == {"output_dir": "glc-hf-output"}
    assert "--output-dir (default: glc-hf- output)" in text or "--output-dir (default: glc-hf-output)" in text


def test_help_all_lists_the_options_of_the_trainer_too(glc_hf) -> None:
    outcome = glc_hf("train", "--help-all")
    assert outcome.code == 0
    for option in (
        "--dataset",
        "--noise-strength",
        "--trusted-share",
        "--gradient-accumulation-steps",
        "--hub-model-id",
    ):
        assert option in outcome.out
