# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""What the methods with a corruption matrix share: the corrected loss on all rows in the last stage."""

from __future__ import annotations

import torch

from glc_hf.correction.loss import corrected_cross_entropy
from glc_hf.methods.base import Batch, Method, Stage


class MatrixMethod(Method):
    """
    Trains on all rows with `-log Σ_i softmax(logits)_i · C[i, label]`, plain cross-entropy on trusted ones. A given
    matrix is used as it is, with no first stage; otherwise a subclass estimates it.
    """

    uses_matrix = True
    upsamples_trusted = True
    # Whether trusted labels are known to be right (the gold part), or corrected like any other.
    identity_on_trusted = True

    def first_stage(self) -> Stage | None:
        """What is trained to estimate the matrix, if anything."""
        return None

    def earlier_stages(self) -> list[Stage]:
        """The first stage, unless the matrix is given."""
        stage = self.first_stage() if self.given_matrix is None else None
        return [stage] if stage is not None else []

    def last_stage(self) -> Stage:
        """All rows, from the initial weights or (`stage2_start="continue"`) the first stage's."""
        continues = self.args.stage2_start == "continue" and self.earlier_stages()
        return Stage("all", start="previous" if continues else "initial")

    def item_losses(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """The corrected cross-entropy of each item."""
        trusted = batch.trusted if self.identity_on_trusted else None
        return corrected_cross_entropy(logits, batch.labels, self.matrix, trusted, reduction="none")
