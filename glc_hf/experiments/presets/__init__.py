# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Presets: the paper's datasets with their networks and settings. To add one, add a file here with a class under
[`register`]."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

from glc_hf.registry import Registry


if TYPE_CHECKING:
    from glc_hf.experiments.presets.base import Preset

PRESETS: Registry[Preset] = Registry("preset", __name__)
register = PRESETS.register
available_presets = PRESETS.names
_CONVERTERS: dict[str, Callable[[str], Any]] = {
    "bool": {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.__getitem__,
    "int": int,
    "float": float,
}


def get_preset(name: str, **options: Any) -> Preset:
    """
    Return a dataset of the paper with its network and its settings.

    Args:
        name (`str`): One of [`available_presets`], or `module:Class` for your own preset.
        options: Options of the preset, as its class documents them.
    """
    cls = preset_class(name)
    known = signature(cls).parameters
    unknown = [option for option in options if option not in known]
    if unknown:
        has = f"it has {', '.join(known)}" if known else "it has none"
        raise ValueError(f"preset {name!r} has no option {unknown[0]!r}; {has}.")
    return cls(**{option: _converted(value, known[option], name) for option, value in options.items()})


def preset_class(name: str) -> type[Preset]:
    """Return the class behind a name that [`get_preset`] takes."""
    from glc_hf.experiments.presets.base import Preset

    return PRESETS.get(name, Preset)


def _converted(value: Any, option: Parameter, preset: str) -> Any:
    """Convert an option from the command line to the number or boolean that it is annotated with."""
    annotation = str(getattr(option.annotation, "__name__", option.annotation)).partition(" | ")[0]
    if not isinstance(value, str) or annotation not in _CONVERTERS:
        return value
    try:
        return _CONVERTERS[annotation](value.lower())
    except (KeyError, ValueError):
        raise ValueError(f"preset {preset!r}: option {option.name} has type {annotation}, got {value!r}.") from None
