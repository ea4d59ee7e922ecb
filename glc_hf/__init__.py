# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Train on bad labels with a few good ones: Gold Loss Correction for the Hugging Face stack.

Names are resolved on first use, so `import glc_hf` (and the command line's help) loads neither torch nor transformers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any


__version__ = "0.2.0"

_HOME_OF = {
    "CorruptionMatrix": "glc_hf.matrix",
    "GLCConfig": "glc_hf.training.config",
    "GLCTrainer": "glc_hf.training.trainer",
    "align_flags": "glc_hf.trusted",
    "apply_decisions": "glc_hf.audit.corrections",
    "corrected_cross_entropy": "glc_hf.correction.loss",
    "corrupt_labels": "glc_hf.noise.corrupt",
    "estimate_corruption_matrix": "glc_hf.correction.estimators",
    "export_audit": "glc_hf.audit.annotation_tools",
    "gather_votes": "glc_hf.labels.answers",
    "mark_trusted": "glc_hf.trusted",
    "merge_trusted": "glc_hf.trusted",
    "push_audit": "glc_hf.audit.hub_dataset",
    "weak_labels": "glc_hf.noise.corrupt",
}

__all__ = [*_HOME_OF, "__version__"]

if TYPE_CHECKING:
    from glc_hf.audit.annotation_tools import export_audit as export_audit
    from glc_hf.audit.corrections import apply_decisions as apply_decisions
    from glc_hf.audit.hub_dataset import push_audit as push_audit
    from glc_hf.correction.estimators import estimate_corruption_matrix as estimate_corruption_matrix
    from glc_hf.correction.loss import corrected_cross_entropy as corrected_cross_entropy
    from glc_hf.labels.answers import gather_votes as gather_votes
    from glc_hf.matrix import CorruptionMatrix as CorruptionMatrix
    from glc_hf.noise.corrupt import corrupt_labels as corrupt_labels
    from glc_hf.noise.corrupt import weak_labels as weak_labels
    from glc_hf.training.config import GLCConfig as GLCConfig
    from glc_hf.training.trainer import GLCTrainer as GLCTrainer
    from glc_hf.trusted import align_flags as align_flags
    from glc_hf.trusted import mark_trusted as mark_trusted
    from glc_hf.trusted import merge_trusted as merge_trusted


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'glc_hf' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
