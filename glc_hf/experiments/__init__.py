# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The paper's experiments: presets, sweeps and their results file, tables, plots and metrics."""
