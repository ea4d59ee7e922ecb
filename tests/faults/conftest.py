# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""A trained folder that each test may damage."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from glc_hf.cli.main import main
from tests.cli.conftest import CLASSES, _process_settings, glc_hf, text_rows, tiny_bert, write_csv  # noqa: F401


QUICK = ["--max_steps", "2", "--save_strategy", "no", "--per_device_train_batch_size", "8", "--method", "glc"]


def noisy_csv(path: Path, number: int = 60) -> Path:
    """Write rows of which every fourth is trusted; every third of the others has the label of the next class."""
    rows = []
    for index, row in enumerate(text_rows(number)):
        trusted = index % 4 == 0
        wrong = not trusted and index % 3 == 0
        label = CLASSES[(CLASSES.index(row["label"]) + 1) % 3] if wrong else row["label"]
        rows.append({**row, "label": label, "trusted": "yes" if trusted else "no"})
    return write_csv(path, rows)


@pytest.fixture(scope="session")
def _trained(tmp_path_factory: pytest.TempPathFactory, tiny_bert: Path) -> Path:  # noqa: F811
    folder = tmp_path_factory.mktemp("trained")
    data = noisy_csv(folder / "train.csv")
    argv = ["train", "--dataset", data, "--model", tiny_bert, "--output-dir", folder / "model", *QUICK]
    assert main([str(word) for word in argv]) == 0
    return folder


@pytest.fixture
def trained(_trained: Path, tmp_path: Path) -> Path:
    """A folder with `model`, a run of `glc` on three classes, and `train.csv`, its rows."""
    shutil.copytree(_trained, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def train(glc_hf: Callable, tiny_bert: Path, tmp_path: Path) -> Callable:  # noqa: F811
    """Run `glc-hf train` on a file for two steps."""

    def run(*words, data: Path | None = None, output: Path | None = None):
        data = data or noisy_csv(tmp_path / "train.csv")
        argv = ["--dataset", data, "--model", tiny_bert, "--output-dir", output or tmp_path / "out", *QUICK]
        return glc_hf("train", *argv, *words)

    return run
