# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Classes of the user's own, named on a command line as `module:Class`."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from types import ModuleType


def named_class(name: str, kind: str) -> type:
    """
    The class that a name such as `my_methods:Mine` stands for.

    Args:
        name (`str`): A module that can be imported, or lies in the working directory, and a class in it.
        kind (`str`): What it should be, for messages.
    """
    module, _, own = name.partition(":")
    try:
        found = getattr(_imported(module), own)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{kind} {name!r}: {error}. It names a class as module:Class.") from error
    if not isinstance(found, type):
        raise ValueError(f"{kind} {name!r} is no class: {found!r}.")
    return found


def _imported(module: str) -> ModuleType:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name != module.partition(".")[0]:
            raise  # the module is there, and something that it needs is not
    sys.path.insert(0, os.getcwd())  # where an installed command does not look
    try:
        return import_module(module)
    finally:
        sys.path.remove(os.getcwd())
