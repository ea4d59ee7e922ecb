# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Datasets loaded by name: files, folders and the Hub. The format of a CSV file is found from a sample of it."""

from __future__ import annotations

import codecs
import csv
import io
import logging
import os
import re
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, Literal, NamedTuple

from datasets import Dataset, DatasetDict, Features, Value, load_dataset, load_from_disk
from datasets.exceptions import DatasetsError


logger = logging.getLogger(__name__)
# Builder of `datasets` by file suffix. The options of CSV files are found by `sniff_csv`.
FILE_FORMATS: dict[str, str] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".parquet": "parquet",
}
_CSV_SUFFIXES = (".csv", ".tsv")
_MAX_COLUMNS = 10_000
_SAVED_TO_DISK = ("dataset_dict.json", "state.json")
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


def load_splits(
    name: str,
    config: str | None = None,
    option: str = "--dataset",
    delimiter: str | None = None,
    encoding: str | None = None,
    features: Features | None = None,
) -> DatasetDict:
    """
    Load all splits of a dataset.

    Args:
        name (`str`): A Hub id, a folder (laid out as on the Hub, or written by `save_to_disk`), or a file.
        config (`str`, *optional*): The configuration, if the dataset has several.
        option (`str`): Option that names the dataset, for messages.
        delimiter (`str`, *optional*): Delimiter of CSV files. By default found from a sample.
        encoding (`str`, *optional*): Encoding of CSV files. By default found from a sample.
        features (`Features`, *optional*): Types of the columns of a CSV file. By default they follow from its content.
    """
    path = Path(name).expanduser()
    try:
        if path.is_file():
            if path.stat().st_size == 0:
                raise ValueError(f"{option} {name} is empty: it has neither column names nor rows.")
            loaded = _load_file(path, option, delimiter, encoding, features)
        elif path.is_dir():
            saved = any((path / marker).exists() for marker in _SAVED_TO_DISK)
            settings = {} if saved else _settings_of_folder(path, delimiter, encoding)
            loaded = load_from_disk(str(path)) if saved else load_dataset(str(path), config, **settings)
        elif _looks_like_a_path(name):
            raise FileNotFoundError(f"{option}: there is no file or folder {name}.")
        else:
            loaded = _load_from_hub(name, config, option)
    except DatasetsError as error:
        raise ValueError(f"{option} {name} can't be read: {_explain(error)}") from error
    except ValueError as error:
        if "corresponds to no data" in str(error):
            raise ValueError(f"{option} {name} has no rows, only names of columns.") from error
        raise
    return loaded if isinstance(loaded, dict) else DatasetDict({"train": loaded})


def choose_split(splits: DatasetDict, name: str, option: str) -> Dataset:
    """Return a split by its name; if there is only one split and the name is the default, that one."""
    if name in splits:
        return splits[name]
    if len(splits) == 1 and name == "train":
        return next(iter(splits.values()))
    raise ValueError(f"{option}: there is no split {name!r}; the splits are {', '.join(map(str, splits))}.")


def csv_format_of(name: str, delimiter: str | None = None, encoding: str | None = None) -> CsvFormat | None:
    """Return how the CSV file of this name is written; `None` for all other datasets."""
    path = Path(name).expanduser()
    if not path.is_file() or path.suffix.lower() not in _CSV_SUFFIXES:
        return None
    return sniff_csv(path, delimiter, encoding)


def _load_file(
    path: Path, option: str, delimiter: str | None, encoding: str | None, features: Features | None = None
) -> DatasetDict:
    if path.suffix.lower() not in FILE_FORMATS:
        raise ValueError(f"{option} {path}: files must end in {', '.join(FILE_FORMATS)}, not in {path.suffix!r}.")
    if path.suffix.lower() not in _CSV_SUFFIXES:
        return load_dataset(FILE_FORMATS[path.suffix.lower()], data_files=str(path))
    found = sniff_csv(path, delimiter, encoding)
    columns = len(found.header(path))
    if columns > _MAX_COLUMNS:
        raise ValueError(
            f"{option} {path} has {columns:,} columns if it is {found}, more than {_MAX_COLUMNS:,}: name the right "
            "delimiter with --delimiter, or write one line per row."
        )
    try:
        loaded = _load_csv(path, found, features)
    except DatasetsError as error:
        if encoding is not None or not isinstance(error.__cause__, UnicodeDecodeError):
            raise
        found = found._replace(encoding=fallback_encoding(path), guessed=True)
        loaded = _load_csv(path, found, features)
    if features is None:  # otherwise the file is read a second time
        _say_format(path, found)
    return loaded


def _load_csv(path: Path, csv_format: CsvFormat, features: Features | None = None) -> DatasetDict:
    settings = csv_format.settings()
    try:
        return load_dataset("csv", data_files=str(path), features=features, **settings)
    except DatasetsError as error:
        if type(error.__cause__).__module__ != "pyarrow.lib" and not isinstance(error.__cause__, TypeError):
            raise
    # The type of a column follows from the first rows, and a later one has another type: read all columns as text.
    features = Features({name: Value("string") for name in csv_format.header(path)})
    return load_dataset("csv", data_files=str(path), features=features, **settings)


def _say_format(path: Path, csv_format: CsvFormat) -> None:
    """Print how a CSV file was read, if it is not as usual."""
    if csv_format.guessed:
        warnings.warn(
            f"{path} is not UTF-8 and was read as {csv_format}, which is a guess: look at words with accents, and "
            "name the encoding with --encoding if they are wrong.",
            stacklevel=2,
        )
    usual = CsvFormat("\t") if path.suffix.lower() == ".tsv" else CsvFormat()
    if csv_format[:2] != usual[:2] and not csv_format.guessed:
        logger.info(f"{path.name}: {csv_format} (to change it: --delimiter, --encoding).")


def _settings_of_folder(folder: Path, delimiter: str | None, encoding: str | None) -> dict[str, Any]:
    """Return the options for a folder of CSV files that are not comma-separated UTF-8."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
    # A README may contain the options; a folder of images may have its labels in a CSV file.
    if not files or any(path.suffix.lower() != ".csv" for path in files):
        return {}
    formats = {path: sniff_csv(path, delimiter, encoding) for path in sorted(files)}
    if any(found.encoding == "utf-8-sig" for found in formats.values()):  # which reads files without the mark too
        formats = {
            path: found._replace(encoding="utf-8-sig") if found.encoding == "utf-8" else found
            for path, found in formats.items()
        }
    (first, first_format), *rest = formats.items()
    for path, found in rest:
        if found[:2] != first_format[:2]:
            raise ValueError(
                f"the files of {folder} are written in different ways: {first.name} is {first_format}, {path.name} is "
                f"{found}. Save them in the same way, or name what they have in common with --delimiter or --encoding."
            )
    if first_format.is_default:
        return {}
    _say_format(first, first_format)
    return first_format.settings()


def _explain(error: DatasetsError) -> str:
    """Return the cause of an error; for a row with too many fields, the fix."""
    cause = error.__cause__ or error
    fields = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(cause))
    if fields is not None:
        expected, line, seen = fields.groups()
        return (
            f"line {line} has {seen} fields and the lines before it have {expected}. Put quotes around a field that "
            "contains the delimiter, or name the delimiter with --delimiter."
        )
    if "EOF inside string" in str(cause):
        return f"a quote is opened and never closed ({' '.join(str(cause).split())}): close it, or double it."
    return f"{type(cause).__name__}: {cause}"


def _load_from_hub(name: str, config: str | None, option: str) -> DatasetDict:
    try:
        return load_dataset(name, config)
    except OSError as error:  # offline, no such repository, no access rights
        raise OSError(
            f"{option}: the dataset {name!r} can't be reached on the Hub ({type(error).__name__}), and there is no "
            f"such file or folder. For local data give a path: {option} ./data.csv or {option} ./my-dataset."
        ) from error
    except ValueError as error:
        if "onfig name" in str(error) or "BuilderConfig" in str(error):
            raise ValueError(f"{error} Choose one with --dataset-config.") from error
        raise


def _looks_like_a_path(name: str) -> bool:
    return (
        name.startswith((".", "~", os.sep))
        or name.count("/") > 1
        or Path(name).suffix.lower() in FILE_FORMATS
        or (os.sep != "/" and os.sep in name)
    )


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
