# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Accuracy and percent error, as a module of `evaluate`."""

from __future__ import annotations

import datasets
import evaluate
import numpy as np


_DESCRIPTION = "The share of predictions that are right, and the percentage that are wrong."
_INPUTS = """
Args:
    predictions (`list` of `int`): The predicted classes.
    references (`list` of `int`): The true classes. Where one is `ignore_index`, its prediction is not counted.
    ignore_index (`int`, *optional*, defaults to -100): As in the losses of transformers.

Returns:
    `dict` with `accuracy` (0 to 1) and `error` (0 to 100).
"""


class ErrorRate(evaluate.Metric):
    """Accuracy (0 to 1) and error (percent) of predicted classes; see `inputs_description`."""

    def _info(self) -> evaluate.MetricInfo:
        # As floats, because `evaluate` would cut probabilities down to class 0 without a word.
        columns = {"predictions": datasets.Value("float64"), "references": datasets.Value("float64")}
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation="",
            inputs_description=_INPUTS,
            features=datasets.Features(columns),
        )

    def _compute(
        self, predictions: list[float], references: list[float], ignore_index: int = -100
    ) -> dict[str, float]:
        for name, values in (("prediction", predictions), ("reference", references)):
            odd = [place for place, value in enumerate(values) if value != int(value)]
            if odd:
                raise ValueError(f"{name} {odd[0]} is {values[odd[0]]}; give classes, such as the argmax of logits.")
        counted = np.asarray(references) != ignore_index
        if not counted.any():
            raise ValueError(f"no reference is a class: all {len(counted)} are ignored ({ignore_index}).")
        wrong = np.asarray(predictions)[counted] != np.asarray(references)[counted]
        return {"accuracy": float(1.0 - wrong.mean()), "error": float(100.0 * wrong.mean())}
