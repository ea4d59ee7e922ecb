# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""No network, one thread, and tiny models made from configs."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys


os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# A shell starts background jobs with SIGINT ignored, and so would every process of the tests ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.forked_python import look_for_packages_once, python, share
from tests.small_datasets import matrix, own_caches, rows, sentences  # noqa: F401  (fixtures)


# The files with the longest tests. They run first, so that the processes of a run end at about the same time.
LONGEST = (
    "distributed/", "training/test_accuracy", "experiments/test_sweeps", "hub/test_push", "cli/test_digits",
    "examples/", "training/test_determinism", "test_wheel",
)  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        # Tests that start a new interpreter, or processes by `spawn`, do so as without forked worker processes.
        sys.executable = config.workerinput["executable"]
        multiprocessing.set_executable(sys.executable)
    elif getattr(config.option, "numprocesses", None):
        share()
        # Worker processes import the libraries once, together.
        config.option.tx = [f"popen//python={python()}"] * len(config.option.tx)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["executable"] = sys.executable


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.removeprefix("tests/").startswith(LONGEST))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real datasets, laid out as on the Hub; tests that need it skip where it is not there."""
    folder = Path(os.environ.get("GLC_HF_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("no real data here: set GLC_HF_DATA to a folder of datasets laid out as on the Hub")
    return folder


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    import datasets  # noqa: F401
    import torch
    import transformers.trainer  # noqa: F401

    torch.set_num_threads(1)
    look_for_packages_once()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True, scope="module")
def _little_to_collect(_one_thread: None) -> None:
    """Every Trainer collects garbage, twice: leave out the objects of earlier tests and of imports, which stay."""
    gc.collect()
    gc.freeze()


_pictures: dict[tuple, bytes] = {}


@pytest.fixture(autouse=True, scope="module")
def _few_pictures(request: pytest.FixtureRequest, _one_thread: None) -> Iterator[None]:
    """Cards of models of the same number of classes share a picture: only the tests of the Hub look at its content."""
    from glc_hf.hub import card_parts

    if request.path.parent.name == "hub":
        yield
        return
    draw = card_parts._png

    def drawn_once(figure: Any, *dpi: float) -> bytes:
        key = (*figure.get_size_inches(), len(figure.axes), *dpi)
        if key not in _pictures:
            _pictures[key] = draw(figure, *dpi)
        return _pictures[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(card_parts, "_png", drawn_once)
        yield
    card_parts.picture_of.cache_clear()
    card_parts._picture_of_sources.cache_clear()
