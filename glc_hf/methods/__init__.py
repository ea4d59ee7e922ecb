# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The methods of the paper. A new method is a new file in this folder."""

from glc_hf.methods.base import Method, available_methods, get_method


__all__ = ["Method", "available_methods", "get_method"]
