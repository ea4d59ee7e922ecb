# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""docs/sources.md is true: its three commands run, its other commands parse, and its code works."""

from __future__ import annotations

import csv
import json
import random
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from datasets import Dataset

from glc_hf import GLCConfig, GLCTrainer, gather_votes
from glc_hf.cli.commands import audit, card
from glc_hf.cli.main import main
from glc_hf.cli.parsing import parse
from glc_hf.methods.matrix_files import load_sources
from tests.cli.conftest import CLASSES, _process_settings, text_rows, tiny_bert  # noqa: F401  (fixtures)
from tests.training.tiny import bert, config
from tests.training.tiny import text_rows as token_rows


PAGE = (Path(__file__).parents[1] / "docs" / "sources.md").read_text(encoding="utf-8")
HUB_MODEL = "distilbert/distilbert-base-uncased"
# What the page leaves at the defaults, for a tiny network with random weights.
QUICK = ["--learning-rate", "5e-3", "--num-train-epochs", "2", "--save-strategy", "no", "--pretrained", "false"]


def blocks(language: str) -> list[str]:
    inside = PAGE.split("```")[1::2]
    return [block.partition("\n")[2] for block in inside if block.partition("\n")[0] == language]


def commands() -> list[list[str]]:
    """The arguments of every `glc-hf` command of the page, in its order."""
    lines = [line for block in blocks("bash") for line in block.replace("\\\n", " ").splitlines()]
    return [words[1:] for line in lines if (words := shlex.split(line, comments=True))]


def write_tickets(path: Path, number: int = 160) -> None:
    """A file with the columns of the page's example, and texts that the tiny network knows."""
    header = blocks("")[0].splitlines()[0].split(",")
    draw = random.Random(0)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, header)
        writer.writeheader()
        for row, (text, label) in enumerate(line.values() for line in text_rows(number)):
            checked = row % 4 == 0
            votes = {
                "gpt": label if draw.random() < 0.8 else draw.choice(CLASSES),
                "llama": "" if draw.random() < 0.1 else "animal" if label == "food" else label,
                "rule": "food" if "soup" in text or "rice" in text else "",
            }
            trusted = {"label": label if checked else "", "trusted": "yes" if checked else "no"}
            writer.writerow({"text": text, **votes, **trusted})


def test_three_commands_lead_from_a_file_to_a_model_and_an_audit(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    tiny_bert: Path,  # noqa: F811
) -> None:
    monkeypatch.chdir(tmp_path)
    write_tickets(tmp_path / "tickets.csv")
    train, look, check = commands()[:3]
    assert HUB_MODEL in train
    train = [str(tiny_bert) if word == HUB_MODEL else word for word in train]
    assert main([*train, *QUICK]) == 0, capsys.readouterr().err
    shown = capsys.readouterr().out
    assert re.search(r"rule +\d+ \(\d+%\)", shown), shown
    results = json.loads((tmp_path / "ticket-model" / "results.json").read_text())
    sources = {source["name"]: source for source in results["sources"]}
    assert set(sources) == {"gpt", "llama", "rule"}
    assert sources["llama"]["confusions"][0]["true"] == "food"
    assert main(look) == 0
    text = (tmp_path / "tickets.md").read_text()
    assert "| llama | " in text
    assert main(check) == 0, capsys.readouterr().err
    table = pd.read_csv(tmp_path / "ticket-model" / "audit" / "audit.csv")
    assert len(table) == 160
    assert {"given_label", "suggested_label", "p_wrong"} <= set(table.columns)


def test_table_has_the_columns_that_are_printed() -> None:
    from glc_hf.correction.sources import SourceTable

    shown = blocks("")[1].splitlines()[0]
    assert re.split(r"  +", shown) == list(SourceTable.header)
    explained = re.findall(r"^\| ([^|]+) \|", PAGE[PAGE.index("| column | meaning |") :], flags=re.M)[2:]
    assert [name.split(" (")[0] for name in SourceTable.header[1:]] == explained


def test_every_command_is_accepted_by_its_parser() -> None:
    kinds = []
    for name, *words in commands():
        kinds.append(name)
        if name == "train":
            parse(words)
        else:
            {"audit": audit, "card": card}[name].parser().parse_args(words)
    assert kinds.count("train") == 3


def test_ways_of_the_verdict_are_those_of_auto() -> None:
    from glc_hf.correction.verdict import FINAL, PLAIN
    from glc_hf.methods.auto import _VOTES_WAYS

    part = PAGE[PAGE.index("## What the verdict compares") : PAGE.index("## What each source is worth")]
    assert set(re.findall(r"^\| `(\w+)` \|", part, flags=re.M)) == {PLAIN, FINAL, *(name for name, *_ in _VOTES_WAYS)}


def test_python_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    data = token_rows(60, trusted=0.3)
    votes = {name: [(row + place) % 3 for row in range(60)] for place, name in enumerate(("gpt", "llama", "rule"))}
    for name, column in votes.items():
        data = data.add_column(name, column)
    settings = config(tmp_path / "out", method="glc", source_columns=list(votes), max_steps=1)
    trainer = GLCTrainer(bert(), settings, train_dataset=data)
    trainer.train()
    trainer.save_model("ticket-model")
    answers = [{"item": row, "worker": name, "answer": votes[name][row]} for row in range(60) for name in votes]
    names = {
        "GLCConfig": GLCConfig,
        "gather_votes": gather_votes,
        "answers": answers,
        "data": Dataset.from_dict({"item": list(range(60))}),
        "trainer": trainer,
        "model": trainer.model,
        "rows": data,
    }
    for block in blocks("python"):
        exec(block, names)
    assert names["data"]["votes"][5] == [votes[name][5] for name in votes]
    assert names["row"].name == "rule"
    for attribute in re.search(r'table\["rule"\]  # (.*)', PAGE)[1].split(", "):
        assert hasattr(names["row"], attribute)
    assert "llama" in capsys.readouterr().out
    assert set(names["matrices"]) == set(votes)
    assert names["trainer"].given_sources.names == load_sources(tmp_path / "ticket-model").names
    np.testing.assert_allclose(names["audited"]["p_wrong"], trainer.audit(data)["p_wrong"], rtol=1e-6)
