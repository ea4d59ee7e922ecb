# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Learning to reweight examples (Ren et al. 2018)."""

from __future__ import annotations

from typing import Any

import torch
from torch.func import functional_call, jvp

from glc_hf.labels.label_batch import LabelBatch
from glc_hf.methods.base import Method, logits_of, register


@register("reweight")
class Reweight(Method):
    """
    One stage on all rows. The weight of each example is how much it helps on a batch of trusted rows.

    Ren et al. give the examples weights ε, look one gradient step ahead, and take how the trusted loss L falls in ε:

        w_i ∝ max(0, −∂/∂ε_i L(θ − α ∇_θ Σ_j ε_j l_j(θ)))  at ε = 0   =   α · max(0, ∇l_i(θ) · ∇L(θ)).

    So the weights need no second derivative: with v = ∇L(θ), the products ∇l_i · v of all examples are one
    forward-mode derivative of the losses along v. They are normalized to sum to one (all zero if no example helps).
    The trusted batch of a step depends only on the seed and the step.
    """

    needs_item_numbers = True

    def prepare_model(self, model: torch.nn.Module) -> None:
        if self.args.gradient_checkpointing:
            raise ValueError(
                "method 'reweight' uses forward-mode derivatives, which gradient_checkpointing does not support: set "
                "gradient_checkpointing=False."
            )
        refuse_changing_buffers(model, self.name)
        use_plain_attention(model)

    def item_weights(
        self, trainer: Any, model: torch.nn.Module, inputs: dict, batch: LabelBatch
    ) -> torch.Tensor | None:
        """The weights of a batch times its number of items, so that the mean loss is the weighted sum."""
        trusted_inputs, trusted_batch = trainer.trusted_batch(len(batch.labels))
        weights = look_ahead_weights(trainer.model, inputs, batch, trusted_inputs, trusted_batch, trainer.accelerator)
        return weights * batch.counted.sum()


def look_ahead_weights(
    model: torch.nn.Module,
    inputs: dict[str, Any],
    batch: LabelBatch,
    trusted_inputs: dict[str, Any],
    trusted_batch: LabelBatch,
    accelerator: Any = None,
) -> torch.Tensor:
    """
    max(0, ∇l_i · ∇L) for the items of a batch, normalized to sum to one; 0 for items that don't count.

    Args:
        model (`torch.nn.Module`): The model at θ. Its mode and parameters don't change.
        inputs, batch: The batch: the model's inputs, and its labels.
        trusted_inputs, trusted_batch: The trusted batch, whose mean loss is L.
        accelerator (`accelerate.Accelerator`, *optional*): Averages ∇L over several processes.
    """
    parameters: dict[str, torch.Tensor] = {name: p for name, p in model.named_parameters() if p.requires_grad}
    others = {name: p.detach() for name, p in model.named_parameters() if not p.requires_grad}
    others |= dict(model.named_buffers())

    def losses_at(values: dict[str, torch.Tensor], given: dict[str, Any], targets: LabelBatch) -> torch.Tensor:
        return targets.cross_entropy(logits_of(functional_call(model, {**others, **values}, (), given)))

    with torch.enable_grad():
        counted = trusted_batch.counted.sum().clamp(min=1)
        trusted_loss = losses_at(parameters, trusted_inputs, trusted_batch).sum() / counted
        gradient = torch.autograd.grad(trusted_loss, list(parameters.values()), allow_unused=True)
    direction = {
        name: torch.zeros_like(p) if g is None else g
        for (name, p), g in zip(parameters.items(), gradient, strict=True)
    }
    if accelerator is not None and accelerator.num_processes > 1:
        direction = {name: accelerator.reduce(g, reduction="mean") for name, g in direction.items()}
    values = {name: p.detach() for name, p in parameters.items()}
    _, products = jvp(lambda at: losses_at(at, inputs, batch), (values,), (direction,))
    helping = products.detach().clamp(min=0.0).masked_fill(~batch.counted, 0.0)
    total = helping.sum()
    return helping / total if total > 0 else helping


def use_plain_attention(model: torch.nn.Module) -> None:
    """Switch attention to its plain form: the fused kernels have no forward-mode derivatives."""
    switch: Any = getattr(model, "set_attn_implementation", None)
    if switch is not None:
        switch("eager")
    for module in model.modules():
        if hasattr(module, "fused_attn"):  # timm's switch
            setattr(module, "fused_attn", False)  # noqa: B010  (a module's attributes are declared as tensors)


def refuse_changing_buffers(model: torch.nn.Module, method: str) -> None:
    """Raise for modules whose forward changes buffers, such as BatchNorm: the look-ahead would change them too."""
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.modules.batchnorm._NormBase) and module.track_running_stats:
            raise ValueError(
                f"method {method!r} can't train this model: {name} is a {type(module).__name__}, whose forward "
                "updates its running statistics, and the method runs the model more often than it steps. Use a "
                "network with LayerNorm or GroupNorm (ViT, ConvNeXt, BERT, …), or another method."
            )
