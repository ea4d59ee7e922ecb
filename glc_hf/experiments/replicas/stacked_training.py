# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Training one stage of all replicas with the same batches as `Trainer`, and the gradients of the losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from accelerate.data_loader import SeedableRandomSampler
from torch import Tensor, nn
from transformers import get_scheduler

from glc_hf.correction.likelihood import TransposedMatrix, item_losses, softmax
from glc_hf.experiments.replicas.stacked_networks import LateAdam, StackedNetwork
from glc_hf.matrix import CorruptionMatrix
from glc_hf.methods.base import MatrixMethod, Method
from glc_hf.methods.distillation import Distillation


if TYPE_CHECKING:
    from glc_hf.experiments.presets.base import Preset
    from glc_hf.training.config import GLCConfig


# Optimizers whose update is element-wise, so replicas in one tensor don't affect each other.
_ELEMENT_WISE = (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD)
_ROWS_AT_ONCE = 1000


def batches(rows: np.ndarray, args: GLCConfig, min_updates: int) -> tuple[int, Iterator[Tensor]]:
    """Return the number of updates of a stage on these rows, and the row numbers of each batch."""
    size = args.per_device_train_batch_size
    per_epoch = math.ceil(len(rows) / size)
    updates = args.max_steps if args.max_steps > 0 else math.ceil(per_epoch * args.num_train_epochs)
    updates = max(updates, min_updates)
    numbers = torch.from_numpy(np.ascontiguousarray(rows))

    def draw() -> Iterator[Tensor]:
        sampler, left = SeedableRandomSampler(range(len(rows)), data_seed=args.seed), updates
        while left > 0:
            order = numbers[torch.tensor(list(sampler))]
            yield from order.split(size)[:left]
            left -= per_epoch

    return updates, draw()


class StackedOptimizer:
    """
    The preset's optimizer over the stacked parameters, with its weight decay. All parameters of a group are one array,
    and Adam with a constant learning rate calls its kernel directly: the rest of `torch.optim.Adam.step` would take
    0.3 ms of a step of 5 ms.

    Args:
        network ([`StackedNetwork`]): Its parameters become parts of the arrays.
        preset ([`Preset`]): For the optimizer and the parameters with weight decay.
        args ([`GLCConfig`]): For learning rate and weight decay.
        constant (`bool`): Whether the learning rate is constant.

    Attributes:
        late ([`LateAdam`], *optional*): For the network's `late_parameter`, if that is equivalent.
    """

    def __init__(self, network: StackedNetwork, preset: Preset, args: GLCConfig, constant: bool) -> None:
        cls, settings = preset.optimizer()
        if cls not in _ELEMENT_WISE:
            raise ValueError(f"replicas need an element-wise optimizer, and {cls.__name__} may not be one.")
        late = network.late_parameter
        plain_adam = cls is not torch.optim.SGD and settings.keys() <= {"lr", "betas", "eps"}
        if late is not None and (not plain_adam or preset.decays(late)):
            late = None
        groups = []
        for decays in (True, False):
            chosen = [p for name, p in network.parameters.items() if preset.decays(name) == decays and name != late]
            if chosen:
                groups.append({"params": [_joined(chosen)], "weight_decay": args.weight_decay if decays else 0.0})
        self.torch_optimizer = cls(groups, **{"lr": args.learning_rate, **settings}, fused=True)
        self.late = LateAdam(network.parameters[late], self.torch_optimizer) if late is not None else None
        self._kernel: Callable[..., object] | None = None
        if plain_adam and constant:
            self._kernel = torch._fused_adam_ if cls is torch.optim.Adam else torch._fused_adamw_
            self._steps = torch.zeros(())
            self._state = []
            for group in self.torch_optimizer.param_groups:
                (joined,) = group["params"]
                numbers = {name: group[name] for name in ("lr", "weight_decay", "eps")}
                numbers["beta1"], numbers["beta2"] = group["betas"]
                tensors = joined.data, joined.grad, torch.zeros_like(joined.data), torch.zeros_like(joined.data)
                self._state.append((tensors, numbers))

    def step(self) -> None:
        """Update all parameters from their `grad`, except the one of `late`."""
        if self._kernel is None:
            self.torch_optimizer.step()
            return
        self._steps.add_(1)
        for tensors, numbers in self._state:
            self._kernel(*([one] for one in tensors), [], [self._steps], amsgrad=False, maximize=False, **numbers)


def _joined(parameters: list[nn.Parameter]) -> nn.Parameter:
    """One parameter of which these are parts from now on, and so are their gradients."""
    joined = nn.Parameter(torch.cat([parameter.detach().flatten() for parameter in parameters]))
    joined.grad, start = torch.zeros_like(joined.data), 0
    for parameter in parameters:
        part = slice(start, start + parameter.numel())
        parameter.data = joined.data[part].view(parameter.shape)
        parameter.grad = joined.grad[part].view(parameter.shape)
        start = part.stop
    return joined


def train_stage(
    network: StackedNetwork,
    inputs: tuple[Tensor, ...],
    loss: LossGradient,
    rows: np.ndarray,
    preset: Preset,
    args: GLCConfig,
    min_updates: int,
    tick: Callable[[float], None],
) -> None:
    """Train every replica in place on the same batches of `rows`, for at least `min_updates` steps. `inputs` are those
    of all rows; `tick` is called from time to time with the share of the stage that is done."""
    if args.max_grad_norm and args.max_grad_norm > 0:
        raise ValueError("replicas can't be trained with max_grad_norm: clipping combines all numbers.")
    updates, drawn = batches(rows, args, min_updates)
    constant = str(getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type)) == "constant"
    optimizer = StackedOptimizer(network, preset, args, constant)
    network.late, torch_optimizer = optimizer.late, optimizer.torch_optimizer
    schedule = get_scheduler(args.lr_scheduler_type, torch_optimizer, args.get_warmup_steps(updates), updates)
    for step, batch in enumerate(drawn):
        logits = network.forward(tuple(tensor[batch] for tensor in inputs))
        network.backward(loss(logits, batch))
        optimizer.step()
        if network.late is not None:
            network.late.step(network.late_gradient)
        if not constant:
            schedule.step()
        if step % 500 == 0:
            if not torch.isfinite(logits).all():
                raise FloatingPointError(f"the logits of a replica are not finite at step {step} of {updates}.")
            tick(step / updates)
    if network.late is not None:
        network.late.finish()
        network.late = None


@torch.no_grad()
def predict(network: StackedNetwork, inputs: tuple[Tensor, ...]) -> Tensor:
    """Return the logits (R, N, K) of all rows."""
    parts = zip(*(tensor.split(_ROWS_AT_ONCE) for tensor in inputs), strict=True)
    return torch.cat([network.forward(part) for part in parts], dim=1)


# The loss of a stage for all replicas: from the logits (R, B, K) and row numbers (B,) of a batch to d loss / d logits,
# where the loss is each replica's mean over the batch. In the functions below `labels` (R, N) are the labels of all
# rows for each replica, and `trusted` (N,) the flags.
LossGradient = Callable[[Tensor, Tensor], Tensor]


def plain_loss(labels: Tensor) -> LossGradient:
    """Cross-entropy with the given labels."""

    def gradient(logits: Tensor, rows: Tensor) -> Tensor:
        probs, chosen = softmax(logits), labels[:, rows].unsqueeze(-1)
        probs.scatter_add_(-1, chosen, probs.new_full((), -1.0).expand(chosen.shape))
        return probs.div_(len(rows))

    return gradient


def corrected_loss(labels: Tensor, trusted: Tensor | None, matrices: Sequence[CorruptionMatrix]) -> LossGradient:
    """
    Corrected cross-entropy with one matrix per replica, and plain cross-entropy on trusted rows.

    The weights w = C[:, label] of an item are looked up in one table: the columns of each replica's matrix, followed
    by the unit vectors, which give the plain cross-entropy.
    """
    columns = [torch.tensor(matrix.probs.T) for matrix in matrices]
    num_labels = len(columns[0])
    exact = torch.cat([*columns, torch.eye(num_labels, dtype=torch.float64)])
    rounded = exact.to(torch.float32)
    too_small = bool(((rounded < torch.finfo(torch.float32).smallest_normal) & (exact > 0)).any())
    table = TransposedMatrix(rounded, exact if too_small else None, is_identity=False)
    indices = labels + torch.arange(len(matrices)).unsqueeze(1) * num_labels
    if trusted is not None:
        indices = torch.where(trusted, labels + len(matrices) * num_labels, indices)

    def gradient(logits: Tensor, rows: Tensor) -> Tensor:
        flat = logits.reshape(-1, logits.shape[-1])
        of_items = item_losses(flat, indices[:, rows].reshape(-1), None, table, with_gradient=True)[1]
        assert of_items is not None
        return of_items.view(logits.shape).div_(len(rows))

    return gradient


def soft_target_loss(labels: Tensor, trusted: Tensor, soft_targets: Tensor, weights: Tensor) -> LossGradient:
    """Distillation: target λ·onehot(label) + (1 − λ)·s(x) on untrusted rows, the label on trusted rows. `soft_targets`
    is s(x), (R, N, K) with stride 0 over equal replicas, and `weights` is λ, (R,)."""
    weight_of_label = torch.where(trusted, 1.0, weights.float().unsqueeze(1))

    def gradient(logits: Tensor, rows: Tensor) -> Tensor:
        of_label, soft = weight_of_label[:, rows].unsqueeze(-1), soft_targets[:, rows]
        probs = softmax(logits)
        # Soft targets may not sum exactly to one.
        probs.mul_(of_label + (1.0 - of_label) * soft.sum(dim=-1, keepdim=True)).sub_((1.0 - of_label) * soft)
        probs.scatter_add_(-1, labels[:, rows].unsqueeze(-1), -of_label)
        return probs.div_(len(rows))

    return gradient


def can_stack(method: type[Method]) -> bool:
    """Whether the last stage of a method has one of the losses above."""
    known = (MatrixMethod.item_losses, Distillation.item_losses, Method.item_losses)
    return method.item_weights is Method.item_weights and method.item_losses in known


def last_stage_loss(methods: Sequence[Method], labels: Tensor, trusted: Tensor) -> LossGradient:
    """Return the loss of the last stage. `methods` are those of the replicas, with their estimates."""
    first = methods[0]
    if isinstance(first, MatrixMethod):
        gold = trusted if first.identity_on_trusted else None
        return corrected_loss(labels, gold, [method.matrix for method in methods if method.matrix is not None])
    if isinstance(first, Distillation):
        distillations = [method for method in methods if isinstance(method, Distillation)]
        soft = [method.soft_targets for method in distillations if method.soft_targets is not None]
        equal = all(torch.equal(one, soft[0]) for one in soft[1:])
        targets = soft[0].expand(len(methods), *soft[0].shape) if equal else torch.stack(soft)
        return soft_target_loss(labels, trusted, targets, torch.tensor([method.weight for method in distillations]))
    return plain_loss(labels)
