# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Launches real processes on the CPU, as torchrun does."""

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


def launch(
    processes: int, folder: Path, script: str = "tests.distributed.run_training", **options: Any
) -> dict[str, Any]:
    """Runs the script in so many processes and returns what its main process wrote."""
    folder.mkdir(parents=True, exist_ok=True)
    arguments = json.dumps({"folder": str(folder), **options})
    if processes == 1:
        command = [sys.executable, "-m", script, arguments]
    else:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [
            sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={processes}", "--master_addr=127.0.0.1",
            f"--master_port={port}", "-m", script, arguments,
        ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=400)
    if done.returncode != 0:
        raise AssertionError(f"{processes} processes failed:\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}")
    found = json.loads((folder / "found.json").read_text())
    return {**found, "weights": load_file(folder / "weights.st")}
