# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""All rows, then the trusted ones: the strong simple baseline."""

from __future__ import annotations

from glc_hf.methods.base import Method, Stage, register


@register("finetune_on_trusted")
class FinetuneOnTrusted(Method):
    """Stage 1 is plain training on all rows; the last stage goes on from its weights on the trusted rows alone, with a
    fresh optimizer and schedule."""

    def earlier_stages(self) -> list[Stage]:
        """Plain training on everything."""
        return [Stage("all")]

    def last_stage(self) -> Stage:
        """The trusted rows, from where stage 1 ended."""
        return Stage("trusted", start="previous")
