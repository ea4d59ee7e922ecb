# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Data before training: reading files, and checking what they contain."""
