# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""What label noise is: the matrix, its families, and the transforms of `datasets` that mark rows and add noise."""
