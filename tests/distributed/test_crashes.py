# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Runs killed at random points end with the weights of an uninterrupted run. `make long` tries more of them."""

from __future__ import annotations

import json
import os
import subprocess

from tests.distributed.launch import ROOT
from tests.forked_python import python


def test_runs_killed_at_random_points_end_with_the_same_weights_with_one_and_two_processes(tmp_path):
    output = tmp_path / "crashes.json"
    command = [python(), "benchmarks/crashes.py", "--runs=4", "--ways", "plain", "best", "--seed=2",
               f"--output={output}"]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    finished = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=400)
    assert output.exists(), finished.stderr[-4000:]
    results = json.loads(output.read_text())
    assert results["runs_lost"] == 0, finished.stdout
    assert results["faults"] >= 4
    assert results["faults_in_two_processes"] >= 2
    assert results["faults_that_cut_a_checkpoint_short"] >= 1
