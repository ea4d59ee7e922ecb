# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The corruption matrix as the loss reads it: checked once, transposed, in the logits' dtype and on their device."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from glc_hf.corruption.matrix import CorruptionMatrix


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
