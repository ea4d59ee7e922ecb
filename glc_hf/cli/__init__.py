# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The command line, `glc-hf`; `glc_hf.cli.main` finds the commands."""
