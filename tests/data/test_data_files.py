# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""CSV files of any delimiter and encoding are read as they were written."""

from __future__ import annotations

import csv
import io
import tempfile
from pathlib import Path

import datasets
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glc_hf.data import data_files
from glc_hf.data.data_files import DELIMITERS, CsvFormat, load_splits, parse_delimiter, sniff_csv


ROWS = [
    ["a, plain; text | with\tall of them", "café", "yes"],
    ['two\nlines and a "word"', "Ärger", "no"],
    ["", "naïve", "yes"],
    *([f"text number {number}, and more; of it", "café", "no"] for number in range(40)),
]
HEADER = ["text", "label", "trusted"]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def written(delimiter: str, rows: list[list[str]], header: list[str] = HEADER) -> str:
    """The rows as a spreadsheet program writes them."""
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=delimiter, lineterminator="\r\n").writerows([header, *rows])
    return file.getvalue()


def write(path: Path, content: str, encoding: str) -> Path:
    path.write_bytes(content.encode(encoding))
    return path


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("delimiter", list(DELIMITERS.values()), ids=list(DELIMITERS))
def test_every_delimiter_and_encoding_gives_the_same_rows(tmp_path: Path, delimiter: str, encoding: str) -> None:
    path = write(tmp_path / "a.csv", written(delimiter, ROWS), encoding)
    assert sniff_csv(path) == CsvFormat(delimiter, encoding, guessed=encoding == "cp1252")
    if encoding == "cp1252":
        with pytest.warns(UserWarning, match="not UTF-8 .*Windows-1252.*--encoding"):
            data = load_splits(str(path))["train"]
    else:
        data = load_splits(str(path))["train"]
    assert data.column_names == HEADER
    expected = [["" if cell is None else cell for cell in row.values()] for row in data]
    assert expected == ROWS


cells = st.text(st.characters(exclude_categories=("Cs", "Cc")) | st.sampled_from(' ,;|"\n'), max_size=12)


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(sorted(DELIMITERS.values())),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
    st.lists(st.lists(cells, min_size=2, max_size=2), min_size=1, max_size=8),
)
def test_the_delimiter_is_found_whatever_the_cells_contain(delimiter: str, encoding: str, rows: list) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "a.csv", written(delimiter, rows, ["text", "label"]), encoding)
        found = sniff_csv(path)
        assert (found.delimiter, found.encoding) == (delimiter, encoding)
        assert found.header(path) == ["text", "label"]


def test_a_byte_that_the_sample_missed_is_read_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "_BLOCK", 4096)
    monkeypatch.setattr(data_files, "_NUM_BLOCKS", 2)
    lines = ["text;label", *(f"row {number} of a file, in plain letters;x" for number in range(12_000))]
    lines[3_007] = "caf\xe9;y"
    path = write(tmp_path / "a.csv", "\n".join(lines) + "\n", "cp1252")
    assert sniff_csv(path).encoding == "utf-8"
    with pytest.warns(UserWarning, match="is not UTF-8"):
        data = load_splits(str(path))["train"]
    assert len(data) == 12_000
    assert data[3_006] == {"text": "café", "label": "y"}


def test_rows_decide_between_delimiters_in_the_header(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text, as written;label\none;x\na, b, and c;y\nd;x\n", "utf-8")
    assert sniff_csv(path).delimiter == ";"


def test_a_block_of_the_sample_may_begin_within_a_character(tmp_path: Path) -> None:
    for shift in range(4):
        content = "text,label\n" + "x" * shift + "😀é,a\n" * 200_000
        assert sniff_csv(write(tmp_path / f"{shift}.csv", content, "utf-8")).encoding == "utf-8"


def test_bytes_without_a_windows_character_are_latin_1(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"text,label\ncaf\xe9 \x81,a\n")
    assert sniff_csv(path).encoding == "latin-1"


def test_utf_16_without_a_mark_is_an_error_that_names_the_option(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", written(";", ROWS), "utf-16-le")
    with pytest.raises(ValueError, match="UTF-16 without a byte order mark.*--encoding utf-16-le"):
        sniff_csv(path)
    assert load_splits(str(path), encoding="utf-16-le")["train"]["label"][0] == "café"


def test_given_delimiter_and_encoding_are_used(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text/label\na;b/x\n\xe9/y\n", "latin-1")
    data = load_splits(str(path), delimiter="/", encoding="latin-1")["train"]
    assert data[:] == {"text": ["a;b", "é"], "label": ["x", "y"]}
    with pytest.raises(ValueError, match="is not utf-8"):
        load_splits(str(path), delimiter="/", encoding="utf-8")


@pytest.mark.parametrize(("name", "delimiter"), [("semicolon", ";"), ("tab", "\t"), ("\\t", "\t"), ("~", "~")])
def test_a_delimiter_has_a_name_or_is_a_character(name: str, delimiter: str) -> None:
    assert parse_delimiter(name) == delimiter


@pytest.mark.parametrize("value", ["", "ab", '"', "\n"])
def test_other_delimiters_are_refused(value: str) -> None:
    with pytest.raises(ValueError, match="--delimiter must be one character, or comma, semicolon, tab, pipe"):
        parse_delimiter(value)


def test_a_row_with_too_many_fields_is_named_with_the_fix(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text;label\na;x\nb;y;z\n", "utf-8")
    with pytest.raises(ValueError, match="line 3 has 3 fields and the lines before it have 2.*--delimiter"):
        load_splits(str(path))


def test_a_column_that_changes_its_type_late_is_read_as_text(tmp_path: Path) -> None:
    lines = ["text,label,trusted", *(f"t{number},1," for number in range(10_500)), "a,spam,yes", "b,2,no"]
    path = write(tmp_path / "a.csv", "\n".join(lines) + "\n", "utf-8")
    data = load_splits(str(path))["train"]
    assert len(data) == 10_502
    assert data["label"][-3:] == ["1", "spam", "2"]
    assert data["trusted"][-3:] == [None, "yes", "no"]


def test_a_folder_of_semicolon_files_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    write(folder / "train.csv", written(";", ROWS), "utf-8-sig")
    write(folder / "test.csv", written(";", ROWS[:3]), "utf-8")
    splits = load_splits(str(folder))
    assert {name: len(split) for name, split in splits.items()} == {"train": len(ROWS), "test": 3}
    assert splits["train"].column_names == splits["test"].column_names == HEADER
    write(folder / "test.csv", written("|", ROWS[:3]), "utf-8")
    with pytest.raises(ValueError, match="different ways: test.csv is pipe-separated.*train.csv is semicolon"):
        load_splits(str(folder))
