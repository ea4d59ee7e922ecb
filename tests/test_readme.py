# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The README and the docs: their examples run, their commands parse, their tables equal the committed results."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from datasets import Dataset

from glc_hf import CorruptionMatrix
from glc_hf.correction.verdict import Verdict, Way
from tests.forked_python import python
from tests.training.tiny import VOCABULARY, bert


ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *(ROOT / "docs").rglob("*.md"))
}
RENDERED = ("README.md", "docs/results.md", "docs/benchmarks.md", "docs/scale.md")
WITH_SWEEPS = ("docs/guide.md", "docs/results.md", "docs/howto/ray.md")
WITH_PICTURES = ("README.md", "docs/results.md", "docs/scale.md")
HUB_MODEL = "distilbert-base-uncased"


def blocks(language: str, page: str = "README.md") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGES[page], flags=re.S)


def shell_lines(page: str) -> list[list[str]]:
    """The words of every line of the shell on a page."""
    lines = [line for block in blocks("bash", page) for line in block.replace("\\\n", " ").splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def commands(page: str) -> list[list[str]]:
    """The arguments of every `glc-hf` command on a page."""
    return [words[1:] for words in shell_lines(page) if words[0] == "glc-hf"]


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


def test_the_example_runs_with_another_model_name(tmp_path: Path, small_model: Path) -> None:
    example = blocks("python")[0]
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
    environment = {**os.environ, "HF_DATASETS_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    subprocess.run([python(), "example.py"], cwd=tmp_path, env=environment, check=True, timeout=300)
    assert (tmp_path / "robust-model" / "corruption_matrix.json").exists()
    from transformers import AutoModelForSequenceClassification

    AutoModelForSequenceClassification.from_pretrained(tmp_path / "robust-model")


def test_every_training_command_is_accepted_by_the_parser() -> None:
    from glc_hf.cli.parsing import parse

    found = [command[1:] for command in commands("README.md") if command[0] == "train"]
    for command in found:
        parse(command)
    assert len(found) >= 3


@pytest.mark.parametrize("page", WITH_SWEEPS)
def test_every_sweep_command_is_valid(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from glc_hf.cli.commands import sweep
    from glc_hf.experiments.presets.base import Preset

    monkeypatch.setattr(Preset, "rows_of", lambda self, data_root, limit: (None, None, None))
    found = [command[1:] for command in commands(page) if command[0] == "sweep"]
    for command in found:
        options = sweep.sweep_parser().parse_args(command)
        options.data_root = None
        curves, _ = sweep.curves(options)
        assert curves
    assert found


@pytest.mark.parametrize("page", WITH_PICTURES)
def test_every_picture_exists(page: str) -> None:
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", PAGES[page])
    assert pictures
    for name in pictures:
        path = (ROOT / page).parent / name
        assert path.is_file(), name
        assert path.stat().st_size < 150_000, name


def test_every_link_between_pages_and_files_exists() -> None:
    for page, text in PAGES.items():
        for target in re.findall(r"\]\((?!http)([^)#]+)", text):
            assert ((ROOT / page).parent / target).exists(), f"{page}: {target}"


def test_every_link_to_a_section_has_one() -> None:
    sections = {
        (ROOT / page).resolve(): {_anchor(title) for title in re.findall(r"^#+ (.*)$", text, flags=re.M)}
        for page, text in PAGES.items()
    }
    found = 0
    for page, text in PAGES.items():
        for target, section in re.findall(r"\]\((?!http)([^)#]*)#([^)]+)\)", text):
            path = (ROOT / page).parent / target if target else ROOT / page
            assert section in sections[path.resolve()], f"{page}: {target}#{section}"
            found += 1
    assert found > 5


def _anchor(title: str) -> str:
    """The name that GitHub gives to a section."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _block_with(text: str) -> str:
    """The only Python block of the guide that contains a text."""
    (block,) = [block for block in blocks("python", "docs/guide.md") if text in block]
    return block


def test_the_guide_shows_the_attributes_of_a_verdict() -> None:
    way = Way(0.8, 0.7, 0.9, "the network")
    verdict = Verdict("auto", {"auto": way}, "Correction helps.", True, 50, ["The last stage trains on trusted rows."])
    exec(_block_with("trainer.verdict"), {"trainer": SimpleNamespace(verdict=verdict)})


def test_the_guide_shows_how_to_compute_the_metrics() -> None:
    pytest.importorskip("evaluate")
    exec(_block_with("ErrorCurveArea"), {})


def test_the_guide_shows_how_to_get_the_intervals_of_a_matrix() -> None:
    matrix = CorruptionMatrix(CorruptionMatrix.uniform(3, 0.3), trusted_rows=[3, 40, 0])
    names = {"matrix": matrix}
    exec(_block_with("noise_rate_interval"), names)
    assert names["low"].tolist() == matrix.noise_rate_interval()[0].tolist()


@pytest.mark.parametrize("library", ["sentence_transformers", "setfit"])
def test_the_guide_shows_how_to_train_a_head_on_a_sentence_encoder(
    tmp_path: Path, small_model: Path, library: str
) -> None:
    package = pytest.importorskip(library)
    import torch

    from glc_hf import GLCConfig, GLCTrainer
    from tests.training.tiny import config

    def load(name: str) -> Any:
        if library == "setfit":
            model = package.SetFitModel.from_pretrained(str(small_model), device="cpu")
            settings = {"output_dir": str(tmp_path / "setfit"), "max_steps": 2, "report_to": "none"}
            trusted = Dataset.from_dict(rows).filter(lambda row: row["trusted"]).select_columns(["text", "label"])
            package.Trainer(model, args=package.TrainingArguments(**settings), train_dataset=trusted).train()
            return model.model_body
        return package.SentenceTransformer(str(small_model), device="cpu")

    rows = {"text": ["good film", "bad film", "film"] * 20, "label": [0, 1, 2] * 20, "trusted": [True, False] * 30}
    names = {
        "torch": torch,
        "SentenceTransformer": load,
        "GLCConfig": lambda **settings: config(**{"folder": tmp_path, **settings, "output_dir": str(tmp_path)}),
        "GLCTrainer": GLCTrainer,
        "data": Dataset.from_dict(rows),
    }
    exec(_block_with("SentenceTransformer("), names)
    trainer = names["trainer"]
    assert isinstance(trainer.args, GLCConfig)
    assert [name for name, value in trainer.model.named_parameters() if value.requires_grad] == [
        "classifier.weight", "classifier.bias",
    ]  # fmt: skip
    # Each text has its own class, so a linear head on its embedding knows the labels.
    assert trainer.corruption_matrix.probs.diagonal().min() > 0.8


@pytest.mark.parametrize("page", RENDERED)
def test_tables_equal_the_committed_results(page: str) -> None:
    spec = importlib.util.spec_from_file_location("render_readme", ROOT / "benchmarks" / "render_readme.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.render(page, PAGES[page]) == PAGES[page]
