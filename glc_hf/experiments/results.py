# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
The results file of a sweep: JSON Lines, one line a cell, appended to by any number of processes.

A line has at least

- `preset` (`str`), `method` (`str`), `noise` (`str`, or null where the method sees no noise),
- `trusted` (`float`): the fraction of trusted rows, 0 to 1,
- `strength` (`float`, 0 to 1, or null where the noise has none), `seed` (`int`),
- `error` (`float`): percent of test rows that are classified wrong,

and may have `version` (see `RESULTS_VERSION`; taken as the current one when it is not there), `reduced` (`str`: what
was made smaller than in the paper, or null), `matrix_distance`, `matrix`, `true_matrix`, `label_names` and any other
field.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO


try:
    import fcntl
except ImportError:  # Windows: there, one process at a time may append
    fcntl = None
RESULTS_VERSION = 1
CELL_FIELDS = ("preset", "method", "noise", "trusted", "strength", "seed")


def read_results(path: str | Path) -> list[dict[str, Any]]:
    """
    The cells of a results file, in the order of its lines.

    A last line cut short by a crash is left out with a warning. Anything else that is not a cell of this version is a
    `ValueError` that names the file and the line.

    Args:
        path (`str` or `Path`): A file written by [`append_results`], such as that of `glc-hf sweep`.
    """
    return [row for _, row in numbered_results(path)]


def numbered_results(path: str | Path) -> list[tuple[int, dict[str, Any]]]:
    """The cells of [`read_results`], each with the number of its line, counted from 1."""
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
            f"{path} is a folder: name the results file in it (JSON Lines, one line a cell)."
        ) from None
    *lines, tail = content.split(b"\n")
    numbered = list(enumerate(lines, 1))
    if tail and _is_torn(tail):
        warnings.warn(
            f"{path}, line {len(lines) + 1}: the last line is cut short, as by a run that was killed; left out. The "
            "next append removes it.",
            stacklevel=2,
        )
    elif tail:
        numbered.append((len(lines) + 1, tail))
    return [(number, _parse(line, f"{path}, line {number}")) for number, line in numbered if line.strip()]


def append_results(path: str | Path, rows: Iterable[dict[str, Any]]) -> None:
    """
    Appends cells to a results file, all or none of them, on disk when this returns.

    The rows are checked first, then written with a single write under a lock, so that several processes may append to
    one file. A last line that a crash cut short is removed before. `version` is added where a row has none.

    Args:
        path (`str` or `Path`): The file; it is made, with its folder, when it is not there.
        rows (`Iterable[dict]`): See this module's docstring for the fields. NumPy numbers and arrays are accepted.
    """
    path = Path(path)
    text = "".join(_line(row, f"row {place} for {path}") for place, row in enumerate(rows))
    if not text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    with os.fdopen(descriptor, "r+b", buffering=0) as file, _locked(file, exclusive=True):
        size, separator = _mend_tail(file, path)
        content = separator + text.encode()
        written = 0
        try:
            written = os.write(descriptor, content)
        finally:
            if written != len(content):
                file.truncate(size)
        if written != len(content):
            raise OSError(
                f"{path} took {written} of {len(content)} bytes, and was put back as it was: is the disk full?"
            )
        os.fsync(descriptor)


def _mend_tail(file: BinaryIO, path: Path) -> tuple[int, bytes]:
    """Cuts off a torn last line. Returns the file's size then, and what has to stand before the next line."""
    tail, start = _tail_of(file)
    if not tail:
        return start, b""
    if not _is_torn(tail):  # only its line end is missing
        return start + len(tail), b"\n"
    warnings.warn(f"{path}: removed its last line, which was cut short as by a run that was killed.", stacklevel=3)
    file.truncate(start)
    return start, b""


def _tail_of(file: BinaryIO, block: int = 1 << 16) -> tuple[bytes, int]:
    """What follows the last line end, and where it starts."""
    start = file.seek(0, os.SEEK_END)
    tail = b""
    while start > 0:
        length = min(block, start)
        file.seek(start - length)
        piece = file.read(length)
        _, end, after = piece.rpartition(b"\n")
        tail = after + tail
        if end:
            return tail, start - len(after)
        start -= length
    return tail, 0


def _is_torn(tail: bytes) -> bool:
    """Whether a line without a line end lacks more than that: no beginning of a JSON object is itself one."""
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


def _parse(line: bytes, place: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ValueError(
            f"{place}: not JSON ({error}). Delete or mend this line, and run the sweep again for what is missing."
        ) from None
    if not isinstance(row, dict):
        raise ValueError(f"{place}: a cell is a JSON object, not {type(row).__name__}. Delete or mend this line.")
    _check(row, place)
    return row


def _line(row: dict[str, Any], place: str) -> str:
    try:
        text = json.dumps({"version": RESULTS_VERSION, **row}, ensure_ascii=False, allow_nan=False, default=_plain)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{place} can't be written as JSON: {error}.") from None
    _check(json.loads(text), place)
    return text + "\n"


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # of NumPy and torch
        return value.tolist()
    raise TypeError(f"{value!r} is a {type(value).__name__}")


def _check(row: dict[str, Any], place: str) -> None:
    version = row.get("version", RESULTS_VERSION)
    if version != RESULTS_VERSION:
        raise ValueError(
            f"{place}: results of version {version!r}; this glc_hf reads version {RESULTS_VERSION}. Use the glc_hf "
            "that wrote the file, or run the sweep again into a new file."
        )
    missing = [name for name in (*CELL_FIELDS, "error") if name not in row]
    if missing:
        raise ValueError(
            f"{place}: no {', '.join(missing)}. Every cell has {', '.join(CELL_FIELDS)} and error, as `glc-hf sweep` "
            "writes them."
        )
    for name, optional in (("preset", False), ("method", False), ("noise", True), ("reduced", True)):
        value = row.get(name)
        if not (isinstance(value, str) and value) and not (optional and value is None):
            raise ValueError(f"{place}: {name} is {value!r}; it is a text{' or null' if optional else ''}.")
    if not isinstance(row["seed"], int) or isinstance(row["seed"], bool):
        raise ValueError(f"{place}: seed is {row['seed']!r}; it is a whole number.")
    for name, largest, optional in (("trusted", 1, False), ("strength", 1, True), ("error", 100, False)):
        value = row[name]
        if not _is_between(value, largest) and not (optional and value is None):
            unit = {"error": ", in percent", "trusted": ", a fraction"}.get(name, " or null")
            raise ValueError(f"{place}: {name} is {value!r}; it is a number from 0 to {largest}{unit}.")


def _is_between(value: Any, largest: float) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and 0 <= value <= largest
