# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
What the cost benchmarks share: contestants that take turns within one run, the spread of their ratios, and the form of
a result file.

Whatever else the machine does meets all contestants of a turn alike, so a ratio is taken within each turn, and the
median over the turns is what counts.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any


RESULTS = Path(__file__).parent / "results"
Clock = Callable[[], float]


def seconds_of(run: Callable[[], object], clock: Clock = time.process_time) -> float:
    """What one call takes. The default clock is the processor time of all threads of this process: other programs that
    want the processor don't count."""
    start = clock()
    run()
    return clock() - start


def take_turns(
    runs: dict[str, Callable[[], object]],
    turns: int,
    warm_up: int = 0,
    clock: Clock = time.process_time,
    report: Callable[[int, dict[str, float]], None] | None = None,
) -> dict[str, list[float]]:
    """
    The seconds that each contestant takes at each turn.

    Args:
        runs (`dict[str, Callable]`): What each contestant does at a turn.
        turns (`int`): How many turns count.
        warm_up (`int`, *optional*, defaults to 0): Turns before those, which don't.
        clock (`Callable`, *optional*, defaults to `time.process_time`): The time so far, in seconds.
        report (`Callable`, *optional*): Called after each turn that counts with its number and its seconds.

    The order moves on by one at each turn: nobody always follows the same one, and nobody follows itself, with caches
    that are warm for it, more often than the others do.
    """
    names = list(runs)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(-warm_up, turns):
        first = turn % len(names)
        order = names[first:] + names[:first]
        taken = {name: seconds_of(runs[name], clock) for name in order}
        if turn < 0:
            continue
        for name in names:
            seconds[name].append(taken[name])
        if report is not None:
            report(turn, taken)
    return seconds


def ratios(seconds: dict[str, list[float]], name: str, against: str) -> list[float]:
    """The ratio of two contestants at each turn."""
    return [mine / theirs for mine, theirs in zip(seconds[name], seconds[against], strict=True)]


def spread(values: Iterable[float], unit: float = 1.0, digits: int = 4) -> dict[str, float]:
    """Median and quartiles, in `unit`s; the lowest and the highest value in place of quartiles of fewer than four."""
    values = [value * unit for value in values]
    low, median, high = min(values), statistics.median(values), max(values)
    if len(values) >= 4:
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return {
        "median": round(median, digits),
        "low": round(low, digits),
        "high": round(high, digits),
        "count": len(values),
    }


def measured(
    benchmark: str, against: str, found: Iterable[float], at_most: float, unit: str = "×", **more: Any
) -> dict[str, Any]:
    """
    One line of the table of costs.

    Args:
        benchmark (`str`): What was measured, in Markdown.
        against (`str`): What it was measured against, in Markdown.
        found (`Iterable[float]`): The ratios.
        at_most (`float`): What the ratio is meant to stay below; it changes nothing of what is measured.
        unit (`str`, *optional*, defaults to `"×"`): What stands behind the numbers in the table.
        more: Further figures, for the result file alone.
    """
    return {
        "benchmark": benchmark,
        "against": against,
        "ratio": spread(found),
        "at_most": at_most,
        "unit": unit,
        **more,
    }


def in_words(line: dict[str, Any]) -> str:
    """A measured line for the terminal."""
    ratio, unit = line["ratio"], line["unit"]
    return (
        f"{line['benchmark']}: {ratio['median']:.3f}{unit} ({ratio['low']:.3f}–{ratio['high']:.3f}, "
        f"{ratio['count']} turns) against {line['against']}; meant to be at most {line['at_most']:g}{unit}"
    )


def write_result(path: Path, what: str, lines: list[dict[str, Any]], packages: Iterable[str], **more: Any) -> None:
    """Writes a result file: the command, what was measured how, with which versions, and the measured lines."""
    content = {
        "command": shlex.join(["python", *sys.argv]),
        "what": what,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
        "cpu_count": os.cpu_count(),
        **more,
        "measured": lines,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"written to {path}")


class InSteps:
    """
    A job that stops at every point where it calls `pause()`, and goes on when this object is called.

    The job runs in a thread of its own, and the caller waits while it does: only one of the two runs at any time. So
    two loops that know nothing of each other, such as those of two Trainers, can take turns step by step.

    Args:
        job (`Callable`): Gets `pause`, and calls it between its steps.
    """

    def __init__(self, job: Callable[[Callable[[], None]], object]) -> None:
        self.finished = False
        self.result: object = None
        self._error: BaseException | None = None
        self._go_on, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, args=(job,), daemon=True)
        self._thread.start()

    def __call__(self) -> None:
        """Runs the job to its next pause, or to its end; raises what it raises."""
        if self.finished:
            raise RuntimeError("the job has ended: there is no further step.")
        self._go_on.release()
        self._stopped.acquire()
        if self._error is not None:
            raise self._error

    def to_the_end(self) -> object:
        """Runs what is left of the job, and returns its result."""
        while not self.finished:
            self()
        return self.result

    def _run(self, job: Callable[[Callable[[], None]], object]) -> None:
        self._go_on.acquire()
        try:
            self.result = job(self._pause)
        except BaseException as error:
            self._error = error
        self.finished = True
        self._stopped.release()

    def _pause(self) -> None:
        self._stopped.release()
        self._go_on.acquire()
