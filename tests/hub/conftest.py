# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""A Hub on this machine, and processes that know no other."""

from __future__ import annotations

import os
import subprocess
import sys
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
    Runs a command whose Hub is the local one. A process of its own, because the client reads `HF_ENDPOINT` when it is
    imported; without Xet, which has a protocol and a store of its own, so that large files go by LFS.
    """

    def run(*words: str | Path, token: str | None = TOKEN, **settings: str) -> subprocess.CompletedProcess:
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
            [str(word) for word in words], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=420
        )

    return run


@pytest.fixture
def python() -> str:
    return sys.executable
