# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The loss inside `torch.compile`: it runs eagerly, between two graphs, because it looks at its numbers."""

from __future__ import annotations

import torch

from glc_hf.correction.loss import corrected_cross_entropy


# Apart from loss.py because torch.compiler.disable loads the compiler, which takes seconds.
eager_corrected_cross_entropy = torch.compiler.disable(corrected_cross_entropy)
