# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The trusted rows alone: what the good labels give without the bad ones."""

from __future__ import annotations

from glc_hf.methods.base import Method, Stage, register


@register("trusted_only")
class TrustedOnly(Method):
    """One stage of plain cross-entropy on the trusted rows, for at least `trusted_min_updates` updates."""

    needs_untrusted = False

    def last_stage(self) -> Stage:
        """The trusted rows."""
        return Stage("trusted", min_updates=self.args.trusted_min_updates)
