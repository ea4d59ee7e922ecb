# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Launches real processes on the CPU, by torchrun or by `accelerate launch`."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from safetensors.torch import load_file


ROOT = Path(__file__).parents[2]


def launch(launcher: str, processes: int, folder: Path) -> dict[str, Any]:
    """Runs `tests.distributed.run_training` in so many processes and returns what its main process wrote."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    commands = {
        "torchrun": [
            "torch.distributed.run", f"--nproc_per_node={processes}", "--master_addr=127.0.0.1",
            f"--master_port={port}",
        ],
        "accelerate": [
            "accelerate.commands.launch", "--multi_gpu", f"--num_processes={processes}", "--num_machines=1",
            "--mixed_precision=no", "--dynamo_backend=no", f"--main_process_port={port}",
        ],
    }  # fmt: skip
    command = [sys.executable, "-m", *commands[launcher], "-m", "tests.distributed.run_training", str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=400)
    if done.returncode != 0:
        raise AssertionError(f"{processes} processes failed:\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}")
    found = json.loads((folder / "found.json").read_text())
    return {**found, "tensors": load_file(folder / "tensors.safetensors")}
