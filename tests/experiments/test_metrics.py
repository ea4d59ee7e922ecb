# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The metrics, as functions, as classes and as modules that `evaluate.load` loads without the Hub."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import evaluate
import numpy as np
import pytest
from scipy.integrate import trapezoid

from glc_hf import CorruptionMatrix
from glc_hf.experiments.curves import STRENGTHS, area_under_error_curve
from glc_hf.experiments.metrics import (
    ErrorCurveArea,
    ErrorRate,
    MatrixDistance,
    error_curve_area,
    error_rate,
    matrix_distance,
)


WITHOUT_EVALUATE = """
import sys
sys.modules["evaluate"] = None
import glc_hf.experiments.metrics
"""


def test_area_of_a_straight_line_is_the_mean_of_its_ends() -> None:
    assert area_under_error_curve([100 * strength for strength in STRENGTHS]) == pytest.approx(50.0)
    assert area_under_error_curve([7.0] * 11) == pytest.approx(7.0)


def test_area_over_uneven_strengths_in_any_order() -> None:
    # 0.2 · (10 + 20)/2 + 0.8 · (20 + 60)/2 = 3 + 32
    assert area_under_error_curve([60, 10, 20], [1.0, 0.0, 0.2]) == pytest.approx(35.0)
    # A range that is not 0 to 1: 0.5 · 30
    assert area_under_error_curve([20, 40], [0.25, 0.75]) == pytest.approx(15.0)


def test_area_equals_scipys_trapezoid() -> None:
    errors = np.random.default_rng(0).uniform(0, 100, 11)
    assert area_under_error_curve(errors) == pytest.approx(trapezoid(errors, STRENGTHS), abs=1e-12)


@pytest.mark.parametrize(
    ("errors", "strengths", "message"),
    [
        ([1.0] * 10, STRENGTHS, "10 errors for 11 strengths"),
        ([1.0], [0.5], "two strengths or more"),
        ([1.0, 2.0, 3.0], [0.0, 0.5, 0.5], "strength 0.5 appears twice"),
        ([1.0, float("nan")], [0.0, 1.0], "error 1 is nan"),
        ([1.0, 101.0], [0.0, 1.0], "error 1 is 101"),
        ([1.0, 2.0], [0.0, 1.5], "strength 1 is 1.5"),
    ],
)
def test_area_of_a_bad_curve_raises(errors: list[float], strengths: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        area_under_error_curve(errors, strengths)


def test_error_curve_area_uses_the_papers_strengths_by_default(tmp_path: Path) -> None:
    metric = ErrorCurveArea(cache_dir=str(tmp_path))
    assert isinstance(metric, evaluate.Metric)
    assert metric.compute(errors=list(range(11))) == {"error_curve_area": pytest.approx(5.0)}
    assert metric.compute(errors=[10, 20], strengths=[0, 1]) == {"error_curve_area": pytest.approx(15.0)}
    for error in range(11):
        metric.add(errors=error)
    assert metric.compute() == {"error_curve_area": pytest.approx(5.0)}
    with pytest.raises(ValueError, match="2 errors for 11 strengths"):
        metric.compute(errors=[1, 2])


def test_error_rate_skips_ignored_references(tmp_path: Path) -> None:
    metric = ErrorRate(cache_dir=str(tmp_path))
    result = metric.compute(predictions=np.array([0, 1, 2, 1, 9]), references=[0, 1, 1, 1, -100])
    assert result == {"accuracy": pytest.approx(0.75), "error": pytest.approx(25.0)}
    with pytest.raises(ValueError, match="all 2 are ignored"):
        metric.compute(predictions=[0, 1], references=[-100, -100])


def test_error_rate_rejects_probabilities(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"prediction 1 is 0\.7; give classes"):
        ErrorRate(cache_dir=str(tmp_path)).compute(predictions=[0, 0.7], references=[0, 0])


def test_matrix_distance_is_the_mean_total_variation(tmp_path: Path) -> None:
    metric = MatrixDistance(cache_dir=str(tmp_path))
    # Row 0: ½(0.3 + 0.3) = 0.3; row 1: ½(0.1 + 0.1) = 0.1.
    result = metric.compute(predictions=[[0.7, 0.3], [0.1, 0.9]], references=[[1.0, 0.0], [0.0, 1.0]])
    assert result == {"matrix_distance": pytest.approx(0.2)}
    estimate, true = CorruptionMatrix.uniform(4, 0.3), CorruptionMatrix.flip(4, 0.6)
    result = metric.compute(predictions=estimate.probs, references=true.probs)
    assert result == {"matrix_distance": pytest.approx(estimate.distance(true), abs=1e-12)}


def test_matrix_distance_rejects_rows_that_do_not_sum_to_one(tmp_path: Path) -> None:
    metric = MatrixDistance(cache_dir=str(tmp_path))
    with pytest.raises(ValueError, match="row 0 of the corruption matrix sums to 2"):
        metric.compute(predictions=[[1.0, 1.0], [0.0, 1.0]], references=[[1.0, 0.0], [0.0, 1.0]])


def test_evaluate_loads_every_metric_by_path_without_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: Any) -> None:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    monkeypatch.setattr(evaluate.config, "HF_MODULES_CACHE", tmp_path / "modules")
    monkeypatch.setattr(evaluate.config, "HF_METRICS_CACHE", tmp_path / "metrics")
    monkeypatch.setattr(sys, "path", sys.path[:])
    loaded = [evaluate.load(module.__file__) for module in (error_rate, error_curve_area, matrix_distance)]
    for metric, kind in zip(loaded, (ErrorRate, ErrorCurveArea, MatrixDistance), strict=True):
        assert isinstance(metric, evaluate.Metric)
        assert type(metric).__name__ == kind.__name__
        assert type(metric).__module__.startswith("evaluate_modules.metrics.")
    rate, area, distance = loaded
    assert rate.compute(predictions=[0, 1, 1, 2], references=[0, 1, 2, 2])["error"] == pytest.approx(25.0)
    assert area.compute(errors=range(0, 101, 10))["error_curve_area"] == pytest.approx(50.0)
    found = distance.compute(predictions=[[0.5, 0.5], [0, 1]], references=[[1, 0], [0, 1]])
    assert found["matrix_distance"] == pytest.approx(0.25)
    assert {path.name for path in (tmp_path / "metrics").iterdir()} == {
        "error_rate",
        "error_curve_area",
        "matrix_distance",
    }


def test_missing_evaluate_names_what_to_install() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_EVALUATE], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'glc_hf[experiments]'" in done.stderr.splitlines()[-1]
