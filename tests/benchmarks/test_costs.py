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
def cost_table(timing):
    import cost_table

    yield cost_table
    sys.modules.pop("cost_table", None)


def test_contestants_take_turns_and_none_follows_itself_more_often_than_others(timing):
    order, now = [], [0.0]

    def taking(name, seconds):
        def run():
            order.append(name)
            now[0] += seconds

        return run

    seconds = timing.take_turns({"a": taking("a", 1.0), "b": taking("b", 3.0)}, 2, warm_up=1, clock=lambda: now[0])
    assert "".join(order) == "ba" + "ab" + "ba"
    assert seconds == {"a": [1.0, 1.0], "b": [3.0, 3.0]}
    assert timing.ratios(seconds, "b", "a") == [3.0, 3.0]

    order.clear()
    timing.take_turns({name: taking(name, 1.0) for name in "abc"}, 4, clock=lambda: now[0])
    assert "".join(order) == "abc" + "bca" + "cab" + "abc"


def test_the_spread_is_median_and_quartiles_or_the_extremes_of_few(timing):
    assert timing.spread([1, 2, 3, 4, 5]) == {"median": 3, "low": 2, "high": 4, "count": 5}
    assert timing.spread([3.0, 1.0], unit=1e3) == {"median": 2000, "low": 1000, "high": 3000, "count": 2}


def test_jobs_that_know_nothing_of_each_other_run_step_by_step(timing):
    seen = []

    def job(name):
        def run(pause):
            for step in range(3):
                seen.append(f"{name}{step}")
                pause()
            return name

        return timing.InSteps(run)

    first, second = job("a"), job("b")
    assert seen == []
    for _ in range(2):
        first()
        second()
    assert seen == ["a0", "b0", "a1", "b1"]
    assert first.to_the_end() == "a"
    assert seen[-1] == "a2"
    with pytest.raises(RuntimeError, match="no further step"):
        first()
    second.to_the_end()


def test_what_a_job_raises_reaches_the_caller(timing):
    def fails(pause):
        pause()
        raise ValueError("broken")

    job = timing.InSteps(fails)
    job()
    with pytest.raises(ValueError, match="broken"):
        job()
    assert job.finished


def test_a_result_file_becomes_a_row_of_the_table(timing, cost_table, tmp_path, capsys):
    line = timing.measured("a thing", "`another`", [1.0, 1.5, 2.0], at_most=3, seconds={"a": 1})
    timing.write_result(tmp_path / "training_step.json", "how", [line], ["torch"], threads=1)
    more = timing.measured("memory", "nothing", [0.5], at_most=3, unit=" matrices")
    timing.write_result(tmp_path / "robust_run.json", "how", [more], [])
    assert cost_table.summary(tmp_path).splitlines()[2:] == [
        "| a thing | `another` | **1.50**× | 1.00–2.00 | 3 | 3× |",
        "| memory | nothing | **0.50** matrices | 0.50–0.50 | 1 | 3 matrices |",
    ]
    content = json.loads((tmp_path / "training_step.json").read_text())
    assert {"command", "what", "versions", "cpu_count", "threads", "measured"} == content.keys()
    assert timing.in_words(line).startswith("a thing: 1.500× (1.000–2.000, 3 turns) against `another`")


def test_every_cost_benchmark_is_run_by_make_bench(cost_table):
    makefile = (FOLDER.parent / "Makefile").read_text()
    names = next(line for line in makefile.splitlines() if line.startswith("BENCHMARKS")).split("=")[1].split()
    assert {f"{name}.json" for name in names} <= set(cost_table.FILES)
    for name in names:
        assert (FOLDER / f"{name}.py").exists()
