# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Exchange with annotation tools: labels to check as files that they import, and decisions from their exports."""
