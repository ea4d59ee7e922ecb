# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""All rows, labels as given: what training does when nobody thinks about noise."""

from __future__ import annotations

from glc_hf.methods.base import Method, register


@register("no_correction")
class NoCorrection(Method):
    """One stage of plain cross-entropy on all rows; the flags are not looked at."""

    needs_trusted = False
    needs_untrusted = False
