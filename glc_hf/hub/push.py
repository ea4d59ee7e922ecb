# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Push of a trained model to the Hub, with its card and matrix."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import filter_repo_objects, get_session
from transformers import Trainer
from transformers.trainer_utils import HubStrategy, SaveStrategy
from transformers.utils import logging
from transformers.utils.hub import PushInProgress

from glc_hf.hub.facts import public_name


if TYPE_CHECKING:
    from glc_hf.hub.model_card import ModelCardCallback


logger = logging.get_logger(__name__)

# Files of a run that are not part of the model: other stages, checkpoints, state, files that may contain a token or a
# path, and files with rows of data, which may be private.
EXCLUDED = (
    "stage[0-9]*/*", "checkpoint-*/*", "_*", "*/_*", "weak_classifier/*", "audit/*", "training_args.bin",
    "trainer_state.json", "glc_run.json", "optimizer.pt", "optimizer.bin", "scheduler.pt", "scaler.pt",
    "rng_state*.pth", ".git/*", ".cache/*", "*.csv", "*.tsv", "*.jsonl", "*.parquet", "*.arrow", "*.html", "*.xlsx",
)  # fmt: skip
# A checkpoint keeps its state, so that training can resume from the Hub.
EXCLUDED_FROM_CHECKPOINTS = ("training_args.bin", "_*")
# Seconds without data after which a request fails. By default the client of the Hub waits forever.
READ_TIMEOUT = 120.0
# Only the user can fix these; other errors may be gone when training ends.
_AUTHORIZATION_ERRORS = (401, 403)
_STATUS_EXPLANATIONS = {
    401: "the token is not valid: log in with `hf auth login`, or set HF_TOKEN",
    403: "the token has no write access: use a token with write access, and a repository that you own",
    404: "the repository does not exist for this token",
    409: "another commit was made at the same time",
    413: "the upload is too large",
}


class PushError(ConnectionError):
    """A failed push. The message explains the cause and how to push again; the saved model is unchanged."""


class HubMixin(Trainer):
    """Model card and push of [`GLCTrainer`]. A push is one commit with the model, its card, matrix and picture."""

    model_card: ModelCardCallback
    # Declared as `None` in `Trainer`.
    hub_model_id: Any
    push_in_progress: Any

    def init_hf_repo(self, token: str | None = None) -> None:
        """Create the repository before training if `push_to_hub` is set. An invalid token raises; an unreachable Hub
        only warns, because the push at the end tries again."""
        try:
            self._create_repository(token)
        except Exception as error:
            status = getattr(getattr(error, "response", None), "status_code", None)
            name = self._repository_name()
            if status in _AUTHORIZATION_ERRORS or "Token" in type(error).__name__:
                raise PushError(
                    f"push_to_hub is set, but the repository {name} can't be created: {explain(error)}. Training has "
                    "not started. Fix this, or train without push_to_hub and call `trainer.push_to_hub()` later."
                ) from error
            logger.warning(
                f"the repository {name} can't be created now ({type(error).__name__}). Training continues, and the "
                "push at the end tries again."
            )

    def _create_repository(self, token: str | None) -> None:
        with read_timeout():
            super().init_hf_repo(token=token)

    def _repository_name(self) -> str:
        return self.hub_model_id or self.args.hub_model_id or Path(str(self.args.output_dir)).resolve().name

    def push_to_hub(  # type: ignore[override]  # Trainer declares a commit, but it returns a future or `None` too
        self,
        commit_message: str | None = "End of training",
        blocking: bool = True,
        token: str | None = None,
        revision: str | None = None,
        **kwargs: Any,
    ) -> CommitInfo | Future | None:
        """
        Save the model and push it to `args.hub_model_id` with its card, its matrix and the picture of the matrix, in
        one commit, and print the address. If nothing has changed since the last push, there is no new commit.

        Args:
            commit_message, blocking, token, revision: As in `Trainer.push_to_hub`.
            kwargs: Facts for the card; see [`~HubMixin.create_model_card`].

        Raises:
            [`glc_hf.hub.push.PushError`]: The push failed; the message explains the cause and how to push again.
        """
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        token = token if token is not None else self.args.hub_token
        self._add_card_facts(**kwargs)
        self.save_model(_internal_call=True)
        if not self.is_world_process_zero():
            return None
        folder = str(self.args.output_dir)
        try:
            if self.hub_model_id is None:
                self._create_repository(token)
            self.create_model_card()
            self._finish_current_push()
            commit = push_folder(
                folder,
                str(self.hub_model_id),
                commit_message or "End of training",
                token=token,
                revision=revision if revision is not None else self.args.hub_revision,
                blocking=blocking,
            )
        except Exception as error:
            command = ["hf", "upload", self._repository_name(), str(folder), "."]
            command += ["--private"] if self.args.hub_private_repo else []
            command += [argument for pattern in EXCLUDED for argument in ("--exclude", pattern)]
            raise PushError(
                f"the model is saved in {folder}, but the push to {self._repository_name()} failed: "
                f"{explain(error)}. Push again with `trainer.push_to_hub()`, or from a shell: {shlex.join(command)}"
            ) from error
        if isinstance(commit, CommitInfo):
            print_address(commit)
        else:
            commit.add_done_callback(lambda done: None if done.exception() else print_address(done.result()))
        return commit

    def create_model_card(self, **kwargs: Any) -> None:  # type: ignore[override]  # refuses unknown facts by name
        """
        Write the model card into `args.output_dir`.

        Args:
            kwargs: Facts that the trainer can't know, named as in `Trainer.create_model_card`: `language`, `license`,
                `tags`, `model_name`, `finetuned_from`, `tasks` and `dataset`.
        """
        self._add_card_facts(**kwargs)
        if self.is_world_process_zero():
            self.model_card.save(str(self.args.output_dir))

    def _add_card_facts(self, **kwargs: Any) -> None:
        def first(value: str | list[str]) -> str:
            return value if isinstance(value, str) else value[0]

        facts, unknown = {}, []
        for name, value in kwargs.items():
            if value is None or name in ("dataset_tags", "dataset_args"):  # for the layout of `Trainer`'s card
                continue
            if name in ("language", "license", "model_name"):
                facts[name] = value
            elif name == "tags":
                facts["tags"] = [value] if isinstance(value, str) else list(value)
            elif name == "tasks":
                facts["task"] = first(value)
            elif name == "dataset":
                facts["dataset"] = public_name(first(value))._asdict()
            elif name == "finetuned_from":
                facts["base_model"] = public_name(value)._asdict()
            else:
                unknown.append(repr(name))
        if unknown:
            raise TypeError(f"a model card does not take {', '.join(unknown)}.")
        self.model_card.add_facts(**facts)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """
        Push in the background as `Trainer` does, one commit after the other, but directly from the checkpoint:
        `Trainer` would also push the checkpoints of the first stage and a pickle of the arguments. A failed push only
        warns.
        """
        if not self.is_world_process_zero() or self.args.hub_strategy == HubStrategy.END or self.hub_model_id is None:
            return
        busy = self.push_in_progress is not None and not self.push_in_progress.is_done()
        if busy and not self.args.hub_always_push:
            return
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        steps = self.args.save_strategy == SaveStrategy.STEPS
        progress = f"step {self.state.global_step}" if steps else f"epoch {int(self.state.epoch)}"
        message = f"Training in progress, {progress}"
        pushes: list[tuple[str, dict[str, Any]]] = [(message, {})]
        if self.args.hub_strategy in (HubStrategy.CHECKPOINT, HubStrategy.ALL_CHECKPOINTS):
            last = self.args.hub_strategy == HubStrategy.CHECKPOINT
            place = "last-checkpoint/" if last else f"{Path(checkpoint_folder).name}/"
            pushes.append((f"{message}, checkpoint", {"path_in_repo": place, "excluded": EXCLUDED_FROM_CHECKPOINTS}))
        # The checkpoint may be removed before it is pushed.
        files = _linked_copy(checkpoint_folder, Path(str(self.args.output_dir)))
        jobs: Any = []
        for commit_message, options in pushes:
            job: Any = push_folder(
                files,
                self.hub_model_id,
                commit_message,
                token=self.args.hub_token,
                revision=self.args.hub_revision,
                blocking=False,
                **options,
            )
            job.add_done_callback(partial(_warn_if_failed, commit_message))
            jobs.append(job)
        jobs[-1].add_done_callback(lambda _: shutil.rmtree(files, ignore_errors=True))
        if busy:
            self.push_in_progress.jobs.extend(jobs)
        else:
            self.push_in_progress = PushInProgress(jobs)


def print_address(commit: CommitInfo) -> None:
    """Print where a commit is on the Hub."""
    print(f"pushed to {commit.repo_url} (commit {commit.oid[:8]}: {commit.commit_url})", flush=True)


def push_folder(
    folder: str | Path,
    repo_id: str,
    commit_message: str,
    token: str | None = None,
    revision: str | None = None,
    blocking: bool = True,
    path_in_repo: str = "",
    excluded: tuple[str, ...] = EXCLUDED,
    repo_type: str = "model",
    removed: Sequence[str] = (),
) -> CommitInfo | Future:
    """
    Push the files of a folder as one commit to an existing repository.

    `HfApi.upload_folder` is not used: with `hf_xet` it splits a large model into several commits, and between them the
    repository contains the weights of one model and the matrix of another.

    Args:
        blocking (`bool`, *optional*, defaults to `True`): `False` returns a `Future` immediately. Such pushes run one
            after the other.
        path_in_repo (`str`, *optional*, defaults to `""`): Folder in the repository, with a trailing slash.
        excluded (`tuple[str, ...]`, *optional*): Patterns of files that are not pushed.
        repo_type (`str`, *optional*, defaults to `"model"`): `"model"` or `"dataset"`.
        removed (`Sequence[str]`, *optional*): Files of the repository that the commit removes.
    """
    api = _api()

    def push() -> CommitInfo:
        with read_timeout():
            return api.create_commit(
                repo_id=repo_id,
                repo_type=repo_type,
                operations=[
                    *(
                        CommitOperationAdd(path_in_repo=f"{path_in_repo}{name}", path_or_fileobj=f"{folder}/{name}")
                        for name in files_to_push(folder, excluded)
                    ),
                    *map(CommitOperationDelete, removed),
                ],
                commit_message=commit_message,
                token=token,
                revision=revision,
            )

    return push() if blocking else api.run_as_future(push)


def files_to_push(folder: str | Path, excluded: tuple[str, ...] = EXCLUDED) -> list[str]:
    """Return the sorted relative paths of the files that belong to the model."""
    names = sorted(path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if path.is_file())
    return list(filter_repo_objects(names, ignore_patterns=list(excluded)))


@cache
def _api() -> HfApi:
    """One client, whose pushes in the background run one after the other."""
    return HfApi()


def _linked_copy(folder: str | Path, beside: Path) -> Path:
    """Return a temporary folder with the files of a checkpoint: hard links, or copies where the disk has none."""
    copy = Path(tempfile.mkdtemp(prefix="_push-", dir=beside))
    for name in files_to_push(folder, EXCLUDED_FROM_CHECKPOINTS):
        source, target = Path(folder) / name, copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)
        except OSError:
            shutil.copyfile(source, target)
    return copy


def _warn_if_failed(commit_message: str, job: Future) -> None:
    error = None if job.cancelled() else job.exception()
    if error is not None:
        logger.warning(
            f"the push {commit_message!r} failed: {explain(error)}. Training continues, and the push at the end "
            "pushes the final model."
        )


@contextmanager
def read_timeout() -> Iterator[None]:
    """Set [`READ_TIMEOUT`] on the client of the Hub if it has no timeout."""
    session = get_session()
    before = session.timeout
    if before.read is None:
        session.timeout = READ_TIMEOUT
    try:
        yield
    finally:
        session.timeout = before


def explain(error: BaseException) -> str:
    """Return the cause of a failed request in one line."""
    causes = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    for cause in causes:
        status = getattr(getattr(cause, "response", None), "status_code", None)
        if isinstance(cause, HfHubHTTPError) and status is not None:
            explanation = _STATUS_EXPLANATIONS.get(status, "server error or unexpected response")
            return f"the Hub answered {status} ({explanation})"
    last = causes[-1]
    name = type(last).__name__
    if "Timeout" in name:
        return f"the Hub did not answer in time ({name})"
    if "Protocol" in name or "Read" in name or "Write" in name:
        return f"the connection was closed ({name})"
    return f"{name}: {last}" if str(last) else name
