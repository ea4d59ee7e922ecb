# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The methods of the paper, one small file each. Adding one means adding a file here, and nothing else."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from glc_hf.registry import named_class


if TYPE_CHECKING:
    from glc_hf.methods.base import Method


@cache
def _import_all() -> None:
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")


def available_methods() -> list[str]:
    """The names that `GLCConfig(method=…)` takes."""
    from glc_hf.methods.base import registered

    _import_all()
    return sorted(registered())


def get_method(name: str) -> type[Method]:
    """The class of a method by its name: one of [`available_methods`], or `module:Class` for one of your own."""
    from glc_hf.methods.base import Method, register, registered

    _import_all()
    if name not in registered() and ":" in name:
        found = named_class(name, "method")
        if not issubclass(found, Method):
            raise ValueError(f"method {name!r} is no subclass of glc_hf.methods.base.Method.")
        return register(name)(found)
    if name not in registered():
        raise ValueError(
            f"unknown method {name!r}; `method` is one of {', '.join(available_methods())}, or module:Class for one "
            "of your own."
        )
    return registered()[name]
