# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Registries of classes by name, and classes that users name as `module:Class`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import ClassVar, Generic, Protocol, TypeVar


class Named(Protocol):
    """A class with the name that it is registered under."""

    name: ClassVar[str]


T = TypeVar("T", bound=Named)


class Registry(Generic[T]):
    """
    Classes of one kind by name. Modules of the registry's package are imported on first use, so adding a class means
    adding a module there.

    Args:
        kind (`str`): What the classes are, for error messages, such as `"method"`.
        package (`str`): The package whose modules register the classes.
    """

    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self.package = package
        self._classes: dict[str, type[T]] = {}

    def register(self, name: str) -> Callable[[type[T]], type[T]]:
        """Class decorator that registers the class under a name and sets its `name` attribute."""

        def add(cls: type[T]) -> type[T]:
            known = self._classes.get(name)
            if known is not None and known.__qualname__ != cls.__qualname__:
                raise ValueError(f"two {self.kind}s are registered as {name!r}: {known} and {cls}.")
            cls.name = name
            self._classes[name] = cls
            return cls

        return add

    @cached_property
    def _imported(self) -> bool:
        for module in iter_modules(import_module(self.package).__path__):
            import_module(f"{self.package}.{module.name}")
        return True

    def names(self) -> list[str]:
        """The registered names, sorted."""
        assert self._imported
        return sorted(self._classes)

    def get(self, name: str, base: type[T]) -> type[T]:
        """
        The class registered under a name, or the subclass of `base` that `module:Class` names.

        Raises:
            `ValueError`: There is no such class; the message lists the names.
        """
        assert self._imported
        if name not in self._classes and ":" in name:
            cls = named_class(name, self.kind)
            if not issubclass(cls, base):
                raise ValueError(f"{self.kind} {name!r} is not a subclass of {base.__module__}.{base.__qualname__}.")
            if "name" not in vars(cls):
                cls.name = name
            return cls
        if name not in self._classes:
            raise ValueError(
                f"unknown {self.kind} {name!r}; choose one of {', '.join(self.names())}, or module:Class for your own."
            )
        return self._classes[name]


def named_class(name: str, kind: str) -> type:
    """The class that a name such as `my_methods:Mine` stands for. The module may be in the working directory."""
    module, _, attribute = name.partition(":")
    try:
        cls = getattr(_import(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{kind} {name!r}: {error}. The form is module:Class.") from error
    if not isinstance(cls, type):
        raise ValueError(f"{kind} {name!r} is not a class: {cls!r}.")
    return cls


def _import(module: str) -> ModuleType:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise  # the module exists, and something it imports does not
    sys.path.insert(0, os.getcwd())  # an installed command does not search the working directory
    try:
        return import_module(module)
    finally:
        sys.path.remove(os.getcwd())
