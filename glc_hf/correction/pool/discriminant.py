# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Linear discriminant analysis with labels that are only probable.

The features of class k are Gaussian, with the mean m_k and a covariance W that all classes share. A row belongs to
class k with the probability q_k, so that m_k is a weighted mean over all rows. Wrong labels of single rows nearly
cancel in it, where a classifier would follow them. With T the covariance of all rows and π_k the frequencies of the
classes, W = T − Σ_k π_k m_k m_kᵀ, and the logits of features x are

    m_kᵀ V⁻¹ x − ½ m_kᵀ V⁻¹ m_k + log π_k,    V = 0.6 · W + 0.4 · I

for standardized features. With S = 0.6 · T + 0.4 · I, which is the same in every fit, and M = (m_1, …, m_K),

    V⁻¹ M = S⁻¹ M P (I − B)⁻¹ P⁻¹,    B = 0.6 · P Mᵀ S⁻¹ M P,    P = diag(√π).

B says how much of the scatter lies between the classes. T, π and M are not of the same rows, so with few rows B can
have eigenvalues above 1, with which V is no covariance and logits have the wrong sign. They are cut off at 0.95.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from glc_hf.correction.linear import FeatureTable, LinearHead


_SHRINKAGE = 0.4  # weight of the identity
_MOST_BETWEEN = 0.95  # largest eigenvalue of B


def scatter_root(table: FeatureTable) -> Tensor | None:
    """`(D, D)`: the Cholesky root of S, in float64 on the CPU; `None` if there are too many features."""
    correlation = table.correlation()
    if correlation is None:
        return None
    identity = torch.eye(len(correlation), dtype=torch.float64)
    return torch.linalg.cholesky((1 - _SHRINKAGE) * correlation + _SHRINKAGE * identity)


class DiscriminantFit:
    """
    Fits discriminants to the same rows with different labels.

    Args:
        table ([`FeatureTable`]): The features.
        root (`Tensor` of shape `(D, D)`): From [`scatter_root`].
        rows (`Tensor` of shape `(n,)`): Table rows to fit on.
        num_labels (`int`): K.
    """

    def __init__(self, table: FeatureTable, root: Tensor, rows: Tensor, num_labels: int) -> None:
        self.table, self.root, self.num_labels = table, root, num_labels
        self._chunks = table.chunks(rows, num_labels)

    def fit(self, probs: Tensor) -> LinearHead:
        """The head for the probabilities q, `(n, K)`, of the labels of the rows."""
        table, width = self.table, len(self.root)
        sums = torch.zeros(self.num_labels, width + 1, dtype=torch.float64)
        for features, part in self._chunks():
            own = probs[part.cpu()].to(features)
            sums[:, :-1] += (own.t() @ features).double().cpu()
            sums[:, -1] += own.double().sum(dim=0).cpu()
        sums = table.reduce(sums)
        counts = sums[:, -1:]
        scale = table.scale.double().cpu() / math.sqrt(width)  # of one feature
        # A class that hardly any row belongs to is close to the mean of all rows.
        means = (sums[:, :-1] - counts * table.mean.double().cpu()) / scale / counts.clamp(min=1.0)
        rates = (counts.squeeze(1) + 1.0) / (counts.sum() + self.num_labels)
        solved = torch.cholesky_solve(means.t(), self.root)  # S⁻¹ M
        roots = rates.sqrt()
        values, vectors = torch.linalg.eigh((1 - _SHRINKAGE) * roots.unsqueeze(1) * (means @ solved) * roots)
        inverse = vectors / (1 - values.clamp(max=_MOST_BETWEEN)) @ vectors.t()
        weight = (solved * roots) @ inverse / roots
        bias = rates.log() - 0.5 * (means * weight.t()).sum(dim=1)
        return LinearHead(
            (weight * math.sqrt(width)).float().to(table.device),
            bias.float().to(table.device),
            table.mean,
            table.scale,
        )
