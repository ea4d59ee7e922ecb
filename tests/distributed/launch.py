# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Launch several processes on the CPU, with `torchrun` or `accelerate launch`."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from tests.forked_python import python


ROOT = Path(__file__).parents[2]


def launch(launcher: str, processes: int, folder: Path) -> dict[str, Any]:
    """Run `tests.distributed.run_training` in several processes. Returns the results of the main process."""
    run(launcher, processes, "tests.distributed.run_training", folder)
    results = json.loads((folder / "results.json").read_text())
    return {**results, "tensors": load_file(folder / "tensors.safetensors")}


def run(launcher: str, processes: int, module: str, *words: Any, **variables: str) -> str:
    """Run a module with arguments and variables of the environment in several processes. Returns what they print."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
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
    command = [python(), "-m", *commands[launcher], "-m", module, *map(str, words)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT), **variables}
    finished = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=400)
    if finished.returncode != 0:
        raise AssertionError(f"{processes} processes failed:\n{finished.stdout[-2000:]}\n{finished.stderr[-6000:]}")
    return finished.stdout
