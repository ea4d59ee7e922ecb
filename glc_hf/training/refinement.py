# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""When the last stage stops for a moment to let its method look again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from glc_hf.training.inference import BetweenStages


if TYPE_CHECKING:
    from glc_hf.training.trainer import GLCTrainer


class Refinement(TrainerCallback):
    """
    Lets the method refine its estimate at the steps it asks for.

    That is before the step's checkpoint is written, which holds the matrix: a resumed run goes on with the same one.

    Args:
        trainer ([`GLCTrainer`]): The trainer of the last stage; copies of this callback in earlier stages do nothing.
    """

    def __init__(self, trainer: GLCTrainer) -> None:
        self.trainer = trainer

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """After each optimizer step."""
        trainer = self.trainer
        if state is not trainer.state or not trainer.training_data.numbered:
            return
        if state.global_step not in trainer.method.refinement_steps(state.max_steps):
            return
        trainer.method.refine(
            BetweenStages(
                trainer.training_data, [trainer], trainer.accelerator, trainer.num_labels, trainer.class_names
            )
        )
