# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The numbers do not depend on how many processes made them."""

from __future__ import annotations

import pytest
import torch

from tests.distributed.launch import launch


# 12 rows a step, however they are shared out; 241 rows leave a tail that neither 2 nor 3 processes can share evenly.
ROWS, GLOBAL_BATCH = 241, 12


def _settings(processes: int) -> dict:
    return {
        "per_device_train_batch_size": GLOBAL_BATCH // processes,
        "max_steps": -1,
        "num_train_epochs": 2,
        "learning_rate": 1e-3,
        "logging_steps": 1,  # what is not logged is summed on each process alone
    }


@pytest.fixture(scope="module")
def one_process(tmp_path_factory):
    return launch(1, tmp_path_factory.mktemp("one"), rows=ROWS, trusted=0.2, settings=_settings(1))


@pytest.mark.parametrize("processes", [2, 3])
def test_several_processes_train_the_weights_of_one(tmp_path, one_process, processes):
    several = launch(processes, tmp_path, rows=ROWS, trusted=0.2, settings=_settings(processes))
    assert several["processes"] == processes
    torch.testing.assert_close(torch.tensor(several["matrix"]), torch.tensor(one_process["matrix"]), atol=1e-5, rtol=0)
    for name, value in one_process["weights"].items():
        torch.testing.assert_close(several["weights"][name], value, atol=1e-5, rtol=0, msg=name)
    for name in ("train_loss", "stage1_train_loss"):
        assert several[name] == pytest.approx(one_process[name], abs=1e-5), name
    assert several["eval_accuracy"] == one_process["eval_accuracy"]
