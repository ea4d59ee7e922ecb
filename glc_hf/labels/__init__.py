# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Labels and trusted flags: finding their columns, reading, checking and encoding them."""
