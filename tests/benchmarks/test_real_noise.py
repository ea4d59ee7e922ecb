# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
from __future__ import annotations

import json
import math
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch


FOLDER = Path(__file__).parents[2] / "benchmarks"
MODULES = ("real_noise", "real_noise_tables", "real_noise_tasks", "real_noise_linear", "trec", "result_files")


@pytest.fixture
def real_noise(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    import real_noise

    yield real_noise
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture
def tables(real_noise):
    import real_noise_tables

    return real_noise_tables


@pytest.fixture
def tasks(real_noise):
    import real_noise_tasks

    return real_noise_tasks


def make_run(task, method, accuracy, *, trusted=30, seed=0, mode="linear", **more):
    return {
        "mode": mode,
        "task": task,
        "trusted": trusted,
        "seed": seed,
        "method": method,
        "accuracy": accuracy,
        **more,
    }


def verdict(low, high, helps):
    return {
        "chosen": "auto",
        "ways": {"auto": {"accuracy": (low + high) / 2, "low": low, "high": high}},
        "helps": helps,
    }


# ---------------------------------------------------------------------- tables
def test_regret_is_the_distance_to_the_best_baseline_of_the_cell(tables):
    runs = [make_run("a", "glc", 0.5), make_run("a", "trusted_only", 0.75), make_run("a", "auto", 1.0)]
    runs += [make_run("b", "glc", 0.5), make_run("b", "trusted_only", 0.25), make_run("b", "auto", 0.25)]
    runs += [make_run("a", "linear_pool", 0.875), make_run("b", "linear_pool", 1.0)]
    runs += [make_run("a", "all_gold", 0.875), make_run("b", "all_gold", 0.875)]
    first, second = tables.cells_of(runs, "linear")
    assert [first.regret(name) for name in ("auto", "linear_pool", "glc", "trusted_only")] == [-0.25, -0.125, 0.25, 0]
    assert [second.regret(name) for name in ("auto", "linear_pool", "glc", "trusted_only")] == [0.25, -0.5, 0, 0.25]
    assert first.regret("cleanlab") is None
    lines = tables.mode_summary(runs, "linear").splitlines()
    assert lines[2:9] == [
        "| task | trusted rows | `auto` | `linear_pool` | `trusted_only` | `glc` | `all_gold` |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| a | 30 | 1.000 | 0.875 | **0.750** | 0.500 | 0.875 |",
        "| b | 30 | 0.250 | 1.000 | 0.250 | **0.500** | 0.875 |",
        "| mean |  | 0.625 | 0.938 | 0.500 | 0.500 | 0.875 |",
        "| mean regret |  | 0.000 | -0.312 | 0.125 | 0.125 | -0.250 |",
        "| largest regret |  | 0.250 | -0.125 | 0.250 | 0.250 | -0.125 |",
    ]
    assert "in 1 of 2 cells: b 30 (-25.0 ± " in lines[-1]


def test_methods_of_a_cell_are_compared_on_the_same_seeds(tables):
    runs = [make_run("a", "glc", 0.5, seed=seed) for seed in (0, 1)] + [make_run("a", "auto", 0.75, seed=0)]
    runs += [make_run("a", "auto", 0.25, seed=1), make_run("a", "auto", 1.0, seed=2)]
    runs += [make_run("b", "auto", 1.0, seed=0), make_run("b", "glc", 1.0, seed=1)]
    (cell,) = tables.cells_of(runs, "linear")
    assert cell.seeds == [0, 1]
    assert cell.accuracies == {"glc": 0.5, "auto": 0.5}
    assert tables.cells_of(runs, "finetune") == []


def test_methods_without_some_cells_have_a_mean_with_all_others_over_the_same_cells(tables):
    runs = [make_run("a", "glc", 0.5), make_run("a", "auto", 1.0), make_run("b", "auto", 0.0)]
    runs += [make_run("a", "glc", 0.5, trusted=100), make_run("a", "auto", 0.5, trusted=100)]
    lines = tables.mode_summary(runs, "linear").splitlines()
    assert "| mean |  | 0.500 |  |" in lines
    assert "| mean of the 2 cells with all methods |  | 0.750 | 0.500 |" in lines
    assert "| b | 30 | 0.000 |  |" in lines


def test_verdicts_are_compared_with_the_test_accuracy(tables):
    runs = [
        make_run("a", "auto", 0.8, seed=0, verdict=verdict(0.7, 0.8, True)),  # contained, right
        make_run("a", "auto", 0.9, seed=1, verdict=verdict(0.7, 0.8, True)),  # too high, wrong
        make_run("a", "auto", 0.6, seed=2, verdict=verdict(0.7, 0.8, False)),  # too low, right
        make_run("a", "auto", 0.7, seed=3, verdict=verdict(0.7, 0.8, None)),  # contained
        make_run("a", "auto", 0.75, seed=4, verdict=verdict(0.7, 0.8, True)),  # contained, plain training not finished
        make_run("a", "auto", 0.75, seed=5, mode="finetune", verdict=verdict(0.0, 0.1, True)),
    ]
    plain = {0: 0.5, 1: 0.9, 2: 0.7, 3: 0.1, 5: 0.1}
    runs += [make_run("a", "no_correction", accuracy, seed=seed) for seed, accuracy in plain.items()]
    check = tables.check_verdicts(runs, "linear")
    assert (check.runs, check.contained) == (5, 3)
    assert check.answers == {True: 2, False: 1, None: 1}
    assert check.right == {True: 1, False: 1}
    assert "in 3 of 5 (60%) runs of `auto`" in tables.mode_summary(runs, "linear")


def test_verdicts_on_held_out_rows_are_counted_apart(tables):
    """Their number of rows is that of the run: the sampling error of 4 rows is large."""
    runs = [make_run("a", "auto", 0.75, verdict=verdict(0.7, 0.8, True))]
    runs += [
        make_run("a", "auto", accuracy, seed=seed, mode="held_out", verdict=verdict(0.7, 0.8, True), test_rows=rows)
        for seed, (accuracy, rows) in enumerate([(0.75, 1000), (0.9, 4), (0.9, 1000)])
    ]
    text = tables.mode_summary(runs, "linear")
    assert "in 1 of 1 (100%) runs of `auto`" in text
    assert "in 1 of 3 (33%) of the same runs and, with the sampling error, in 2 of 3 (67%)" in text
    assert tables.summary(runs) == text
    assert "held out" not in tables.mode_summary(runs[:1], "linear")


def test_sampling_error_of_the_test_split_is_allowed_for(tables):
    """A test accuracy just outside the interval agrees with it, more so on a small test split."""
    runs = [make_run("youtube", "auto", 0.81, verdict=verdict(0.7, 0.8, True))]
    runs += [
        make_run("crowd", "auto", accuracy, seed=seed, verdict=verdict(0.7, 0.8, True))
        for seed, accuracy in ((0, 0.8005), (1, 0.81), (2, 0.69))
    ]
    assert tables.check_verdicts(runs[:1], "linear").agreeing == 1
    assert tables.check_verdicts(runs[1:], "linear").agreeing == 1


def test_cost_is_compared_with_plain_training_of_the_same_cell(tables):
    seconds = {("a", "no_correction"): 10, ("a", "auto"): 12, ("b", "no_correction"): 20, ("b", "auto"): 20}
    runs = [
        {**make_run(task, method, 0.5, mode="finetune"), "processor_seconds": value}
        for (task, method), value in {**seconds, ("c", "auto"): 99}.items()
    ]
    text = tables.mode_summary(runs, "finetune")
    assert "is 1.10 times that of plain training (median of 2 runs, 1.00 to 1.20)" in text


def test_verdicts_without_trec_are_counted_apart(tables):
    runs = [
        make_run("trec", "auto", 0.99, verdict=verdict(0.7, 0.8, True)),
        make_run("crowd", "auto", 0.75, verdict=verdict(0.7, 0.8, True)),
    ]
    text = tables.mode_summary(runs, "linear")
    assert "in 1 of 2 (50%) runs" in text
    assert "without TREC it is 1 of 1 (100%)" in text


def test_verdicts_about_another_model_are_counted_apart(tables):
    """With few trusted rows, the verdict has the accuracy of the linear models, not that of the network."""
    final = {**verdict(0.7, 0.8, True), "final": True}
    runs = [
        make_run("trec", "auto", 0.99, verdict=final),
        make_run("crowd", "auto", 0.90, verdict={**final, "final": False}),
        make_run("crowd", "auto", 0.75, trusted=100, verdict=final),
    ]
    text = tables.mode_summary(runs, "linear")
    assert "without TREC it is 1 of 2 (50%)" in text
    assert "without such runs it is 1 of 1 (100%)" in text
    assert "without such runs" not in tables.mode_summary([runs[0], runs[2]], "linear")


def test_cells_beyond_one_point_are_named_with_what_chance_explains(tables):
    runs = [make_run("trec", "auto", 0.80), make_run("trec", "glc", 0.85), make_run("trec", "no_correction", 0.5)]
    runs += [make_run("youtube", "auto", 0.80), make_run("youtube", "glc", 0.81)]
    runs += [make_run("semeval", "auto", 0.80, trusted=100), make_run("semeval", "glc", 0.82, trusted=100)]
    half = 100 * 1.6449 * math.sqrt((0.8 * 0.2 + 0.85 * 0.15) / 500)
    (line,) = [line for line in tables.summary(runs).splitlines() if "more than one point" in line]
    assert "in 2 of 3 cells: trec 30 (-5.0 ± " + f"{half:.1f}" + "), semeval 100 (-2.0 ± " in line
    assert "more than one point" not in tables.summary(runs[3:5])


def test_plot_has_a_panel_per_number_of_trusted_rows(tables, tmp_path):
    pytest.importorskip("matplotlib")
    runs = [make_run("a", name, 0.5, trusted=trusted) for name in ("auto", "glc") for trusted in (30, 100)]
    runs += [make_run("images", name, 0.5, trusted=trusted) for name in ("auto", "glc") for trusted in (50, 150)]
    runs += [make_run("one number", "auto", 0.5, trusted=100)]
    panels = tables._by_size(tables.cells_of(runs, "linear"))
    assert [sorted(cell.trusted for cell in cells) for cells in panels] == [[30, 50], [100, 100, 150]]
    tables.plot(runs, tmp_path / "new" / "plot.png")
    assert (tmp_path / "new" / "plot.png").stat().st_size > 10_000


# ---------------------------------------------------------------------- rows
def test_trusted_rows_have_gold_labels_and_rows_without_label_are_dropped(tasks):
    gold = np.arange(40) % 4
    noisy = np.where(np.arange(40) % 5 == 0, -1, (gold + 1) % 4)
    source = tasks.Source({"label": gold, "noisy": noisy}, None, None, gold, 4, "features")
    few = tasks.draw_cell(source, tasks.column("noisy"), 10, seed=0)
    more = tasks.draw_cell(source, tasks.column("noisy"), 20, seed=0)
    assert set(few.trusted) < set(more.trusted)
    assert (more.labels[more.trusted] == gold[more.trusted]).all()
    assert (more.labels[more.untrusted] == (gold[more.untrusted] + 1) % 4).all()
    assert set(more.rows) == set(more.trusted) | {row for row in range(40) if row % 5}
    assert set(more.trusted) != set(tasks.draw_cell(source, tasks.column("noisy"), 20, seed=1).trusted)
    assert (noisy[::5] == -1).all()  # the columns of the source have not changed
    limited = tasks.draw_cell(source, tasks.column("label"), 5, seed=1, most=15)
    assert set(limited.rows) == set(tasks.fixed_draw(40, 15))


def test_rows_held_out_of_the_training_split_take_the_place_of_the_test_rows(tasks):
    number = 40
    columns = {"label": np.arange(number) % 4, "row": np.arange(number)}
    source = tasks.Source(columns, [str(row) for row in range(number)], ["test"], np.array([3]), 4, "text")
    features = tasks.Features(torch.arange(number)[:, None].float(), torch.full((1, 1), -1.0), 0.5)
    new, of_new = tasks.hold_out_rows(source, features, seed=0)
    kept, left_out = new.columns["row"].tolist(), [int(text) for text in new.test_inputs]
    assert len(left_out) == 12
    assert sorted(kept + left_out) == list(range(number))
    assert new.inputs == [str(row) for row in kept]
    assert new.test_labels.tolist() == [row % 4 for row in left_out]
    assert new.columns["label"].tolist() == [row % 4 for row in kept]
    assert of_new.train[:, 0].tolist() == kept
    assert of_new.test[:, 0].tolist() == left_out
    assert tasks.hold_out_rows(source, features, seed=1)[0].test_inputs != new.test_inputs
    assert len(source.columns["label"]) == number


def test_single_vote_is_one_of_the_votes_of_the_row(tasks):
    votes = np.array([[-1, 3, -1], [0, 1, -1], [-1, -1, -1]] * 50)
    labels = tasks.single_vote({"votes": votes}, seed=0)
    assert (labels[0::3] == 3).all()
    assert set(labels[1::3]) == {0, 1}
    assert (labels[2::3] == -1).all()
    assert (labels != tasks.single_vote({"votes": votes}, seed=1)).any()


def test_simulated_noise_has_its_strength(tasks):
    columns = {"label": np.arange(6000) % 6}
    flipped = tasks.simulated("flip", 0.6)(columns, 0)
    assert np.mean(flipped != columns["label"]) == pytest.approx(0.6, abs=0.03)
    uniform = tasks.simulated("uniform", 0.4)(columns, 0)
    assert np.mean(uniform != columns["label"]) == pytest.approx(0.4 * 5 / 6, abs=0.03)


# ---------------------------------------------------------------------- linear models
@pytest.fixture
def small_data(tmp_path):
    """Rows like those of `labelme`: features, gold and noisy labels; half of the noisy labels of class 0 are 1."""
    from datasets import ClassLabel, Dataset

    rng = np.random.default_rng(0)
    centers = 2.0 * rng.normal(size=(3, 6))
    for split, number in {"train": 150, "test": 90}.items():
        gold = np.arange(number) % 3
        noisy = np.where((gold == 0) & (rng.random(number) < 0.5), 1, gold)
        features = (centers[gold] + rng.normal(size=(number, 6))).astype(np.float32)
        rows = Dataset.from_dict({"features": features, "label": gold, "noisy_label": noisy})
        rows = rows.cast_column("label", ClassLabel(names=["a", "b", "c"]))
        folder = tmp_path / "real" / "crowd-labelme"
        folder.mkdir(parents=True, exist_ok=True)
        rows.to_parquet(str(folder / f"{split}-00000-of-00001.parquet"))
    return str(tmp_path / "real")


def test_finished_runs_are_not_repeated(real_noise, small_data, tmp_path, monkeypatch, capsys):
    results = tmp_path / "results" / "real_noise.jsonl"
    monkeypatch.setattr(real_noise, "RESULTS", results)
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    options = {"data": small_data, "mode": "linear", "tasks": ["labelme"], "trusted": [15], "seeds": [0]}
    options.update(threads=1, cache=str(tmp_path), steps=1)
    real_noise.run_all(Namespace(**options, methods=["no_correction", "auto"]))
    first = results.read_text()
    methods = ["auto", "no_correction", "trusted_only", "finetune_on_trusted", "glc_paper", "glc", "all_gold"]
    real_noise.run_all(Namespace(**options, methods=methods))
    runs = [json.loads(line) for line in results.read_text().splitlines()]
    assert results.read_text().startswith(first)
    assert sorted(run["method"] for run in runs) == sorted(methods)
    accuracies = {run["method"]: run["accuracy"] for run in runs}
    assert min(accuracies.values()) > 0.5
    assert accuracies["auto"] > 0.9
    # Half of the given labels of a class are wrong, and gold labels are not.
    assert accuracies["all_gold"] > max(0.95, accuracies["no_correction"] + 0.1)
    (auto,) = (run for run in runs if run["method"] == "auto")
    assert auto["verdict"]["trusted_rows"] == 15
    assert 0 <= auto["verdict"]["ways"]["auto"]["low"] < auto["verdict"]["ways"]["auto"]["high"] <= 1

    def fail(*args):
        raise AssertionError("a finished run was repeated")

    real_noise.run_all(Namespace(**{**options, "mode": "held_out"}, methods=None))
    held_out = [json.loads(line) for line in results.read_text().splitlines()][len(runs) :]
    assert [(run["mode"], run["method"], run["test_rows"]) for run in held_out] == [
        ("held_out", "auto", 45),
        ("held_out", "no_correction", 45),
    ]
    assert held_out[0]["accuracy"] > 0.8

    monkeypatch.setattr(real_noise, "run_linear", fail)
    real_noise.run_all(Namespace(**options, methods=methods))
    with pytest.raises(AssertionError, match="repeated"):
        real_noise.run_all(Namespace(**{**options, "seeds": [0, 1]}, methods=methods))


def test_training_on_trusted_rows_only_is_not_repeated_for_other_noise_on_the_same_rows(real_noise, tasks):
    run = make_run("trec", "trusted_only", 0.9, mode="finetune", steps=200, bf16=True)
    key = {"mode": "finetune", "task": "trec_flip", "trusted": 30, "seed": 0, "steps": 200}

    def found(method="trusted_only", **other):
        return real_noise.run_on_same_rows([run], {**key, **other}, method, tasks.TASKS)

    assert found() == {"accuracy": 0.9, "bf16": True}
    assert found("no_correction") is None
    for other in ({"task": "semeval"}, {"trusted": 100}, {"seed": 1}, {"steps": 100}, {"mode": "linear"}):
        assert found(**other) is None


def test_jobs_go_through_all_tasks_before_the_next_number_of_trusted_rows(real_noise, tasks):
    options = Namespace(mode="linear", trusted=None, seeds=[0, 1], methods=["glc"])
    chosen = {name: tasks.TASKS[name] for name in ("trec", "cifar10n_worst")}
    keys = [(key["seed"], key["task"], key["trusted"]) for key, _ in real_noise.jobs(options, chosen, [])]
    assert keys[:4] == [(0, "trec", 30), (0, "cifar10n_worst", 50), (0, "trec", 100), (0, "cifar10n_worst", 150)]
    assert len(keys) == 12
    options.trusted = [100, 30]
    keys = [(key["seed"], key["trusted"]) for key, _ in real_noise.jobs(options, chosen, [])]
    assert keys == [(seed, trusted) for seed in (0, 1) for trusted in (100, 30) for _ in chosen]


def test_runs_with_another_number_of_steps_are_other_runs(real_noise, tables, tasks):
    options = Namespace(mode="finetune", trusted=[30], seeds=[0], methods=["glc"], steps=200)
    chosen = {"trec": tasks.TASKS["trec"]}
    short = [make_run("trec", "glc", 0.5, mode="finetune", steps=100)]
    ((key, missing),) = real_noise.jobs(options, chosen, short)
    assert (key["steps"], missing) == (200, ["glc"])
    runs = [*short, make_run("trec", "glc", 0.75, mode="finetune", steps=200)]
    assert list(real_noise.jobs(options, chosen, runs)) == []
    assert [cell.accuracies for cell in tables.cells_of(runs, "finetune")] == [{"glc": 0.5}, {"glc": 0.75}]
