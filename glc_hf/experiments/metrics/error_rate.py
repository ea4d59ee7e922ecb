# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Accuracy and percent error, for `evaluate`."""

from __future__ import annotations

import datasets
import evaluate
import numpy as np


class ErrorRate(evaluate.Metric):
    """
    Share of predictions that are right, and percentage that are wrong.

    Args:
        predictions (`list` of `int`): Predicted classes.
        references (`list` of `int`): True classes. Predictions for the reference `ignore_index` are not counted.
        ignore_index (`int`, *optional*, defaults to -100): As in the losses of transformers.

    Returns:
        `dict` with `accuracy` (0 to 1) and `error` (0 to 100).
    """

    def _info(self) -> evaluate.MetricInfo:
        # Floats, because with integer columns `evaluate` would silently truncate probabilities to class 0.
        return evaluate.MetricInfo(
            description=__doc__,
            citation="",
            inputs_description=ErrorRate.__doc__,
            features=datasets.Features(dict.fromkeys(("predictions", "references"), datasets.Value("float64"))),
        )

    def _compute(
        self, predictions: list[float], references: list[float], ignore_index: int = -100
    ) -> dict[str, float]:
        for name, values in (("prediction", predictions), ("reference", references)):
            for number, value in enumerate(values):
                if value != int(value):
                    raise ValueError(f"{name} {number} is {value}; give classes, for example the argmax of logits.")
        counted = np.asarray(references) != ignore_index
        if not counted.any():
            raise ValueError(f"no reference is a class: all {len(counted)} are ignored ({ignore_index}).")
        wrong = np.asarray(predictions)[counted] != np.asarray(references)[counted]
        return {"accuracy": float(1.0 - wrong.mean()), "error": float(100.0 * wrong.mean())}
