# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Datasets written to new files, completely or not at all, and hashes of rows that tell whether decisions fit them."""

from __future__ import annotations

import csv
import hashlib
import json
import logging
import math
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any, TextIO

import pyarrow.compute as pc
from datasets import Audio, ClassLabel, Dataset, Image, LargeList, List, Value, Video

from glc_hf.labels.reading import class_names
from glc_hf.labels.storage import column_in_order, flat_values


logger = logging.getLogger(__name__)
_BATCH_ROWS = 1000
_CSV = ".csv"
_MEDIA = (Image, Audio, Video)
_BYTES_PER_ROW = 6


def write_dataset(dataset: Dataset, path: str | Path, delimiter: str | None = None) -> Path:
    """
    Write a dataset to a new file. The format follows from the suffix. Parquet keeps all features; in the other formats
    classes are written by their names.

    Args:
        dataset (`Dataset`): The rows.
        path (`str`): A file that does not exist. Its folder is created if needed. If writing fails, there is no file.
        delimiter (`str`, *optional*): Delimiter of a CSV file, if it is not the comma.
    """
    path = Path(path).expanduser()
    check_output(path)
    if path.suffix.lower() != ".parquet":
        _check_features(dataset, path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        kind = path.suffix.lower()
        write = _write_separated(delimiter) if kind == _CSV and delimiter is not None else _WRITERS[kind]
        write(dataset, temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def check_output(path: Path) -> None:
    """Raise if a file can't be written: it exists, or its suffix is not known."""
    if path.suffix.lower() not in _WRITERS:
        raise ValueError(f"{path}: the output must end in {', '.join(_WRITERS)}, not in {path.suffix!r}.")
    if path.exists():
        raise FileExistsError(f"{path} exists and is not overwritten: name another file, or move it away.")


def _check_features(dataset: Dataset, path: Path) -> None:
    """Raise if a text format can't hold a column."""
    for name, feature in dataset.features.items():
        inner = feature
        while isinstance(inner, (List, LargeList)):
            inner = inner.feature
        if isinstance(inner, _MEDIA) or (isinstance(inner, Value) and "binary" in inner.dtype):
            raise ValueError(f"{path}: column {name!r} holds {type(inner).__name__}, which needs a .parquet file.")
        if path.suffix.lower() in (".csv", ".tsv") and not isinstance(feature, (ClassLabel, Value)):
            raise ValueError(
                f"{path}: column {name!r} holds lists or dicts, which a {path.suffix} file can't hold: write .jsonl "
                "or .parquet."
            )


def _write_parquet(dataset: Dataset, path: Path) -> None:
    dataset = dataset.with_format(None)
    if any(isinstance(feature, _MEDIA) for feature in dataset.features.values()):
        from datasets.table import embed_table_storage

        # Images that are paths become bytes, or the file would only work on this machine.
        dataset = dataset.with_format("arrow").map(
            embed_table_storage, batched=True, batch_size=100, keep_in_memory=True, desc=None
        )
        dataset = dataset.with_format(None)
    dataset.to_parquet(str(path))


def _write_separated(delimiter: str) -> Callable[[Dataset, Path], None]:
    def write(dataset: Dataset, path: Path) -> None:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
            writer.writerow(dataset.column_names)
            for row in _rows(dataset):
                writer.writerow([_field(value) for value in row.values()])

    return write


def _field(value: Any) -> Any:
    """Missing values are empty, booleans are written as JSON writes them."""
    if isinstance(value, float) and math.isnan(value):
        return ""
    return str(value).lower() if isinstance(value, bool) else value


def _write_lines(dataset: Dataset, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in _rows(dataset):
            _write_json(row, file)
            file.write("\n")


def _write_list(dataset: Dataset, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write("[")
        for number, row in enumerate(_rows(dataset)):
            file.write(",\n" if number else "\n")
            _write_json(row, file)
        file.write("\n]\n")


def _write_json(row: dict[str, Any], file: TextIO) -> None:
    row = {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in row.items()}
    file.write(json.dumps(row, ensure_ascii=False, default=str))


def _rows(dataset: Dataset) -> Iterator[dict[str, Any]]:
    """Yield the rows as dicts, with the names of classes."""
    found = {name: class_names(feature) for name, feature in dataset.features.items()}
    names = {name: classes for name, classes in found.items() if classes is not None}
    for name in [name for name in names if not _all_named(dataset, name)]:
        logger.warning(
            f"Column {name!r} has labels without a name, such as -100, so its classes are written as numbers. A "
            ".parquet file keeps the names."
        )
        del names[name]
    dataset = dataset.with_format(None)
    for start in range(0, len(dataset), _BATCH_ROWS):
        batch = dataset[start : start + _BATCH_ROWS]
        for name, classes in names.items():
            batch[name] = [_named(value, classes) for value in batch[name]]
        for values in zip(*batch.values(), strict=True):
            yield dict(zip(batch, values, strict=True))


def _all_named(dataset: Dataset, column: str) -> bool:
    smallest = pc.min(flat_values(column_in_order(dataset, column))[0]).as_py()
    return smallest is None or smallest >= 0


def _named(value: Any, names: list[str]) -> Any:
    if isinstance(value, list):
        return [_named(entry, names) for entry in value]
    return None if value is None else names[value]


_WRITERS: dict[str, Callable[[Dataset, Path], None]] = {
    ".parquet": _write_parquet,
    _CSV: _write_separated(","),
    ".tsv": _write_separated("\t"),
    ".jsonl": _write_lines,
    ".json": _write_list,
}


# ---------------------------------------------------------------------- hashes of rows
def row_checks(dataset: Dataset, columns: Sequence[str]) -> list[str]:
    """
    Return a hash of each row, 12 hexadecimal digits. Classes count by their names, images by their bytes or the names
    of their files, and whole floats as integers: a copy of a file in another format usually has the same hashes. Case
    and spaces at the ends do not count, because labels may be normalized for training.

    Args:
        dataset (`Dataset`): The rows. Images are not decoded.
        columns (`Sequence[str]`): The columns that count: inputs and labels.
    """
    hashes = [hashlib.blake2b(digest_size=_BYTES_PER_ROW) for _ in range(len(dataset))]
    for column in columns:
        for row, value in zip(hashes, _contents(dataset, column), strict=True):
            row.update(len(value).to_bytes(8, "little"))
            row.update(value)
    return [row.hexdigest() for row in hashes]


def fingerprint(checks: Sequence[str]) -> str:
    """Return the hash of a whole dataset, from those of its rows in order."""
    return hashlib.sha256("\n".join(checks).encode()).hexdigest()[:32]


def dataset_facts(
    checks: Sequence[str],
    input_columns: Sequence[str],
    label_column: str | None,
    from_votes: bool,
    trusted_column: str,
) -> dict[str, Any]:
    """
    Return what decisions say about the dataset that they were made for.

    Args:
        checks (`Sequence[str]`): The hashes of its rows; see [`row_checks`].
        input_columns (`Sequence[str]`), label_column (`str`, *optional*): The columns that the hashes are of.
        from_votes (`bool`): Whether the given labels follow from votes of several sources.
        trusted_column (`str`): Column of the flags.
    """
    return {
        "fingerprint": fingerprint(checks),
        "rows": len(checks),
        "input_columns": list(input_columns),
        "label_column": label_column,
        "trusted_column": trusted_column,
        "given_labels": "votes" if from_votes else "column",
    }


def _contents(dataset: Dataset, column: str) -> Iterator[bytes]:
    names = class_names(dataset.features[column])
    values = column_in_order(dataset, column)
    for start in range(0, len(values), _BATCH_ROWS):  # images are large
        for value in values.slice(start, _BATCH_ROWS).to_pylist():
            yield _content(value, names)


def _content(value: Any, names: list[str] | None) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, dict) and {"bytes", "path"} <= set(value):  # an image or a sound
        return value["bytes"] if value["bytes"] is not None else PurePath(value["path"] or "").name.encode()
    if isinstance(value, (list, tuple)):
        parts = [_content(part, names) for part in value]
        return b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    return as_text(value, names).strip().casefold().encode("utf-8", "surrogatepass")


def as_text(value: Any, names: list[str] | None = None) -> str:
    """Return a value as text: the name of a class, whole floats without a decimal point, nothing for `None`."""
    if value is None:
        return ""
    if names is not None and isinstance(value, int) and 0 <= value < len(names):
        return names[value]
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
