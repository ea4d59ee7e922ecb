# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Fixtures with small datasets, used by several test folders. They import the libraries themselves, because the process
that only starts the worker processes of the tests imports this module too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest


if TYPE_CHECKING:
    from datasets import Dataset

    from glc_hf import CorruptionMatrix


NAMES = ["ant", "bee", "cat", "dog", "eel"]


@pytest.fixture(autouse=True)
def own_caches(tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    datasets.disable_progress_bars()


@pytest.fixture
def rows() -> Dataset:
    """2,000 rows of five classes, with a text and a unique number that is not the position."""
    import numpy as np
    from datasets import ClassLabel, Dataset, Features, Value

    rng = np.random.default_rng(0)
    return Dataset.from_dict(
        {
            "text": [f"row {i}" for i in range(2000)],
            "label": rng.integers(0, 5, 2000),
            "number": rng.permutation(2000) * 7 - 3000,
            "trusted": rng.random(2000) < 0.2,
        },
        features=Features(
            {
                "text": Value("string"),
                "label": ClassLabel(names=NAMES),
                "number": Value("int64"),
                "trusted": Value("bool"),
            }
        ),
    )


@pytest.fixture
def matrix() -> CorruptionMatrix:
    """Each class can become any other, with different probabilities."""
    import numpy as np

    from glc_hf import CorruptionMatrix

    return CorruptionMatrix(np.random.default_rng(1).dirichlet(np.ones(5), size=5))


@pytest.fixture
def sentences() -> Dataset:
    """300 rows of 0 to 12 tokens, five classes, some tokens without label."""
    import numpy as np
    from datasets import Dataset, Features, List, Value

    rng = np.random.default_rng(2)
    lengths = rng.integers(0, 13, 300)
    labels = [np.where(rng.random(n) < 0.2, -100, rng.integers(0, 5, n)).tolist() for n in lengths]
    flags = [(rng.random(n) < 0.3).tolist() for n in lengths]
    return Dataset.from_dict(
        {
            "labels": labels,
            "number": rng.permutation(300) + 1000,
            "trusted": rng.random(300) < 0.2,
            "token_trusted": flags,
        },
        features=Features(
            {
                "labels": List(Value("int64")),
                "number": Value("int64"),
                "trusted": Value("bool"),
                "token_trusted": List(Value("bool")),
            }
        ),
    )
