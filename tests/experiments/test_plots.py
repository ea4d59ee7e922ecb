# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Plots: which curves and matrices are drawn, and that equal results give equal bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glc_hf import CorruptionMatrix
from glc_hf.experiments.curves import Setting, read_runs
from glc_hf.experiments.plots import _STYLES, error_curves_figure, matrices_figure, plot_error_curves, plot_matrices
from glc_hf.experiments.results import append_results
from glc_hf.methods import available_methods
from tests.experiments.made_up import curve, result


PNG = b"\x89PNG"
TRUE = CorruptionMatrix.flip(3, 0.4).probs
NAMES = ["cat", "dog", "bird"]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two noises, two fractions, two seeds of GLC, a flat trusted_only."""
    path = tmp_path / "results.jsonl"
    for noise in ("uniform", "flip"):
        for trusted in (0.01, 0.05):
            for seed in (0, 1):
                append_results(path, curve(2, 10 + 20 * seed, noise=noise, trusted=trusted, seed=seed))
    append_results(path, [result(method="trusted_only", noise=None, strength=None, error=15.0)])
    return path


def with_matrices(path: Path, *methods: str, **fields: Any) -> None:
    for method in methods:
        extra = {"matrix": np.eye(3), "true_matrix": TRUE, "label_names": NAMES}
        append_results(path, [result(method=method, **{**extra, **fields})])


def test_error_curves_have_one_panel_per_noise_and_fraction(results: Path) -> None:
    (runs,) = read_runs(results)
    figure = error_curves_figure(runs, runs.settings)
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == [f"{noise} noise, {percent} % trusted" for noise in ("uniform", "flip") for percent in (1, 5)]
    assert all(axes.get_xlabel() == "strength of the noise" for axes in figure.axes)
    assert all(axes.get_ylabel() == "test error (%)" for axes in figure.axes)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["trusted only", "glc"]


def test_line_is_the_mean_of_seeds_and_the_band_their_range(results: Path) -> None:
    (runs,) = read_runs(results)
    axes = error_curves_figure(runs, [Setting("flip", 0.01)]).axes[0]
    flat, line = axes.lines
    assert list(flat.get_ydata()) == [15.0, 15.0]
    assert list(flat.get_xdata()) == [0.0, 1.0]
    assert line.get_xdata() == pytest.approx(np.arange(11) / 10)
    assert line.get_ydata() == pytest.approx(np.linspace(2, 20, 11))  # of 2 to 10 and 2 to 30
    (band,) = axes.collections
    corners = band.get_paths()[0].vertices
    assert {10.0, 30.0} <= {round(y, 6) for x, y in corners if x == 1.0}


def test_error_curves_are_written_as_png_and_svg_with_equal_bytes_each_time(results: Path, tmp_path: Path) -> None:
    first = plot_error_curves(results, tmp_path / "first")
    again = plot_error_curves(results, tmp_path / "again")
    assert [path.name for path in first] == ["error-curves-mnist.png", "error-curves-mnist.svg"]
    assert first[0].read_bytes().startswith(PNG)
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]
    assert "dc:date" not in first[1].read_text()


def test_reduced_runs_have_a_separate_plot_that_says_so(results: Path, tmp_path: Path) -> None:
    append_results(results, curve(0, 50, reduced="5 epochs"))
    append_results(results, curve(0, 50, reduced="6 epochs"))
    names = [path.name for path in plot_error_curves(results, tmp_path / "out") if path.suffix == ".png"]
    assert names == ["error-curves-mnist.png", "error-curves-mnist-reduced.png", "error-curves-mnist-reduced-2.png"]
    reduced = read_runs(results)[1]
    assert error_curves_figure(reduced, reduced.settings).get_suptitle() == "mnist\nreduced runs: 5 epochs"


def test_labels_of_a_weak_classifier_have_no_error_curve(tmp_path: Path) -> None:
    append_results(tmp_path / "results.jsonl", [result(noise="weak", strength=None)])
    assert plot_error_curves(tmp_path / "results.jsonl", tmp_path / "out") == []
    assert not (tmp_path / "out").exists()


def test_every_method_has_its_own_style() -> None:
    assert set(available_methods()) <= set(_STYLES)
    assert len(set(_STYLES.values())) == len(_STYLES)
    assert len({color for color, _, _ in _STYLES.values()}) == len(_STYLES)


def test_matrices_show_the_true_matrix_and_estimates_with_names_and_distances() -> None:
    true, estimate = CorruptionMatrix(TRUE, NAMES), CorruptionMatrix(np.eye(3), NAMES)
    figure = matrices_figure(true, {"glc": estimate, "confusion_matrix": estimate, "forward": true}, "title")
    panels = figure.axes[:4]
    assert panels[0].get_title() == "true"
    assert panels[1].get_title() == "GLC\ndistance to the true matrix: 0.400"
    assert panels[3].get_title() == "forward\ndistance to the true matrix: 0.000"
    assert np.array_equal(panels[0].images[0].get_array(), TRUE)
    assert np.array_equal(panels[1].images[0].get_array(), np.eye(3))
    assert [label.get_text() for label in panels[2].get_yticklabels()] == NAMES
    assert {image.get_clim() for panel in panels for image in panel.images} == {(0.0, 1.0)}


def test_matrices_are_written_for_the_selected_run(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    for strength in (0.4, 0.6):
        with_matrices(path, "glc", "confusion_matrix", "forward", strength=strength)
    written = plot_matrices(path, tmp_path / "first", {"strength": "0.60"})
    again = plot_matrices(path, tmp_path / "again", {"strength": "0.6", "noise": "flip", "preset": "mnist"})
    stem = "matrices-mnist-flip-trusted0.01-strength0.6-seed0"
    assert [file.name for file in written] == [f"{stem}.png", f"{stem}.svg"]
    assert [file.read_bytes() for file in written] == [file.read_bytes() for file in again]


def test_missing_estimate_is_left_out_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    with_matrices(path, "glc", true_matrix=None)
    with pytest.warns(UserWarning, match="for confusion_matrix, forward, the true matrix: left out"):
        plot_matrices(path, tmp_path, {})


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ({}, r"several matrices; strength is 0\.4, 0\.6\. Choose one with strength=…"),
        ({"strength": "0.5"}, r"no matrices with strength=0\.5 here; strength is 0\.4, 0\.6"),
        ({"strength": "high"}, "no matrices with strength=high"),
        ({"noise": "uniform"}, "no matrices with noise=uniform here; noise is flip"),
        ({"method": "glc"}, "selected by preset, noise, trusted, strength, seed, not by 'method'"),
    ],
)
def test_ambiguous_or_unknown_selection_lists_the_choices(
    tmp_path: Path, selection: dict[str, str], message: str
) -> None:
    path = tmp_path / "results.jsonl"
    for strength in (0.4, 0.6):
        with_matrices(path, "glc", strength=strength)
    with pytest.raises(ValueError, match=message):
        plot_matrices(path, tmp_path, selection)


def test_results_without_matrices_raise(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    append_results(path, [result(), result(method="forward", matrix=None)])
    with pytest.raises(ValueError, match="has no matrices of glc, confusion_matrix, forward"):
        plot_matrices(path, tmp_path, {})


def test_rounded_matrices_of_many_classes_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    rounded = np.random.default_rng(0).dirichlet(np.ones(30), 30).round(4)
    assert np.abs(rounded.sum(axis=1) - 1).max() > 1e-4
    with_matrices(path, "glc", "confusion_matrix", "forward", matrix=rounded, true_matrix=rounded, label_names=None)
    assert len(plot_matrices(path, tmp_path, {})) == 2


def test_bad_matrix_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    with_matrices(path, "forward")
    with_matrices(path, "glc", matrix=[[0.5, 0.4], [0.0, 1.0]], label_names=None)
    with pytest.raises(ValueError, match=r"results\.jsonl, line 2: row 0 of the corruption matrix"):
        plot_matrices(path, tmp_path, {})
