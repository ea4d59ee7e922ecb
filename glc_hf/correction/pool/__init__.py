# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Linear models of the true labels on fixed features, and a pool of them."""
