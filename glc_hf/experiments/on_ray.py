# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The same curves on a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from glc_hf.experiments.jobs import Curve, Row, run_curve


if TYPE_CHECKING:
    from glc_hf.experiments.sweep import Progress


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
    from glc_hf.experiments.sweep import Progress

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
