# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Model card and push to the Hub."""
