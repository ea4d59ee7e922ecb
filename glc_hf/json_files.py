# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Files that this library wrote, read back: damaged ones, and those of later versions, are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np


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
