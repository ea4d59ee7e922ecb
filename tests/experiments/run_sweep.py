# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`glc-hf sweep` with the presets of the tests, also in its worker processes."""

from __future__ import annotations

import sys

from glc_hf.cli.main import main
from glc_hf.experiments.preset import registered
from tests.experiments.small_preset import SmallImages


registered()[SmallImages.name] = SmallImages

if __name__ == "__main__":
    sys.exit(main(["sweep", *sys.argv[1:]]))
