# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The part of [`GLCTrainer`] that talks to the Hub."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub import CommitInfo, CommitOperationAdd, HfApi
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import filter_repo_objects, get_session
from transformers import Trainer
from transformers.trainer_utils import HubStrategy, SaveStrategy
from transformers.utils import logging
from transformers.utils.hub import PushInProgress

from glc_hf.hub.facts import name_in_public


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


# What a run leaves in its folder and nobody else needs: other stages, checkpoints, state, and what may hold a token or
# a path. Files of rows, which may be nobody else's business: those that were audited, and any that lie there.
KEPT_BACK = (
    "stage[0-9]*/*", "checkpoint-*/*", "_*", "*/_*", "weak_classifier/*", "audit/*", "training_args.bin",
    "trainer_state.json", "glc_run.json", "optimizer.pt", "optimizer.bin", "scheduler.pt", "scaler.pt",
    "rng_state*.pth", ".git/*", ".cache/*", "*.csv", "*.tsv", "*.jsonl", "*.parquet", "*.arrow", "*.html", "*.xlsx",
)  # fmt: skip
# A checkpoint that is pushed to be resumed elsewhere keeps its state.
KEPT_BACK_OF_CHECKPOINTS = ("training_args.bin", "_*")
# The Hub's client waits for ever by default; after so many seconds without a byte a request counts as failed.
SECONDS_OF_SILENCE = 120.0
_MEANING = {
    401: "the Hub does not know the token: log in with `hf auth login`, or set HF_TOKEN",
    403: "the token may not write there: use one with write access, and a repository of yours",
    404: "there is no such repository for this token",
    409: "somebody else wrote to the repository at the same time",
    413: "the Hub says that it is too large",
}


class PushError(ConnectionError):
    """A push that failed, with what to do about it; the saved model is where it was."""


def push_folder(
    folder: str | Path,
    repo_id: str,
    commit_message: str,
    token: str | None = None,
    revision: str | None = None,
    blocking: bool = True,
    path_in_repo: str = "",
    kept_back: tuple[str, ...] = KEPT_BACK,
) -> CommitInfo | Future:
    """
    Sends what a saved model consists of, as one commit.

    `HfApi.upload_folder` is not used: with `hf_xet` it parts a large model into several commits, and between them the
    repository holds weights of one model and the matrix of another.

    Args:
        folder (`str`): The folder of the model.
        repo_id (`str`): The repository, which must exist.
        commit_message (`str`): Its message.
        token, revision (`str`, *optional*): As in `HfApi.create_commit`.
        blocking (`bool`, *optional*, defaults to `True`): `False` returns a `Future` at once.
        path_in_repo (`str`, *optional*): Where in the repository, by default its top.
        kept_back (`tuple[str, ...]`): Patterns of what is not sent.
    """
    api = HfApi()

    def push() -> CommitInfo:
        with waiting_no_longer_than(SECONDS_OF_SILENCE):
            return api.create_commit(
                repo_id=repo_id,
                operations=[
                    CommitOperationAdd(path_in_repo=f"{path_in_repo}{name}", path_or_fileobj=str(Path(folder) / name))
                    for name in files_to_push(folder, kept_back)
                ],
                commit_message=commit_message,
                token=token,
                revision=revision,
            )

    return push() if blocking else api.run_as_future(push)


def files_to_push(folder: str | Path, kept_back: tuple[str, ...] = KEPT_BACK) -> list[str]:
    """The files of a folder that are part of the model, sorted, with `/` between their parts."""
    names = sorted(path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if path.is_file())
    return list(filter_repo_objects(names, ignore_patterns=list(kept_back)))


@contextmanager
def waiting_no_longer_than(seconds: float) -> Iterator[None]:
    """Gives the Hub's client a limit for the silence of the other side, where it has none."""
    session = get_session()
    before = session.timeout
    if before.read is None:
        session.timeout = seconds
    try:
        yield
    finally:
        session.timeout = before


def explain(error: Exception) -> str:
    """What went wrong, in one line."""
    causes = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    for cause in causes:
        status = getattr(getattr(cause, "response", None), "status_code", None)
        if isinstance(cause, HfHubHTTPError) and status is not None:
            return f"the Hub answered {status} ({_MEANING.get(status, 'its own trouble, or an unexpected answer')})"
    last = causes[-1]
    name = type(last).__name__
    if "Timeout" in name:
        return f"the Hub did not answer in time ({name})"
    if "Protocol" in name or "Read" in name or "Write" in name:
        return f"the connection was cut ({name})"
    return f"{name}: {last}" if str(last) else name


def failed(error: Exception, folder: str | Path, repo_id: str, private: bool | None) -> PushError:
    """The error of a push, with the command that does it again."""
    command = ["hf", "upload", repo_id, str(folder), "."]
    command += ["--private"] if private else []
    command += [word for pattern in KEPT_BACK for word in ("--exclude", pattern)]
    return PushError(
        f"the model is saved in {folder}, but the push to {repo_id} failed: {explain(error)}. Push again with "
        f"`trainer.push_to_hub()`, or from a shell: {shlex.join(command)}"
    )


def not_reached(error: Exception, repo_id: str) -> PushError:
    """The error of a repository that can't be made, before anything is trained."""
    return PushError(
        f"push_to_hub is set, but the repository {repo_id} can't be made: {explain(error)}. Nothing is trained yet. "
        "Put that right, or train without push_to_hub and call `trainer.push_to_hub()` later."
    )
