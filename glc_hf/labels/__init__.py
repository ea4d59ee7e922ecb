# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Labels and trusted flags: find their columns, read, check and encode them, and put new ones into datasets and streams.

Each kind of label column has one reader in `reading`; readers of votes and of probabilities belong next to
`read_labels` and `read_flags`.
"""
