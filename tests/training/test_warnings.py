# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Reasons not to rely on a run: in the log, and in `trainer.warnings`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset

from glc_hf import CorruptionMatrix, GLCTrainer
from glc_hf.correction.reliability import matrix_warnings
from tests.training.tiny import bert, config, noisy_text_rows


LEARNS_NOTHING = {"learning_rate": 1e-9, "refine_matrix": False}


def rows_with_trusted(*counts: int) -> Dataset:
    """Rows with this many trusted ones per class."""
    data = noisy_text_rows(360, strength=0.2, trusted=0.5)
    labels, flags = np.array(data["clean_label"]), np.array(data["trusted"])
    for label, count in enumerate(counts):
        flags[np.flatnonzero(flags & (labels == label))[count:]] = False
    return data.remove_columns("trusted").add_column("trusted", flags.tolist())


def make_trainer(folder: Path, data: Dataset, matrix: CorruptionMatrix | None = None, **settings: Any) -> GLCTrainer:
    return GLCTrainer(bert(), config(folder, **settings), train_dataset=data, corruption_matrix=matrix)


def logged(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if text in record.getMessage()]


def test_class_with_few_trusted_rows_is_logged_once_and_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trainer = make_trainer(tmp_path, rows_with_trusted(2, 40, 40), refine_matrix=False, stage1_max_steps=12)
    trainer.train()
    messages = logged(caplog, "few trusted rows")
    assert len(messages) == 1
    assert "for 1 of 3 classes: class 0 (2). " in messages[0]
    assert messages[0] in trainer.warnings


def test_enough_trusted_rows_give_no_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trainer = make_trainer(tmp_path, rows_with_trusted(40, 40, 40), stage1_max_steps=60)
    trainer.train()
    assert trainer.warnings == []
    assert logged(caplog, "trusted rows for") == []


def test_class_without_trusted_rows_is_kept_and_not_logged_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = make_trainer(tmp_path, rows_with_trusted(40, 0, 40), stage1_max_steps=60)
    with pytest.warns(UserWarning, match="no trusted row for 1 of 3 classes: class 1"):
        trainer.train()
    assert [warning.split(".")[0] for warning in trainer.warnings] == ["no trusted row for 1 of 3 classes: class 1"]
    assert logged(caplog, "no trusted row") == logged(caplog, "few trusted rows") == []


def test_warnings_are_those_of_the_last_training(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, rows_with_trusted(40, 40, 40), **LEARNS_NOTHING)
    assert trainer.warnings == []
    trainer.train()
    assert len(trainer.warnings) == 1
    assert "same row for every class" in trainer.warnings[0]
    trainer.args.learning_rate, trainer.args.stage1_max_steps = 1e-2, 60
    trainer.train()
    assert trainer.warnings == []


def test_warnings_describe_the_refined_matrix(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = {"stage1_learning_rate": 1e-9, "max_steps": 60}
    trainer = make_trainer(tmp_path, rows_with_trusted(40, 40, 40), **settings)
    trainer.train()
    assert len(logged(caplog, "same row for every class")) == 1
    assert trainer.warnings == matrix_warnings(trainer.corruption_matrix)
    assert not any("same row for every class" in warning for warning in trainer.warnings)


@pytest.mark.parametrize("counts", [(2, 40, 40), (40, 0, 40)])
def test_resumed_run_has_the_warnings_of_the_first(tmp_path: Path, counts: tuple[int, ...]) -> None:
    settings = {"save_strategy": "steps", "save_steps": 2, "stage1_max_steps": 12}
    first = make_trainer(tmp_path, rows_with_trusted(*counts), **settings)
    first.train()
    assert first.warnings
    for checkpoint in (True, str(tmp_path / "checkpoint-2")):
        resumed = make_trainer(tmp_path, rows_with_trusted(*counts), **settings)
        resumed.train(resume_from_checkpoint=checkpoint)
        assert resumed.warnings == first.warnings


def test_given_matrix_has_warnings_about_its_rows_but_not_about_trusted_rows(tmp_path: Path) -> None:
    matrix = CorruptionMatrix([[0.5, 0.5, 0], [0.5, 0.49, 0.01], [0, 0, 1]])
    trainer = make_trainer(tmp_path, rows_with_trusted(2, 40, 0), matrix)
    trainer.train()
    assert len(trainer.warnings) == 1
    assert "class 0/class 1" in trainer.warnings[0]


def test_method_without_a_matrix_has_no_warnings(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, rows_with_trusted(2, 40, 0), method="no_correction")
    trainer.train()
    assert trainer.warnings == []
