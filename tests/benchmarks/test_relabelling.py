# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest


FOLDER = Path(__file__).parents[2] / "benchmarks"
MODULES = ("relabelling", "real_noise", "real_noise_tables", "real_noise_tasks", "trec", "result_files")


@pytest.fixture
def relabelling(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    import relabelling

    yield relabelling
    for name in MODULES:
        sys.modules.pop(name, None)


def test_rows_needed_are_read_from_the_line_between_two_points(relabelling):
    curve = [0.5, 0.6, 0.55, 0.7]
    assert relabelling.rows_needed(curve, 0.5) == 0
    assert relabelling.rows_needed(curve, 0.55) == pytest.approx(25)
    assert relabelling.rows_needed(curve, 0.625) == pytest.approx(150)
    assert relabelling.rows_needed(curve, 0.71) is None


def test_saved_rows_are_negative_for_a_curve_below_random(relabelling):
    random = [0.5, 0.6, 0.7, 0.8]
    assert relabelling.rows_saved([0.5, 0.7, 0.8, 0.8], random) == pytest.approx(0.5)
    assert relabelling.rows_saved([0.5, 0.6, 0.7, 0.8], random) == 0
    assert relabelling.rows_saved([0.5, 0.55, 0.6, 0.75], random) == pytest.approx(1 - 200 / 150)
    assert relabelling.rows_saved([0.5, 0.5, 0.5, 0.5], random) == -1
    assert relabelling.rows_saved([0.5, 0.7, 0.7, 0.8], random, place=1) == pytest.approx(0.5)
    assert relabelling.rows_saved([0.5, 0.55, 0.65, 0.8], random, place=1) == pytest.approx(1 - 75 / 50)
    assert relabelling.rows_saved([0.5, 0.5, 0.5, 0.8], random, place=1) == -1


def test_tasks_without_gain_are_shown_but_not_in_the_mean(relabelling, tmp_path, monkeypatch):
    curves = {
        "trec": {"random": [[0.5, 0.6, 0.7, 0.8], [0.5, 0.6, 0.7, 0.9]], "suggest": [[0.5, 0.7, 0.85, 0.9]]},
        "crowd": {"random": [[0.7, 0.7, 0.7, 0.7]], "suggest": [[0.7, 0.7, 0.7, 0.6]]},
    }
    monkeypatch.setattr(relabelling, "RESULTS", tmp_path / "runs.jsonl")
    lines = [
        json.dumps({"task": task, "seed": 3, "name": name, "draw": draw, "accuracy": accuracy})
        for task, names in curves.items()
        for name, draws in names.items()
        for draw, accuracy in enumerate(draws)
    ]
    (tmp_path / "runs.jsonl").write_text("\n".join(lines))
    table = relabelling.summary().splitlines()
    assert table[2:] == [
        "| trec | random | 0.500 | 0.600 | 0.700 | 0.850 |  |",
        "| trec | suggest | 0.500 | **0.700** | **0.850** | **0.900** | 50%, 50%, 50% |",
        "| crowd | random | 0.700 | **0.700** | **0.700** | **0.700** |  |",
        "| crowd | suggest | 0.700 | **0.700** | **0.700** | 0.600 |  |",
        "| **mean of 1 tasks** | suggest | | | | | **50%, 50%, 50%**; mean 50% |",
        "| 90% interval | suggest | | | | | 50% to 50%, 50% to 50%, 50% to 50% |",
    ]
