# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""One module per command of `glc-hf` besides `train`."""
