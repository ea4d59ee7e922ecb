# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The paper's measure of a method: the area under its curve of errors over the strengths of the noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise


STRENGTHS = tuple(tenth / 10 for tenth in range(11))


def area_under_error_curve(errors: Sequence[float], strengths: Sequence[float] = STRENGTHS) -> float:
    """
    The area under a curve of percent errors by the trapezoid rule, Σ (s[i+1] − s[i]) · (e[i] + e[i+1]) / 2.

    Over strengths from 0 to 1 this is also the mean height of the curve, in percent. Over a shorter range it is the
    area alone, and not to be compared with the paper's.

    Args:
        errors (`Sequence[float]`): Percent errors, 0 to 100, one for each strength.
        strengths (`Sequence[float]`, *optional*): Two or more, each once, in any order. Left out: the paper's eleven,
            0, 0.1, …, 1, in this order.
    """
    if len(errors) != len(strengths):
        raise ValueError(
            f"{len(errors)} errors for {len(strengths)} strengths: every strength needs its error. A curve over other "
            "strengths than 0, 0.1, …, 1 needs them in `strengths`."
        )
    if len(strengths) < 2:
        raise ValueError(f"a curve needs two strengths or more to have an area, not {len(strengths)}.")
    for place, (error, strength) in enumerate(zip(errors, strengths, strict=True)):
        if not 0 <= error <= 100:  # NaN too
            raise ValueError(f"error {place} is {error}; errors are percentages, 0 to 100.")
        if not 0 <= strength <= 1:
            raise ValueError(f"strength {place} is {strength}; strengths are numbers from 0 to 1.")
    curve = sorted(zip(strengths, errors, strict=True))
    for (before, _), (after, _) in pairwise(curve):
        if math.isclose(before, after, abs_tol=1e-9):
            raise ValueError(f"strength {after:g} is there twice: give one error for each strength.")
    return math.fsum((s1 - s0) * (e0 + e1) / 2 for (s0, e0), (s1, e1) in pairwise(curve))
