# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Fixtures: a local Hub, and commands that run against it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.forked_python import python, stop

from .local_hub import TOKEN, LocalHub


ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def hub() -> Iterator[LocalHub]:
    server = LocalHub()
    yield server
    server.close()


@pytest.fixture(scope="module")
def hub_variables(hub: LocalHub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str | None]]:
    """The environment of a client of the local Hub. Xet is disabled because the local Hub only supports LFS."""
    variables = {
        "HF_ENDPOINT": hub.url,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_OFFLINE": None,
        "HF_HOME": str(tmp_path_factory.mktemp("hf-home")),
        "OMP_NUM_THREADS": "1",
    }
    yield variables
    stop(**variables)


@pytest.fixture
def on_hub(hub_variables: dict[str, str | None], tmp_path: Path) -> Callable[..., subprocess.CompletedProcess]:
    """Run Python with these arguments against the local Hub, not in this process because the client reads
    `HF_ENDPOINT` at import."""

    def run(*words: str | Path, token: str | None = TOKEN, **settings: str) -> subprocess.CompletedProcess:
        environment = {**os.environ, **hub_variables, "PYTHONPATH": str(ROOT), "HF_TOKEN": token, **settings}
        return subprocess.run(
            [python(**hub_variables), *map(str, words)],
            env={name: value for name, value in environment.items() if value is not None},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=420,
        )

    return run
