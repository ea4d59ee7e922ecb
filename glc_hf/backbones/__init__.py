# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
The paper's networks. Importing this package makes them known to `AutoModelFor…` and, where timm is installed, to
`timm.create_model`.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from glc_hf.backbones.image_mlp import ImageMLPConfig, ImageMLPForImageClassification
from glc_hf.backbones.lstm import LSTMConfig, LSTMForSequenceClassification
from glc_hf.backbones.window_tagger import WindowTaggerConfig, WindowTaggerForTokenClassification
from glc_hf.backbones.word_average import WordAverageConfig, WordAverageForSequenceClassification
from glc_hf.backbones.word_tokenizer import word_tokenizer
from glc_hf.backbones.word_vectors import read_word_vectors, tokenizer_of_vectors


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
    "tokenizer_of_vectors",
    "word_tokenizer",
]
