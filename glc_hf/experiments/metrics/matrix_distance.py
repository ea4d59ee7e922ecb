# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Distance between corruption matrices, for `evaluate`."""

from __future__ import annotations

import datasets
import evaluate

from glc_hf.matrix import CorruptionMatrix


class MatrixDistance(evaluate.Metric):
    """
    Distance of an estimated corruption matrix from the true one: mean total variation of their rows, 0 to 1.

    Args:
        predictions (`list` of rows): The estimated matrix, for example `trainer.corruption_matrix.probs`.
        references (`list` of rows): The true matrix.

    Returns:
        `dict` with `matrix_distance`: the mean over rows i of ½ Σ_j |C[i, j] − D[i, j]|; 0 for equal rows, 1 for
        disjoint ones.
    """

    def _info(self) -> evaluate.MetricInfo:
        row = datasets.Sequence(datasets.Value("float64"))
        return evaluate.MetricInfo(
            description=__doc__,
            citation="",
            inputs_description=MatrixDistance.__doc__,
            features=datasets.Features(dict.fromkeys(("predictions", "references"), row)),
        )

    def _compute(self, predictions: list[list[float]], references: list[list[float]]) -> dict[str, float]:
        return {"matrix_distance": CorruptionMatrix(predictions).distance(CorruptionMatrix(references))}
