# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Overrides in subclasses of `GLCTrainer` that can't make sense in every stage."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from types import CodeType, FunctionType
from typing import Any


logger = logging.getLogger(__name__)

# Methods that an override in a subclass must call, or replace with one of these, and why.
_MUST_CALL = {
    "compute_loss": (
        "compute_loss",
        "it would replace the corrected loss in the last stage, and ignore which rows each stage trains on. Call it "
        "and change its result, or write your own loss per row as a method: a subclass of `glc_hf.methods.Method` "
        "with its `item_losses` (docs/extending.md)",
    ),
    "get_train_dataloader": (
        "get_train_dataloader or stage_rows",
        "every stage would train on the same rows. Build the loader from `self.stage_rows()`, the rows of the stage "
        "with their flags, and `self.data_collator`, or change the loader that super() returns",
    ),
    "get_batch_samples": (
        "get_batch_samples",
        "labels without loss in a stage would not be left out. Call it and change the batches that it returns",
    ),
}
# What a probe does not do.
_TRAINING_METHODS = ("create_optimizer", "create_scheduler", "compute_loss", "training_step", "get_train_dataloader")


def check_overrides(trainer_class: type, base: type, stage1: str) -> None:
    """
    Raise if an override in a subclass of a trainer can't make sense in every stage. Warn about overrides that a probe
    does not run.

    Args:
        trainer_class (`type`): The user's class.
        base (`type`): The class of this library that it is derived from.
        stage1 (`str`): `GLCConfig.stage1`.
    """
    own = [cls for cls in trainer_class.__mro__ if cls not in base.__mro__]
    overrides = {name: value for cls in reversed(own) for name, value in vars(cls).items()}
    for name, (needed, problem) in _MUST_CALL.items():
        if name in overrides and not any(_mentions(overrides, name, part) for part in needed.split(" or ")):
            raise TypeError(f"{trainer_class.__name__}.{name} does not call super().{name}(): {problem}.")
    skipped = [name for name in _TRAINING_METHODS if name in overrides]
    if skipped and stage1 == "probe":
        logger.warning(
            f"stage1='probe' has no training steps: {', '.join(skipped)} of {trainer_class.__name__} will run in the "
            "last stage only. stage1='short' or 'full' runs them in both."
        )


def _mentions(overrides: dict[str, Any], start: str, name: str) -> bool:
    """Whether an override, or another function of the subclass that it uses, names a method. `True` if its code is
    not Python."""
    waiting, seen = [overrides[start]], []
    while waiting:
        value = waiting.pop()
        value = value.func if isinstance(value, partial) else getattr(value, "__func__", value)
        if not isinstance(value, FunctionType):
            return True
        if value in seen:
            continue
        seen.append(value)
        names = set(_names_in(value.__code__))
        if name in names:
            return True
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell.cell_contents is not None]
        waiting += [part for part in cells if isinstance(part, FunctionType)]
        waiting += [overrides[part] for part in names if isinstance(overrides.get(part), FunctionType)]
    return False


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)
        elif isinstance(constant, str):  # as in getattr(super(), "compute_loss")
            yield constant
