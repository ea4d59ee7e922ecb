# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""All rows, labels as given: what training does when nobody thinks about noise."""

from __future__ import annotations

from glc_hf.methods.base import MatrixMethod, Method, Stage, register


@register("no_correction")
class NoCorrection(Method):
    """One stage of plain cross-entropy on all rows; the flags are not looked at."""

    needs_trusted = False
    needs_untrusted = False


@register("trusted_only")
class TrustedOnly(Method):
    """One stage of plain cross-entropy on the trusted rows, for at least `trusted_min_updates` updates."""

    needs_untrusted = False

    def last_stage(self) -> Stage:
        """The trusted rows."""
        return Stage("trusted", min_updates=self.args.trusted_min_updates)


@register("finetune_on_trusted")
class FinetuneOnTrusted(Method):
    """Stage 1 is plain training on all rows; the last stage goes on from its weights on the trusted rows alone, with a
    fresh optimizer and schedule."""

    def first_stages(self) -> list[Stage]:
        """Plain training on everything."""
        return [Stage("all")]

    def last_stage(self) -> Stage:
        """The trusted rows, from where stage 1 ended."""
        return Stage("trusted", start="previous")


@register("true_matrix")
class TrueMatrix(MatrixMethod):
    """The last stage of Gold Loss Correction with a given matrix."""

    def check(self) -> None:
        """A matrix must be given."""
        if self.given_matrix is None:
            raise ValueError(
                "method 'true_matrix' needs the matrix: `GLCTrainer(…, corruption_matrix=CorruptionMatrix(…))`, or "
                "`--corruption-matrix` on the command line. To estimate one, use method 'glc'."
            )
