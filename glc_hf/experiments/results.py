# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
The results file of a sweep: JSON Lines with one line per run, to which any number of processes can append.

A line has at least

- `preset` (`str`), `method` (`str`), `noise` (`str`, or null for a method that sees no noise),
- `trusted` (`float`): the fraction of trusted rows, 0 to 1,
- `strength` (`float`, 0 to 1, or null for noise without a strength), `seed` (`int`),
- `error` (`float`): percent of test rows that are misclassified,

and may have `version` (see `RESULTS_VERSION`, the default), `reduced` (`str`: what was made smaller than in the paper,
or null), `matrix_distance`, `matrix`, `true_matrix`, `label_names` and any other field.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO


fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows: only one process at a time may append
    fcntl = None
RESULTS_VERSION = 1
# The fields that identify a run, together with `reduced`.
RUN_FIELDS = ("preset", "method", "noise", "trusted", "strength", "seed")


def read_results(path: str | Path) -> list[dict[str, Any]]:
    """
    Return the runs of a results file, in file order.

    A last line cut short by a crash is skipped with a warning. Any other line that is not a run of this version raises
    a `ValueError` that names the file and the line.

    Args:
        path (`str` or `Path`): A file written by [`append_results`] or `glc-hf sweep`.
    """
    return [row for _, row in numbered_results(path)]


def numbered_results(path: str | Path) -> list[tuple[int, dict[str, Any]]]:
    """Return the runs of [`read_results`] with their line numbers, counted from 1."""
    path = Path(path)
    try:
        with path.open("rb") as file, _locked(file, exclusive=False):
            content = file.read()
    except FileNotFoundError:
        raise FileNotFoundError(
            f"there is no results file {path}: name the file that `glc-hf sweep` wrote, or run a sweep first."
        ) from None
    except IsADirectoryError:
        raise IsADirectoryError(
            f"{path} is a folder: name the results file in it (JSON Lines, one line per run)."
        ) from None
    lines = content.split(b"\n")
    if lines[-1] and _is_torn(lines[-1]):
        warnings.warn(
            f"{path}, line {len(lines)}: the last line is cut short, probably by a killed run; skipped. The next "
            "append removes it.",
            stacklevel=2,
        )
        del lines[-1]
    return [(number, _parse(line, f"{path}, line {number}")) for number, line in enumerate(lines, 1) if line.strip()]


def append_results(path: str | Path, rows: Iterable[dict[str, Any]]) -> None:
    """
    Append runs to a results file: all or none, and on disk when this returns.

    All rows are checked and then written with a single write under a lock, so several processes can append to one
    file. A last line that a crash cut short is removed first. Rows without a `version` get the current one.

    Args:
        path (`str` or `Path`): The file. It and its folder are created if missing.
        rows (`Iterable[dict]`): For the fields see the module docstring. NumPy numbers and arrays are accepted.
    """
    path = Path(path)
    content = "".join(_line(row, f"row {number} for {path}") for number, row in enumerate(rows)).encode()
    if not content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    with os.fdopen(descriptor, "r+b", buffering=0) as file, _locked(file, exclusive=True):
        start, tail = _tail_of(file)
        if tail and _is_torn(tail):
            warnings.warn(f"{path}: removed the last line, which was cut short by a killed run.", stacklevel=2)
            file.truncate(start)
        elif tail:  # only the line end is missing
            content = b"\n" + content
        size = os.fstat(descriptor).st_size
        written = 0
        try:
            written = os.write(descriptor, content)
        finally:
            if written != len(content):
                file.truncate(size)
        if written != len(content):
            raise OSError(f"{path} took {written} of {len(content)} bytes and was restored: is the disk full?")
        os.fsync(descriptor)


def _tail_of(file: BinaryIO, block: int = 1 << 16) -> tuple[int, bytes]:
    """Return what follows the last line end, after its offset."""
    start, tail = file.seek(0, os.SEEK_END), b""
    while start > 0 and b"\n" not in tail:
        length = min(block, start)
        start = file.seek(start - length)
        tail = file.read(length) + tail
    before, end, after = tail.rpartition(b"\n")
    return start + len(before) + len(end), after


def _is_torn(tail: bytes) -> bool:
    """Whether a line without a line end is incomplete. No proper prefix of a JSON object is a JSON object."""
    try:
        return not isinstance(json.loads(tail), dict)
    except ValueError:
        return True


@contextmanager
def _locked(file: BinaryIO, *, exclusive: bool) -> Iterator[None]:
    if fcntl is None:
        yield
        return
    fcntl.flock(file, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def _parse(line: bytes, position: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ValueError(
            f"{position}: not JSON ({error}). Delete or fix this line, and run the sweep again for what is missing."
        ) from None
    if not isinstance(row, dict):
        raise ValueError(f"{position}: a run is a JSON object, not {type(row).__name__}. Delete or fix this line.")
    _check(row, position)
    return row


def _line(row: dict[str, Any], position: str) -> str:
    try:
        text = json.dumps({"version": RESULTS_VERSION, **row}, ensure_ascii=False, allow_nan=False, default=_plain)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{position} can't be written as JSON: {error}.") from None
    _check(json.loads(text), position)
    return text + "\n"


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # NumPy and torch
        return value.tolist()
    raise TypeError(f"{value!r} is a {type(value).__name__}")


def _check(row: dict[str, Any], position: str) -> None:
    version = row.get("version", RESULTS_VERSION)
    if version != RESULTS_VERSION:
        raise ValueError(
            f"{position}: results of version {version!r}; this glc_hf reads version {RESULTS_VERSION}. Use the glc_hf "
            "that wrote the file, or run the sweep again into a new file."
        )
    missing = [name for name in (*RUN_FIELDS, "error") if name not in row]
    if missing:
        raise ValueError(
            f"{position}: no {', '.join(missing)}. Every run has {', '.join(RUN_FIELDS)} and error, as `glc-hf sweep` "
            "writes them."
        )
    for name, optional in (("preset", False), ("method", False), ("noise", True), ("reduced", True)):
        value = row.get(name)
        if not (isinstance(value, str) and value) and not (optional and value is None):
            raise ValueError(f"{position}: {name} is {value!r}; it must be text{' or null' if optional else ''}.")
    if type(row["seed"]) is not int:
        raise ValueError(f"{position}: seed is {row['seed']!r}; it must be an integer.")
    ranges = {"trusted": (1, ", a fraction"), "strength": (1, " or null"), "error": (100, ", in percent")}
    for name, (largest, unit) in ranges.items():
        value = row[name]
        is_number = type(value) in (int, float) and math.isfinite(value) and 0 <= value <= largest
        if not is_number and not (name == "strength" and value is None):
            raise ValueError(f"{position}: {name} is {value!r}; it must be a number from 0 to {largest}{unit}.")
