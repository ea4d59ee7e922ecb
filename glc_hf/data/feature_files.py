# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Features of rows in Arrow files: a cache for networks that are not trained, with a checksum of each file."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import torch
from transformers.utils import logging

from glc_hf._compat import fingerprint_of


logger = logging.get_logger(__name__)

_CACHE_FORMAT = 3  # increased when the same key would mean other features
_ROWS_PER_BATCH = 4096
_MAX_IN_MEMORY = 2**26  # numbers


def features_key(model: torch.nn.Module, dataset: datasets.Dataset, **more: Any) -> str:
    """A hash of the network's weights, the rows, and everything else that the features depend on."""
    digest = hashlib.blake2b(digest_size=16)
    config: Any = getattr(model, "config", None)
    content = {
        "format": _CACHE_FORMAT,
        "class": type(model).__qualname__,
        "config": config.to_json_string() if hasattr(config, "to_json_string") else None,
        "data": fingerprint_of(dataset),
        **more,
    }
    digest.update(json.dumps(content, sort_keys=True).encode())
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def cache_file(key: str) -> Path:
    """The file of the features with this key, in the cache folder of `datasets`."""
    return Path(datasets.config.HF_DATASETS_CACHE) / "glc_hf_features" / f"{key}.arrow"


def cached_features(
    key: str, embed: Callable[[], Iterable[tuple[torch.Tensor, torch.Tensor]]]
) -> tuple[torch.Tensor | MappedRows, torch.Tensor]:
    """
    Return the features and item numbers with this key from the cache. If there are none, or the file is not as it was
    written, they are computed and written.

    Args:
        key (`str`): From [`features_key`].
        embed (`Callable`): Computes them, as batches of (features, item numbers).
    """
    file = cache_file(key)
    damage = damage_of(file) if file.is_file() else None
    if damage is not None:
        logger.warning(f"the cached features in {file} {damage}: they are computed again.")
    if damage is not None or not file.is_file():
        write_features(file, embed())
        write_checksum(file)
    return read_features(file)


def write_features(path: Path, batches: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Write (features, item numbers) batch by batch; the file appears when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    writer = None
    try:
        for features, numbers in _larger_batches(batches):
            values = pa.array(features.numpy().reshape(-1))
            batch = pa.record_batch(
                [pa.FixedSizeListArray.from_arrays(values, features.shape[1]), pa.array(numbers.numpy())],
                names=["features", "number"],
            )
            if writer is None:
                writer = pa.ipc.new_file(str(scratch), batch.schema)
            writer.write_batch(batch)
        if writer is not None:
            writer.close()
            os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


def write_checksum(path: Path) -> None:
    """Write the number of rows and a checksum of a file of features into a file beside it."""
    content = {"rows": _open_features(path).num_rows, "checksum": _checksum(path)}
    scratch = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    scratch.write_text(json.dumps(content), encoding="utf-8")
    os.replace(scratch, path.with_suffix(".json"))


def damage_of(path: Path) -> str | None:
    """What is wrong with a file of features; `None` if it is as it was written."""
    try:
        expected = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        rows = _open_features(path).num_rows
    except (OSError, ValueError, pa.ArrowException) as error:
        return f"can't be read ({type(error).__name__})"
    if rows != expected.get("rows"):
        return f"have {rows:,} rows in place of {expected.get('rows'):,}"
    return None if _checksum(path) == expected.get("checksum") else "are damaged (another checksum)"


def _open_features(path: Path) -> pa.Table:
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def _checksum(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(2**22):
            digest.update(block)
    return digest.hexdigest()


def _larger_batches(
    batches: Iterable[tuple[torch.Tensor, torch.Tensor]],
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The same rows in fewer batches."""

    def joined() -> tuple[torch.Tensor, torch.Tensor]:
        features, numbers = zip(*waiting, strict=True)
        return torch.cat(features).contiguous(), torch.cat(numbers)

    waiting: list[tuple[torch.Tensor, torch.Tensor]] = []
    for batch in batches:
        waiting.append(batch)
        if sum(len(numbers) for _, numbers in waiting) >= _ROWS_PER_BATCH:
            yield joined()
            waiting = []
    if waiting:
        yield joined()


def read_features(path: Path) -> tuple[torch.Tensor | MappedRows, torch.Tensor]:
    """The features and item numbers of a file: in memory if they are few, memory-mapped otherwise."""
    table = _open_features(path)
    chunks = [
        chunk.flatten().to_numpy(zero_copy_only=True).reshape(len(chunk), chunk.type.list_size)
        for chunk in table.column("features").chunks
    ]
    mapped = MappedRows(chunks)
    numbers = torch.from_numpy(np.array(table.column("number").to_numpy()))
    small = mapped.shape[0] * mapped.shape[1] <= _MAX_IN_MEMORY
    return mapped[torch.arange(len(numbers))] if small else mapped, numbers


class MappedRows:
    """Rows of a memory-mapped file in several chunks, as one table. Only the rows asked for are read."""

    def __init__(self, chunks: list[np.ndarray]) -> None:
        self.chunks = chunks
        self._ends = np.cumsum([len(chunk) for chunk in chunks])
        self.shape = (int(self._ends[-1]), chunks[0].shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, positions: torch.Tensor) -> torch.Tensor:
        wanted = positions.numpy()
        rows = np.empty((len(wanted), self.shape[1]), dtype=np.float32)
        order = None if (wanted[1:] >= wanted[:-1]).all() else np.argsort(wanted, kind="stable")
        ascending = wanted if order is None else wanted[order]
        ends = np.searchsorted(ascending, self._ends)
        for number in np.flatnonzero(np.diff(ends, prepend=0)):
            here = slice(ends[number - 1] if number else 0, ends[number])
            first = self._ends[number] - len(self.chunks[number])
            rows[here if order is None else order[here]] = self.chunks[number][ascending[here] - first]
        return torch.from_numpy(rows)
