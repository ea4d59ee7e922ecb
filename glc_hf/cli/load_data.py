# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Datasets by the name that a user gives: a Hub id, a folder, or one file."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict, load_dataset, load_from_disk
from datasets.exceptions import DatasetsError


# Only an empty cell is a missing one: pandas would take words such as "None", "NA" and "null" for missing too.
_CELLS = {"keep_default_na": False, "na_values": [""]}
# How each kind of file is read: the builder of `datasets`, and its options.
FILE_FORMATS: dict[str, tuple[str, dict[str, Any]]] = {
    ".csv": ("csv", _CELLS),
    ".tsv": ("csv", {"sep": "\t", **_CELLS}),
    ".json": ("json", {}),
    ".jsonl": ("json", {}),
    ".parquet": ("parquet", {}),
}
_SAVED_TO_DISK = ("dataset_dict.json", "state.json")


def load_splits(name: str, config: str | None = None, option: str = "--dataset") -> DatasetDict:
    """
    Every split of a dataset.

    Args:
        name (`str`): A Hub id, a folder (laid out as on the Hub, or written by `save_to_disk`), or a file.
        config (`str`, *optional*): The configuration, where the dataset has several.
        option (`str`): The option that named it, for messages.
    """
    path = Path(name).expanduser()
    try:
        if path.is_file():
            found = _load_file(path, option)
        elif path.is_dir():
            saved = any((path / marker).exists() for marker in _SAVED_TO_DISK)
            found = load_from_disk(str(path)) if saved else load_dataset(str(path), config)
        elif _looks_like_a_path(name):
            raise FileNotFoundError(f"{option}: there is no file or folder {name}.")
        else:
            found = _load_from_hub(name, config, option)
    except DatasetsError as error:
        cause = error.__cause__ or error
        raise ValueError(f"{option} {name} can't be read: {type(cause).__name__}: {cause}") from error
    return found if isinstance(found, dict) else DatasetDict({"train": found})


def _load_file(path: Path, option: str) -> DatasetDict:
    if path.suffix.lower() not in FILE_FORMATS:
        raise ValueError(f"{option} {path}: files end in {', '.join(FILE_FORMATS)}; this one in {path.suffix!r}.")
    builder, settings = FILE_FORMATS[path.suffix.lower()]
    if path.suffix.lower() == ".tsv" and _quotes_are_text(path):
        settings = {**settings, "quoting": csv.QUOTE_NONE}
    return load_dataset(builder, data_files=str(path), **settings)


def _quotes_are_text(path: Path) -> bool:
    """Whether every line is a whole row and some line has a quote that it doesn't close: as the opening of a quoted
    field, that quote would swallow all rows up to the next one."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        tabs = next(lines, "").count("\t")
        odd = False
        for line in lines:
            if line.strip() and line.count("\t") != tabs:
                return False
            odd = odd or line.count('"') % 2 == 1
    return odd


def _load_from_hub(name: str, config: str | None, option: str) -> DatasetDict:
    try:
        return load_dataset(name, config)
    except OSError as error:  # offline, no such repository, no rights
        raise OSError(
            f"{option}: the dataset {name!r} can't be reached on the Hub ({type(error).__name__}), and there is no "
            f"such file or folder here. For local data name a path: {option} ./data.csv or {option} ./my-dataset."
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


def choose_split(splits: DatasetDict, name: str, option: str) -> Dataset:
    """A split by its name; where there is but one and the default name was kept, that one."""
    if name in splits:
        return splits[name]
    if len(splits) == 1 and name == "train":
        return next(iter(splits.values()))
    raise ValueError(f"{option}: there is no split {name!r}; the splits are {', '.join(map(str, splits))}.")
