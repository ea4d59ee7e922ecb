# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
The paper's experiments: presets of its settings, sweeps over methods and noise, the file that their results go into,
and the tables, pictures and metrics that are made from it.
"""
