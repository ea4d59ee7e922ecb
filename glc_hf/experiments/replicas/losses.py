# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
d loss / d logits of a method's stage, for a batch of all replicas at once.

Every loss here is a cross-entropy of some kind, so that its gradient is p − q: p = softmax(logits), and q the one-hot
label, a soft target, or the posterior over true classes given the label (q_i ∝ p_i · C[i, label]).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from glc_hf.correction.likelihood import item_losses
from glc_hf.correction.transposed import TransposedMatrix
from glc_hf.corruption.matrix import CorruptionMatrix
from glc_hf.methods.base import Method
from glc_hf.methods.distillation import Distillation
from glc_hf.methods.matrix_method import MatrixMethod


class PlainLoss:
    """
    Cross-entropy against the labels as given.

    Args:
        labels (`Tensor` of shape `(R, N)`): Each replica's labels of all rows.
    """

    def __init__(self, labels: Tensor) -> None:
        self.labels = labels

    def gradient(self, logits: Tensor, rows: Tensor) -> Tensor:
        """d loss / d logits (R, B, K), the loss being each replica's mean over the batch `rows` (B,)."""
        gradient = torch.softmax(logits, dim=-1)
        labels = self.labels[:, rows].unsqueeze(-1)
        gradient.scatter_add_(-1, labels, gradient.new_full((), -1.0).expand(labels.shape))
        return gradient.div_(len(rows))


class CorrectedLoss:
    """
    The corrected cross-entropy, each replica with its own matrix; plain on trusted rows.

    Which weights w = C[:, label] an item needs is looked up in one table: the columns of every replica's matrix, and
    after them the unit vectors, which make the loss plain.

    Args:
        labels (`Tensor` of shape `(R, N)`): Each replica's labels of all rows.
        trusted (`Tensor` of shape `(N,)`, *optional*): Rows whose label is right.
        matrices (`Sequence[CorruptionMatrix]`): One a replica.
    """

    def __init__(self, labels: Tensor, trusted: Tensor | None, matrices: Sequence[CorruptionMatrix]) -> None:
        columns = [torch.tensor(matrix.probs.T) for matrix in matrices]
        num_labels = len(columns[0])
        exact = torch.cat([*columns, torch.eye(num_labels, dtype=torch.float64)])
        rows = exact.to(torch.float32)
        too_small = bool(((rows < torch.finfo(torch.float32).smallest_normal) & (exact > 0)).any())
        self.table = TransposedMatrix(rows, exact if too_small else None, is_identity=False)
        own = labels + torch.arange(len(matrices)).unsqueeze(1) * num_labels
        self.places = own if trusted is None else torch.where(trusted, labels + len(matrices) * num_labels, own)

    def gradient(self, logits: Tensor, rows: Tensor) -> Tensor:
        """See [`PlainLoss.gradient`]."""
        flat = logits.reshape(-1, logits.shape[-1])
        gradient = item_losses(flat, self.places[:, rows].reshape(-1), None, self.table, with_gradient=True)[1]
        return gradient.view(logits.shape).div_(len(rows))


class SoftTargetLoss:
    """
    Distillation: λ·onehot(label) + (1 − λ)·s(x) on untrusted rows, the label itself on trusted ones.

    Args:
        labels (`Tensor` of shape `(R, N)`): Each replica's labels of all rows.
        trusted (`Tensor` of shape `(N,)`): Rows whose label is right.
        soft_targets (`Tensor` of shape `(R, N, K)`): s(x); stride 0 over replicas where they are the same.
        weights (`Tensor` of shape `(R,)`): λ.
    """

    def __init__(self, labels: Tensor, trusted: Tensor, soft_targets: Tensor, weights: Tensor) -> None:
        self.labels, self.soft_targets = labels, soft_targets
        self.of_label = torch.where(trusted, 1.0, weights.float().unsqueeze(1))

    def gradient(self, logits: Tensor, rows: Tensor) -> Tensor:
        """See [`PlainLoss.gradient`]."""
        of_label = self.of_label[:, rows].unsqueeze(-1)
        gradient = torch.softmax(logits, dim=-1)
        soft = self.soft_targets[:, rows]
        # Where the soft targets don't sum to one exactly, neither does their cross-entropy's share of p.
        gradient.mul_(of_label + (1.0 - of_label) * soft.sum(dim=-1, keepdim=True)).sub_((1.0 - of_label) * soft)
        gradient.scatter_add_(-1, self.labels[:, rows].unsqueeze(-1), -of_label)
        return gradient.div_(len(rows))


StackedLoss = PlainLoss | CorrectedLoss | SoftTargetLoss


def can_stack(method: type[Method]) -> bool:
    """Whether the last stage of a method is one of the losses above."""
    if method.item_weights is not Method.item_weights:
        return False
    known = (MatrixMethod.item_losses, Distillation.item_losses, Method.item_losses)
    return method.item_losses in known


def last_stage_loss(methods: Sequence[Method], labels: Tensor, trusted: Tensor) -> StackedLoss:
    """
    The loss of the last stage.

    Args:
        methods (`Sequence[Method]`): One a replica, with its estimate.
        labels (`Tensor` of shape `(R, N)`): Each replica's labels of all rows.
        trusted (`Tensor` of shape `(N,)`): The flags.
    """
    first = methods[0]
    if isinstance(first, MatrixMethod):
        gold = trusted if first.identity_on_trusted else None
        return CorrectedLoss(labels, gold, [method.matrix for method in methods])
    if isinstance(first, Distillation):
        soft = [method.soft_targets for method in methods]
        same = all(torch.equal(one, soft[0]) for one in soft[1:])
        targets = soft[0].expand(len(methods), *soft[0].shape) if same else torch.stack(soft)
        return SoftTargetLoss(labels, trusted, targets, torch.tensor([method.weight for method in methods]))
    return PlainLoss(labels)
