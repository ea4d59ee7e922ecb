# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The known matrix, for the paper's ablation: how much better the estimate could be."""

from __future__ import annotations

from glc_hf.methods.base import register
from glc_hf.methods.matrix_method import MatrixMethod


@register("true_matrix")
class TrueMatrix(MatrixMethod):
    """The last stage of Gold Loss Correction with a given matrix."""

    def check(self) -> None:
        """A matrix must be given."""
        if self.given_matrix is None:
            raise ValueError(
                "method 'true_matrix' needs the matrix: `GLCTrainer(…, corruption_matrix=CorruptionMatrix(…))`, or "
                "`--corruption-matrix` on the command line. To estimate one, use method 'glc'."
            )
