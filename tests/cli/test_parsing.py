# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Options from the command line and from files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from glc_hf.cli.digits import DIGITS_SETTINGS
from glc_hf.cli.options import check_option_names
from glc_hf.cli.parsing import TrainParser, parse


OWN = ["--dataset", "some/data", "--model", "some/model"]


def test_dashes_and_underscores_mean_the_same() -> None:
    one = parse([*OWN, "--noise-strength", "0.3", "--noise", "flip", "--learning-rate", "1e-3", "--trusted-share=0.2"])
    other = parse(
        [*OWN, "--noise_strength", "0.3", "--noise", "flip", "--learning_rate=1e-3", "--trusted_share", "0.2"]
    )
    for options in (one, other):
        assert options.noise.noise_strength == 0.3
        assert (options.config.learning_rate, options.config.trusted_share) == (1e-3, 0.2)


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_command_line_overrides_file_and_file_overrides_defaults(tmp_path: Path, suffix: str) -> None:
    content = {"dataset": "some/data", "model": "some/model", "max-length": 64, "seed": 7, "stratify": True}
    path = tmp_path / f"config.{suffix}"
    if suffix == "json":
        path.write_text(json.dumps({**content, "learning_rate": 1e-4}), encoding="utf-8")
    else:  # YAML reads 1e-4 as a string
        lines = [f"{name}: {str(value).lower()}" for name, value in content.items()]
        path.write_text("\n".join([*lines, "learning_rate: 1e-4"]), encoding="utf-8")
    options = parse([str(path), "--seed", "8"])
    assert (options.data.dataset, options.data.max_length, options.noise.stratify) == ("some/data", 64, True)
    assert (options.config.learning_rate, options.config.seed) == (1e-4, 8)
    assert options.config.output_dir == "glc-hf-output"


def test_embedded_example_is_used_without_a_dataset() -> None:
    options = parse([])
    assert options.data.dataset is None
    assert (options.noise.noise, options.noise.noise_strength) == ("flip", 0.6)
    for name in ("num_train_epochs", "learning_rate", "per_device_train_batch_size"):
        assert getattr(options.config, name) == DIGITS_SETTINGS[name]


def test_options_override_the_embedded_example(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("num_train_epochs: 2\n", encoding="utf-8")
    options = parse([str(path), "--noise", "uniform", "--learning-rate", "0.1"])
    assert (options.noise.noise, options.config.learning_rate, options.config.num_train_epochs) == ("uniform", 0.1, 2)
    assert options.config.per_device_train_batch_size == DIGITS_SETTINGS["per_device_train_batch_size"]


def test_settings_of_the_embedded_example_are_not_used_with_a_dataset() -> None:
    options = parse(OWN)
    assert options.noise.noise == "none"
    assert options.config.learning_rate == 5e-5


@pytest.mark.parametrize(
    ("value", "expected"),
    [("True", True), ("true", True), ("False", None), ("runs/checkpoint-5", "runs/checkpoint-5")],
)
def test_resume_from_checkpoint_takes_a_path_or_true(value: str, expected: str | bool | None) -> None:
    assert parse([*OWN, "--resume_from_checkpoint", value]).config.resume_from_checkpoint == expected


def test_noise_seed_overrides_seed_for_the_rows() -> None:
    assert parse([*OWN, "--seed", "5"]).seed == 5
    assert parse([*OWN, "--seed", "5", "--noise-seed", "6"]).seed == 6


@pytest.mark.parametrize(
    ("argv", "parts"),
    [
        (["--datset", "x"], ["'--datset'", "did you mean --dataset?"]),
        (["--epochs", "3"], ["'--epochs'", "did you mean --num-train-epochs?"]),
        (["--learning-rate", "fast"], ["--learning-rate", "'fast'"]),
        (["--dataset", "some/data"], ["--dataset needs --model"]),
        (["--noise", "gaussian"], ["uniform, flip, hierarchical", "'gaussian'"]),
        (["--noise-strength", "1.5"], ["--noise-strength", "1.5"]),
        (["--noise", "hierarchical"], ["--noise-groups"]),
        (["--noise-groups", "[[0, 1]]"], ["--noise hierarchical"]),
        (["--trusted-fraction", "5"], ["--trusted-fraction", "5.0"]),
        (["--trusted-fraction", "0.1", "--trusted-count", "5"], ["give one"]),
        (["--trusted-count", "0"], ["--trusted-count", "at least 1"]),
        (["--max-train-samples", "-3"], ["--max-train-samples", "-3"]),
        (["--task", "audio"], ["audio", "text"]),
        (["--trusted-level", "word"], ["word", "token"]),
        (["--text-pair-column", "b"], ["--text-column"]),
        (["--image-size", "32"], ["--from-scratch"]),
        (["--stage2-start", "middle"], ["middle"]),
        (["--trusted-share", "2"], ["trusted_share", "2.0"]),
        (["--method", "magic"], ["'magic'", "glc"]),
        (["--compare", "glc", "--resume_from_checkpoint", "a/checkpoint-2"], ["--compare", "a/checkpoint-2"]),
        (["data.csv"], ["'data.csv'", "--dataset"]),
        (["missing.yaml"], ["missing.yaml"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_options_print_one_line_that_names_them(glc_hf, argv: list[str], parts: list[str]) -> None:
    outcome = glc_hf("train", *argv)
    assert outcome.code == 2
    for part in parts:
        assert part in outcome.complaint


def test_an_unknown_option_is_reported_before_torch_is_imported() -> None:
    code = "import sys; from glc_hf.cli.main import main; print(main(['train', '--datset=x']), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "False"]
    assert "there is no option '--datset'; did you mean --dataset?" in done.stderr


def test_every_option_of_the_parser_is_known_before_it_is_imported() -> None:
    options = [option for action in TrainParser()._actions for option in action.option_strings]
    check_option_names([option for option in options if option.startswith("--") and option != "--help"])
    check_option_names(["run.yaml", "--learning_rate=1e-3", "--learning-rate", "-1", "--help-all", "--"])


def test_data_in_a_folder_to_push_is_an_error(glc_hf, tmp_path: Path) -> None:
    (tmp_path / "reviews.json").write_text("[]", encoding="utf-8")
    argv = ["--dataset", tmp_path / "reviews.json", "--model", "some/model", "--output-dir", tmp_path]
    assert "which would be pushed: choose another folder" in glc_hf("train", *argv, "--push-to-hub").complaint


def test_yaml_file_can_contain_a_bare_no(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("save_strategy: no\n", encoding="utf-8")
    assert parse([str(path)]).config.save_strategy == "no"


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("nose: flip", ["'nose'", "config.yaml", "did you mean --noise?"]),
        ("- dataset", ["config.yaml", "list"]),
        ("dataset: [", ["config.yaml", "YAML"]),
        ("noise_strength: [1, 2]", ["wrong type"]),
        ("num_train_epochs: many", ["num_train_epochs", "'many'"]),
    ],
)
def test_bad_files_print_one_line_that_names_the_problem(
    glc_hf, tmp_path: Path, content: str, parts: list[str]
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(content, encoding="utf-8")
    outcome = glc_hf("train", path)
    assert outcome.code == 2
    for part in parts:
        assert part in outcome.complaint
