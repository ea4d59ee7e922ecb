# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Small audits to export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from datasets import ClassLabel, Dataset, Features, Image, Value
from PIL import Image as PILImage

from glc_hf.audit.decisions import Decisions


# Characters that XML, JSON and HTML have a meaning for.
NAMES = ["cat & <dog>", 'the "cow"', "größe\n2"]
ROWS = 7
ISSUES = [1, 5, 2]  # by p_wrong


def audited(names: list[str] | None = NAMES, **inputs: list[Any]) -> Dataset:
    """An audit of seven rows, of which three are label issues."""
    given, suggested = np.array([0, 1, 2, 0, 1, 2, 0]), np.array([0, 2, 1, 0, 1, 0, 0])
    p_wrong = np.array([0.1, 0.95, 0.6, 0.0, 0.3, 0.8, 0.2])
    classes = Value("int64") if names is None else ClassLabel(names=names)
    inputs = inputs or {"text": [f'text "{row}" <b>&amp; ü' for row in range(ROWS)]}
    columns = {
        **inputs,
        "label": given,
        "given_label": given,
        "suggested_label": suggested,
        "p_wrong": p_wrong,
        "is_label_issue": given != suggested,
        "label_score": 1 - p_wrong,
    }
    features = {"label": classes, "given_label": classes, "suggested_label": classes}
    features |= {"p_wrong": Value("float64"), "is_label_issue": Value("bool"), "label_score": Value("float64")}
    kinds = {name: Image() if name == "image" else Value("string") for name in inputs}
    return Dataset.from_dict({name: list(columns[name]) for name in columns}, Features({**kinds, **features}))


def pictures() -> list[Any]:
    """One picture per row; the last one is large."""
    return [PILImage.new("RGB", (8, 8 if row < ROWS - 1 else 900), (30 * row, 0, 0)) for row in range(ROWS)]


def dataset_of(audit: Dataset) -> Dataset:
    """The audited rows, as before the audit."""
    return audit.select_columns([name for name in audit.column_names if name in ("text", "text2", "image", "label")])


def read(path: Path, content: Any) -> Decisions:
    """Read the decisions in an export with this content."""
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return Decisions.read(path)
