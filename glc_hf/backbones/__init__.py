# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The networks of the paper. Importing this package registers them with `AutoModelFor…` and, if installed, timm."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from glc_hf.backbones.small_models import (
    ImageMLPConfig,
    ImageMLPForImageClassification,
    LSTMConfig,
    LSTMForSequenceClassification,
    WindowTaggerConfig,
    WindowTaggerForTokenClassification,
    WordAverageConfig,
    WordAverageForSequenceClassification,
)
from glc_hf.backbones.words import read_word_vectors, word_tokenizer


if find_spec("timm") is not None:
    import_module("glc_hf.backbones.wide_resnet")

__all__ = [
    "ImageMLPConfig",
    "ImageMLPForImageClassification",
    "LSTMConfig",
    "LSTMForSequenceClassification",
    "WindowTaggerConfig",
    "WindowTaggerForTokenClassification",
    "WordAverageConfig",
    "WordAverageForSequenceClassification",
    "read_word_vectors",
    "word_tokenizer",
]
