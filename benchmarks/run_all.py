# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Runs the cost benchmarks one after the other, with the time that is left, and skips those that are done.

A benchmark is done if its result file exists and was written by the same code with the same versions: the stamps in
benchmarks/results/bench.json have a hash of the Python files of glc_hf, of the benchmark and of the modules in this
folder that it imports, of its input files, and of the versions of the packages. They also have the last duration, from
which the remaining time follows. A benchmark that fails does not stop the others; the command then ends with status 1.

    python benchmarks/run_all.py --data <folder>
    python benchmarks/run_all.py --list
    python benchmarks/run_all.py --again scale training_step
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from result_files import RESULTS, make_parser


HERE = Path(__file__).parent
PACKAGE = HERE.parent / "glc_hf"
STAMPS = RESULTS / "bench.json"
PACKAGES = ("torch", "transformers", "datasets")


class Benchmark(NamedTuple):
    """
    Attributes:
        name: Name of the module, and of its result file.
        seconds: Duration without a stamp: the turns and times of the committed result, on one thread.
        data: The option for the folder of the datasets, and a folder in it; empty if it needs none.
        inputs: Files in benchmarks/results/ that it reads.
    """

    name: str
    seconds: float
    data: tuple[str, str] = ("", "")
    inputs: tuple[str, ...] = ()

    @property
    def result(self) -> Path:
        return RESULTS / f"{self.name}.json"

    def command(self, data: str | None) -> list[str]:
        """The command that measures it."""
        option, folder = self.data
        chosen = [option, str(Path(data, folder))] if option and data is not None else []
        return [sys.executable, str(HERE / f"{self.name}.py"), *chosen]


# Short ones first, so that a mistake in the environment shows early.
BENCHMARKS = [
    Benchmark("import_time", 170),
    Benchmark("transforms", 70),
    Benchmark("corrected_loss", 40),
    Benchmark("source_costs", 220),
    Benchmark("training_step", 420),
    Benchmark("robust_run", 30, ("--data", "cogcomp/trec"), ("trec.jsonl",)),
    Benchmark("estimation", 480),
    Benchmark("error_curve", 720, ("--data-root", "")),
    Benchmark("scale", 620),
]


def code_of(benchmark: Benchmark) -> str:
    """A hash of everything that a result depends on, except the machine."""
    digest = hashlib.blake2b(digest_size=16)
    files = [*sorted(PACKAGE.rglob("*.py")), *sorted(_modules(HERE / f"{benchmark.name}.py"))]
    files += [RESULTS / name for name in benchmark.inputs]
    for file in files:
        digest.update(f"{file.relative_to(HERE.parent).as_posix()}\n".encode())
        digest.update(hashlib.blake2b(file.read_bytes()).digest())
    digest.update(json.dumps({name: version(name) for name in PACKAGES}).encode())
    return digest.hexdigest()


def _modules(file: Path, found: set[Path] | None = None) -> set[Path]:
    """A benchmark and the modules beside it that it imports, also indirectly."""
    found = set() if found is None else found
    found.add(file)
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names: Iterable[str] = ()
        if isinstance(node, ast.Import):
            names = (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = (node.module,)
        for name in names:
            other = file.with_name(f"{name}.py")
            if other not in found and other.exists():
                _modules(other, found)
    return found


def read_stamps() -> dict[str, Any]:
    """Code and seconds of the last measurement of each benchmark."""
    return json.loads(STAMPS.read_text(encoding="utf-8")) if STAMPS.exists() else {}


def write_stamp(name: str, code: str, seconds: float) -> None:
    """Record that a benchmark was measured."""
    stamps = {**read_stamps(), name: {"code": code, "seconds": round(seconds)}}
    STAMPS.write_text(json.dumps(dict(sorted(stamps.items())), indent=1) + "\n", encoding="utf-8")


def is_done(benchmark: Benchmark) -> bool:
    """Whether the result file is there and its code has not changed."""
    stamp = read_stamps().get(benchmark.name)
    return stamp is not None and benchmark.result.exists() and stamp["code"] == code_of(benchmark)


def expected_seconds(benchmark: Benchmark) -> float:
    """The last duration, or a guess."""
    return read_stamps().get(benchmark.name, {}).get("seconds", benchmark.seconds)


def duration(seconds: float) -> str:
    """Such as `1 h 05 min`, `12 min` or `40 s`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"


def run(benchmarks: list[Benchmark], data: str | None = None) -> list[str]:
    """Run benchmarks, stamp those that succeed, and return the names of the others."""
    failed = []
    for number, benchmark in enumerate(benchmarks, start=1):
        left = sum(map(expected_seconds, benchmarks[number - 1 :]))
        print(
            f"[{number}/{len(benchmarks)}] {benchmark.name}: about {duration(expected_seconds(benchmark))}; "
            f"{duration(left)} left in all",
            flush=True,
        )
        code, start = code_of(benchmark), time.monotonic()
        process = subprocess.run(benchmark.command(data), env={"OMP_NUM_THREADS": "1", **os.environ}, check=False)
        seconds = time.monotonic() - start
        if process.returncode == 0 and benchmark.result.exists():
            write_stamp(benchmark.name, code, seconds)
            print(f"[{number}/{len(benchmarks)}] {benchmark.name}: done in {duration(seconds)}", flush=True)
        else:
            failed.append(benchmark.name)
            print(f"[{number}/{len(benchmarks)}] {benchmark.name}: FAILED after {duration(seconds)}", flush=True)
    return failed


def main() -> int:
    names = [benchmark.name for benchmark in BENCHMARKS]
    parser = make_parser(__doc__)
    parser.add_argument("--data", help="folder of the datasets, named as on the Hub (default: from the Hub)")
    parser.add_argument("--again", nargs="*", choices=names, help="measure these, or all, even if they are done")
    parser.add_argument("--list", action="store_true", help="only show what is done and how long the others take")
    options = parser.parse_args()
    again = () if options.again is None else options.again or names
    left = [benchmark for benchmark in BENCHMARKS if benchmark.name in again or not is_done(benchmark)]
    for benchmark in BENCHMARKS:
        state = "to be measured" if benchmark in left else "done"
        print(f"{benchmark.name}: {state} ({duration(expected_seconds(benchmark))})")
    print(f"{len(left)} of {len(BENCHMARKS)} to be measured, about {duration(sum(map(expected_seconds, left)))}")
    if options.list:
        return 0
    failed = run(left, options.data)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
