# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
What importing the library costs: `from glc_hf import GLCTrainer` against `from transformers import Trainer` and
`import datasets`, which a script that uses it would import anyway.

    python benchmarks/import_time.py

Each import is a fresh process; the two take turns. The time is the processor time of that process, start of Python
included. The first turns don't count: they write the bytecode, into a folder of their own, and fill the disk cache.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from timing import RESULTS, in_words, measured, ratios, spread, take_turns, write_result


STATEMENTS = {
    "glc_hf": "from glc_hf import GLCTrainer",
    "transformers": "from transformers import Trainer; import datasets",
}


def children_seconds() -> float:
    """Processor time of all processes that were started and have ended."""
    times = os.times()
    return times.children_user + times.children_system


def importing(statement: str, bytecode: str) -> Callable[[], object]:
    """Runs a statement in a fresh process."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return lambda: subprocess.run([sys.executable, "-c", statement], check=True, env=environment)


def main() -> None:
    """Measures, prints, and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--output", type=Path, default=RESULTS / "import_time.json")
    options = parser.parse_args()

    def report(turn: int, taken: dict[str, float]) -> None:
        print(f"{turn + 1:3d} " + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in taken.items()), flush=True)

    with tempfile.TemporaryDirectory() as bytecode:
        runs = {name: importing(statement, bytecode) for name, statement in STATEMENTS.items()}
        seconds = take_turns(runs, options.turns, warm_up=2, clock=children_seconds, report=report)
    line = measured(
        f"`{STATEMENTS['glc_hf']}`",
        f"`{STATEMENTS['transformers']}`",
        ratios(seconds, "glc_hf", "transformers"),
        at_most=1.1,
        seconds={name: spread(values, 1.0, 3) for name, values in seconds.items()},
    )
    print(in_words(line))
    what = "processor time of a fresh process for each import; the two take turns"
    write_result(options.output, what, [line], ["torch", "transformers", "datasets"])


if __name__ == "__main__":
    main()
