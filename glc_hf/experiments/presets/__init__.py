# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The paper's settings, one file a dataset. Adding one means adding a file here, and nothing else."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from glc_hf.experiments.preset import Preset


@cache
def _import_all() -> None:
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")


def available_presets() -> list[str]:
    """The names that [`get_preset`] takes."""
    from glc_hf.experiments.preset import registered

    _import_all()
    return sorted(registered())


def get_preset(name: str, **options: Any) -> Preset:
    """
    A dataset of the paper with its network and its settings.

    Args:
        name (`str`): One of [`available_presets`], or `module:Class` for a preset of your own.
        options: What this preset leaves open, as its class documents it.
    """
    from glc_hf.experiments.preset import registered

    _import_all()
    module, _, own = name.partition(":")
    if own:
        try:
            return getattr(import_module(module), own)(**options)
        except (ImportError, AttributeError) as error:
            raise ValueError(f"preset {name!r}: {error}. It names a class as module:Class.") from error
    if name not in registered():
        raise ValueError(
            f"unknown preset {name!r}; it is one of {', '.join(available_presets())}, or module:Class for your own."
        )
    return registered()[name](**options)
