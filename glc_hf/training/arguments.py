# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The arguments of a run as they may leave the machine: JSON, no secrets, no paths."""

from __future__ import annotations

import dataclasses
import json
import os
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from glc_hf.training.config import GLCConfig

ARGUMENTS_FILE = "training_args.json"
# What belongs to the place and not to the training.
_LOCAL = {
    "output_dir", "run_name", "resume_from_checkpoint", "hub_token", "hub_model_id", "local_rank", "log_level",
    "log_level_replica", "disable_tqdm", "report_to", "project", "trackio_space_id", "trackio_bucket_id",
    "trackio_static_space_id", "logging_dir", "dataloader_pin_memory",
}  # fmt: skip


class NothingToPickle:
    """Arguments to work with that leave nothing of themselves in a pickle."""

    def __init__(self, args: GLCConfig) -> None:
        self._args = args

    def __getattr__(self, name: str) -> Any:
        return getattr(self._args, name)

    def __reduce__(self) -> tuple:
        return dict, ()


def arguments_that_differ(args: GLCConfig) -> dict[str, Any]:
    """Every argument whose value is not the default, in the order of the class, ready for JSON."""
    differing = {}
    for field in dataclasses.fields(args):
        if not field.init or field.name in _LOCAL or field.name.endswith("_token"):
            continue
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        value = _plain(getattr(args, field.name))
        if value != _plain(default) and not _names_a_place(value):
            differing[field.name] = value
    return differing


def write_arguments(folder: str | Path, args: GLCConfig) -> None:
    """Writes `training_args.json`, in place of the pickle that `Trainer` leaves with the Hub token in it."""
    folder = Path(folder)
    (folder / "training_args.bin").unlink(missing_ok=True)
    text = json.dumps(arguments_that_differ(args), indent=2, default=str)
    (folder / ARGUMENTS_FILE).write_text(text, encoding="utf-8")


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value] or None
    if hasattr(value, "to_dict"):
        # Settings made up of others, such as accelerate's: those that differ from their class's own defaults.
        defaults = type(value)().to_dict()
        return {key: entry for key, entry in value.to_dict().items() if entry != defaults.get(key)} or None
    return value or None if isinstance(value, (str, dict)) else value


def _names_a_place(value: Any) -> bool:
    return isinstance(value, str) and os.path.isabs(value)
