# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Learning to reweight examples (Ren et al. 2018)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.func import functional_call, jvp

from glc_hf.labels.reading import IGNORED_LABEL
from glc_hf.methods.base import Batch, Method, plain_cross_entropy, register
from glc_hf.randomness import random_uint64


@register("reweight")
class Reweight(Method):
    """
    One stage on all rows, in which each example counts as much as it helps on a trusted batch.

    Ren et al. give the examples weights ε, look one gradient step ahead, and take how the trusted loss L falls in ε:

        w_i ∝ max(0, −∂/∂ε_i L(θ − α ∇_θ Σ_j ε_j l_j(θ)))  at ε = 0   =   α · max(0, ∇l_i(θ) · ∇L(θ)).

    So the weights need no second derivative: with v = ∇L(θ), the products ∇l_i · v of all examples are one
    forward-mode derivative of the losses along v. They are then normalised to sum to one (all zero where none helps).
    The trusted batch of a step depends on the seed and the step alone.
    """

    needs_item_numbers = True

    def prepare_model(self, model: torch.nn.Module) -> None:
        """Attention that can be derived twice, and no buffers that forward changes."""
        if self.args.gradient_checkpointing:
            raise ValueError(
                "method 'reweight' takes forward-mode derivatives, which gradient_checkpointing can't give: leave it "
                "out."
            )
        refuse_changing_buffers(model, self.name)
        allow_second_derivatives(model)

    def item_weights(self, trainer: Any, model: torch.nn.Module, inputs: dict, batch: Batch) -> torch.Tensor:
        """The look-ahead weights of a batch, times its number of items (so that the mean is the weighted sum)."""
        model = trainer.model
        trusted_inputs, trusted_labels = self._trusted_batch(trainer, len(batch.labels))
        weights = look_ahead_weights(model, inputs, batch.labels, trusted_inputs, trusted_labels, trainer.accelerator)
        return weights * (batch.labels != IGNORED_LABEL).sum()

    def _trusted_batch(self, trainer: Any, size: int) -> tuple[dict[str, Any], torch.Tensor]:
        data = trainer.training_data.rows
        rows = data.rows_with("trusted")
        step = np.full(len(rows), trainer.state.global_step)
        rank = trainer.accelerator.process_index
        order = np.argsort(random_uint64(f"reweight {rank}", self.args.seed, rows, step), kind="stable")
        view = data.view(
            rows[order[:size]], trainer._without_unused_columns(trainer.train_dataset), self.args.trusted_column
        )
        collate = trainer._get_collator_with_removed_columns(trainer.data_collator, "Training")
        found = trainer._prepare_inputs(collate(view.__getitems__(range(len(view)))))
        labels = found.pop(trainer._label_name).masked_fill(~found.pop(self.args.trusted_column), IGNORED_LABEL)
        return {name: value for name, value in found.items() if not name.startswith("__")}, labels


def look_ahead_weights(
    model: torch.nn.Module,
    inputs: dict[str, Any],
    labels: torch.Tensor,
    trusted_inputs: dict[str, Any],
    trusted_labels: torch.Tensor,
    accelerator: Any = None,
) -> torch.Tensor:
    """
    max(0, ∇l_i · ∇L) over the items of a batch, normalised to sum to one; 0 where the label is -100.

    Args:
        model (`torch.nn.Module`): The model at θ; its mode and parameters stay as they are.
        inputs, labels: The batch; `labels` has the shape of the items.
        trusted_inputs, trusted_labels: The trusted batch, whose mean loss is L.
        accelerator (`accelerate.Accelerator`, *optional*): Averages ∇L over the processes, where there are several.
    """
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    others = {name: p.detach() for name, p in model.named_parameters() if not p.requires_grad}
    others |= dict(model.named_buffers())

    def losses_at(values: dict[str, torch.Tensor], given: dict[str, Any], targets: torch.Tensor) -> torch.Tensor:
        from glc_hf.methods.base import logits_of

        return plain_cross_entropy(logits_of(functional_call(model, {**others, **values}, (), given)), targets)

    with torch.enable_grad():
        counted = (trusted_labels != IGNORED_LABEL).sum().clamp(min=1)
        trusted_loss = losses_at(parameters, trusted_inputs, trusted_labels).sum() / counted
        gradient = torch.autograd.grad(trusted_loss, list(parameters.values()), allow_unused=True)
    direction = {
        name: torch.zeros_like(p) if g is None else g
        for (name, p), g in zip(parameters.items(), gradient, strict=True)
    }
    if accelerator is not None and accelerator.num_processes > 1:
        direction = {name: accelerator.reduce(g, reduction="mean") for name, g in direction.items()}
    values = {name: p.detach() for name, p in parameters.items()}
    _, products = jvp(lambda at: losses_at(at, inputs, labels), (values,), (direction,))
    helping = products.detach().clamp(min=0.0).masked_fill(labels == IGNORED_LABEL, 0.0)
    total = helping.sum()
    return helping / total if total > 0 else helping


def allow_second_derivatives(model: torch.nn.Module) -> None:
    """Switches attention to its plain form: the fused kernels have neither forward-mode nor second derivatives."""
    if hasattr(model, "set_attn_implementation"):
        model.set_attn_implementation("eager")
    for module in model.modules():
        if hasattr(module, "fused_attn"):  # timm's switch
            module.fused_attn = False


def refuse_changing_buffers(model: torch.nn.Module, method: str) -> None:
    """Raises for modules whose forward changes buffers, such as BatchNorm's running statistics: the look-ahead would
    change them as well."""
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.modules.batchnorm._NormBase) and module.track_running_stats:
            raise ValueError(
                f"method {method!r} can't train this model: {name} is a {type(module).__name__}, whose forward "
                "changes its running statistics, and the method runs the model more often than it steps. Use a "
                "network with LayerNorm or GroupNorm (ViT, ConvNeXt, BERT, …), or another method."
            )
