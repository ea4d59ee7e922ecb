# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Layers that no stage trains."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def freeze_parameters(model: torch.nn.Module, prefixes: Sequence[str] | None) -> None:
    """Switches off the gradient of the parameters whose names start with one of the prefixes; a prefix that fits none
    is an error, because it is a typing mistake."""
    for prefix in prefixes or ():
        parameters = [parameter for name, parameter in model.named_parameters() if name.startswith(prefix)]
        if not parameters:
            known = sorted({".".join(name.split(".")[:2]) for name, _ in model.named_parameters()})
            raise ValueError(f"freeze: no parameter starts with {prefix!r}; the model has {', '.join(known[:12])}, ….")
        for parameter in parameters:
            parameter.requires_grad_(False)
