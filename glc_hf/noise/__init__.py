# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Simulated label noise: its families and the transforms that add it to datasets."""
