# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest


FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def timing(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    import timing

    yield timing
    sys.modules.pop("timing", None)


@pytest.fixture
def result_files(timing):
    import result_files

    yield result_files
    sys.modules.pop("result_files", None)


@pytest.fixture
def cost_table(result_files):
    import cost_table

    yield cost_table
    sys.modules.pop("cost_table", None)


def test_candidates_alternate_in_a_rotating_order(timing):
    order, now = [], [0.0]

    def candidate(name, seconds):
        def run():
            order.append(name)
            now[0] += seconds

        return run

    seconds = timing.take_turns(
        {"a": candidate("a", 1.0), "b": candidate("b", 3.0)}, 2, warm_up=1, clock=lambda: now[0]
    )
    assert "".join(order) == "ba" + "ab" + "ba"
    assert seconds == {"a": [1.0, 1.0], "b": [3.0, 3.0]}
    assert timing.ratios(seconds, "b", "a") == [3.0, 3.0]

    order.clear()
    timing.take_turns({name: candidate(name, 1.0) for name in "abc"}, 4, clock=lambda: now[0])
    assert "".join(order) == "abc" + "bca" + "cab" + "abc"


def test_spread_is_median_and_quartiles_or_extremes_of_few_values(timing):
    assert timing.spread([1, 2, 3, 4, 5]) == {"median": 3, "low": 2, "high": 4, "count": 5}
    assert timing.spread([3.0, 1.0], unit=1e3) == {"median": 2000, "low": 1000, "high": 3000, "count": 2}


def test_stepped_jobs_alternate_step_by_step(timing):
    steps = []

    def job(name):
        def run(pause):
            for step in range(3):
                steps.append(f"{name}{step}")
                pause()
            return name

        return timing.SteppedJob(run)

    first, second = job("a"), job("b")
    assert steps == []
    for _ in range(2):
        first()
        second()
    assert steps == ["a0", "b0", "a1", "b1"]
    assert first.finish() == "a"
    assert steps[-1] == "a2"
    with pytest.raises(RuntimeError, match="no further step"):
        first()
    second.finish()


def test_exception_of_a_job_reaches_the_caller(timing):
    def fails(pause):
        pause()
        raise ValueError("broken")

    job = timing.SteppedJob(fails)
    job()
    with pytest.raises(ValueError, match="broken"):
        job()
    assert job.finished


def test_result_files_become_rows_of_the_table(timing, result_files, cost_table, tmp_path):
    line = timing.measured("a thing", "`another`", [1.0, 1.5, 2.0], at_most=3, seconds={"a": 1})
    result_files.write_result(tmp_path / "training_step.json", "how", ["torch"], threads=1, measured=[line])
    more = timing.measured("memory", "nothing", [0.5], at_most=3, unit=" matrices")
    result_files.write_result(tmp_path / "robust_run.json", "how", [], measured=[more])
    assert cost_table.summary(tmp_path).splitlines()[2:] == [
        "| a thing | `another` | **1.50**× | 1.00–2.00 | 3 | ≤ 3× |",
        "| memory | nothing | **0.50** matrices | 0.50–0.50 | 1 | ≤ 3 matrices |",
    ]
    content = json.loads((tmp_path / "training_step.json").read_text())
    assert {"command", "what", "versions", "cpu_count", "threads", "measured"} == content.keys()
    assert timing.describe(line).startswith("a thing: 1.500× (1.000–2.000, 3 turns) against `another`")


def test_every_cost_benchmark_is_run_by_make_bench(cost_table):
    makefile = (FOLDER.parent / "Makefile").read_text()
    names = next(line for line in makefile.splitlines() if line.startswith("BENCHMARKS")).split("=")[1].split()
    assert {f"{name}.json" for name in names} <= set(cost_table.FILES)
    for name in names:
        assert (FOLDER / f"{name}.py").exists()
