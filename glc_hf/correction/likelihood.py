# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
The corrected loss of each item, and its gradient in closed form.

With p = softmax(x), x the K logits of an item, and w the probability that each true class gives the item's label,

    loss       = -log s,  s = Σ_i p_i w_i                      (probability space)
               = -logsumexp(log p + log w)                     (log space)
    d loss/d x = p - p·w / s = softmax(x) - softmax(x + log w)

where w = C[:, label], or one-hot(label) on a trusted item, which makes it the plain cross-entropy. Shapes: x and w are
`(N, K)`, labels, trusted and the losses `(N,)`; nothing larger than N×K is built.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from glc_hf.correction.transposed import TransposedMatrix


# The loss of a label that no class can produce: that of the smallest normal float32 probability, 87.34. It is finite,
# and high enough to be seen in a training log.
IMPOSSIBLE_LABEL_LOSS = -math.log(torch.finfo(torch.float32).tiny)
# For sums above tiny/eps², what underflow may have taken from them is less than their rounding.
_SAFE_LIKELIHOOD = {
    dtype: torch.finfo(dtype).tiny / torch.finfo(dtype).eps ** 2 for dtype in (torch.float32, torch.float64)
}


def item_losses(
    x: Tensor, labels: Tensor, trusted: Tensor | None, matrix: TransposedMatrix, with_gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """
    The loss of each item and, if asked for, its gradient with respect to `x`; neither is part of an autograd graph.

    On the CPU this works in probability space, and goes over to log space for the items whose sum is close to
    underflow. Elsewhere finding those would make the CPU wait for the device at each step, so every item takes log
    space.
    """
    if x.device.type != "cpu":
        return _in_log_space(x, _log_weights(labels, trusted, matrix, x.dtype), with_gradient)
    probs = torch.softmax(x, dim=-1)
    joint = _weights(labels, trusted, matrix.rows).mul_(probs)
    likelihood = joint.sum(dim=-1)
    inverse = likelihood.reciprocal()
    losses = inverse.log()
    gradient = probs.addcmul_(joint, inverse.unsqueeze(-1), value=-1) if with_gradient else None
    floor = _SAFE_LIKELIHOOD[x.dtype]
    if likelihood.numel() and not likelihood.min().item() >= floor:  # NaN goes this way too
        rows = (~(likelihood >= floor)).nonzero().squeeze(-1)
        some_trusted = trusted[rows] if trusted is not None else None
        log_weights = _log_weights(labels[rows], some_trusted, matrix, x.dtype)
        losses[rows], of_rows = _in_log_space(x[rows], log_weights, with_gradient)
        if gradient is not None:
            gradient[rows] = of_rows
    return losses, gradient


def differentiable_item_losses(x: Tensor, labels: Tensor, trusted: Tensor | None, matrix: TransposedMatrix) -> Tensor:
    """The same losses from differentiable operations alone: for `torch.func` and forward-mode differentiation."""
    log_weights, impossible = _log_weights(labels, trusted, matrix, x.dtype)
    losses = -torch.logsumexp(_log_probs(x) + log_weights, dim=-1)
    return losses.masked_fill(impossible, IMPOSSIBLE_LABEL_LOSS)


def differentiable_item_gradients(
    x: Tensor, labels: Tensor, trusted: Tensor | None, matrix: TransposedMatrix
) -> Tensor:
    """The gradient of each loss with respect to `x`, itself differentiable: for double backward."""
    log_weights, impossible = _log_weights(labels, trusted, matrix, x.dtype)
    return _gradient_from(_log_probs(x), log_weights, impossible)


def posteriors(x: Tensor, labels: Tensor, matrix: TransposedMatrix) -> Tensor:
    """p(true class | x, label) = softmax(x + log w); softmax(x) for a label that no class can produce."""
    log_weights, _ = _log_weights(labels, None, matrix, x.dtype)
    return torch.softmax(_log_probs(x) + log_weights, dim=-1)


def _in_log_space(x: Tensor, log_weights: tuple[Tensor, Tensor], with_gradient: bool) -> tuple[Tensor, Tensor | None]:
    weights, impossible = log_weights
    log_probs = _log_probs(x)
    losses = torch.logsumexp(log_probs + weights, dim=-1).neg_().masked_fill_(impossible, IMPOSSIBLE_LABEL_LOSS)
    return losses, _gradient_from(log_probs, weights, impossible) if with_gradient else None


def _gradient_from(log_probs: Tensor, log_weights: Tensor, impossible: Tensor) -> Tensor:
    gradient = log_probs.exp() - torch.softmax(log_probs + log_weights, dim=-1)
    return gradient.masked_fill(impossible.unsqueeze(-1), 0)


def _log_probs(x: Tensor) -> Tensor:
    """log softmax(x), with the lowest finite number for -inf (logits apart by more than the dtype holds, or -inf)."""
    return torch.log_softmax(x, dim=-1).clamp(min=torch.finfo(x.dtype).min)


def _weights(labels: Tensor, trusted: Tensor | None, rows: Tensor) -> Tensor:
    if trusted is not None and len(rows) > rows.shape[1]:
        return rows.index_select(0, torch.add(labels, trusted, alpha=rows.shape[1]))
    weights = rows.index_select(0, labels)
    if trusted is None:
        return weights
    flags = trusted.to(weights.dtype).unsqueeze(-1)
    if torch._C._are_functorch_transforms_active():  # under vmap only `trusted` may be batched
        weights = weights * (1 - flags)
    else:  # in place: another N×K of fresh memory takes longer than the product
        weights.mul_(1 - flags)
    return weights.scatter_add_(-1, labels.unsqueeze(-1), flags)


def _log_weights(
    labels: Tensor, trusted: Tensor | None, matrix: TransposedMatrix, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """log w, and which items have a label no class can produce; those get log w = 0, so that no NaN arises."""
    rows = matrix.rows if matrix.exact_rows is None else matrix.exact_rows
    log_weights = _weights(labels, trusted, rows).log().to(dtype)
    impossible = torch.isneginf(log_weights).all(dim=-1)
    return log_weights.masked_fill(impossible.unsqueeze(-1), 0), impossible
