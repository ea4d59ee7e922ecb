# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The baselines: `no_correction`, `trusted_only`, `finetune_on_trusted`, and `true_matrix` as an upper bound."""

from __future__ import annotations

from glc_hf.methods.base import MatrixMethod, Method, Stage, register


@register("no_correction")
class NoCorrection(Method):
    """One stage of plain cross-entropy on all rows. The flags are not used."""

    needs_trusted = False
    needs_untrusted = False


@register("trusted_only")
class TrustedOnly(Method):
    """One stage of plain cross-entropy on the trusted rows, for at least `trusted_min_updates` updates."""

    needs_untrusted = False

    def last_stage(self) -> Stage:
        return Stage("trusted", min_updates=self.args.trusted_min_updates)


@register("finetune_on_trusted")
class FinetuneOnTrusted(Method):
    """Plain training on all rows, then on the trusted rows from these weights, with a new optimizer and schedule."""

    def first_stages(self) -> list[Stage]:
        return [Stage("all")]

    def last_stage(self) -> Stage:
        return Stage("trusted", start="previous")


@register("true_matrix")
class TrueMatrix(MatrixMethod):
    """The last stage of Gold Loss Correction with a given matrix: how much a better estimate could gain."""

    def check(self) -> None:
        if self.given_matrix is None:
            raise ValueError(
                "method 'true_matrix' needs the matrix: `GLCTrainer(…, corruption_matrix=CorruptionMatrix(…))`, or "
                "`--corruption-matrix` on the command line. Use method 'auto' or 'glc' to estimate it."
            )
