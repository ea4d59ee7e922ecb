# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The help of `glc-hf train`, which is read from source files, agrees with the classes that it describes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from transformers import TrainingArguments

from glc_hf import GLCConfig
from glc_hf.cli import options
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
    inherited = {field.name: field.default for field in dataclasses.fields(TrainingArguments)}
    missing = object()
    added = [field for field in dataclasses.fields(GLCConfig) if field.default != inherited.get(field.name, missing)]
    expected = {field.name: (field.default, field.metadata["help"]) for field in added}
    assert {option.name: (option.default, option.help) for option in config_options()} == expected
    assert len(config_options()) == len(expected)


def test_options_of_methods_follow_those_of_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = {
        "training/config.py": """
@dataclass
class GLCConfig(BOptions, AOptions, TrainingArguments):
    method: str = field(default="glc", metadata={"help": "Name of the method."})
    share: float = field(default=0.5, metadata={"help": "A share."})
""",
        "methods/b.py": """
@dataclass
class BOptions:
    size: int | None = field(default=None, metadata={"help": "A size."})
    share: float = field(default=0.1, metadata={"help": "Shadowed by GLCConfig."})

@register("b")
class B(Method):
    name: str = field(default="not an option")
""",
        "methods/a.py": """
@dataclass
class AOptions:
    start: str = field(default="x", metadata={"help": "A start.", "choices": ["x", "y"]})
""",
        "methods/notes.txt": "not Python",
    }
    for name, text in sources.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(options, "files", lambda package: tmp_path)
    assert config_options() == [
        ("method", "glc", "Name of the method.", ["b"]),
        ("share", 0.5, "A share.", None),
        ("start", "x", "A start.", ["x", "y"]),
        ("size", None, "A size.", None),
    ]


def test_help_names_every_method() -> None:
    assert method_names() == available_methods()
    text = " ".join(train_help().split())
    assert all(f" {name}" in text for name in available_methods())


def test_help_has_every_option_of_the_command() -> None:
    text = train_help()
    for arguments in (DataArguments, NoiseArguments, ModelArguments):
        for field in dataclasses.fields(arguments):
            assert f"  --{field.name.replace('_', '-')} " in text or f"  --{field.name.replace('_', '-')}\n" in text


def test_help_shows_the_defaults_that_differ_from_the_configuration() -> None:
    text = " ".join(train_help().split())
    assert CONFIG_DEFAULTS == {"output_dir": "glc-hf-output"}
    assert "--output-dir (default: glc-hf- output)" in text or "--output-dir (default: glc-hf-output)" in text


def test_help_all_lists_the_options_of_the_trainer_too(glc_hf) -> None:
    outcome = glc_hf("train", "--help-all")
    assert outcome.code == 0
    for option in ("dataset", "noise-strength", "trusted-share", "gradient-accumulation-steps", "hub-model-id"):
        assert f"--{option}" in outcome.out
