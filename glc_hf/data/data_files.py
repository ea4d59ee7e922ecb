# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Datasets loaded by name: files, folders and the Hub."""

from __future__ import annotations

import logging
import os
import re
import warnings
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict, Features, Value, load_dataset, load_from_disk
from datasets.exceptions import DatasetsError

from glc_hf.data.csv_format import CsvFormat, fallback_encoding, sniff_csv


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
