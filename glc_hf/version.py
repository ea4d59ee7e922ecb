# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The version, apart so that packaging reads it without importing the library."""

__version__ = "0.1.0"
