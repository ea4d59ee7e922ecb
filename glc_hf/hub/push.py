# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""A saved model, its card, its matrix and their picture sent to the Hub in one commit."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from huggingface_hub import CommitInfo, CommitOperationAdd, HfApi
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import filter_repo_objects, get_session


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
