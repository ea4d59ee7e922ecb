# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Which classes the noise mistakes for which."""

from __future__ import annotations

from typing import Any

import numpy as np

from glc_hf.corruption.matrix import CorruptionMatrix


def largest_confusions(matrix: CorruptionMatrix, number: int = 10) -> list[dict[str, Any]]:
    """The largest entries off the diagonal: which class is mistaken for which, and how often."""
    others = matrix.probs.copy()
    np.fill_diagonal(others, 0.0)
    places = np.argsort(-others, axis=None, kind="stable")[:number]
    pairs = [divmod(int(place), matrix.num_labels) for place in places]
    return [
        {"true": matrix.name_of(true), "noisy": matrix.name_of(noisy), "probability": float(others[true, noisy])}
        for true, noisy in pairs
        if others[true, noisy] > 0.0
    ]
