# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Audit of labels: which labels are probably wrong, and which labels they should be."""
