# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Made-up results whose areas are known."""

from __future__ import annotations

from typing import Any

from glc_hf.experiments.curves import STRENGTHS


def result(**fields: Any) -> dict[str, Any]:
    """A line of a results file."""
    defaults = dict(preset="mnist", method="glc", noise="flip", trusted=0.01, strength=0.5, seed=0, error=10.0)
    return {**defaults, **fields}


def curve(at_zero: float, at_one: float, **fields: Any) -> list[dict[str, Any]]:
    """A complete curve that is a straight line: its area is the mean of its two ends."""
    return [result(strength=s, error=at_zero + s * (at_one - at_zero), **fields) for s in STRENGTHS]
