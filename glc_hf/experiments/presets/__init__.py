# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The paper's settings, one file a dataset. Adding one means adding a file here, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from inspect import Parameter, signature
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from glc_hf.registry import named_class


if TYPE_CHECKING:
    from glc_hf.experiments.presets.base import Preset

_KINDS: dict[str, Callable[[str], Any]] = {
    "bool": {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.__getitem__,
    "int": int,
    "float": float,
}


@cache
def _import_all() -> None:
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")


def available_presets() -> list[str]:
    """The names that [`get_preset`] takes."""
    from glc_hf.experiments.presets.base import registered

    _import_all()
    return sorted(registered())


def get_preset(name: str, **options: Any) -> Preset:
    """
    A dataset of the paper with its network and its settings.

    Args:
        name (`str`): One of [`available_presets`], or `module:Class` for a preset of your own.
        options: What this preset leaves open, as its class documents it.
    """
    kind = preset_class(name)
    known = signature(kind).parameters
    unknown = [option for option in options if option not in known]
    if unknown:
        has = f"it has {', '.join(known)}" if known else "it has none"
        raise ValueError(f"preset {name!r} has no option {unknown[0]!r}; {has}.")
    return kind(**{option: _of_kind(value, known[option], name) for option, value in options.items()})


def preset_class(name: str) -> type[Preset]:
    """The class behind a name that [`get_preset`] takes."""
    from glc_hf.experiments.presets.base import registered

    _import_all()
    if ":" in name:
        return named_class(name, "preset")
    if name not in registered():
        raise ValueError(
            f"unknown preset {name!r}; it is one of {', '.join(available_presets())}, or module:Class for your own."
        )
    return registered()[name]


def _of_kind(value: Any, option: Parameter, preset: str) -> Any:
    """A word of the command line as the number or truth value that the option is annotated with."""
    kind = str(getattr(option.annotation, "__name__", option.annotation)).partition(" | ")[0]
    if not isinstance(value, str) or kind not in _KINDS:
        return value
    try:
        return _KINDS[kind](value.lower())
    except (KeyError, ValueError):
        raise ValueError(f"preset {preset!r}: the option {option.name} is of kind {kind}, got {value!r}.") from None
