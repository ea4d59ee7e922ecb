# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Models that can be derived forward and twice: what has to be switched, and what has to be refused."""

from __future__ import annotations

import torch


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
