# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Sweeps: each run is trained and written once, also after kills."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from glc_hf.experiments.jobs import Curve
from glc_hf.experiments.presets import PRESETS, get_preset
from glc_hf.experiments.presets.base import Preset
from glc_hf.experiments.replicas.stacked_curve import StackedCurve
from glc_hf.experiments.results import append_results, read_results
from glc_hf.experiments.sweeps import plan, run_sweep
from tests.experiments.small_preset import SmallImages, SmallTexts
from tests.forked_python import python


METHODS = ("no_correction", "glc", "trusted_only")
STRENGTHS = (0.0, 0.5, 1.0)
OWN_PRESET = "tests.experiments.small_preset:SmallImages"


@pytest.fixture(autouse=True)
def _small_presets(monkeypatch: pytest.MonkeyPatch) -> None:
    for preset in (SmallImages, SmallTexts):
        monkeypatch.setitem(PRESETS._classes, preset.name, preset)


def _curves(seeds: tuple[int, ...] = (0,), methods: tuple[str, ...] = METHODS) -> list[Curve]:
    return [
        Curve("small_images", noise, 0.2, seed, STRENGTHS, methods) for seed in seeds for noise in ("uniform", "flip")
    ]


def _sweep(curves: list[Curve], output: Path) -> None:
    for _ in run_sweep(plan(curves, output), output, workers=1):
        pass


def _lines(path: Path) -> list[str]:
    return sorted(path.read_text().splitlines())


def test_every_run_is_one_line(tmp_path: Path) -> None:
    output = tmp_path / "results.jsonl"
    _sweep(_curves(), output)
    rows = read_results(output)
    assert len(rows) == 2 * len(METHODS) * len(STRENGTHS)
    runs = {(row["method"], row["noise"], row["strength"]) for row in rows}
    assert len(runs) == len(rows)
    assert all(row["preset"] == "small_images" and row["seed"] == 0 and row["trusted"] == 0.2 for row in rows)
    assert all(0.0 <= row["error"] <= 100.0 for row in rows)
    wrong = {
        row["strength"]: row["error"] for row in rows if row["method"] == "no_correction" and row["noise"] == "flip"
    }
    assert wrong[1.0] > wrong[0.0] + 30
    assert all((row["matrix_distance"] is None) == (row["method"] != "glc") for row in rows)


def test_finished_runs_are_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "results.jsonl"
    _sweep(_curves(), output)
    before = output.read_bytes()
    assert plan(_curves(), output) == []
    more = plan(_curves(methods=(*METHODS, "forward")), output)
    assert [curve.methods for curve in more] == [("forward",), ("forward",)]
    _sweep(_curves(), output)
    assert output.read_bytes() == before


def test_reduced_runs_are_different_runs(tmp_path: Path) -> None:
    output = tmp_path / "results.jsonl"
    _sweep(_curves()[:1], output)
    shorter = [Curve("small_images", "uniform", 0.2, 0, STRENGTHS, METHODS, epochs=1)]
    assert plan(shorter, output) == shorter
    _sweep(shorter, output)
    assert {row["reduced"] for row in read_results(output)} == {None, "1 epochs"}


def test_missing_line_is_run_again_and_no_line_is_written_twice(tmp_path: Path) -> None:
    output, cut = tmp_path / "results.jsonl", tmp_path / "cut.jsonl"
    _sweep(_curves(), output)
    lines = output.read_text().splitlines(keepends=True)
    # Killed during a write: two lines of the last method are complete, the third is torn.
    cut.write_text("".join(lines[:-1]) + lines[-1][: len(lines[-1]) // 2])
    with pytest.warns(UserWarning, match="cut short"):
        _sweep(_curves(), cut)
    assert _lines(cut) == _lines(output)


def test_sweep_killed_ten_times_gives_the_same_file(tmp_path: Path) -> None:
    quiet, killed = tmp_path / "quiet.jsonl", tmp_path / "killed.jsonl"
    curves = _curves(seeds=(0, 1, 2, 3, 4, 5))
    began = time.perf_counter()
    _sweep(curves, quiet)
    took = time.perf_counter() - began
    rng = random.Random(7)
    interrupted = 0
    for _ in range(40):
        child = os.fork()
        if child == 0:
            try:
                _sweep(curves, killed)
                os._exit(0)
            except BaseException:
                os._exit(1)
        time.sleep(rng.uniform(0.02, 0.15) * took)
        if os.waitpid(child, os.WNOHANG) == (0, 0):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            interrupted += 1
        else:  # it finished before it was killed: compare, and start again
            assert _lines(killed) == _lines(quiet)
            killed.unlink()
        if interrupted == 10:
            break
    assert interrupted == 10
    _sweep(curves, killed)
    assert _lines(killed) == _lines(quiet)


def _command(output: Path, *options: str) -> list[str]:
    named = ["--preset", OWN_PRESET, "--output", str(output), "--methods", "glc", "no_correction"]
    return [python(), "-m", "glc_hf.cli.main", "sweep", *named, "--strengths", "0", "0.5", *options]


def _run(command: list[str]) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)


def test_worker_processes_give_the_same_lines_as_one_process(tmp_path: Path) -> None:
    several, one = tmp_path / "several.jsonl", tmp_path / "one.jsonl"
    done = _run(_command(several, "--workers", "2"))
    assert done.returncode == 0, done.stderr
    assert "0 of 8 runs" in done.stdout
    assert done.stdout.count("error") == 4  # one line per method, and no bar in a log
    for noise in ("uniform", "flip"):
        _sweep([Curve(OWN_PRESET, noise, 0.2, 0, (0.0, 0.5), ("glc", "no_correction"))], one)
    assert _lines(several) == _lines(one)


def test_one_curve_uses_all_workers_and_gives_the_same_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    class Spy(StackedCurve):
        def __init__(self, *args: Any, threads: int, **others: Any) -> None:
            made.append(threads)
            super().__init__(*args, threads=threads, **others)

    monkeypatch.setattr("glc_hf.experiments.replicas.stacked_curve.StackedCurve", Spy)
    outputs = {workers: tmp_path / f"{workers}.jsonl" for workers in (1, 2)}
    for workers, output in outputs.items():
        for _ in run_sweep(_curves()[:1], output, workers=workers):
            pass
    assert made == [1, 2]
    assert _lines(outputs[1]) == _lines(outputs[2])


def test_ray_gives_the_same_lines(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is an optional extra")
    on_ray, one = tmp_path / "ray.jsonl", tmp_path / "one.jsonl"
    done = _run(_command(on_ray, "--ray", "--noise", "flip"))
    assert done.returncode == 0, done.stderr
    _sweep([Curve(OWN_PRESET, "flip", 0.2, 0, (0.0, 0.5), ("glc", "no_correction"))], one)
    assert _lines(on_ray) == _lines(one)


def _main(*options: str) -> tuple[int, list[str]]:
    from glc_hf.cli.main import main

    return main(["sweep", *options])


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--preset", "mnits"], "unknown preset 'mnits'"),
        (["--preset", "nowhere:Mine"], "The form is module:Class"),
        (["--preset", "small_images", "--methods", "gold"], "unknown method 'gold'"),
        (["--preset", "small_images", "--noise", "hierarchical"], "has no noise 'hierarchical'"),
        (["--preset", "small_images", "--strengths", "0.5", "2"], "2.0 is not a strength"),
        (["--preset", "small_images", "--trusted", "5"], "5.0 is not a fraction"),
        (["--preset", "small_images", "--strengths", "0.5", "0.5"], "the same value twice"),
        (["--preset", "small_images", "--epochs", "0"], "--epochs must be greater than 0"),
        (["--preset", "small_images", "--trusted-updates", "0"], "--trusted-updates must be greater than 0"),
        (["--preset", "small_images", "--options", "depth=3"], "has no option 'depth'; it has none"),
        (["--preset", "clothing1m", "--options", "path=x"], "has the noise of its data and nothing to sweep over"),
        (["--preset", "clothing1m", "--options", "trusted_rows=x"], "trusted_rows has type int, got 'x'"),
        (["--preset", "clothing1m", "--options", "from_scratch=x"], "from_scratch has type bool, got 'x'"),
        (["--preset", "twitter", "--options", "vectors"], "like vectors=glove.txt, not 'vectors'"),
        (["--preset", "twitter", "--options", "vector=x"], "has no option 'vector'; it has vectors"),
        (["--preset", "mnist", "--data-root", "nowhere"], "there is no such folder"),
        (["--preset", "small_images", "--seed", "1"], "unrecognized arguments: --seed 1"),
        ([], "--preset"),
    ],
)
def test_bad_options_raise_before_anything_runs(
    options: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert _main("--output", str(tmp_path / "results.jsonl"), *options) == 2
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "results.jsonl").exists()


def test_results_file_of_another_version_is_not_changed(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    output = tmp_path / "results.jsonl"
    line = {"preset": "small_images", "method": "glc", "noise": "flip", "trusted": 0.2, "strength": 0.0, "seed": 0}
    append_results(output, [{**line, "error": 1.0}])
    output.write_text(output.read_text().replace('"version": 1', '"version": 99'))
    before = output.read_bytes()
    assert _main("--output", str(output), "--preset", "small_images") == 2
    assert "version 99" in capsys.readouterr().err
    assert output.read_bytes() == before


def test_matrices_are_written_on_request(tmp_path: Path) -> None:
    output = tmp_path / "results.jsonl"
    _sweep([Curve("small_texts", "flip", 0.2, 0, (0.5,), ("glc",), matrices=True)], output)
    (row,) = [json.loads(line) for line in output.read_text().splitlines()]
    assert [round(sum(one), 3) for one in row["matrix"]] == [1.0, 1.0, 1.0]
    assert row["true_matrix"][0][0] == 0.5
    assert row["label_names"] == ["class 0", "class 1", "class 2"]


def test_methods_that_can_not_be_stacked_run_one_by_one(tmp_path: Path) -> None:
    output = tmp_path / "results.jsonl"
    curve = Curve("small_images", "flip", 0.2, 0, (0.5,), ("no_correction", "reweight"), epochs=1)
    _sweep([curve], output)
    assert [row["method"] for row in read_results(output)] == ["no_correction", "reweight"]


def test_labels_of_a_weak_classifier_have_no_strength_and_their_own_fractions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from glc_hf.cli.commands.sweep import curves, sweep_parser

    monkeypatch.setattr(SmallImages, "noises", ("flip", "weak"))
    monkeypatch.setattr(SmallImages, "weak_trusted", (0.1, 0.3), raising=False)
    made, reduced = curves(sweep_parser().parse_args(["--preset", "small_images", "--output", "unused.jsonl"]))
    assert reduced is None
    assert [(curve.noise, curve.trusted, len(curve.strengths)) for curve in made] == [
        ("flip", 0.2, 11),
        ("weak", 0.1, 1),
        ("weak", 0.3, 1),
    ]


def test_runs_do_not_depend_on_which_others_are_trained_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without stacking, equal stages of several runs are trained once: on trusted rows, and plain last stages."""
    monkeypatch.setattr(SmallImages, "stacks", False)
    methods = ("no_correction", "glc", "forward", "trusted_only", "distillation")
    together, alone = tmp_path / "together.jsonl", tmp_path / "alone.jsonl"
    _sweep([Curve("small_images", "flip", 0.2, 0, (0.2, 0.7), methods, matrices=True)], together)
    for method in methods:
        _sweep([Curve("small_images", "flip", 0.2, 0, (0.7,), (method,), matrices=True)], alone)
    assert set(_lines(alone)) < set(_lines(together))
    assert len(_lines(together)) == 2 * len(methods)


def test_reductions_are_reported(tmp_path: Path) -> None:
    from glc_hf.cli.commands.sweep import curves, sweep_parser

    given = ["--preset", "cifar10", "--options", "architecture=wide_resnet10_1_cifar", "--trusted-updates", "40"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Preset, "rows_of", lambda self, data_root, limit: (None, None, "few rows"))
        (first, *_), reduced = curves(sweep_parser().parse_args([*given, "--output", "unused.jsonl"]))
    assert reduced == "few rows, network wide_resnet10_1_cifar"
    assert first.reduced == "trusted rows alone at least 40 updates"
    assert first.changes == {"trusted_min_updates": 40}
    curve = Curve("small_images", "flip", 0.2, 0, (0.5,), ("trusted_only",), epochs=1, trusted_updates=3)
    _sweep([curve], tmp_path / "results.jsonl")
    (row,) = read_results(tmp_path / "results.jsonl")
    assert row["reduced"] == "1 epochs, trusted rows alone at least 3 updates"
    assert plan([curve], tmp_path / "results.jsonl") == []


def test_runs_with_different_options_are_different_and_files_are_reported_by_name(tmp_path: Path) -> None:
    one, other = (
        Curve("twitter", "flip", 0.2, 0, (0.5,), ("glc",), options=(("vectors", f"{tmp_path}/{name}.txt"),))
        for name in ("one", "other")
    )
    assert one.reduced == "vectors one.txt"
    row = {"preset": "twitter", "method": "glc", "noise": "flip", "trusted": 0.2, "strength": 0.5, "seed": 0}
    append_results(tmp_path / "results.jsonl", [{**row, "error": 1.0, "reduced": one.reduced}])
    assert plan([one, other], tmp_path / "results.jsonl") == [other]


def test_options_are_converted_to_their_annotated_types() -> None:
    preset = get_preset("clothing1m", path="x", from_scratch="False", trusted_rows="3")
    assert (preset.path, preset.from_scratch, preset.trusted_rows) == ("x", False, 3)
    assert get_preset("clothing1m", from_scratch=True).from_scratch is True


def test_runs_without_matrices_do_not_count_as_runs_with_matrices(tmp_path: Path) -> None:
    curve = Curve("small_images", "flip", 0.2, 0, (0.5,), ("glc", "no_correction"))
    _sweep([curve], tmp_path / "results.jsonl")
    with pytest.raises(ValueError, match="without their matrices.*name a new file"):
        plan([replace(curve, matrices=True)], tmp_path / "results.jsonl")
    assert plan([replace(curve, methods=("no_correction",), matrices=True)], tmp_path / "results.jsonl") == []


def test_ctrl_c_says_how_to_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def press(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("glc_hf.experiments.sweeps.run_sweep", press)
    assert _main("--preset", "small_images", "--output", str(tmp_path / "results.jsonl")) == 130
    assert "run the same command again to continue" in capsys.readouterr().err


def test_weak_network_is_trained_with_the_settings_of_the_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    from glc_hf.experiments import jobs

    made = []
    real = jobs.make_trainer
    monkeypatch.setattr(jobs, "make_trainer", lambda *given: made.append(real(*given)) or made[-1])
    preset = SmallImages()
    jobs.noisy_rows(preset, preset.prepare(), "weak", 0.2, None, 0)
    (trainer,) = made
    assert trainer.optimizer_cls_and_kwargs == preset.optimizer()
    assert trainer.args.num_train_epochs == 10


def test_run_with_labels_of_a_weak_classifier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SmallImages, "stacks", False)
    output = tmp_path / "results.jsonl"
    _sweep([Curve("small_images", "weak", 0.2, 0, (None,), ("no_correction", "glc"))], output)
    rows = read_results(output)
    assert [(row["method"], row["strength"], row["matrix_distance"]) for row in rows] == [
        ("no_correction", None, None),
        ("glc", None, None),
    ]
