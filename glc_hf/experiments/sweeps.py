# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Running many jobs on all cores or on a Ray cluster, without repeating what the results file already has.

Workers train; only this process writes, with one append for lines that belong together. A killed sweep loses at most
the jobs that were being trained.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from glc_hf.experiments.jobs import Curve, Row, join_reduced, run_curve
from glc_hf.experiments.results import RUN_FIELDS, append_results, read_results


class Progress(NamedTuple):
    """Share of a job (by its position in the plan) that is done, and its new lines."""

    job: int
    share: float
    rows: list[Row]


def run_key(row: Row) -> tuple:
    """Return what identifies a run."""
    return tuple(row.get(name) for name in (*RUN_FIELDS, "reduced"))


def plan(curves: Iterable[Curve], output: str | Path, data_reduced: str | None = None) -> list[Curve]:
    """Return the jobs that are not complete in the results file, without the methods that are. `data_reduced` is what
    was left out of the data, see [`PreparedData`]."""
    rows = read_results(output) if Path(output).exists() else []
    known = {run_key(row) for row in rows}
    bare = {run_key(row) for row in rows if row.get("matrix_distance") is not None and "matrix" not in row}
    left = []
    for curve in curves:
        reduced = join_reduced(data_reduced, curve.reduced)
        missing = []
        for method in curve.methods:
            runs = {
                (curve.preset, method, curve.noise, curve.trusted, strength, curve.seed, reduced)
                for strength in curve.strengths
            }
            if curve.matrices and not bare.isdisjoint(runs):
                raise ValueError(
                    f"{output} holds runs without their matrices, and runs it holds are not repeated: name a new file "
                    "for runs with matrices."
                )
            if not known.issuperset(runs):
                missing.append(method)
        if missing:
            left.append(replace(curve, methods=tuple(missing)))
    return left


def run_sweep(
    curves: Sequence[Curve], output: str | Path, workers: int | None = None, ray_address: str | None = None
) -> Iterator[Progress]:
    """
    Run jobs and append their lines to the results file.

    Args:
        curves (`Sequence[Curve]`): The jobs that [`plan`] returns.
        output (`str` or `Path`): The results file.
        workers (`int`, *optional*): Number of processes with one thread each; by default one per core. With fewer
            jobs than that, each process has several threads, which train parts of the strengths.
        ray_address (`str`, *optional*):
            Run on Ray instead: the address of a cluster, `"auto"` for the one this machine belongs to, or `"local"`
            for a new one on this machine.

    Yields:
        [`Progress`]: Whenever a job has advanced; its new lines are already on disk.
    """
    known = {run_key(row) for row in read_results(output)} if Path(output).exists() else set()
    if ray_address is not None:
        messages = run_on_ray(curves, ray_address)
    else:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        wanted = workers or cores
        workers = max(min(wanted, len(curves)), 1)
        threads = wanted // workers
        messages = _run_here(curves, threads) if workers == 1 else _run_in_processes(curves, workers, threads)
    for message in messages:
        # A method whose lines were cut short by a crash is run again in full; lines already written stay as they are.
        new = [row for row in message.rows if run_key(row) not in known]
        append_results(output, new)
        yield message._replace(rows=new)


def _run_here(curves: Sequence[Curve], threads: int) -> Iterator[Progress]:
    import torch

    of_operations = torch.get_num_threads()
    torch.set_num_threads(1)  # as in a worker: these networks are too small for threads within an operation to help
    try:
        for job, curve in enumerate(curves):
            shares = [0.0]
            for rows in run_curve(curve, shares.append, threads):
                yield Progress(job, shares[-1], rows)
            yield Progress(job, 1.0, [])
    finally:
        torch.set_num_threads(of_operations)


class _Failure(NamedTuple):
    curve: Curve
    error: BaseException
    trace: str


def _run_in_processes(curves: Sequence[Curve], workers: int, threads: int) -> Iterator[Progress]:
    import multiprocessing
    import queue

    context = multiprocessing.get_context("spawn")
    todo, messages = context.Queue(), context.Queue()
    for job in [*enumerate(curves), *[None] * workers]:
        todo.put(job)
    processes = [
        context.Process(target=_work, args=(todo, messages, threads), daemon=True, name=f"sweep-{number}")
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


def _check_alive(processes: Sequence[Any]) -> None:
    for process in processes:
        if process.exitcode not in (None, 0):
            raise RuntimeError(
                f"the worker {process.name} ended with exit code {process.exitcode}, perhaps because it ran out of "
                "memory. Finished runs are in the results file; run the same command again to continue (with fewer "
                "--workers if memory is short)."
            )


def _work(todo: Any, messages: Any, threads: int) -> None:
    """Run jobs until there are none left; exit with the parent process."""
    import multiprocessing
    import threading
    import traceback
    from multiprocessing.connection import wait

    import torch

    def exit_with_parent() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=exit_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    while (item := todo.get()) is not None:
        job, curve = item
        shares = [0.0]

        def tick(share: float, job: int = job, shares: list[float] = shares) -> None:
            shares[0] = share
            messages.put(Progress(job, share, []))

        try:
            for rows in run_curve(curve, tick, threads):
                messages.put(Progress(job, shares[0], rows))
            messages.put(Progress(job, 1.0, []))
        except Exception as error:
            # The other process may not be able to unpickle the error itself.
            types = (ValueError, OSError, ImportError, FloatingPointError)
            plain = next((one for one in types if isinstance(error, one)), RuntimeError)(str(error))
            messages.put(_Failure(curve, plain, traceback.format_exc()))
            return
    messages.put(None)


def run_on_ray(curves: Sequence[Curve], address: str) -> Iterator[Progress]:
    """Run each job as a Ray task with one core. Ray schedules the tasks and repeats them if a machine is lost. The
    `data_root` of a job, if any, must exist on every machine."""
    try:
        import ray
    except ImportError as error:
        raise ImportError("running on Ray needs the package: pip install 'glc_hf[ray]'") from error
    ray.init(address=None if address == "local" else address, include_dashboard=False, log_to_driver=False)
    try:
        task = ray.remote(num_cpus=1)(_ray_task)
        jobs = {task.remote(curve): job for job, curve in enumerate(curves)}
        seen = [0] * len(curves)
        while jobs:
            ready, _ = ray.wait(list(jobs), num_returns=1, fetch_local=False)
            for stream in ready:
                job = jobs[stream]
                try:
                    rows: list[Row] = ray.get(next(stream))
                except StopIteration:
                    del jobs[stream]
                    yield Progress(job, 1.0, [])
                    continue
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from error
                seen[job] += len(rows)
                yield Progress(job, seen[job] / curves[job].size, rows)
    finally:
        ray.shutdown()


def _ray_task(curve: Curve) -> Iterator[list[Row]]:
    import torch

    torch.set_num_threads(1)
    yield from run_curve(curve)
