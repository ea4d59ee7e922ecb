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
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from glc_hf.matrix import CorruptionMatrix


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


_MOST_CLASSES_WITH_IDENTITY = 2048


@dataclass(frozen=True)
class TransposedMatrix:
    """
    Cᵀ, so that the K numbers a noisy label needs, C[:, label], are one contiguous row. Up to some thousand classes the
    identity stands below it: row K + label is what a trusted label needs, read like any other.

    Args:
        rows (`Tensor` of shape `(K, K)` or `(2·K, K)`): `rows[j, i] = C[i, j]`.
        exact_rows (`Tensor`, *optional*):
            The same in float64, kept only if C has entries too small for the dtype of `rows`.
        is_identity (`bool`): Whether C is exactly the identity: nothing to correct.
    """

    rows: Tensor
    exact_rows: Tensor | None
    is_identity: bool


class _Remembered:
    """What was prepared from one matrix object. `alive` guards against another object under the same `id`."""

    def __init__(self, matrix: CorruptionMatrix | Tensor, forget: Callable[[object], None]) -> None:
        self.alive = weakref.ref(matrix, forget)
        self.state: tuple[int, int] | None = None
        self.prepared: dict[tuple[torch.device, torch.dtype], TransposedMatrix] = {}


# Keyed by identity: hashing a CorruptionMatrix reads all its K² numbers, and tensors compare element by element.
_REMEMBERED: dict[int, _Remembered] = {}


def transposed(
    matrix: CorruptionMatrix | Tensor, num_labels: int, dtype: torch.dtype, device: torch.device
) -> TransposedMatrix:
    """
    The checked and transposed matrix. The work is done once for each matrix object, dtype and device, and again when a
    tensor is changed in place; it is forgotten with the matrix.

    Args:
        matrix (`CorruptionMatrix` or `Tensor` of shape `(K, K)`): `C[i, j] = p(noisy = j | true = i)`.
        num_labels (`int`): K as the logits have it.
        dtype (`torch.dtype`): float32 or float64.
        device (`torch.device`): Where the logits are.
    """
    remembered = _recall(matrix)
    found = remembered.prepared.get((device, dtype)) if remembered is not None else None
    if found is None:
        # Inside torch.func transforms new tensors belong to the transform, and must not outlive it.
        with temporarily_clear_interpreter_stack():
            found = _prepare(matrix, dtype, device)
        if remembered is not None:
            remembered.prepared[device, dtype] = found
    if found.rows.shape[1] != num_labels:
        raise ValueError(
            f"the corruption matrix has {found.rows.shape[1]} classes and the logits have {num_labels}: the last "
            "dimension of the logits must be the classes of the matrix."
        )
    return found


def _recall(matrix: CorruptionMatrix | Tensor) -> _Remembered | None:
    if isinstance(matrix, Tensor):
        if matrix.is_inference():
            return None  # it doesn't count its in-place changes, so nothing kept from it can be trusted
        state = (matrix._version, matrix.data_ptr())
    elif isinstance(matrix, CorruptionMatrix):
        state = None  # read-only
    else:
        raise TypeError(
            f"matrix must be a CorruptionMatrix or a torch tensor, got {type(matrix).__name__}; "
            "wrap it: CorruptionMatrix(matrix)."
        )
    key = id(matrix)
    remembered = _REMEMBERED.get(key)
    if remembered is None or remembered.alive() is not matrix:
        remembered = _REMEMBERED[key] = _Remembered(matrix, lambda gone: _forget(key, gone))
    if remembered.state != state:
        remembered.prepared.clear()
        remembered.state = state
    return remembered


def _forget(key: int, gone: object) -> None:
    remembered = _REMEMBERED.get(key)
    if remembered is not None and remembered.alive is gone:  # else the id already serves another matrix
        del _REMEMBERED[key]


def _prepare(matrix: CorruptionMatrix | Tensor, dtype: torch.dtype, device: torch.device) -> TransposedMatrix:
    if isinstance(matrix, Tensor):
        _check_tensor(matrix)
        straight = matrix.detach()
    else:
        straight = torch.from_numpy(np.array(matrix.probs))  # a copy: torch has no read-only tensors
    rows = _turned(straight, dtype, device)
    nonzero = int(straight.count_nonzero())
    large_enough = rows[: len(straight)] >= torch.finfo(dtype).smallest_normal
    too_small = int(large_enough.count_nonzero()) < nonzero
    return TransposedMatrix(
        rows=rows,
        exact_rows=_turned(straight, torch.float64, device) if too_small else None,
        is_identity=nonzero == len(straight) and bool((straight.diagonal() == 1).all()),
    )


def _turned(straight: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    # Cast first: torch transposes block by block only within one dtype.
    turned = straight.to(device=device, dtype=dtype).T
    if len(straight) > _MOST_CLASSES_WITH_IDENTITY:
        return turned.clone(memory_format=torch.contiguous_format)
    return torch.cat([turned, torch.eye(len(straight), dtype=dtype, device=device)])


def _check_tensor(matrix: Tensor) -> None:
    if matrix.requires_grad:
        raise ValueError("the corruption matrix is a constant of the loss, this one requires grad: matrix.detach().")
    if matrix.dtype in (torch.float16, torch.bfloat16):
        raise ValueError(
            f"the corruption matrix is {matrix.dtype}, in which its rows can't sum to one: keep it in float32."
        )
    CorruptionMatrix(matrix)  # raises, naming the row; its numbers are not used: they are normalised once more


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
