# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Files that are not those of the run: they are not used, and the message names them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from glc_hf import CorruptionMatrix
from glc_hf.hub.facts import read_facts, write_facts
from glc_hf.hub.model_card import write_card
from glc_hf.matrix import MATRIX_FILE


def test_matrix_of_an_earlier_run_is_removed(trained: Path, train, glc_hf) -> None:
    model = trained / "model"
    assert (model / MATRIX_FILE).is_file()
    assert train("--method", "no_correction", data=trained / "train.csv", output=model).code == 0
    assert not (model / MATRIX_FILE).exists()
    assert not (model / "corruption_matrix.png").exists()
    assert "The matrix was estimated" not in (model / "README.md").read_text()
    complaint = glc_hf("audit", model, "--dataset", trained / "train.csv").complaint
    assert "there is no corruption_matrix.json" in complaint
    assert "'no_correction' does not use one" in complaint


def test_matrix_that_was_put_back_is_not_used(trained: Path, glc_hf) -> None:
    """As older versions left it."""
    model = trained / "model"
    write_facts(model, {**read_facts(model), "method": "no_correction", "has_matrix": False})
    assert glc_hf("card", model).code == 0
    assert "Label noise" not in (model / "README.md").read_text()
    assert "'no_correction' does not use one" in glc_hf("audit", model, "--dataset", trained / "train.csv").complaint


def test_matrix_of_other_classes_is_refused(trained: Path, glc_hf) -> None:
    model = trained / "model"
    CorruptionMatrix.identity(4).save_pretrained(model)
    for command in (["audit", model, "--dataset", trained / "train.csv"], ["card", model]):
        complaint = glc_hf(*command).complaint
        assert f"{model / MATRIX_FILE} has 4 classes, but the model in that folder has 3" in complaint
    assert not (model / "audit").exists()


def test_head_of_other_classes_is_refused(trained: Path, glc_hf) -> None:
    model = trained / "model"
    weights = load_file(model / "model.safetensors")
    save_file(
        {**weights, "classifier.weight": torch.zeros(4, 32), "classifier.bias": torch.zeros(4)},
        model / "model.safetensors",
        metadata={"format": "pt"},
    )
    complaint = glc_hf("audit", model, "--dataset", trained / "train.csv").complaint
    assert "has shape (4" in complaint
    assert "not those of a model for 3 classes" in complaint
    del weights["classifier.weight"]
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    assert "the weights lack classifier.weight" in glc_hf("audit", model, "--dataset", trained / "train.csv").complaint


def test_weights_that_are_not_numbers_are_refused(trained: Path, glc_hf) -> None:
    model = trained / "model"
    weights = load_file(model / "model.safetensors")
    weights["classifier.bias"][1] = float("nan")
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    outcome = glc_hf("audit", model, "--dataset", trained / "train.csv")
    assert outcome.code == 1
    assert "NaN or infinite logits for 60 of 60 labels, first in row 0" in outcome.complaint
    assert not (model / "audit").exists()


@pytest.mark.parametrize("file", ["corruption_matrix.json", "glc_summary.json"])
def test_files_of_a_later_version_are_refused(trained: Path, glc_hf, file: str) -> None:
    path = trained / "model" / file
    path.write_text(json.dumps({**json.loads(path.read_text()), "format_version": 2}))
    complaint = glc_hf("audit", trained / "model", "--dataset", trained / "train.csv").complaint
    assert f"{path} has format_version 2, and this version of glc_hf reads up to 1" in complaint
    with pytest.raises(ValueError, match="install a later glc_hf"):
        write_card(trained / "model")
