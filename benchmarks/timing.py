# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Timing for the cost benchmarks: candidates that run alternately, and the spread of their ratios.

Other load on the machine affects all candidates of a turn equally. So a ratio is computed within each turn, and the
median over turns is reported.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any


Clock = Callable[[], float]


def seconds_of(run: Callable[[], object], clock: Clock = time.process_time) -> float:
    """Time of one call. The default clock is the processor time of this process, so other processes don't count."""
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
    Measure the seconds that each candidate takes in each turn.

    The order is rotated by one at each turn, so that no candidate always follows the same one, and none profits more
    than others from caches that it has filled itself.

    Args:
        runs (`dict[str, Callable]`): The candidates; each is called once per turn.
        turns (`int`): Number of turns that count.
        warm_up (`int`, *optional*, defaults to 0): Turns before them that don't count.
        clock (`Callable`, *optional*, defaults to `time.process_time`): Returns seconds.
        report (`Callable`, *optional*): Called after each turn that counts, with its number and its seconds.
    """
    names = list(runs)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(-warm_up, turns):
        first = turn % len(names)
        taken = {name: seconds_of(runs[name], clock) for name in names[first:] + names[:first]}
        if turn < 0:
            continue
        for name in names:
            seconds[name].append(taken[name])
        if report is not None:
            report(turn, taken)
    return seconds


def ratios(seconds: dict[str, list[float]], name: str, against: str) -> list[float]:
    """The ratio of two candidates in each turn."""
    return [mine / theirs for mine, theirs in zip(seconds[name], seconds[against], strict=True)]


def spread(values: Iterable[float], unit: float = 1.0, digits: int = 4) -> dict[str, float]:
    """Median and quartiles in `unit`s; with fewer than four values, minimum and maximum instead of quartiles."""
    values = [value * unit for value in values]
    low, median, high = min(values), statistics.median(values), max(values)
    if len(values) >= 4:
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    figures = {"median": median, "low": low, "high": high}
    return {**{name: round(value, digits) for name, value in figures.items()}, "count": len(values)}


def measured(
    benchmark: str, against: str, values: Iterable[float], at_most: float, unit: str = "×", **more: Any
) -> dict[str, Any]:
    """
    One row of the table of costs.

    Args:
        benchmark (`str`): What was measured, in Markdown.
        against (`str`): The baseline, in Markdown.
        values (`Iterable[float]`): The ratios.
        at_most (`float`): The target for the ratio. It does not affect the measurement.
        unit (`str`, *optional*, defaults to `"×"`): Unit shown after the numbers.
        more: Further figures, only for the result file.
    """
    return {
        "benchmark": benchmark,
        "against": against,
        "ratio": spread(values),
        "at_most": at_most,
        "unit": unit,
        **more,
    }


def describe(line: dict[str, Any]) -> str:
    """A measured row as text for the terminal."""
    ratio, unit = line["ratio"], line["unit"]
    return (
        f"{line['benchmark']}: {ratio['median']:.3f}{unit} ({ratio['low']:.3f}–{ratio['high']:.3f}, "
        f"{ratio['count']} turns) against {line['against']}; target: at most {line['at_most']:g}{unit}"
    )


class SteppedJob:
    """
    A job that stops whenever it calls `pause()`, and continues when this object is called.

    The job runs in its own thread while the caller waits, so only one of the two runs at any time. Independent loops,
    such as those of two Trainers, can alternate step by step.

    Args:
        job (`Callable`): Takes `pause` and calls it between its steps.
    """

    def __init__(self, job: Callable[[Callable[[], None]], object]) -> None:
        self.finished = False
        self.result: object = None
        self._error: BaseException | None = None
        self._continue, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, args=(job,), daemon=True)
        self._thread.start()

    def __call__(self) -> None:
        """Run the job to its next pause or its end. Raises what the job raises."""
        if self.finished:
            raise RuntimeError("the job has ended: there is no further step.")
        self._continue.release()
        self._stopped.acquire()
        if self._error is not None:
            raise self._error

    def finish(self) -> object:
        """Run the rest of the job and return its result."""
        while not self.finished:
            self()
        return self.result

    def _run(self, job: Callable[[Callable[[], None]], object]) -> None:
        self._continue.acquire()
        try:
            self.result = job(self._pause)
        except BaseException as error:
            self._error = error
        self.finished = True
        self._stopped.release()

    def _pause(self) -> None:
        self._stopped.release()
        self._continue.acquire()
