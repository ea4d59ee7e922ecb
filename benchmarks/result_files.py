# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Result files of the benchmarks: JSON Lines with one run per line, or one JSON file per benchmark."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any


RESULTS = Path(__file__).parent / "results"


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """An argument parser that shows the module docstring as it is."""
    return argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)


def make_runs_parser(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options of benchmarks that add runs to a JSON Lines file."""
    parser = make_parser(description)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--summary", action="store_true", help="only print the table")
    return parser


def make_data_parser(
    description: str | None, tasks: Iterable[str] | None = None, data: str = "folder of the datasets"
) -> argparse.ArgumentParser:
    """A parser with the options of benchmarks of tasks with real noise."""
    parser = make_runs_parser(description)
    parser.add_argument("--data", help=data)
    parser.add_argument("--tasks", nargs="+", choices=tasks, help="by default all")
    parser.add_argument("--cache", help="folder of the features (default: in the cache of datasets)")
    return parser


def make_tasks_parser(
    description: str | None, modes: Sequence[str] = ("linear", "finetune"), **options: Any
) -> argparse.ArgumentParser:
    """The same with the options of those by linear models or fine-tuning; `options` are those of
    [`make_data_parser`]."""
    parser = make_data_parser(description, **options)
    parser.add_argument("--mode", choices=modes, default="linear")
    parser.add_argument("--trusted", nargs="+", type=int, help="numbers of trusted rows (default: three per task)")
    parser.add_argument("--methods", nargs="+")
    parser.add_argument("--steps", type=int, default=200, help="finetune: optimizer steps of plain training")
    return parser


def read_runs(path: Path) -> list[dict[str, Any]]:
    """The runs of a JSON Lines file; empty if there is no file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def add_run(path: Path, run: dict[str, Any]) -> None:
    """Append a finished run and print it."""
    path.parent.mkdir(exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(run) + "\n")
    print(json.dumps(run), flush=True)


def shown_command() -> str:
    """The command of this process, with paths as in the documentation: relative to the project, or `<folder>`."""
    project = Path(__file__).resolve().parents[1]

    def shown(word: str) -> str:
        if not Path(word).is_absolute():
            return word
        path = Path(word).resolve()
        return path.relative_to(project).as_posix() if path.is_relative_to(project) else "<folder>"

    return " ".join(["python", *(word if word == "<folder>" else shlex.quote(word) for word in map(shown, sys.argv))])


def write_result(path: Path, what: str, packages: Iterable[str], **content: Any) -> None:
    """Write a JSON file with the command, a description, the versions of Python and `packages`, and the content."""
    header = {
        "command": shown_command(),
        "what": what,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
        "cpu_count": os.cpu_count(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**header, **content}, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"written to {path}")
