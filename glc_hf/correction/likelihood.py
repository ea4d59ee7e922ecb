# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
The likelihood of a noisy label: the corrected loss per item, its gradient, and the posterior of the true class.

With p = softmax(x), x the K logits of an item, and w_i the probability that true class i gives the item's label,

    loss       = -log s,  s = Σ_i p_i w_i                      (probability space)
               = -logsumexp(log p + log w)                     (log space)
    d loss/d x = p - p·w / s = softmax(x) - softmax(x + log w)
    posterior  = p·w / s     = softmax(x + log w)

where w = C[:, label], or one-hot(label) for a trusted item, which gives the plain cross-entropy. Shapes: x and w are
`(N, K)`; labels, trusted and losses are `(N,)`. No tensor is larger than N×K.

Soft targets t, `(N, K)`, have the loss -Σ_j t_j log s_j, s = p C, and the gradient Σ_j t_j · (p - p·C[:, j] / s_j).
"""

from __future__ import annotations

import math
import weakref
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from glc_hf._compat import functorch_check
from glc_hf.correction.compiled.loss_kernel import compiled_item_losses
from glc_hf.matrix import CorruptionMatrix


_transforms_active = functorch_check()
# The loss of a label that no class can produce: -log of the smallest normal float32, 87.34. It is finite, and high
# enough to be noticed in a training log.
IMPOSSIBLE_LABEL_LOSS = -math.log(torch.finfo(torch.float32).tiny)
# For sums above tiny/eps² the error due to underflow is smaller than the rounding error.
_SAFE_LIKELIHOOD = {
    dtype: torch.finfo(dtype).tiny / torch.finfo(dtype).eps ** 2 for dtype in (torch.float32, torch.float64)
}
_MAX_CLASSES_WITH_IDENTITY = 2048
# For rows shorter than a vector register, `torch.softmax` takes up to four times as long as separate operations.
_VECTOR = 16


class TransposedMatrix(NamedTuple):
    """
    Cᵀ, so that the weights of a noisy label, C[:, label], are one contiguous row. Up to 2,048 classes the identity is
    stored below it: row K + label holds the weights of a trusted label. With more classes one row of zeros is.

    Args:
        rows (`Tensor` of shape `(2·K, K)` or `(K + 1, K)`): `rows[j, i] = C[i, j]`.
        exact_rows (`Tensor`, *optional*):
            The same in float64, only if C has entries too small for the dtype of `rows`.
        is_identity (`bool`): Whether C is exactly the identity, so that there is nothing to correct.
    """

    rows: Tensor
    exact_rows: Tensor | None
    is_identity: bool


# id(matrix) → (weak reference, version, prepared matrices). Keyed by id because hashing a CorruptionMatrix reads all
# of it and tensors compare elementwise; the weak reference detects an id that was reused for another object.
_CACHE: dict[int, tuple[weakref.ref, tuple[int, int] | None, dict[tuple, TransposedMatrix]]] = {}


def transposed(
    matrix: CorruptionMatrix | Tensor, num_labels: int, dtype: torch.dtype, device: torch.device
) -> TransposedMatrix:
    """
    Check and transpose a matrix. The result is cached per matrix object, dtype and device, until the matrix is garbage
    collected or, for a tensor, changed in place.

    Args:
        matrix (`CorruptionMatrix` or `Tensor` of shape `(K, K)`): `C[i, j] = p(noisy = j | true = i)`.
        num_labels (`int`): The K of the logits.
        dtype (`torch.dtype`): float32 or float64.
        device (`torch.device`): Device of the logits.
    """
    entry = _CACHE.get(id(matrix))
    # Without a version the matrix is read-only, so its entry needs no further check.
    cached = entry[2] if entry is not None and entry[1] is None and entry[0]() is matrix else _cache_of(matrix)
    prepared = cached.get((device, dtype))
    if prepared is None:
        # Inside torch.func transforms new tensors belong to the transform and must not outlive it.
        with temporarily_clear_interpreter_stack():
            prepared = cached[device, dtype] = _prepare(matrix, dtype, device)
    if prepared.rows.shape[1] != num_labels:
        raise ValueError(
            f"the corruption matrix has {prepared.rows.shape[1]} classes and the logits have {num_labels}: the last "
            "dimension of the logits must be the classes of the matrix."
        )
    return prepared


def _cache_of(matrix: CorruptionMatrix | Tensor) -> dict[tuple, TransposedMatrix]:
    if isinstance(matrix, Tensor):
        if matrix.is_inference():
            return {}  # in-place changes of inference tensors are not counted, so nothing can be cached
        version = (matrix._version, matrix.data_ptr())
    elif isinstance(matrix, CorruptionMatrix):
        version = None  # read-only
    else:
        raise TypeError(
            f"matrix must be a CorruptionMatrix or a torch tensor, got {type(matrix).__name__}; "
            "wrap it: CorruptionMatrix(matrix)."
        )
    key = id(matrix)
    entry = _CACHE.get(key)
    if entry is None or entry[0]() is not matrix or entry[1] != version:
        entry = _CACHE[key] = (weakref.ref(matrix, lambda reference: _forget(key, reference)), version, {})
    return entry[2]


def _forget(key: int, reference: weakref.ref) -> None:
    if key in _CACHE and _CACHE[key][0] is reference:  # otherwise the id already belongs to another matrix
        del _CACHE[key]


def _prepare(matrix: CorruptionMatrix | Tensor, dtype: torch.dtype, device: torch.device) -> TransposedMatrix:
    if isinstance(matrix, Tensor):
        if matrix.requires_grad:
            raise ValueError("the corruption matrix is a constant of the loss, but it requires grad: matrix.detach().")
        if matrix.dtype in (torch.float16, torch.bfloat16):
            raise ValueError(
                f"the corruption matrix is {matrix.dtype}, in which its rows can't sum to one: keep it in float32."
            )
        CorruptionMatrix(matrix)  # raises and names the row; the values are not used because they are normalized
        source = matrix.detach()
    else:
        source = torch.from_numpy(np.array(matrix.probs))  # a copy: torch has no read-only tensors
    rows = _transpose(source, dtype, device)
    nonzero = int(source.count_nonzero())
    large_enough = rows[: len(source)] >= torch.finfo(dtype).smallest_normal
    too_small = int(large_enough.count_nonzero()) < nonzero
    return TransposedMatrix(
        rows=rows,
        exact_rows=_transpose(source, torch.float64, device) if too_small else None,
        is_identity=nonzero == len(source) and bool((source.diagonal() == 1).all()),
    )


def _transpose(source: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    # Cast first: torch has a fast blockwise transpose only within one dtype.
    rows = source.to(device=device, dtype=dtype).T
    if len(source) > _MAX_CLASSES_WITH_IDENTITY:
        result = rows.new_empty(len(source) + 1, len(source))
        result[:-1], result[-1] = rows, 0
        return result
    return torch.cat([rows, torch.eye(len(source), dtype=dtype, device=device)])


def item_losses(
    x: Tensor,
    labels: Tensor,
    trusted: Tensor | None,
    matrix: TransposedMatrix,
    with_gradient: bool,
    weight: float | Tensor = 1.0,
) -> tuple[Tensor, Tensor | None]:
    """
    The loss per item, `(N, 1)`, and, if requested, its gradient with respect to `x` times `weight`, both outside the
    autograd graph.

    On the CPU this works in probability space, and in log space for the items whose sum is close to underflow. On
    other devices, finding these items would synchronize with the device at each step, so all items use log space.
    float32 on the CPU is computed by C code, if there is a compiler ([`compiled.loss_kernel`]).

    For few classes the time is that of the calls, for many that of reading and writing N×K arrays: this makes few of
    both, and allocates two such arrays, or one in C.
    """
    if x.device.type != "cpu":
        losses, gradient = _in_log_space(x, _log_weights(labels, trusted, matrix, x.dtype), with_gradient)
        return losses, gradient if gradient is None else gradient.mul_(weight)
    safe = _SAFE_LIKELIHOOD[x.dtype]
    compiled = compiled_item_losses(x, labels, trusted, matrix.rows, safe, float(weight))
    if compiled is not None:
        losses, gradient, number = compiled
        if number:
            _replace_unsafe(losses.isnan(), x, labels, trusted, matrix, losses, gradient, weight)
        return losses, gradient if with_gradient else None
    joint = _weights(labels, trusted, matrix.rows)
    probs = softmax(x)
    inverse = torch.sum(joint.mul_(probs), -1, True).reciprocal_()
    gradient = None
    if with_gradient:
        gradient = probs.addcmul_(joint, inverse, value=-1)
        if isinstance(weight, Tensor) or weight != 1.0:
            gradient.mul_(weight)
    if not x.shape[0] or inverse.max().item() <= 1 / safe:
        return inverse.log_(), gradient
    unsafe = ~(inverse <= 1 / safe)  # also NaN
    losses = inverse.log_()
    _replace_unsafe(unsafe, x, labels, trusted, matrix, losses, gradient, weight)
    return losses, gradient


def _replace_unsafe(
    unsafe: Tensor,
    x: Tensor,
    labels: Tensor,
    trusted: Tensor | None,
    matrix: TransposedMatrix,
    losses: Tensor,
    gradient: Tensor | None,
    weight: float | Tensor,
) -> None:
    """Compute the losses and gradients of some items, `(N, 1)` flags, in log space."""
    chosen = unsafe.squeeze(-1).nonzero().squeeze(-1)
    their_trusted = trusted[chosen] if trusted is not None else None
    log_weights = _log_weights(labels[chosen], their_trusted, matrix, x.dtype)
    losses[chosen], their_gradient = _in_log_space(x[chosen], log_weights, gradient is not None)
    if gradient is not None and their_gradient is not None:  # both, if a gradient was requested
        gradient[chosen] = their_gradient.mul_(weight)


def differentiable_item_losses(x: Tensor, labels: Tensor, trusted: Tensor | None, matrix: TransposedMatrix) -> Tensor:
    """The same losses in differentiable operations only, for `torch.func` and forward-mode differentiation."""
    log_weights, impossible = _log_weights(labels, trusted, matrix, x.dtype)
    losses = -torch.logsumexp(_log_probs(x) + log_weights, dim=-1)
    return losses.masked_fill(impossible, IMPOSSIBLE_LABEL_LOSS)


def differentiable_item_gradients(
    x: Tensor, labels: Tensor, trusted: Tensor | None, matrix: TransposedMatrix
) -> Tensor:
    """The gradient of each loss with respect to `x`, itself differentiable: for double backward."""
    return _gradient(_log_probs(x), *_log_weights(labels, trusted, matrix, x.dtype))


def soft_item_losses(x: Tensor, targets: Tensor, trusted: Tensor | None, matrix: TransposedMatrix) -> Tensor:
    """The loss per item for soft targets; differentiable once. A row of zeros has the loss 0 and no gradient."""
    return _SoftItemLosses.apply(x, targets, trusted, matrix)


class _SoftItemLosses(torch.autograd.Function):
    """Computes the gradient together with the loss."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, targets: Tensor, trusted: Tensor | None, matrix: TransposedMatrix) -> Tensor:
        log_probs = _log_probs(x)
        if matrix.is_identity:
            trusted = torch.ones(len(x), dtype=torch.bool, device=x.device)
        if trusted is None:
            trusted = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        losses = -(targets * log_probs).sum(dim=-1)
        gradient = log_probs.exp() * targets.sum(dim=-1, keepdim=True) - targets
        noisy = (~trusted).nonzero().squeeze(-1)
        if len(noisy):
            losses[noisy], gradient[noisy] = _soft_noisy(log_probs[noisy], targets[noisy], matrix)
        empty = targets.sum(dim=-1) == 0  # its logits may be NaN
        ctx.save_for_backward(gradient.masked_fill_(empty.unsqueeze(-1), 0))
        return losses.masked_fill_(empty, 0)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the corrected loss of soft targets has no second derivative: call backward without "
                "create_graph=True, or pass labels."
            )
        (gradient,) = ctx.saved_tensors
        return gradient * upstream.unsqueeze(-1), None, None, None


def _soft_noisy(log_probs: Tensor, targets: Tensor, matrix: TransposedMatrix) -> tuple[Tensor, Tensor]:
    """Losses and gradients of items that are not trusted: a product with C, and log space for the entries whose
    probability is close to underflow and that have a target."""
    num_labels = log_probs.shape[-1]
    rows = matrix.rows[:num_labels]
    exact = (matrix.rows if matrix.exact_rows is None else matrix.exact_rows)[:num_labels]
    probs = log_probs.exp()
    with torch.autocast(log_probs.device.type, enabled=False):
        likelihood = probs @ rows.T
        safe = likelihood >= _SAFE_LIKELIHOOD[log_probs.dtype]
        inverse = torch.where(safe, likelihood, 1.0).reciprocal()
        losses = (targets * inverse.log()).sum(dim=-1)
        share = (targets * inverse).masked_fill_(~safe, 0) @ rows
    possible = exact.amax(dim=-1) > 0  # without a K×K array of booleans
    total = (targets * possible).sum(dim=-1, keepdim=True)
    gradient = probs * (total - share)
    items, labels = ((targets > 0) & ~safe).nonzero(as_tuple=True)
    for item, label in zip(items.split(len(targets)), labels.split(len(targets)), strict=True):
        target, impossible = targets[item, label], ~possible[label]
        joint = log_probs[item] + exact[label].log().to(log_probs.dtype).masked_fill_(impossible.unsqueeze(-1), 0)
        lost = torch.logsumexp(joint, dim=-1).neg_().masked_fill_(impossible, IMPOSSIBLE_LABEL_LOSS)
        losses.index_add_(0, item, target * lost)
        gradient.index_add_(0, item, torch.softmax(joint, dim=-1) * (target * ~impossible).unsqueeze(-1), alpha=-1)
    return losses, gradient


def _in_log_space(x: Tensor, log_weights: tuple[Tensor, Tensor], with_gradient: bool) -> tuple[Tensor, Tensor | None]:
    weights, impossible = log_weights
    log_probs = _log_probs(x)
    losses = torch.logsumexp(log_probs + weights, dim=-1, keepdim=True).neg_()
    losses.masked_fill_(impossible.unsqueeze(-1), IMPOSSIBLE_LABEL_LOSS)
    return losses, _gradient(log_probs, weights, impossible) if with_gradient else None


def _gradient(log_probs: Tensor, log_weights: Tensor, impossible: Tensor) -> Tensor:
    gradient = log_probs.exp() - torch.softmax(log_probs + log_weights, dim=-1)
    return gradient.masked_fill(impossible.unsqueeze(-1), 0)


def softmax(x: Tensor) -> Tensor:
    """The softmax over the last dimension, also fast for few classes."""
    if x.shape[-1] >= _VECTOR or x.numel() == 0:
        return torch.softmax(x, -1)
    exponentials = (x - x.amax(dim=-1, keepdim=True)).exp_()
    return exponentials.div_(exponentials.sum(dim=-1, keepdim=True))


def _log_probs(x: Tensor) -> Tensor:
    """log softmax(x) with -inf replaced by the lowest finite number."""
    return torch.log_softmax(x, dim=-1).clamp(min=torch.finfo(x.dtype).min)


def _weights(labels: Tensor, trusted: Tensor | None, rows: Tensor) -> Tensor:
    if trusted is None:
        return rows.index_select(0, labels)
    num_labels = rows.shape[1]
    if rows.shape[0] > num_labels + 1 or num_labels == 1:
        return rows.index_select(0, torch.where(trusted, labels + num_labels, labels))
    # The row of zeros, and one at the label.
    weights = rows.index_select(0, torch.where(trusted, num_labels, labels))
    flags = trusted.to(weights.dtype).unsqueeze(-1)
    if _transforms_active():  # under vmap not all of them may be batched
        return weights.scatter_add(-1, labels.unsqueeze(-1), flags)
    return weights.scatter_add_(-1, labels.unsqueeze(-1), flags)


def _log_weights(
    labels: Tensor, trusted: Tensor | None, matrix: TransposedMatrix, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """log w, and which items have a label that no class can produce. Those get log w = 0, which avoids NaN."""
    rows = matrix.rows if matrix.exact_rows is None else matrix.exact_rows
    log_weights = _weights(labels, trusted, rows).log().to(dtype)
    impossible = torch.isneginf(log_weights).all(dim=-1)
    return log_weights.masked_fill(impossible.unsqueeze(-1), 0), impossible


def posterior_over_true_labels(
    logits: Tensor, given_labels: Tensor, matrix: CorruptionMatrix | Tensor, ignore_index: int = -100
) -> Tensor:
    """
    p(true = y | x, given label) = g(x)_y · C[y, given] / Σ_i g(x)_i · C[i, given], with g(x) = softmax(logits).

    Computed in log space, so that no row underflows. For a label that carries no information, because no class can
    produce it or because it is `ignore_index`, the result is g(x).

    Args:
        logits (`Tensor` of shape `(..., K)`): Logits of the classifier of true classes (or log-probabilities).
        given_labels (`Tensor` of shape `(...)`): The possibly wrong labels.
        matrix (`CorruptionMatrix` or `Tensor` of shape `(K, K)`): `C[i, j] = p(noisy = j | true = i)`.
        ignore_index (`int`, *optional*, defaults to -100): Means "no label".

    Returns:
        `Tensor` of shape `(..., K)`, float64 for float64 logits and float32 for all others.
    """
    if logits.shape[:-1] != given_labels.shape or logits.dim() == 0:
        raise ValueError(
            f"logits of shape {tuple(logits.shape)} need labels of shape {tuple(logits.shape[:-1])}, got "
            f"{tuple(given_labels.shape)}."
        )
    num_labels = logits.shape[-1]
    dtype = logits.dtype if logits.dtype == torch.float64 else torch.float32
    prepared = transposed(matrix, num_labels, dtype, logits.device)
    rows, labels = logits.reshape(-1, num_labels).to(dtype), given_labels.reshape(-1).long()
    absent = labels == ignore_index
    bad = ~absent & ((labels < 0) | (labels >= num_labels))
    if bool(bad.any()):
        raise ValueError(
            f"a given label is {int(labels[bad][0])}; with {num_labels} classes a label must be in "
            f"0…{num_labels - 1}, or {ignore_index} for no label."
        )
    log_weights, _ = _log_weights(labels.masked_fill(absent, 0), None, prepared, dtype)
    result = torch.softmax(_log_probs(rows) + log_weights, dim=-1)
    result = torch.where(absent.unsqueeze(-1), torch.softmax(rows, dim=-1), result)
    return result.reshape(logits.shape)
