# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Results do not depend on the number of processes."""

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
    results = request.getfixturevalue(request.param)
    assert results["processes"] == {"two": 2, "three": 3}[request.param]
    return results


@pytest.mark.parametrize("case", ["odd", "front", "stream", "people"])
def test_several_processes_give_the_same_weights_as_one(one, several, case):
    check_equal(one, several, case)


@pytest.mark.parametrize("case", ["soft", "voted tokens", "voted stream"])
def test_two_processes_give_the_same_weights_as_one(one, two, case):
    check_equal(one, two, case)


@pytest.mark.parametrize("case", ["command", "stopped"])
def test_command_with_two_processes_gives_the_same_weights_as_one(one, two, case):
    """Also if it was stopped by a signal, and resumed."""
    names = [name.removeprefix("command/") for name in one["tensors"] if name.startswith("command/")]
    assert names
    for name in names:
        if not name.endswith("key.bias"):  # its gradient is zero except for rounding, which Adam scales up
            expected = one["tensors"][f"command/{name}"]
            torch.testing.assert_close(two["tensors"][f"{case}/{name}"], expected, atol=1e-5, rtol=0, msg=name)


def test_signal_to_one_process_stops_all_of_them_with_a_checkpoint(two):
    (code, printed, files), (other_code, other_printed, _) = two["stopped"]
    assert (code, other_code) == (143, 143)
    assert "saving a checkpoint before stopping" in printed
    assert "terminated. Resume from the last checkpoint, launched on 2 processes again, with:\nglc-hf train" in printed
    assert "stopping" not in other_printed
    assert "Resume" not in other_printed
    assert [name for name in files if name.startswith("checkpoint-")] == ["checkpoint-3"]


def check_equal(one, several, case):
    names = [name for name in one["tensors"] if name.startswith(f"{case}/")]
    assert names
    for name in names:
        torch.testing.assert_close(several["tensors"][name], one["tensors"][name], atol=1e-5, rtol=0, msg=name)
    for name in ("train_loss", "stage1_train_loss"):
        assert several[case][name] == pytest.approx(one[case][name], abs=1e-5), name
    assert several[case]["eval_accuracy"] == one[case]["eval_accuracy"]
    np.testing.assert_allclose(several[case]["matrix"], one[case]["matrix"], atol=1e-5)
    assert several[case]["refinements"] == one[case]["refinements"] == (2 if case in ("people", "voted tokens") else 0)


def test_matrix_does_not_depend_on_processes_or_batch_size(one, several):
    """2 to 99 trusted rows from the same weights. With two rows and three processes, one process has none."""
    assert several["matrices"].keys() == one["matrices"].keys()
    for name, matrix in one["matrices"].items():
        np.testing.assert_allclose(several["matrices"][name], matrix, atol=1e-7, err_msg=name)
        expected = one["matrices"][re.sub("batches of .*", "batches of 64", name)]
        np.testing.assert_allclose(matrix, expected, atol=1e-7, err_msg=name)


def test_several_processes_fit_the_same_probe_as_one(one, several):
    """Rounding changes the path of the optimizer of the head, but not its result."""
    assert several["probe"]["probe_penalty"] == one["probe"]["probe_penalty"]
    np.testing.assert_allclose(several["probe"]["matrix"], one["probe"]["matrix"], atol=2e-3)


def test_auto_decides_and_judges_the_same_with_two_processes(one, two):
    """Each prediction of 60 trusted labels is one sixtieth of an accuracy; rounding may change a few of them. It also
    changes the matrix and the probable labels a little, and Adam can turn that into a few steps for a weight whose
    gradient is near zero: a step is 1e-3."""
    ours, theirs = two["auto"]["verdict"], one["auto"]["verdict"]
    (decision,), (expected,) = ours["decisions"], theirs["decisions"]
    assert decision.split(": ")[0] == expected.split(": ")[0]
    assert decision.startswith("The last stage trains on ")
    for name in ("chosen", "helps", "trusted_rows", "level", "final"):
        assert ours[name] == theirs[name], name
    assert ours["final"]
    assert ours["trusted_rows"] == 60
    assert ours["ways"].keys() == theirs["ways"].keys()
    for name, way in theirs["ways"].items():
        assert ours["ways"][name]["measured"] == way["measured"]
        assert ours["ways"][name]["accuracy"] == pytest.approx(way["accuracy"], abs=0.04), name
    np.testing.assert_allclose(two["auto"]["matrix"], one["auto"]["matrix"], atol=0.03)
    assert two["auto"]["probe_penalty"] == one["auto"]["probe_penalty"]
    assert two["auto"]["probe_loss"] == pytest.approx(one["auto"]["probe_loss"], abs=1e-3)
    # The last stage learns probabilities of linear models, which are as exact as the optimizer that fitted them.
    assert two["auto"]["train_loss"] == pytest.approx(one["auto"]["train_loss"], abs=1e-4)
    for name in [name for name in one["tensors"] if name.startswith("auto/")]:
        if not name.endswith("key.bias"):  # its gradient is zero except for rounding, which Adam scales up
            apart = (two["tensors"][name] - one["tensors"][name]).abs()
            assert (apart > 5e-4).sum() <= 3, name
            assert apart.max() < 5e-3, name


def test_weak_classifier_gives_the_same_labels_with_several_processes(one, several):
    assert several["weak"] == one["weak"]


def test_one_process_resumes_a_run_of_several(one, several, tmp_path, caplog):
    """Only the order of the rows is random, and it depends on the seed, so the weights are the same."""
    shutil.copytree(several["folder"] / "odd", tmp_path / "odd")
    for checkpoint in (tmp_path / "odd").glob("checkpoint-*"):
        if checkpoint.name != "checkpoint-20":
            shutil.rmtree(checkpoint)
    results = {"tensors": {}}
    train(tmp_path / "odd", noisy_text_rows(rows=ROWS), "odd", 1, results, resume=True)
    assert f"was written by {several['processes']} processes and is resumed by 1" in caplog.text
    assert "is incomplete" not in caplog.text
    for name, tensor in results["tensors"].items():
        torch.testing.assert_close(tensor, one["tensors"][name], atol=1e-5, rtol=0, msg=name)


def test_only_the_main_process_writes_files(several):
    main, *other_processes = several["written_by_process"]
    assert any(name.endswith("trainer_state.json.tmp") for name in main)
    assert not any(other_processes)
    # Except for the random state of each process, which Trainer writes.
    checkpoint = os.listdir(several["folder"] / "odd" / "checkpoint-20")
    expected = {f"rng_state_{rank}.pth" for rank in range(several["processes"])}
    assert {name for name in checkpoint if "rng" in name} == expected


def test_fsdp_gives_the_same_weights_as_one_process_and_saves_a_plain_model(one, two):
    assert two["fsdp"]["sharded"]
    folder = two["folder"] / "fsdp"
    np.testing.assert_allclose(CorruptionMatrix.from_pretrained(folder).probs, one["fsdp"]["matrix"], atol=1e-5)
    saved = AutoModelForSequenceClassification.from_pretrained(folder).state_dict()
    for name, value in saved.items():
        torch.testing.assert_close(value, one["tensors"][f"fsdp/{name}"], atol=1e-5, rtol=0, msg=name)
    assert two["fsdp"]["eval_accuracy"] == one["fsdp"]["eval_accuracy"]
