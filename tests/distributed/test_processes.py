# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The numbers do not depend on how many processes made them."""

from __future__ import annotations

import os
import re
import shutil

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification

from glc_hf import CorruptionMatrix
from tests.distributed.launch import launch
from tests.distributed.run_training import ROWS, run_cases, train
from tests.training.tiny import noisy_text_rows


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    return run_cases(tmp_path_factory.mktemp("one"))


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    return {**launch("accelerate", 2, folder), "folder": folder}


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    folder = tmp_path_factory.mktemp("three")
    return {**launch("torchrun", 3, folder), "folder": folder}


@pytest.fixture(params=["two", "three"])
def several(request):
    found = request.getfixturevalue(request.param)
    assert found["processes"] == {"two": 2, "three": 3}[request.param]
    return found


@pytest.mark.parametrize("case", ["odd", "front", "stream"])
def test_several_processes_train_the_weights_of_one(one, several, case):
    names = [name for name in one["tensors"] if name.startswith(case)]
    assert names
    for name in names:
        torch.testing.assert_close(several["tensors"][name], one["tensors"][name], atol=1e-5, rtol=0, msg=name)
    for name in ("train_loss", "stage1_train_loss"):
        assert several[case][name] == pytest.approx(one[case][name], abs=1e-5), name
    assert several[case]["eval_accuracy"] == one[case]["eval_accuracy"]
    np.testing.assert_allclose(several[case]["matrix"], one[case]["matrix"], atol=1e-5)


def test_the_matrix_depends_neither_on_processes_nor_on_batches(one, several):
    """From the same weights, 2 to 99 trusted rows; with two of them and three processes, one process has none."""
    assert several["matrices"].keys() == one["matrices"].keys()
    for name, matrix in one["matrices"].items():
        np.testing.assert_allclose(several["matrices"][name], matrix, atol=1e-7, err_msg=name)
        whole = one["matrices"][re.sub("batches of .*", "batches of 64", name)]
        np.testing.assert_allclose(matrix, whole, atol=1e-7, err_msg=name)


def test_processes_that_embed_their_shares_fit_one_probe(one, several):
    """The optimizer of the head takes another way with every rounding, to the same place."""
    assert several["probe"]["probe_penalty"] == one["probe"]["probe_penalty"]
    np.testing.assert_allclose(several["probe"]["matrix"], one["probe"]["matrix"], atol=2e-3)


def test_a_weak_classifier_gives_every_row_its_label(one, several):
    assert several["weak"] == one["weak"]


def test_one_process_goes_on_where_several_were(one, several, tmp_path, caplog):
    """Nothing is drawn at random here but the order of the rows, which the seed decides: the weights are the same."""
    shutil.copytree(several["folder"] / "odd", tmp_path / "odd")
    for checkpoint in (tmp_path / "odd").glob("checkpoint-*"):
        if checkpoint.name != "checkpoint-20":
            shutil.rmtree(checkpoint)
    found = {"tensors": {}}
    train(tmp_path / "odd", noisy_text_rows(rows=ROWS), "odd", 1, found, resume=True)
    assert f"was written by {several['processes']} processes, and there are 1 now" in caplog.text
    assert "cut short" not in caplog.text
    for name, tensor in found["tensors"].items():
        torch.testing.assert_close(tensor, one["tensors"][name], atol=1e-5, rtol=0, msg=name)


def test_only_the_main_process_writes(several):
    main, *others = several["written_by_process"]
    assert any(name.endswith("trainer_state.json.tmp") for name in main)
    assert not any(others)
    # Beside each process's own random state, which is the Trainer's.
    checkpoint = os.listdir(several["folder"] / "odd" / "checkpoint-20")
    expected = {f"rng_state_{rank}.pth" for rank in range(several["processes"])}
    assert {name for name in checkpoint if "rng" in name} == expected


def test_fsdp_trains_both_stages_to_the_weights_of_one_process_and_saves_a_plain_model(one, two):
    assert two["fsdp"]["shared_out"]
    folder = two["folder"] / "fsdp"
    np.testing.assert_allclose(CorruptionMatrix.from_pretrained(folder).probs, one["fsdp"]["matrix"], atol=1e-5)
    saved = AutoModelForSequenceClassification.from_pretrained(folder).state_dict()
    for name, value in saved.items():
        torch.testing.assert_close(value, one["tensors"][f"fsdp/{name}"], atol=1e-5, rtol=0, msg=name)
    assert two["fsdp"]["eval_accuracy"] == one["fsdp"]["eval_accuracy"]
