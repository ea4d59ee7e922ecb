# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Import time of the library: `from glc_hf import GLCTrainer` compared with `from transformers import Trainer` and
`import datasets`, which a training script imports anyway; and the time of `glc-hf --help`.

    python benchmarks/import_time.py

Each runs in a new process; they alternate. The time is the processor time of that process, including the
start of Python. The first turns don't count: they write bytecode into a temporary folder and fill the disk cache.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from result_files import RESULTS, make_parser, write_result
from timing import describe, measured, ratios, spread, take_turns


STATEMENTS = {
    "glc_hf": "from glc_hf import GLCTrainer",
    "transformers": "from transformers import Trainer; import datasets",
    "help": "from glc_hf.cli.main import main; main(['--help'])",
}


def children_seconds() -> float:
    """Processor time of all child processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def importing(statement: str, bytecode: str) -> Callable[[], object]:
    """Return a function that runs a statement in a new process."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", statement]
    return lambda: subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--output", type=Path, default=RESULTS / "import_time.json")
    options = parser.parse_args()

    def report(turn: int, taken: dict[str, float]) -> None:
        print(f"{turn + 1:3d} " + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in taken.items()), flush=True)

    with tempfile.TemporaryDirectory() as bytecode:
        runs = {name: importing(statement, bytecode) for name, statement in STATEMENTS.items()}
        seconds = take_turns(runs, options.turns, warm_up=2, clock=children_seconds, report=report)
    lines = [
        measured(
            f"`{STATEMENTS['glc_hf']}`",
            f"`{STATEMENTS['transformers']}`",
            ratios(seconds, "glc_hf", "transformers"),
            at_most=1.05,
            seconds={name: spread(seconds[name], 1.0, 3) for name in ("glc_hf", "transformers")},
        ),
        measured("`glc-hf --help`", "—", seconds["help"], at_most=0.5, unit=" s"),
    ]
    for line in lines:
        print(describe(line))
    what = "processor time of a new process each; they alternate"
    write_result(options.output, what, ["torch", "transformers", "datasets"], measured=lines)


if __name__ == "__main__":
    main()
