# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Images that can't be decoded."""

from __future__ import annotations

import io
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from datasets import Dataset


_IMAGES_PER_BATCH = 64


def find_unreadable_images(dataset: Dataset, column: str, at_most: int | None = None) -> list[tuple[int, str]]:
    """
    Decode images and return the rows and the errors of those that can't be read, in order.

    JPEG files are decoded at an eighth of their size, which reads all of the file. Images that have to be downloaded
    are not read.

    Args:
        dataset (`datasets.Dataset`): May be shuffled, selected or formatted.
        column (`str`): Column of the images, or of their paths.
        at_most (`int`, *optional*): Number of images to decode, spread over the dataset. By default all.
    """
    rows = np.arange(len(dataset))
    if at_most is not None and at_most < len(rows):
        rows = np.linspace(0, len(dataset) - 1, at_most).astype(np.int64)
        dataset = dataset.select(rows)
    found = []
    start = 0
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for table in dataset.select_columns([column]).with_format("arrow").iter(batch_size=_IMAGES_PER_BATCH):
            problems = pool.map(_problem, table[column].to_pylist())
            found += [(int(rows[start + row]), problem) for row, problem in enumerate(problems) if problem]
            start += table.num_rows
    return found


def _problem(value: Any) -> str | None:
    """Return why an image can't be read; `None` if it can."""
    from PIL import Image

    content, path = (value.get("bytes"), value.get("path")) if isinstance(value, dict) else (None, value)
    if content is None and path is None:
        return "there is no image"
    if content is None and (not isinstance(path, str) or "://" in path):
        return None
    try:
        with Image.open(io.BytesIO(content) if content is not None else path) as image:
            image.draft("RGB", (1, 1))
            image.load()
    except Exception as error:  # Pillow raises many kinds, SyntaxError among them
        name = f" {path}" if path else ""
        reason = "cannot be identified" if "cannot identify" in str(error) else str(error)
        return f"image{name}: {reason or type(error).__name__}"
    return None
