# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The corrected loss inside `torch.compile`: it runs eagerly, because its control flow depends on values."""

from __future__ import annotations

import torch

from glc_hf.correction.loss import corrected_cross_entropy


# Not in loss.py: torch.compiler.disable imports the compiler, which takes seconds.
eager_corrected_cross_entropy = torch.compiler.disable(corrected_cross_entropy)
