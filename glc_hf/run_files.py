# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The files of a run: reading them back, whether a folder may be written to, and a lock against a second run."""

from __future__ import annotations

import functools
import json
import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np


fcntl: Any
try:
    fcntl = import_module("fcntl")
except ImportError:  # Windows
    fcntl = None


logger = logging.getLogger(__name__)
STATE_FOLDER = "_run_state"
RECORD_FILE = "glc_run.json"
COMPARISON_FILE = "comparison.json"
FACTS_FILE = "glc_summary.json"
# Not pushed, like everything whose name starts with an underscore.
LOCK_FILE = "_run.lock"
_SHOWN_FILES = 3
# On Windows nobody else can read a locked byte, so it is one behind the text of the file.
_LOCKED_BYTE = 1 << 20
# Folders that this process has locked, with the number of blocks that use them.
_locked: dict[Path, int] = {}


def read_json(path: Path, format_version: int) -> dict[str, Any]:
    """
    Read a JSON file that this library wrote.

    Args:
        path (`Path`): The file.
        format_version (`int`): The latest version of its format that is known here.

    Raises:
        `ValueError`: The file is damaged, or was written by a later version; the message names it.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # also bytes that are not UTF-8
        raise ValueError(f"{path} is damaged or empty ({error}): restore it, or train again.") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a file of glc_hf: it contains a {type(content).__name__}.")
    version = content.get("format_version", format_version)
    if not isinstance(version, int) or version > format_version:
        raise ValueError(
            f"{path} has format_version {version!r}, and this version of glc_hf reads up to {format_version}: install "
            "a later glc_hf."
        )
    return content


def read_probs(path: Path) -> np.ndarray:
    """Read the probabilities of large matrices from a safetensors file."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return load_file(path)["probs"]
    except (SafetensorError, KeyError) as error:
        raise ValueError(f"{path} is damaged ({error}): restore it, or train again.") from error


# ---------------------------------------------------------------------- the folder
def check_output_folder(folder: str | Path, overwrite: bool = False) -> None:
    """
    Raise if a run would write to a folder with files that no run has written.

    Args:
        folder (`str`): The output folder. It may be new, empty, or of an earlier run. Hidden and empty files, such as
            a log that has just been created, don't count.
        overwrite (`bool`, *optional*, defaults to `False`): Allow any folder.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--output-dir {folder} is a file: name a folder.")
    if overwrite or not folder.is_dir() or _is_of_a_run(folder):
        return
    files = sorted(path for path in folder.iterdir() if not path.name.startswith(".") and not _is_empty(path))
    if files:
        names = ", ".join(path.name for path in files[:_SHOWN_FILES]) + (", …" if len(files) > _SHOWN_FILES else "")
        raise ValueError(
            f"--output-dir {folder} has files that no run has written ({names}), and this run could overwrite them: "
            "choose a new folder, or allow it with --overwrite-output-dir."
        )


def _is_of_a_run(folder: Path) -> bool:
    markers = (LOCK_FILE, FACTS_FILE, COMPARISON_FILE, f"{STATE_FOLDER}/{RECORD_FILE}")
    return any((folder / name).is_file() for name in markers)


def _is_empty(path: Path) -> bool:
    """Whether nothing can be lost: an empty file or folder, or the folder of one method of a comparison."""
    if path.is_file():
        return path.stat().st_size == 0
    return path.is_dir() and (not any(path.iterdir()) or _is_of_a_run(path))


@contextmanager
def locked(folder: str | Path) -> Iterator[None]:
    """
    Lock a folder for this process, so that no second run writes to it. The system releases the lock when the process
    ends, however it ends; a file that a crash left behind locks nothing.

    Raises:
        `ValueError`: Another process has locked the folder; the message names it.
    """
    folder = Path(folder).resolve()
    file = None if folder in _locked else _lock(folder)
    _locked[folder] = _locked.get(folder, 0) + 1
    finished = False
    try:
        yield
        finished = True
    finally:
        _locked[folder] -= 1
        if not _locked[folder]:
            del _locked[folder]
        if file is not None:
            # After an error the file stays, to show that a run has written the other files.
            _unlock(file, folder / LOCK_FILE, remove=finished or len(os.listdir(folder)) == 1)


def locks_output_folder(train: Callable) -> Callable:
    """Make `train` of a [`GLCTrainer`] that writes checkpoints lock its output folder."""

    @functools.wraps(train)
    def locked_train(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        writes = trainer.is_world_process_zero() and trainer.keeps_state
        with locked(trainer.args.output_dir) if writes else nullcontext():
            return train(trainer, *args, **kwargs)

    return locked_train


def _lock(folder: Path) -> int | None:
    """Create and lock the file; `None` where files can't be locked."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK_FILE
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _lock_file(file)
        except BlockingIOError:
            owner = os.read(file, 200).decode(errors="replace")
            os.close(file)
            raise ValueError(
                f"another run is writing to {folder} ({_owner(owner)}): wait for it, stop it, or choose another "
                "output folder."
            ) from None
        except OSError as error:  # some network file systems have no locks
            os.close(file)
            logger.warning(f"{folder} can't be locked ({error}): don't start a second run in it.")
            return None
        try:
            same = os.path.samestat(os.fstat(file), os.stat(path))
        except FileNotFoundError:
            same = False
        if same:
            os.ftruncate(file, 0)
            os.write(file, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())
            return file
        os.close(file)  # the run before has just removed the file


def _lock_file(file: int) -> None:
    """Lock an open file, or raise `BlockingIOError` if another process has locked it."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    try:
        _lock_byte(file, "LK_NBLCK")
    except PermissionError as error:
        raise BlockingIOError(*error.args) from None


def _lock_byte(file: int, mode: str) -> None:
    msvcrt: Any = import_module("msvcrt")
    os.lseek(file, _LOCKED_BYTE, os.SEEK_SET)
    try:
        msvcrt.locking(file, getattr(msvcrt, mode), 1)
    finally:
        os.lseek(file, 0, os.SEEK_SET)


def _unlock(file: int, path: Path, remove: bool) -> None:
    if fcntl is not None:
        if remove:
            path.unlink(missing_ok=True)  # while it is locked: see `_lock`
        os.close(file)
        return
    _lock_byte(file, "LK_UNLCK")
    os.close(file)
    if remove:
        with suppress(PermissionError):  # an open file can't be removed: another run has it
            path.unlink(missing_ok=True)


def _owner(text: str) -> str:
    try:
        content = json.loads(text)
        return f"process {int(content['pid'])} on {content['host']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
