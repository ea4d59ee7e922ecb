# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The distance between corruption matrices, as a module of `evaluate`."""

from __future__ import annotations

import datasets
import evaluate

from glc_hf.matrix import CorruptionMatrix


_DESCRIPTION = (
    "How far an estimated corruption matrix is from the true one: mean total variation of their rows, 0 to 1."
)
_INPUTS = """
Args:
    predictions (`list` of rows): The estimated matrix, such as `trainer.corruption_matrix.probs`.
    references (`list` of rows): The true matrix.

Returns:
    `dict` with `matrix_distance`: the mean over rows i of ½ Σ_j |C[i, j] − D[i, j]|; 0 equal, 1 disjoint.
"""


class MatrixDistance(evaluate.Metric):
    """See [`CorruptionMatrix.distance`] and `inputs_description`."""

    def _info(self) -> evaluate.MetricInfo:
        row = datasets.Sequence(datasets.Value("float64"))
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation="",
            inputs_description=_INPUTS,
            features=datasets.Features({"predictions": row, "references": row}),
        )

    def _compute(self, predictions: list[list[float]], references: list[list[float]]) -> dict[str, float]:
        return {"matrix_distance": CorruptionMatrix(predictions).distance(CorruptionMatrix(references))}
