# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Delimiter, encoding and quotes of a CSV file, found from a sample of it."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from pathlib import Path
from typing import Any, Literal, NamedTuple


DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}
_UTF8, _WINDOWS, _LATIN = "utf-8", "cp1252", "latin-1"
_ENCODING_NAMES = {
    _UTF8: "UTF-8",
    "utf-8-sig": "UTF-8 with a byte order mark",
    "utf-16": "UTF-16",
    _WINDOWS: "Windows-1252",
    _LATIN: "Latin-1",
}
_BYTE_ORDER_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
# The delimiter is decided on the first block. Bytes that are not UTF-8 are looked for in blocks from the whole file.
_BLOCK, _NUM_BLOCKS = 2**18, 16
_MAX_FIELD = 2**31 - 1
# Only an empty field is missing: pandas would also read "None", "NA" and "null" as missing.
_EMPTY_IS_MISSING = {"keep_default_na": False, "na_values": [""]}


# Spreadsheets run a cell that starts like this. The mark makes it a text.
_FORMULA, _MARKED, _MARK = re.compile(r"'*[=+\-@\t\r]"), re.compile(r"'+[=+\-@\t\r]"), "'"


def mark_formula(value: Any) -> Any:
    """Return the cell of a CSV file so that no spreadsheet runs it: a text that starts like a formula gets an
    apostrophe. [`unmark_formula`] removes it; a text that starts with one already gets a second one."""
    return f"{_MARK}{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def unmark_formula(value: Any) -> Any:
    """Return what [`mark_formula`] was given."""
    return value[1:] if isinstance(value, str) and _MARKED.match(value) else value


class CsvFormat(NamedTuple):
    """
    How a CSV file is written.

    Attributes:
        delimiter: The character between fields.
        encoding: A Python codec.
        quotes_are_text: Whether a quote is a character like any other.
        guessed: Whether the encoding is a guess, because the file is not UTF-8.
    """

    delimiter: str = ","
    encoding: str = _UTF8
    quotes_are_text: bool = False
    guessed: bool = False

    @property
    def is_default(self) -> bool:
        """Whether the file is comma-separated UTF-8."""
        return (self.delimiter, self.encoding) == (",", _UTF8)

    def settings(self) -> dict[str, Any]:
        """Return the options of the `csv` builder of `datasets`."""
        settings = {**_EMPTY_IS_MISSING, "sep": self.delimiter, "encoding": self.encoding}
        return {**settings, "quoting": csv.QUOTE_NONE} if self.quotes_are_text else settings

    def header(self, path: Path) -> list[str]:
        """Return the names in the first line of a file."""
        quoting: Literal[0, 3] = csv.QUOTE_NONE if self.quotes_are_text else csv.QUOTE_MINIMAL
        with path.open(encoding=self.encoding, newline="") as lines:
            return next(csv.reader(lines, delimiter=self.delimiter, quoting=quoting), [])

    def __str__(self) -> str:
        names = {character: name for name, character in DELIMITERS.items()}
        delimiter = names.get(self.delimiter, repr(self.delimiter))
        return f"{delimiter}-separated, {_ENCODING_NAMES.get(self.encoding, self.encoding)}"


def sniff_csv(path: Path, delimiter: str | None = None, encoding: str | None = None) -> CsvFormat:
    """
    Find how a CSV file is written.

    The encoding follows from the byte order mark. Without one it is UTF-8; if a sample of the file is not UTF-8,
    Windows-1252 is a guess. The delimiter is the comma, semicolon, tab or pipe that splits the header into several
    names and most rows of the sample into as many fields.

    Args:
        path (`Path`): The file.
        delimiter (`str`, *optional*): The delimiter, if it is known: a character, or a name such as `"semicolon"`.
        encoding (`str`, *optional*): The encoding, if it is known.
    """
    blocks = _sample(path)
    guessed = False
    if encoding is None:
        encoding, guessed = _sniff_encoding(blocks, path)
    text = _decode(blocks[0], encoding)
    if delimiter is None:
        complete = len(blocks) == 1
        delimiter = _sniff_delimiter(text, complete, "\t" if path.suffix.lower() == ".tsv" else ",")
    else:
        delimiter = parse_delimiter(delimiter)
    quotes_are_text = delimiter == "\t" and _quotes_are_text(path, encoding)
    return CsvFormat(delimiter, encoding, quotes_are_text, guessed)


def parse_delimiter(value: str) -> str:
    """Return the delimiter that a user names: a character, `\\t`, or comma, semicolon, tab or pipe."""
    delimiter = {**DELIMITERS, "\\t": "\t"}.get(value, value)
    if len(delimiter) != 1 or delimiter in "\"\r\n'":
        raise ValueError(f"--delimiter must be one character, or {', '.join(DELIMITERS)}; got {value!r}.")
    return delimiter


def check_encoding(value: str) -> None:
    """Raise if Python has no codec of this name."""
    try:
        codecs.lookup(value)
    except LookupError as error:
        raise ValueError(f"--encoding {value}: there is no such encoding; try utf-8, utf-16 or cp1252.") from error


def fallback_encoding(path: Path) -> str:
    """Return Windows-1252, or Latin-1 if a byte of the file has no character there."""
    with path.open("rb") as file:
        while block := file.read(2**24):
            try:
                block.decode(_WINDOWS)
            except UnicodeDecodeError:
                return _LATIN
    return _WINDOWS


def _sample(path: Path) -> list[bytes]:
    """Return the first block of a file and, if it is longer, blocks from the rest of it."""
    size = path.stat().st_size
    with path.open("rb") as file:
        blocks = [file.read(_BLOCK)]
        for number in range(1, _NUM_BLOCKS + 1):
            start = max(_BLOCK, (size - _BLOCK) * number // _NUM_BLOCKS)
            if start < size:
                file.seek(start)
                blocks.append(file.read(_BLOCK))
    return blocks


def _sniff_encoding(blocks: list[bytes], path: Path) -> tuple[str, bool]:
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if blocks[0].startswith(mark):
            return encoding, False
    if blocks[0].count(0) > len(blocks[0]) // 8:
        raise ValueError(
            f"{path} has many zero bytes: it is UTF-16 without a byte order mark, or not a text file. Name the "
            "encoding, as in --encoding utf-16-le, or save the file as UTF-8."
        )
    try:
        for number, block in enumerate(blocks):
            # A block may begin and end within a character.
            start = next((at for at, byte in enumerate(block[:4]) if byte & 0xC0 != 0x80), 0) if number else 0
            codecs.getincrementaldecoder(_UTF8)().decode(block[start:])
    except UnicodeDecodeError:
        return fallback_encoding(path), True
    return _UTF8, False


def _decode(block: bytes, encoding: str) -> str:
    try:
        return codecs.getincrementaldecoder(encoding)().decode(block)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"the file is not {encoding}: byte {error.start} is {block[error.start]:#04x}. Leave --encoding out to "
            "have it found."
        ) from error


def _sniff_delimiter(text: str, complete: bool, usual: str) -> str:
    """Return the delimiter; `usual` if no other one splits the header and the rows at least as well."""
    best, best_score = usual, (0.0, 0)
    candidates = [usual, *(delimiter for delimiter in DELIMITERS.values() if delimiter != usual)]
    for delimiter in candidates:
        widths = _widths(text, delimiter, complete)
        if not widths or widths[0] < 2:
            continue
        share = Counter(widths)[widths[0]] / len(widths)
        score = (round(share, 2), widths[0])
        if score > best_score:
            best, best_score = delimiter, score
    return best


def _widths(text: str, delimiter: str, complete: bool) -> list[int]:
    """Return the number of fields of each row of a sample; its last row may be cut off."""
    limit = csv.field_size_limit(_MAX_FIELD)
    try:
        widths = [len(row) for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if row]
    except csv.Error:
        return []
    finally:
        csv.field_size_limit(limit)
    return widths if complete or len(widths) < 2 else widths[:-1]


def _quotes_are_text(path: Path, encoding: str) -> bool:
    """Whether every line is a whole row and a line has a quote that it does not close: read as the start of a quoted
    field, that quote would swallow all rows up to the next one."""
    with path.open(encoding=encoding, errors="replace") as lines:
        tabs = next(lines, "").count("\t")
        odd = False
        for line in lines:
            if line.strip() and line.count("\t") != tabs:
                return False
            odd = odd or line.count('"') % 2 == 1
    return odd
