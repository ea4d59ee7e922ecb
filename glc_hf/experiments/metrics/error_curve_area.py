# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Area under the error curve, for `evaluate`."""

from __future__ import annotations

import datasets
import evaluate

from glc_hf.experiments.curves import STRENGTHS, area_under_error_curve


_CITATION = (
    "Hendrycks, Mazeika, Wilson and Gimpel: Using Trusted Data to Train Deep Networks on Labels Corrupted by Severe "
    "Noise. NeurIPS 2018."
)


class ErrorCurveArea(evaluate.Metric):
    """
    Area under the curve of percent errors over strengths of label noise, by the trapezoid rule.

    Args:
        errors (`list` of `float`): Percent errors, one per strength.
        strengths (`list` of `float`, *optional*): Two or more strengths. Defaults to the paper's eleven, 0, 0.1, …, 1.

    Returns:
        `dict` with `error_curve_area`, in percent.
    """

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=__doc__,
            citation=_CITATION,
            inputs_description=ErrorCurveArea.__doc__,
            features=datasets.Features({"errors": datasets.Value("float64")}),
        )

    def _compute(self, errors: list[float], strengths: list[float] | None = None) -> dict[str, float]:
        return {"error_curve_area": area_under_error_curve(errors, STRENGTHS if strengths is None else strengths)}
