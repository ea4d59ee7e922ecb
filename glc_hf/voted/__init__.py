# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Training data with the votes of several sources: tables and streams."""
