# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The versions of this library and of those it builds on, read without importing them."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from glc_hf.version import __version__


PACKAGES = (
    "torch",
    "transformers",
    "datasets",
    "accelerate",
    "timm",
    "peft",
    "huggingface_hub",
    "numpy",
)


def versions() -> dict[str, str]:
    """Of this library, of Python, and of each package, `"not installed"` where it is not."""
    found = {"glc_hf": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
