# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Fixtures: a local Hub, and commands that run against it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .local_hub import TOKEN, LocalHub


ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def hub() -> Iterator[LocalHub]:
    server = LocalHub()
    yield server
    server.close()


@pytest.fixture
def on_hub(hub: LocalHub, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess]:
    """
    Run a command against the local Hub, in a subprocess because the client reads `HF_ENDPOINT` at import. Xet is
    disabled because the local Hub only supports LFS.
    """

    def run(*command: str | Path, token: str | None = TOKEN, **settings: str) -> subprocess.CompletedProcess:
        environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
        environment |= {
            "HF_ENDPOINT": hub.url,
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HOME": str(tmp_path / "hf-home"),
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            **settings,
        }
        environment.pop("HF_TOKEN", None)
        if token is not None:
            environment["HF_TOKEN"] = token
        return subprocess.run(
            [str(argument) for argument in command],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=420,
        )

    return run
