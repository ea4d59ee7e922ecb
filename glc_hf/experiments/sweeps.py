# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Many curves on all cores, or on a Ray cluster: what is in the results file already is not run again.

Workers train; this process alone writes, one append for the lines that belong together. What a killed sweep has lost
is at most the curves that were being trained.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from glc_hf.experiments.jobs import Curve, Row, run_curve
from glc_hf.experiments.results import append_results, read_results


PAPER_METHODS = (
    "no_correction", "glc", "confusion_matrix", "forward", "forward_gold", "trusted_only", "distillation",
)  # fmt: skip
PAPER_STRENGTHS = tuple(step / 10 for step in range(11))


class Progress(NamedTuple):
    """Which share of which curve (by its place in the plan) is done, and the lines that are new."""

    place: int
    share: float
    rows: list[Row]


def cell_of(row: Row) -> tuple:
    """What makes a cell the same one."""
    names = ("preset", "method", "noise", "trusted", "strength", "seed", "reduced")
    return tuple(row.get(name) for name in names)


def plan(curves: Iterable[Curve], output: str | Path, data_reduced: str | None = None) -> list[Curve]:
    """
    The curves that still have to be run, each without the methods that are complete in the results file.

    Args:
        curves (`Iterable[Curve]`): All that is wanted.
        output (`str` or `Path`): The results file; it need not be there yet.
        data_reduced (`str`, *optional*): What was left out of the data, as [`PreparedData`] says it.
    """
    rows = read_results(output) if Path(output).exists() else []
    known = {cell_of(row) for row in rows}
    bare = {cell_of(row) for row in rows if row.get("matrix_distance") is not None and "matrix" not in row}
    left = []
    for curve in curves:
        reduced = ", ".join(filter(None, (data_reduced, curve.reduced))) or None
        cells = {
            method: [
                (curve.preset, method, curve.noise, curve.trusted, strength, curve.seed, reduced)
                for strength in curve.strengths
            ]
            for method in curve.methods
        }
        if curve.matrices and not bare.isdisjoint(chain.from_iterable(cells.values())):
            raise ValueError(
                f"{output} holds cells that were run without their matrices, and what it holds is not run again: for "
                "matrices name a new file."
            )
        missing = tuple(method for method in curve.methods if not known.issuperset(cells[method]))
        if missing:
            left.append(replace(curve, methods=missing))
    return left


def run_sweep(
    curves: Sequence[Curve],
    output: str | Path,
    workers: int | None = None,
    ray_address: str | None = None,
) -> Iterator[Progress]:
    """
    Runs curves and appends what they give to the results file.

    Args:
        curves (`Sequence[Curve]`): As [`plan`] gives them.
        output (`str` or `Path`): The results file.
        workers (`int`, *optional*): Processes, one thread each; by default as many as there are cores.
        ray_address (`str`, *optional*):
            Run on Ray instead: the address of a cluster, `"auto"` for the one this machine belongs to, or `"local"`
            for a new one on this machine.

    Yields:
        [`Progress`]: Whenever a curve has got on; new lines are on disk by then.
    """
    known = {cell_of(row) for row in read_results(output)} if Path(output).exists() else set()
    if ray_address is not None:
        messages = run_on_ray(curves, ray_address)
    else:
        workers = min(workers or _cores(), len(curves))
        messages = _run_here(curves) if workers <= 1 else _run_in_processes(curves, workers)
    for message in messages:
        # A curve whose lines were cut short by a crash is run whole; what had been written stays as it was.
        new = [row for row in message.rows if cell_of(row) not in known]
        append_results(output, new)
        yield message._replace(rows=new)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run_here(curves: Sequence[Curve]) -> Iterator[Progress]:
    import torch

    threads = torch.get_num_threads()
    # As in a worker: these networks are too small for threads to help, and results must not depend on their number.
    torch.set_num_threads(1)
    shares: list[float] = []
    try:
        for place, curve in enumerate(curves):
            for rows in run_curve(curve, shares.append):
                yield Progress(place, shares[-1] if shares else 0.0, rows)
            yield Progress(place, 1.0, [])
    finally:
        torch.set_num_threads(threads)


def _run_in_processes(curves: Sequence[Curve], workers: int) -> Iterator[Progress]:
    import multiprocessing
    import queue

    context = multiprocessing.get_context("spawn")
    todo, messages = context.Queue(), context.Queue()
    for place, curve in enumerate(curves):
        todo.put((place, curve))
    for _ in range(workers):
        todo.put(None)
    processes = [
        context.Process(target=_work, args=(todo, messages), daemon=True, name=f"sweep-{number}")
        for number in range(workers)
    ]
    for process in processes:
        process.start()
    try:
        finished = 0
        while finished < workers:
            try:
                message = messages.get(timeout=2.0)
            except queue.Empty:
                _check_alive(processes)
                continue
            if message is None:
                finished += 1
            elif isinstance(message, _Failure):
                raise message.error from RuntimeError(f"while training {message.curve}:\n{message.trace}")
            else:
                yield message
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.join()


class _Failure(NamedTuple):
    curve: Curve
    error: BaseException
    trace: str


def _check_alive(processes: Sequence[Any]) -> None:
    for process in processes:
        if process.exitcode not in (None, 0):
            raise RuntimeError(
                f"the worker {process.name} ended with exit code {process.exitcode}, perhaps for want of memory. What "
                "was finished is in the results file; the same command goes on from there (fewer --workers need less "
                "memory)."
            )


def _work(todo: Any, messages: Any) -> None:
    """A worker's life: takes curves until there are none, and ends with the process that started it."""
    import traceback

    import torch

    _end_with_parent()
    torch.set_num_threads(1)
    while (job := todo.get()) is not None:
        place, curve = job
        try:
            shares = [0.0]

            def tick(share: float, place: int = place, shares: list[float] = shares) -> None:
                shares[0] = share
                messages.put(Progress(place, share, []))

            for rows in run_curve(curve, tick):
                messages.put(Progress(place, shares[0], rows))
            messages.put(Progress(place, 1.0, []))
        except Exception as error:
            messages.put(_Failure(curve, _sendable(error), traceback.format_exc()))
            return
    messages.put(None)


def _sendable(error: Exception) -> Exception:
    """An error of a kind that the other process can rebuild."""
    kinds = (ValueError, OSError, ImportError, FloatingPointError)
    kind = next((kind for kind in kinds if isinstance(error, kind)), RuntimeError)
    return kind(str(error))


def _end_with_parent() -> None:
    import multiprocessing
    import threading
    from multiprocessing.connection import wait

    def watch() -> None:
        wait([multiprocessing.parent_process().sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def run_on_ray(curves: Sequence[Curve], address: str) -> Iterator[Progress]:
    """
    Runs each curve as a task of one core; Ray schedules them and runs them again where a machine is lost.

    Args:
        curves (`Sequence[Curve]`): What to run. Their `data_root`, if any, has to be there on every machine.
        address (`str`): A cluster's address, `"auto"` or `"local"`.
    """
    try:
        import ray
    except ImportError as error:
        raise ImportError("running on Ray needs the package: pip install 'glc_hf[ray]'") from error
    ray.init(address=None if address == "local" else address, include_dashboard=False, log_to_driver=False)
    try:
        task = ray.remote(num_cpus=1)(_rows_of)
        places = {task.remote(curve): place for place, curve in enumerate(curves)}
        totals = [max(1, len(curve.methods) * len(curve.strengths)) for curve in curves]
        seen = [0] * len(curves)
        while places:
            ready, _ = ray.wait(list(places), num_returns=1, fetch_local=False)
            for stream in ready:
                place = places[stream]
                try:
                    rows: list[Row] = ray.get(next(stream))
                except StopIteration:
                    del places[stream]
                    yield Progress(place, 1.0, [])
                    continue
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from error
                seen[place] += len(rows)
                yield Progress(place, seen[place] / totals[place], rows)
    finally:
        ray.shutdown()


def _rows_of(curve: Curve) -> Iterator[list[Row]]:
    import torch

    torch.set_num_threads(1)
    yield from run_curve(curve)
