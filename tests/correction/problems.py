# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Random inputs for the tests, and the textbook formula of the loss."""

from __future__ import annotations

import torch
from torch import Tensor


def random_matrix(num_labels: int, seed: int, zeros: bool = False) -> Tensor:
    """A row-stochastic float64 tensor; with `zeros` about a third of its entries are zero."""
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.rand(num_labels, num_labels, generator=generator, dtype=torch.float64)
    if zeros:
        matrix = torch.where(torch.rand(matrix.shape, generator=generator) < 0.35, 0, matrix)
        matrix[torch.arange(num_labels), torch.randint(num_labels, (num_labels,), generator=generator)] = 1.0
    else:
        matrix = matrix + 0.05
    return matrix / matrix.sum(dim=1, keepdim=True)


def random_batch(rows: int, num_labels: int, seed: int, scale: float = 3.0) -> tuple[Tensor, Tensor, Tensor]:
    """float64 logits, labels and a trusted flag."""
    generator = torch.Generator().manual_seed(seed + 1)
    logits = scale * torch.randn(rows, num_labels, generator=generator, dtype=torch.float64)
    labels = torch.randint(num_labels, (rows,), generator=generator)
    return logits, labels, torch.rand(rows, generator=generator) < 0.4


def textbook(logits: Tensor, labels: Tensor, matrix: Tensor, trusted: Tensor | None = None) -> Tensor:
    """-log Σ_i softmax(logits)_i C[i, label], item by item, with C = identity for trusted items."""
    losses = []
    for item in range(len(labels)):
        label = labels[item]
        used = torch.eye(len(matrix), dtype=matrix.dtype) if trusted is not None and trusted[item] else matrix
        losses.append(-torch.log((torch.softmax(logits[item], dim=-1) * used[:, label]).sum()))
    return torch.stack(losses)


def random_probabilities(rows: int, num_labels: int, seed: int, scale: float = 2.0) -> tuple[Tensor, Tensor]:
    """float64 rows of probabilities, and labels."""
    logits, labels, _ = random_batch(rows, num_labels, seed, scale)
    return torch.softmax(logits, dim=-1), labels
