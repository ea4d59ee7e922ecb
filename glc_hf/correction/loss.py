# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The corrected cross-entropy: the loss of the second stage of Gold Loss Correction."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad

from glc_hf._compat import direct_apply, forward_mode_check, functorch_check, without_compiler
from glc_hf.correction.likelihood import (
    TransposedMatrix,
    differentiable_item_gradients,
    differentiable_item_losses,
    item_losses,
    soft_item_losses,
    transposed,
)
from glc_hf.matrix import CorruptionMatrix


_transforms_active, _forward_mode = functorch_check(), forward_mode_check()
_REDUCTIONS = ("mean", "sum", "none")


def corrected_cross_entropy(
    logits: Tensor,
    labels: Tensor,
    matrix: CorruptionMatrix | Tensor,
    trusted: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """
    -log Σ_i softmax(logits)_i · C[i, label]: the cross-entropy between the noisy labels and the distribution of noisy
    labels that a classifier of the **true** classes predicts. For trusted items it is the plain cross-entropy,
    -log softmax(logits)_label.

    Exact for any finite logits: items whose sum would underflow are computed in log space. No epsilon is added: a zero
    in C means that the class never gives that label. float16 and bfloat16 logits are computed in float32, also under
    autocast, and give a float32 loss. If C is exactly the identity, or all items are trusted, the result is that of
    `torch.nn.functional.cross_entropy`.

    A label that no class can produce (its column of C is all zero) has no gradient and the constant loss 87.34, -log
    of the smallest normal float32.

    Soft targets, floats of shape `(..., K)`, have the loss -Σ_j target_j · log Σ_i softmax(logits)_i · C[i, j], and
    -Σ_j target_j · log softmax(logits)_j for trusted items. A row of zeros has no loss and no gradient, and does not
    count in the mean. They have first derivatives only.

    Args:
        logits (`Tensor` of shape `(..., K)`): Scores of the K true classes, with the classes last (also for tokens).
        labels (`Tensor` of shape `(...)` or `(..., K)`):
            Labels in 0…K-1, or `ignore_index`; any integer dtype. Or probabilities of the noisy labels, floats of the
            shape of the logits.
        matrix (`CorruptionMatrix` or `Tensor` of shape `(K, K)`):
            `C[i, j] = p(noisy label = j | true label = i)`. A constant without gradient. Checked once per object, so
            pass the same object at each step.
        trusted (`Tensor`, *optional*):
            Boolean, with the shape of `labels` or of its first dimensions: `(B,)` with labels `(B, T)` applies to all
            T tokens of a row. `None`: no item is trusted.
        ignore_index (`int`, *optional*, defaults to -100): Items with this label have no loss and no gradient.
        reduction (`str`, *optional*, defaults to `"mean"`):
            `"mean"` over the items that are not ignored (0 if there are none), `"sum"`, or `"none"`: the shape of
            `labels`, with 0 for ignored items.

    Example:

    ```python
    >>> import torch
    >>> from glc_hf import CorruptionMatrix, corrected_cross_entropy
    >>> logits = torch.tensor([[2.0, 0.0, 0.0]])
    >>> corrected_cross_entropy(logits, torch.tensor([1]), CorruptionMatrix.uniform(3, 0.5))
    tensor(1.5145)
    ```
    """
    if torch.compiler.is_compiling():
        # Its control flow depends on values.
        return _eager_corrected_cross_entropy(logits, labels, matrix, trusted, ignore_index, reduction)
    # For few classes the time of the loss is that of the calls, so the usual arguments take few of them.
    size, shape, dtype = logits.shape, labels.shape, torch.float32
    as_rows = len(size) == 2 and len(shape) == 1 and logits.dtype is dtype and labels.dtype is torch.int64
    if not as_rows or size[0] != shape[0]:
        _check_arguments(logits, labels)
        dtype = logits.dtype if logits.dtype == torch.float64 else dtype
    if reduction not in _REDUCTIONS:
        raise ValueError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}.")
    num_labels = size[-1]
    prepared = transposed(matrix, num_labels, dtype, logits.device)
    if labels.is_floating_point():
        return _soft_loss(logits, labels, prepared, trusted, reduction)
    all_labels = labels if as_rows else labels.reshape(-1).long()
    flat_trusted = None if trusted is None else _flat_trusted(trusted, shape)

    if _transforms_active() or (_forward_mode() and forward_ad.unpack_dual(logits).tangent is not None):
        skipped = all_labels == ignore_index  # no value may be read here: under vmap that is impossible
        losses = differentiable_item_losses(
            _as_rows(logits, dtype), all_labels.masked_fill(skipped, 0), flat_trusted, prepared
        )
        losses = losses.masked_fill(skipped, 0)
        return _reduce(losses, skipped.logical_not().sum(), reduction, shape)

    flat_labels, ignored, count = _without_ignored(all_labels, ignore_index, num_labels, shape)
    if prepared.is_identity or (flat_trusted is not None and _all_trusted(flat_trusted, ignored)):
        if reduction == "mean" and (isinstance(count, Tensor) or count == 0):  # torch's mean of no items is NaN
            total = F.cross_entropy(_as_rows(logits, dtype), all_labels, ignore_index=ignore_index, reduction="sum")
            return total / _at_least_one(count)
        loss = F.cross_entropy(_as_rows(logits, dtype), all_labels, ignore_index=ignore_index, reduction=reduction)
        return loss.reshape(shape) if reduction == "none" else loss
    batch = _Batch(flat_labels, flat_trusted, ignored, _weight_in_mean(count, dtype), prepared, reduction, shape)
    if logits.requires_grad and torch.is_grad_enabled():
        return _apply(logits, batch)
    return _forward(logits, batch, with_gradient=False)[0]


_eager_corrected_cross_entropy = without_compiler(corrected_cross_entropy)


class _Batch(NamedTuple):
    """The inputs of the loss other than the logits, as one argument because autograd inspects each argument."""

    labels: Tensor
    trusted: Tensor | None
    ignored: Tensor | None
    weight: Tensor  # of an item in the mean
    matrix: TransposedMatrix
    reduction: str
    shape: torch.Size


class _CorrectedCrossEntropy(torch.autograd.Function):
    """Computes the gradient together with the loss, so that backward is at most one multiplication in place. A second
    backward of the same loss computes the gradient again."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, batch: _Batch) -> Tensor:
        loss, ctx.gradient = _forward(logits, batch, True)
        ctx.save_for_backward(logits)
        ctx.batch, ctx.shape, ctx.dtype = batch, logits.shape, logits.dtype
        return loss

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        gradient, batch = ctx.gradient, ctx.batch
        per_item = batch.reduction == "none"
        if per_item:
            upstream = upstream.reshape(-1, 1)
        if torch.is_grad_enabled():  # create_graph=True
            if batch.reduction == "mean":
                upstream = upstream * batch.weight
            gradient = _differentiable_gradient(ctx.saved_tensors[0], batch) * upstream
        else:
            if gradient is None:
                gradient = _gradient(ctx.saved_tensors[0], batch)
            try:
                # On other devices reading the number would synchronize.
                if per_item or not upstream.is_cpu or upstream.item() != 1.0:
                    gradient.mul_(upstream)
                ctx.gradient = None
            except RuntimeError:  # vmap over upstream gradients: no number to read, no in-place product
                gradient = gradient * upstream
        if len(ctx.shape) != 2:
            gradient = gradient.reshape(ctx.shape)
        return gradient if gradient.dtype is ctx.dtype else gradient.to(ctx.dtype), None


_apply = direct_apply(_CorrectedCrossEntropy)


def _differentiable_gradient(logits: Tensor, batch: _Batch) -> Tensor:
    x = _as_rows(logits, batch.matrix.rows.dtype)
    gradient = differentiable_item_gradients(x, batch.labels, batch.trusted, batch.matrix)
    return gradient if batch.ignored is None else gradient.masked_fill(batch.ignored.unsqueeze(-1), 0)


def _gradient(logits: Tensor, batch: _Batch) -> Tensor:
    _, gradient = _forward(logits, batch, with_gradient=True)
    assert gradient is not None
    return gradient


def _forward(logits: Tensor, batch: _Batch, with_gradient: bool) -> tuple[Tensor, Tensor | None]:
    """The reduced loss and the gradient of that, or of the loss of each item for the reduction `"none"`."""
    x = _as_rows(logits, batch.matrix.rows.dtype)
    weight = batch.weight if batch.reduction == "mean" else 1.0
    losses, gradient = item_losses(x, batch.labels, batch.trusted, batch.matrix, with_gradient, weight)
    if batch.ignored is not None:
        ignored = batch.ignored.unsqueeze(-1)
        losses.masked_fill_(ignored, 0)
        if gradient is not None:
            gradient.masked_fill_(ignored, 0)
    if batch.reduction == "mean":
        return losses.sum().mul_(batch.weight), gradient
    return _reduce(losses, 1.0, batch.reduction, batch.shape), gradient


def _soft_loss(
    logits: Tensor, targets: Tensor, matrix: TransposedMatrix, trusted: Tensor | None, reduction: str
) -> Tensor:
    x, soft = _as_rows(logits, matrix.rows.dtype), _as_rows(targets.detach(), matrix.rows.dtype)
    items = targets[..., 0]
    if soft.device.type == "cpu" and not bool((soft >= 0).all() & soft.isfinite().all()):
        first = int((~((soft >= 0) & soft.isfinite()).all(dim=-1)).nonzero()[0])
        raise ValueError(
            f"the soft target of item {first} has negative, NaN or infinite entries: {soft[first].tolist()}."
        )
    losses = soft_item_losses(x, soft, _flat_trusted(trusted, items.shape) if trusted is not None else None, matrix)
    return _reduce(losses, (soft.sum(dim=-1) > 0).sum(), reduction, items.shape)


def _reduce(losses: Tensor, count: float | Tensor, reduction: str, shape: torch.Size) -> Tensor:
    if reduction == "none":
        return losses.reshape(shape)
    if reduction == "sum":
        return losses.sum()
    return losses.sum() / _at_least_one(count)


def _as_rows(logits: Tensor, dtype: torch.dtype) -> Tensor:
    rows = logits if logits.dim() == 2 else logits.reshape(-1, logits.shape[-1])
    return rows if rows.dtype == dtype else rows.to(dtype)


def _weight_in_mean(count: float | Tensor, dtype: torch.dtype) -> Tensor:
    if isinstance(count, Tensor):
        return count.clamp(min=1).to(dtype).reciprocal()
    return _inverse(max(count, 1), dtype)


@lru_cache(maxsize=64)
def _inverse(count: float, dtype: torch.dtype) -> Tensor:
    """1 / count as a tensor, by which torch multiplies faster than by a number."""
    with torch.inference_mode(False):  # it is used outside of it as well
        return torch.tensor(1 / count, dtype=dtype)


def _at_least_one(count: float | Tensor) -> float | Tensor:
    return count.clamp(min=1) if isinstance(count, Tensor) else max(count, 1)


def _without_ignored(
    labels: Tensor, ignore_index: int, num_labels: int, shape: torch.Size
) -> tuple[Tensor, Tensor | None, float | Tensor]:
    """
    Return labels with 0 for ignored items, the mask of ignored items (`None` if there are none), and the number of
    items that are not ignored.

    On the CPU, out-of-range labels raise here. On other devices this check would synchronize; there the lookup fails.
    """
    on_cpu = labels.is_cpu
    if on_cpu and not 0 <= ignore_index < num_labels and _all_in_range(labels, num_labels):
        return labels, None, float(labels.shape[0])
    ignored = labels == ignore_index
    labels = labels.masked_fill(ignored, 0)
    if not on_cpu:
        return labels, ignored, ignored.logical_not().sum()
    if not _all_in_range(labels, num_labels):
        first = int(((labels < 0) | (labels >= num_labels)).nonzero()[0])
        index = ", ".join(str(int(i)) for i in torch.unravel_index(torch.tensor(first), shape))
        raise ValueError(
            f"labels[{index}] is {int(labels[first])}; with {num_labels} classes a label must be in "
            f"0…{num_labels - 1}, or {ignore_index} to be ignored."
        )
    return labels, ignored, float(len(labels) - int(ignored.sum()))


def _all_in_range(labels: Tensor, num_labels: int) -> bool:
    if labels.shape[0] == 0:
        return True
    lowest, highest = torch.aminmax(labels)
    return lowest.item() >= 0 and highest.item() < num_labels


def _flat_trusted(trusted: Tensor, shape: torch.Size) -> Tensor:
    if trusted.dtype is not torch.bool:
        raise TypeError(f"trusted must be boolean, got {trusted.dtype}; for 0 and 1 pass trusted.bool().")
    if trusted.shape == shape:
        return trusted if len(shape) == 1 else trusted.reshape(-1)
    if trusted.dim() == 0 or trusted.shape != shape[: trusted.dim()]:
        raise ValueError(
            f"trusted has shape {tuple(trusted.shape)}; it must have the shape of the labels, {tuple(shape)}, "
            "or of their first dimensions."
        )
    missing = len(shape) - trusted.dim()
    return trusted.reshape(*trusted.shape, *[1] * missing).expand(shape).reshape(-1)


def _all_trusted(trusted: Tensor, ignored: Tensor | None) -> bool:
    if not trusted.is_cpu:  # on other devices the check would synchronize
        return False
    return torch.equal(trusted if ignored is None else trusted | ignored, _all_true(trusted.shape[0]))


@lru_cache(maxsize=64)
def _all_true(number: int) -> Tensor:
    """Compared with it, flags are checked in one call."""
    with torch.inference_mode(False):
        return torch.ones(number, dtype=torch.bool)


def _check_arguments(logits: Tensor, labels: Tensor) -> None:
    if not logits.is_floating_point():
        raise TypeError(f"logits must be floating point, got {logits.dtype}.")
    if (
        (labels.is_floating_point() and labels.shape != logits.shape)
        or labels.is_complex()
        or labels.dtype == torch.bool
    ):
        raise TypeError(
            f"labels must be integers, or soft targets: floats of the shape of the logits, {tuple(logits.shape)}; got "
            f"{labels.dtype} of shape {tuple(labels.shape)}."
        )
    if (logits.shape[:-1] != labels.shape or logits.dim() == 0) and not labels.is_floating_point():
        raise ValueError(
            f"logits of shape {tuple(logits.shape)} need labels of shape {tuple(logits.shape[:-1])} (the classes are "
            f"the last dimension of the logits), got {tuple(labels.shape)}."
        )
