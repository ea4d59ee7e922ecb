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
PAGES = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/results.md")}
HUB_MODEL = "distilbert-base-uncased"


def _blocks(language: str, page: str = "README.md") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGES[page], flags=re.S)


def _commands(page: str) -> list[list[str]]:
    """The words of every `glc-hf` command shown."""
    lines = [line for block in _blocks("bash", page) for line in block.replace("\\\n", " ").splitlines()]
    found = [shlex.split(line, comments=True) for line in lines]
    return [words[1:] for words in found if words[:1] == ["glc-hf"]]


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
    from glc_hf.cli.parsing import parse

    shown = [words[1:] for words in _commands("README.md") if words[0] == "train"]
    for words in shown:
        parse(words)
    assert len(shown) >= 3


@pytest.mark.parametrize("page", PAGES)
def test_every_sweep_shown_is_one_that_would_run(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from glc_hf.cli.commands import sweep
    from glc_hf.experiments.presets.base import Preset

    monkeypatch.setattr(Preset, "rows_of", lambda self, data_root, limit: (None, None, None))
    shown = [words[1:] for words in _commands(page) if words[0] == "sweep"]
    for words in shown:
        options = sweep.parser().parse_args(words)
        options.data_root = None
        curves, _ = sweep.curves(options)
        assert curves
    assert shown


@pytest.mark.parametrize("page", PAGES)
def test_every_picture_is_there(page: str) -> None:
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", PAGES[page])
    assert pictures
    for name in pictures:
        path = (ROOT / page).parent / name
        assert path.is_file(), name
        assert path.stat().st_size < 150_000, name


@pytest.mark.parametrize("page", PAGES)
def test_the_tables_are_those_of_the_committed_results(page: str) -> None:
    spec = importlib.util.spec_from_file_location("render_readme", ROOT / "benchmarks" / "render_readme.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.render(page, PAGES[page]) == PAGES[page]
