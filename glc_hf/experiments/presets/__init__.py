# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The paper's settings, one file a dataset. Adding one means adding a file here, and nothing else."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from inspect import signature
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
            kind = getattr(import_module(module), own)
        except (ImportError, AttributeError) as error:
            raise ValueError(f"preset {name!r}: {error}. It names a class as module:Class.") from error
        return _with_options(kind, name, options)
    if name not in registered():
        raise ValueError(
            f"unknown preset {name!r}; it is one of {', '.join(available_presets())}, or module:Class for your own."
        )
    return _with_options(registered()[name], name, options)


def _with_options(kind: type[Preset], name: str, options: dict[str, Any]) -> Preset:
    known = list(signature(kind).parameters)
    unknown = [option for option in options if option not in known]
    if unknown:
        has = f"it has {', '.join(known)}" if known else "it has none"
        raise ValueError(f"preset {name!r} has no option {unknown[0]!r}; {has}.")
    return kind(**options)
