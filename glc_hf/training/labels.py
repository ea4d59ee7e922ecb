# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The names of the classes."""

from __future__ import annotations

from typing import Any

import datasets
import torch


def label_names_of(dataset: Any, label_column: str, model: torch.nn.Module) -> list[str] | None:
    """Class names from the dataset's `ClassLabel`, else from the model's `id2label` where somebody filled it in."""
    num_labels = getattr(getattr(model, "config", None), "num_labels", None)
    features = getattr(dataset, "features", None) or {}
    feature = features.get(label_column)
    feature = getattr(feature, "feature", feature)  # the entry of a list
    if isinstance(feature, datasets.ClassLabel) and feature.num_classes == num_labels:
        return list(feature.names)
    id2label = getattr(getattr(model, "config", None), "id2label", None) or {}
    names = [id2label.get(label) for label in range(num_labels or 0)]
    if not names or None in names or names == [f"LABEL_{label}" for label in range(len(names))]:
        return None
    return [str(name) for name in names]
