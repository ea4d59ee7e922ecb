# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The callback that keeps the model card true while a run goes on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback
from transformers.utils import logging

from glc_hf.hub.card import write_card
from glc_hf.hub.facts import gather_facts, write_facts
from glc_hf.hub.origin import base_model_of, dataset_of


if TYPE_CHECKING:
    from glc_hf.training.trainer import GLCTrainer

logger = logging.get_logger(__name__)


class ModelCardCallback(TrainerCallback):
    """
    Writes the card of a [`GLCTrainer`] beside every model it saves: with each checkpoint of the last stage, with
    `save_model`, and before a push.

    Args:
        trainer ([`GLCTrainer`]): The trainer of the last stage.
    """

    def __init__(self, trainer: GLCTrainer) -> None:
        self.trainer = trainer
        self.told: dict[str, Any] = {}
        self.finished_at: int | None = None
        self._origins: dict[str, Any] | None = None

    def tell(self, **facts: Any) -> None:
        """Adds what a trainer can't know (`dataset`, `license`, `simulated_noise`, …); it wins over what it found."""
        self.told.update(facts)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A new run: nothing has come of it yet."""
        if state is self.trainer.state:
            self.finished_at = None

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """What is logged from here on is about the model that training ended with."""
        if state is self.trainer.state:
            self.finished_at = len(state.log_history)

    def facts(self) -> dict[str, Any]:
        """All that the card tells, beside the matrix."""
        if self._origins is None:
            self._origins = {
                "base_model": base_model_of(self.trainer.model)._asdict(),
                "dataset": dataset_of(self.trainer.train_dataset)._asdict(),
                "matrix_given": self.trainer._given_matrix is not None,
            }
        known = {**gather_facts(self.trainer, self.finished_at), **self._origins}
        if self.trainer.hub_model_id is not None:
            known["hub_model_id"] = self.trainer.hub_model_id
            known["model_name"] = self.trainer.hub_model_id.split("/")[-1]
        return {**known, **self.told}

    def save(self, folder: str | Path) -> None:
        """Writes facts, card and picture into a folder that holds the model and its matrix."""
        if self.trainer.training_data is None:
            return  # nothing was trained here, so there is nothing to tell
        try:
            write_facts(folder, self.facts())
            write_card(folder)
        except Exception as error:  # a run of many hours must not end for its card
            logger.warning(
                f"the model card could not be written into {folder} ({type(error).__name__}: {error}); the model is "
                f"saved. `glc-hf card {folder}` makes it again."
            )
