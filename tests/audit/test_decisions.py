# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Decisions files: what is read, and which row an error names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glc_hf.audit.decisions import Decision, Decisions


def page_file(entries: list[dict[str, Any]], **changes: Any) -> str:
    """The text of a file as the review page saves it."""
    content = {
        "format": "glc_hf decisions",
        "format_version": 1,
        "dataset": {"fingerprint": "f", "rows": 9, "input_columns": ["text"], "label_column": "label"},
        "label_names": ["cat", "dog"],
        "num_labels": 2,
        "num_decisions": len(entries),
        **changes,
    }
    head = json.dumps(content, indent=2)[:-2]
    return head + ',\n  "decisions": [\n' + ",\n".join(json.dumps(entry) for entry in entries) + "\n  ]\n}\n"


ENTRIES = [
    {"row": 3, "decision": "keep", "label": "cat", "given_label": "cat", "check": "aa"},
    {"row": 5, "decision": "skip", "label": None, "given_label": "dog", "check": "bb"},
    {"row": 12, "decision": "suggested", "label": "dog", "given_label": "cat", "check": "cc"},
]


def _read(tmp_path: Path, text: str, name: str = "decisions.json") -> Decisions:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return Decisions.read(tmp_path / name)


def test_file_of_the_page_is_read_completely(tmp_path: Path) -> None:
    decisions = _read(tmp_path, page_file(ENTRIES))
    assert decisions.entries[0] == Decision(3, None, "keep", "cat", "cat", "aa")
    assert decisions.entries[1].label is None
    assert (decisions.fingerprint, decisions.num_rows, decisions.label_names) == ("f", 9, ["cat", "dog"])
    assert (decisions.input_columns, decisions.label_column, decisions.from_votes) == (["text"], "label", False)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("d.csv", "\ufeffrow,label,word\n3,cat,\n12,dog,4\n"),
        ("d.tsv", "row\tword\tlabel\n3\t\tcat\n12\t4\tdog\n"),
        ("d.jsonl", '{"row": 3, "label": "cat"}\n\n{"row": 12, "word": 4, "label": "dog"}\n'),
        ("d.json", '[{"row": 3, "label": "cat"}, {"row": 12.0, "word": 4, "label": "dog"}]'),
    ],
)
def test_tables_with_row_and_label_are_decisions_too(tmp_path: Path, name: str, text: str) -> None:
    assert _read(tmp_path, text, name).entries == [Decision(3, None, "class", "cat"), Decision(12, 4, "class", "dog")]


@given(st.data())
def test_a_file_cut_short_anywhere_is_an_error_that_names_the_last_row(tmp_path_factory, data) -> None:
    text = page_file(ENTRIES)
    end = data.draw(st.integers(0, len(text) - 3))
    with pytest.raises(ValueError, match="cut short|not a decisions file") as caught:
        _read(tmp_path_factory.mktemp("cut"), text[:end])
    if text.index('"row": 12') + 9 < end:
        assert "after row 12" in str(caught.value)
    elif text.index('"row": 5') + 8 < end < text.index('"row": 12'):
        assert "after row 5" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (page_file(ENTRIES, num_decisions=4), "cut short after row 12: it has 3 of 4 decisions"),
        (page_file(ENTRIES, format_version=2), "format_version 2"),
        (page_file(ENTRIES, format="other"), "not a decisions file"),
        ("{}", "not a decisions file"),
        (page_file([*ENTRIES, ENTRIES[0]]), "row 3: there are two decisions"),
        (page_file([{**ENTRIES[0], "decision": "yes"}]), "row 3: there is no decision 'yes'"),
        (page_file([{**ENTRIES[0], "label": None}]), "row 3: the decision has no label"),
        (page_file([{**ENTRIES[0], "label": ["cat"]}]), "row 3: the label .* is neither"),
        (page_file([{**ENTRIES[0], "word": -1}]), "row 3: word -1 is not"),
        (page_file([{**ENTRIES[0], "row": "three"}]), "entry 1: row 'three' is not a row number"),
        (page_file([{"label": "cat"}]), "entry 1: it has no row"),
    ],
)
def test_damaged_files_are_errors_that_name_the_row(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _read(tmp_path, text)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("d.csv", "row,label\n3,cat\n12\n", r"line 3 \(row 12\): 1 values for 2 columns"),
        ("d.csv", "row,class\n3,cat\n", "no column 'label'; its columns are row, class"),
        ("d.csv", "", "no column 'row'"),
        ("d.jsonl", '{"row": 3, "label": "cat"}\n{"row": 12, "la', "line 2, is cut short or damaged after row 12"),
        ("d.txt", "row", "ends in .json"),
    ],
)
def test_damaged_tables_are_errors_that_name_the_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _read(tmp_path, text, name)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no decisions file .*nothing.json"):
        Decisions.read(tmp_path / "nothing.json")
