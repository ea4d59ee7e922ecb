# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""One stage of all replicas: the batches that `Trainer` would take, in its order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from accelerate.data_loader import SeedableRandomSampler
from torch import Tensor
from transformers import get_scheduler

from glc_hf.experiments.replicas.late_adam import LateAdam
from glc_hf.experiments.replicas.losses import StackedLoss
from glc_hf.experiments.replicas.networks import StackedNetwork


if TYPE_CHECKING:
    from glc_hf.experiments.preset import Preset
    from glc_hf.training.config import GLCConfig

# Updates that treat each number by itself: replicas in one tensor are then updated as if alone.
_ELEMENT_WISE = (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD)
_ROWS_AT_ONCE = 1000


def batches(rows: np.ndarray, args: GLCConfig, min_updates: int) -> tuple[int, Iterator[Tensor]]:
    """How many updates a stage on these rows takes, and the row numbers of each one's batch."""
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


def make_optimizer(
    network: StackedNetwork, preset: Preset, args: GLCConfig
) -> tuple[torch.optim.Optimizer, LateAdam | None]:
    """The preset's optimizer over the stacked parameters, with its weight decay where the preset has it; and that of
    the parameter whose rows can wait, if it comes to the same."""
    kind, settings = preset.optimizer()
    if kind not in _ELEMENT_WISE:
        raise ValueError(f"replicas need an optimizer that works number by number, and {kind.__name__} may not.")
    late = network.late_parameter()
    plain_adam = kind is not torch.optim.SGD and settings.keys() <= {"lr", "betas", "eps"}
    if late is not None and (not plain_adam or preset.decays(late)):
        late = None
    groups = [
        {
            "params": [p for name, p in network.parameters.items() if preset.decays(name) == decays and name != late],
            "weight_decay": args.weight_decay if decays else 0.0,
        }
        for decays in (True, False)
    ]
    groups = [group for group in groups if group["params"]]
    optimizer = kind(groups, **{"lr": args.learning_rate, **settings}, fused=True)
    return optimizer, LateAdam(network.parameters[late], optimizer) if late is not None else None


def train_stage(
    network: StackedNetwork,
    inputs: tuple[Tensor, ...],
    loss: StackedLoss,
    rows: np.ndarray,
    preset: Preset,
    args: GLCConfig,
    min_updates: int = 0,
    tick: Callable[[float], None] | None = None,
) -> None:
    """
    Trains every replica on the same batches, in place.

    Args:
        network (`StackedNetwork`): The replicas at the start.
        inputs (`tuple[Tensor, ...]`): What they read, of all rows.
        loss (`StackedLoss`): The loss of the stage.
        rows (`np.ndarray`): The rows the stage trains on.
        preset ([`Preset`]), args ([`GLCConfig`]): Optimizer and settings.
        min_updates (`int`, *optional*, defaults to 0): At least so many steps.
        tick (`Callable`, *optional*): Told now and then which share of the stage is done.
    """
    if args.max_grad_norm and args.max_grad_norm > 0:
        raise ValueError("replicas can't be trained with max_grad_norm: clipping looks at all numbers together.")
    updates, drawn = batches(rows, args, min_updates)
    optimizer, late = make_optimizer(network, preset, args)
    network.start(late)
    schedule = get_scheduler(args.lr_scheduler_type, optimizer, args.get_warmup_steps(updates), updates)
    constant = str(getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type)) == "constant"
    for step, batch in enumerate(drawn):
        logits = network.forward(tuple(tensor[batch] for tensor in inputs))
        network.backward(loss.gradient(logits, batch))
        optimizer.step()
        network.after_step()
        if not constant:
            schedule.step()
        if step % 500 == 0:
            if not torch.isfinite(logits).all():
                raise FloatingPointError(f"the logits of a replica are not finite at step {step} of {updates}.")
            if tick is not None:
                tick(step / updates)
    network.finish()


@torch.no_grad()
def predict(network: StackedNetwork, inputs: tuple[Tensor, ...]) -> Tensor:
    """Logits (R, N, K) of all rows."""
    parts = zip(*(tensor.split(_ROWS_AT_ONCE) for tensor in inputs), strict=True)
    return torch.cat([network.forward(part) for part in parts], dim=1)
