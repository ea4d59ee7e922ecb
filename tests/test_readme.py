# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The README is true: its example runs, its commands parse, its tables are the committed results."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.training.tiny import VOCABULARY, bert


ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
HUB_MODEL = "distilbert-base-uncased"


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.S)


@pytest.fixture
def small_model(tmp_path: Path) -> Path:
    """A tiny model and tokenizer in the place of the one on the Hub."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    folder = tmp_path / "small-model"
    words = {"[PAD]": 0, "[UNK]": 1, "good": 2, "bad": 3, "film": 4}
    tokenizer = Tokenizer(models.WordLevel(words, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=8
    )
    fast.save_pretrained(folder)
    bert(2, vocab_size=VOCABULARY).save_pretrained(folder)
    return folder


def test_the_example_runs_as_written_but_for_the_model_s_name(tmp_path: Path, small_model: Path) -> None:
    example = _blocks("python")[0]
    assert len(example.strip().splitlines()) <= 17
    rng = np.random.default_rng(0)
    lines = ["text,label,trusted"]
    for row in range(60):
        label = int(rng.integers(2))
        given = label if row % 5 == 0 else 1 - label
        lines.append(f"{'good' if label else 'bad'} film,{given},{'true' if row % 5 == 0 else 'false'}")
    (tmp_path / "reviews.csv").write_text("\n".join(lines))
    assert HUB_MODEL in example
    (tmp_path / "example.py").write_text(example.replace(HUB_MODEL, str(small_model)))
    environment = {**os.environ, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}
    subprocess.run([sys.executable, "example.py"], cwd=tmp_path, env=environment, check=True, timeout=300)
    assert (tmp_path / "robust-model" / "corruption_matrix.json").exists()
    from transformers import AutoModelForSequenceClassification

    AutoModelForSequenceClassification.from_pretrained(tmp_path / "robust-model")


def test_every_command_shown_is_one_the_parser_takes() -> None:
    from glc_hf.cli.parse import parse

    shown = 0
    for block in _blocks("bash"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:2] == ["glc-hf", "train"]:
                parse(words[2:])
                shown += 1
    assert shown >= 3


def test_the_tables_are_those_of_the_committed_results() -> None:
    spec = importlib.util.spec_from_file_location("render_readme", ROOT / "benchmarks" / "render_readme.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.render(README) == README
