# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The part of [`GLCTrainer`] that talks to the Hub."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

from huggingface_hub import CommitInfo
from transformers import Trainer
from transformers.trainer_utils import HubStrategy, SaveStrategy
from transformers.utils import logging
from transformers.utils.hub import PushInProgress

from glc_hf.hub.origin import name_in_public
from glc_hf.hub.push import (
    KEPT_BACK_OF_CHECKPOINTS,
    SECONDS_OF_SILENCE,
    failed,
    not_reached,
    push_folder,
    waiting_no_longer_than,
)


logger = logging.get_logger(__name__)

# What only the user can put right; anything else may be over when training ends.
_REFUSED = (401, 403)


class Publishing(Trainer):
    """Cards and pushes: one commit with the model, its card, its matrix and the picture, and nothing else."""

    def init_hf_repo(self, token: str | None = None) -> None:
        """As `Trainer`'s, called before training where `push_to_hub` is set: a token that is refused is an error there
        and then, a Hub that is out of reach a warning."""
        try:
            self._make_repository(token)
        except Exception as error:
            status = getattr(getattr(error, "response", None), "status_code", None)
            if status in _REFUSED or "Token" in type(error).__name__:
                raise not_reached(error, self._repository_name()) from error
            logger.warning(
                f"the repository {self._repository_name()} can't be made now ({type(error).__name__}); training goes "
                "on, and the push at its end tries again."
            )

    def _make_repository(self, token: str | None) -> None:
        with waiting_no_longer_than(SECONDS_OF_SILENCE):
            super().init_hf_repo(token=token)

    def _repository_name(self) -> str:
        return self.hub_model_id or self.args.hub_model_id or Path(self.args.output_dir).resolve().name

    def push_to_hub(
        self,
        commit_message: str | None = "End of training",
        blocking: bool = True,
        token: str | None = None,
        revision: str | None = None,
        **kwargs: Any,
    ) -> CommitInfo | Future | None:
        """
        Saves the model and sends it to `args.hub_model_id` with its card, its matrix and the matrix's picture, in one
        commit.

        Args:
            commit_message, blocking, token, revision: As in `Trainer.push_to_hub`.
            kwargs: What the card can't know by itself; see [`~Publishing.create_model_card`].

        Raises:
            [`glc_hf.hub.push.PushError`]: The push failed; the message says why and how to push again.
        """
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        token = token if token is not None else self.args.hub_token
        self._tell_card(**kwargs)
        self.save_model(_internal_call=True)
        if not self.is_world_process_zero():
            return None
        try:
            if self.hub_model_id is None:
                self._make_repository(token)
            self.create_model_card()
            self._finish_current_push()
            return push_folder(
                self.args.output_dir,
                self.hub_model_id,
                commit_message or "End of training",
                token=token,
                revision=revision if revision is not None else self.args.hub_revision,
                blocking=blocking,
            )
        except Exception as error:
            raise failed(error, self.args.output_dir, self._repository_name(), self.args.hub_private_repo) from error

    def create_model_card(self, **kwargs: Any) -> None:
        """
        Writes the model card into `args.output_dir`.

        Args:
            kwargs: What it can't know by itself, under the names of `Trainer.create_model_card`: `language`,
                `license`, `tags`, `model_name`, `finetuned_from`, `tasks` and `dataset`.
        """
        self._tell_card(**kwargs)
        if self.is_world_process_zero():
            self.model_card.save(self.args.output_dir)

    def _tell_card(self, **kwargs: Any) -> None:
        given = {name: value for name, value in kwargs.items() if value is not None}
        for name in ("dataset_tags", "dataset_args"):
            given.pop(name, None)  # `Trainer` takes them for its own layout
        told: dict[str, Any] = {
            name: given.pop(name) for name in ("language", "license", "model_name") if name in given
        }
        if "tags" in given:
            tags = given.pop("tags")
            told["tags"] = [tags] if isinstance(tags, str) else list(tags)
        if "tasks" in given:
            tasks = given.pop("tasks")
            told["task"] = tasks if isinstance(tasks, str) else tasks[0]
        if "finetuned_from" in given:
            told["base_model"] = name_in_public(given.pop("finetuned_from"))._asdict()
        if "dataset" in given:
            dataset = given.pop("dataset")
            told["dataset"] = name_in_public(dataset if isinstance(dataset, str) else dataset[0])._asdict()
        if given:
            raise TypeError(f"a model card takes no {', '.join(map(repr, given))}.")
        self.model_card.tell(**told)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """As `Trainer`'s, in the background and without ending the run if it fails, but straight from the checkpoint:
        `Trainer` would push the first stage's checkpoints and a pickle of the arguments along."""
        if not self.is_world_process_zero() or self.args.hub_strategy == HubStrategy.END or self.hub_model_id is None:
            return
        busy = self.push_in_progress is not None and not self.push_in_progress.is_done()
        if busy and not self.args.hub_always_push:
            return
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        steps = self.args.save_strategy == SaveStrategy.STEPS
        where = f"step {self.state.global_step}" if steps else f"epoch {int(self.state.epoch)}"
        message = f"Training in progress, {where}"
        settings = {"token": self.args.hub_token, "revision": self.args.hub_revision, "blocking": False}
        jobs = [push_folder(checkpoint_folder, self.hub_model_id, message, **settings)]
        if self.args.hub_strategy in (HubStrategy.CHECKPOINT, HubStrategy.ALL_CHECKPOINTS):
            last = self.args.hub_strategy == HubStrategy.CHECKPOINT
            jobs.append(
                push_folder(
                    checkpoint_folder,
                    self.hub_model_id,
                    f"{message}, checkpoint",
                    path_in_repo="last-checkpoint/" if last else f"{Path(checkpoint_folder).name}/",
                    kept_back=KEPT_BACK_OF_CHECKPOINTS,
                    **settings,
                )
            )
        if busy:
            self.push_in_progress.jobs.extend(jobs)
        else:
            self.push_in_progress = PushInProgress(jobs)
