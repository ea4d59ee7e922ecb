# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Tiny models, tokenizers and data files; the command run in the process of the test."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import numpy as np
import pytest
import torch

from glc_hf.cli.main import main


CLASSES = ("animal", "food", "tool")
WORDS = {
    "animal": ["cat", "dog", "horse", "bird"],
    "food": ["bread", "apple", "soup", "rice"],
    "tool": ["hammer", "saw", "drill", "knife"],
}


class Outcome(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The only line that bad input prints."""
        lines = [line for line in self.err.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, self.err
        assert "Traceback" not in self.err
        return lines[0]


@pytest.fixture(autouse=True)
def _process_settings(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore the logging that the command sets up, and keep caches out of the home folder."""
    cache = tmp_path_factory.getbasetemp() / "datasets-cache"
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", cache)
    library = logging.getLogger("glc_hf")
    handlers, propagate, level = library.handlers[:], library.propagate, library.level
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    yield
    library.handlers[:], library.propagate = handlers, propagate
    library.setLevel(level)
    datasets.enable_progress_bars()


@pytest.fixture
def glc_hf(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run `glc-hf` with these arguments."""

    def run(*words: Any) -> Outcome:
        code = main([str(word) for word in words])
        return Outcome(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny BERT (random weights, a head for two classes) and its tokenizer."""
    return save_tiny_bert(tmp_path_factory.mktemp("tiny-bert"))


def save_tiny_bert(folder: Path, **settings: Any) -> Path:
    """Write a tiny BERT with these settings of its configuration, and its tokenizer."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import Lowercase
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "a", "was", "here", "s", "##s"]
    pieces += [word for words in WORDS.values() for word in words]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = Lowercase()
    tokenizer.pre_tokenizer = Whitespace()
    special = [(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", special)
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=16, **names)
    fast.save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        pad_token_id=0,
        initializer_range=0.2,  # such a small network does not learn from weights near zero
        hidden_dropout_prob=0.0,
        **settings,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        BertForSequenceClassification(config).save_pretrained(folder)
    return folder


def text_rows(number: int, seed: int = 0, classes: tuple[str, ...] = CLASSES) -> list[dict[str, Any]]:
    """Sentences in which one word gives away the class."""
    generator = np.random.default_rng(seed)
    rows = []
    for index in range(number):
        label = classes[index % len(classes)]
        rows.append({"text": f"the {generator.choice(WORDS[label])} was here", "label": label})
    return rows


def write_csv(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write one line per row, with quotes."""
    names = list(rows[0])
    lines = [",".join(names), *(",".join(f'"{row[name]}"' for name in names) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def results_in(folder: Path) -> dict[str, Any]:
    """Read the `results.json` of a run."""
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))
