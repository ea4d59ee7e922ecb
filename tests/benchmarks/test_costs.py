# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch


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


@pytest.fixture
def run_all(result_files):
    import run_all

    yield run_all
    sys.modules.pop("run_all", None)


def test_every_cost_benchmark_is_run_by_make_bench(cost_table, run_all):
    assert "benchmarks/run_all.py" in (FOLDER.parent / "Makefile").read_text()
    assert set(cost_table.FILES) <= {benchmark.result.name for benchmark in run_all.BENCHMARKS}
    for benchmark in run_all.BENCHMARKS:
        assert (FOLDER / f"{benchmark.name}.py").exists()
        assert all((run_all.RESULTS / name).exists() for name in benchmark.inputs)
    assert sum(map(run_all.expected_seconds, run_all.BENCHMARKS)) < 2 * 3600


@pytest.fixture
def three_benchmarks(run_all, tmp_path, monkeypatch):
    """Two benchmarks that write their arguments, and one that fails; the first one imports a helper."""
    for name in ("glc_hf", "results"):
        (tmp_path / name).mkdir()
    (tmp_path / "glc_hf" / "loss.py").write_text("x = 1")
    (tmp_path / "helper.py").write_text("import inner")
    (tmp_path / "inner.py").write_text("")
    write = "import sys, pathlib; pathlib.Path({!r}).write_text(' '.join(sys.argv[1:]))"
    for name, start in (("first", "import helper; "), ("second", ""), ("broken", "raise SystemExit(3); ")):
        (tmp_path / f"{name}.py").write_text(start + write.format(str(tmp_path / "results" / f"{name}.json")))
    for name, value in (
        ("HERE", tmp_path),
        ("PACKAGE", tmp_path / "glc_hf"),
        ("RESULTS", tmp_path / "results"),
        ("STAMPS", tmp_path / "results" / "bench.json"),
        (
            "BENCHMARKS",
            [
                run_all.Benchmark("first", 60, ("--data", "a")),
                *map(run_all.Benchmark, ("broken", "second"), (100, 9000)),
            ],
        ),
    ):
        monkeypatch.setattr(run_all, name, value)
    return tmp_path


def test_benchmarks_that_are_done_are_skipped_until_their_code_changes(run_all, three_benchmarks, monkeypatch, capfd):
    def left(*argv):
        monkeypatch.setattr(sys, "argv", ["run_all.py", "--list", *argv])
        assert run_all.main() == 0
        lines = capfd.readouterr().out.splitlines()
        return [line.split(":")[0] for line in lines if "to be measured (" in line]

    assert left() == ["first", "broken", "second"]
    assert run_all.run(run_all.BENCHMARKS, "data") == ["broken"]
    shown = capfd.readouterr().out
    assert "[1/3] first: about 60 s; 2 h 33 min left in all" in shown
    assert "[2/3] broken: FAILED" in shown
    assert "[3/3] second: about 2 h 30 min; 2 h 30 min left in all" in shown
    assert (three_benchmarks / "results" / "first.json").read_text() == str(Path("--data data", "a"))
    assert left() == ["broken"]
    assert left("--again", "second") == ["broken", "second"]
    assert left("--again") == ["first", "broken", "second"]
    # A module that it imports indirectly.
    (three_benchmarks / "inner.py").write_text("# changed")
    assert left() == ["first", "broken"]
    run_all.run(run_all.BENCHMARKS[:1])
    (three_benchmarks / "results" / "second.json").unlink()
    assert left() == ["broken", "second"]
    (three_benchmarks / "glc_hf" / "loss.py").write_text("x = 2")
    assert left() == ["first", "broken", "second"]


def test_growth_exponents_are_slopes_of_the_largest_sizes(scale):
    sizes = [10.0, 100.0, 1000.0, 10000.0]
    assert scale.exponent(sizes, [5.0, 6.0, 60.0, 600.0]) == 1.0
    assert scale.exponent(sizes, [1.0, 10.0, 1000.0, 100000.0]) == 2.0
    assert scale.exponent([10.0, 100.0], [3.0, 3.0]) == 0.0
    assert scale.exponent([10.0], [3.0]) is None
    assert scale.exponent(sizes, [1.0, 2.0, 0.0, 0.0]) is None


def test_cost_is_measured_in_a_process_of_its_own(scale):
    kept = []

    def make():
        def work():
            kept.append(bytearray(50 * 2**20))

        return work

    cost = scale.cost_of(make)
    assert cost["peak_mib"] == pytest.approx(50, abs=5)
    assert cost["seconds"] < 5
    assert kept == []

    def fail():
        raise ValueError("broken")

    with pytest.raises(SystemExit, match="failed"):
        scale.cost_of(fail)


@pytest.fixture
def scale(result_files):
    import scale

    yield scale
    for name in ("scale", "many_classes"):
        sys.modules.pop(name, None)


def test_every_work_of_the_scale_benchmark_runs(scale, tmp_path):
    for work in scale.WORK.values():
        rows = 10_000 if work.rows is None else 64
        work.make(rows, 3, str(tmp_path))()


def test_estimation_benchmark_estimates_as_training_does(timing, result_files, monkeypatch, tmp_path):
    monkeypatch.delitem(sys.modules, "estimation", raising=False)
    import estimation

    threads, pauses = torch.get_num_threads(), []
    try:
        trainer = estimation.make_trainer(str(tmp_path), trusted=12, classes=3, batch=4)
        matrix = estimation.estimate(trainer, lambda: pauses.append(None), every=2)
        assert 0 <= estimation.plain_pass(trainer, 12, lambda: None, every=2) <= 1
    finally:
        torch.set_num_threads(threads)
        sys.modules.pop("estimation", None)
    assert len(pauses) == 1  # three batches of four trusted rows
    assert matrix.trusted_rows.tolist() == [4, 4, 4]


def test_commands_in_results_have_no_path_of_a_machine(result_files, monkeypatch, tmp_path):
    script = str(FOLDER / "scale.py")
    monkeypatch.setattr(sys, "argv", [script, "--data", str(tmp_path), "--sizes", "10 20", "--output", "a/b.json"])
    assert result_files.shown_command() == (
        "python benchmarks/scale.py --data <folder> --sizes '10 20' --output a/b.json"
    )
