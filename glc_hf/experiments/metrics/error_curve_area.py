# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The area under the error curve, as a module of `evaluate`."""

from __future__ import annotations

from collections.abc import Sequence

import datasets
import evaluate

from glc_hf.experiments.curves import STRENGTHS, area_under_error_curve


_DESCRIPTION = "The area under the curve of percent errors over strengths of label noise, by the trapezoid rule."
_INPUTS = """
Args:
    errors (`list` of `float`): Percent errors, one for each strength.
    strengths (`list` of `float`, *optional*): Two or more, each once. Left out: the paper's eleven, 0, 0.1, …, 1.

Returns:
    `dict` with `error_curve_area`, in percent.
"""
_CITATION = (
    "Hendrycks, Mazeika, Wilson and Gimpel: Using Trusted Data to Train Deep Networks on Labels Corrupted by Severe "
    "Noise. NeurIPS 2018."
)


class ErrorCurveArea(evaluate.Metric):
    """The measure of the paper's tables; see [`area_under_error_curve`] and `inputs_description`."""

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_INPUTS,
            features=datasets.Features({"errors": datasets.Value("float64")}),
        )

    def _compute(self, errors: list[float], strengths: Sequence[float] | None = None) -> dict[str, float]:
        return {"error_curve_area": area_under_error_curve(errors, STRENGTHS if strengths is None else strengths)}
