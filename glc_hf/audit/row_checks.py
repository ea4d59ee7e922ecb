# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Short hashes of the rows of a dataset, which show whether decisions belong to it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

from datasets import Dataset

from glc_hf.labels.reading import class_names
from glc_hf.labels.storage import column_in_order


_BYTES_PER_ROW = 6
_ROWS_AT_ONCE = 1000


def row_checks(dataset: Dataset, columns: Sequence[str]) -> list[str]:
    """
    Return a hash of each row, 12 hexadecimal digits. Classes count by their names, images by their bytes or the names
    of their files, and whole floats as integers: a copy of a file in another format usually has the same hashes. Case
    and blanks at the ends do not count, because labels may be normalized for training.

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
    for start in range(0, len(values), _ROWS_AT_ONCE):  # images are large
        for value in values.slice(start, _ROWS_AT_ONCE).to_pylist():
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
