# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Which true class stands behind a given label."""

from __future__ import annotations

import torch
from torch import Tensor

from glc_hf.correction.likelihood import posteriors
from glc_hf.correction.transposed import transposed
from glc_hf.corruption.matrix import CorruptionMatrix


def posterior_over_true_labels(
    logits: Tensor, given_labels: Tensor, matrix: CorruptionMatrix | Tensor, ignore_index: int = -100
) -> Tensor:
    """
    p(true = y | x, given label) = g(x)_y · C[y, given] / Σ_i g(x)_i · C[i, given], with g(x) = softmax(logits).

    It is computed in log space, so that no row underflows. Where the label tells nothing, because no class can produce
    it or because it is `ignore_index`, the result is g(x).

    Args:
        logits (`Tensor` of shape `(..., K)`): Logits of the classifier of true classes (for probabilities, their log).
        given_labels (`Tensor` of shape `(...)`): The possibly wrong labels.
        matrix (`CorruptionMatrix` or `Tensor` of shape `(K, K)`): `C[i, j] = p(noisy = j | true = i)`.
        ignore_index (`int`, *optional*, defaults to -100): Stands for "no label".

    Returns:
        `Tensor` of shape `(..., K)`, float64 for float64 logits and float32 for all others.
    """
    if logits.shape[:-1] != given_labels.shape or logits.dim() == 0:
        raise ValueError(
            f"logits of shape {tuple(logits.shape)} need labels of shape {tuple(logits.shape[:-1])}; these have shape "
            f"{tuple(given_labels.shape)}."
        )
    num_labels = logits.shape[-1]
    dtype = logits.dtype if logits.dtype == torch.float64 else torch.float32
    columns = transposed(matrix, num_labels, dtype, logits.device)
    rows, labels = logits.reshape(-1, num_labels).to(dtype), given_labels.reshape(-1).long()
    absent = labels == ignore_index
    bad = ~absent & ((labels < 0) | (labels >= num_labels))
    if bool(bad.any()):
        raise ValueError(
            f"a given label is {int(labels[bad][0])}; with {num_labels} classes a label lies in 0…{num_labels - 1}, "
            f"or is {ignore_index} where there is none."
        )
    result = posteriors(rows, labels.masked_fill(absent, 0), columns)
    result = torch.where(absent.unsqueeze(-1), torch.softmax(rows, dim=-1), result)
    return result.reshape(logits.shape)
