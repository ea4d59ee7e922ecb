# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Runs killed at random points end with the weights of a run that nobody disturbed. `make long` tries dozens."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.distributed.launch import ROOT


def test_runs_killed_at_random_points_end_with_the_same_weights_on_one_process_and_on_two(tmp_path):
    outcome = tmp_path / "crashes.json"
    command = [sys.executable, "benchmarks/crashes.py", "--runs=4", "--ways", "plain", "best", "--seed=2",
               f"--output={outcome}"]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=400)
    assert outcome.exists(), done.stderr[-4000:]
    found = json.loads(outcome.read_text())
    assert found["runs_lost"] == 0, done.stdout
    assert found["faults"] >= 4
    assert found["faults_in_two_processes"] >= 2
    assert found["faults_that_cut_a_checkpoint_short"] >= 1
