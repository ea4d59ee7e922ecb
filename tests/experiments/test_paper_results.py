# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The figures of the paper, checked against the means that its tables print."""

from __future__ import annotations

from collections import Counter
from statistics import fmean

import pytest

from glc_hf.experiments.curves import PAPER_METHODS, paper_presets, paper_results, paper_value
from glc_hf.methods import available_methods


PRINTED_MEANS = {
    ("MNIST", "area"): (19.0, 30.6, 31.8, 25.0, 27.4, 11.5, 5.0),
    ("CIFAR-10", "area"): (29.4, 42.6, 23.0, 37.3, 19.9, 14.2, 6.9),
    ("CIFAR-100", "area"): (67.3, 53.7, 51.9, 54.0, 62.9, 37.5, 30.2),
    ("SST", "area"): (35.6, 38.3, 37.9, 37.4, 37.4, 24.4, 23.3),
    ("IMDB", "area"): (28.5, 35.0, 35.9, 34.5, 29.1, 22.5, 22.0),
    ("Twitter", "area"): (25.3, 41.5, 52.5, 41.9, 25.7, 24.6, 18.4),
    ("SVHN", "area"): (61.5, 38.2, 33.9, 36.1, 63.1, 16.1, 16.4),
    ("CIFAR-10", "error"): (44.6, 27.1, 26.6, 26.4, 35.44, 27.7, 22.7),
    ("CIFAR-100", "error"): (67.3, 64.7, 66.3, 63.7, 63.5, 62.9, 55.4),
}


@pytest.mark.parametrize(("dataset", "metric"), PRINTED_MEANS)
def test_figures_have_the_printed_means(dataset: str, metric: str) -> None:
    for method, mean in zip(PAPER_METHODS, PRINTED_MEANS[dataset, metric], strict=True):
        values = [r.value for r in paper_results() if (r.dataset, r.metric, r.method) == (dataset, metric, method)]
        # Figures and means are both rounded to one decimal.
        assert fmean(values) == pytest.approx(mean, abs=0.1), method


def test_every_table_is_complete() -> None:
    assert Counter(result.table for result in paper_results()) == {
        "vision": 21 * 7,
        "nlp": 18 * 7,
        "weak_classifier": 6 * 7,
        "supplement_vision": 6 * 7,
        "supplement_ren": 18,
    }
    keys = Counter((r.dataset, r.noise, r.percent_printed, r.method) for r in paper_results())
    assert set(keys.values()) == {1}


def test_names_are_names_of_this_library() -> None:
    assert {result.method for result in paper_results()} == {*PAPER_METHODS, "reweight"} <= set(available_methods())
    assert {result.noise for result in paper_results()} == {"uniform", "flip", "hierarchical", "weak"}
    assert paper_presets() == ["mnist", "cifar10", "cifar100", "sst", "imdb", "twitter", "svhn"]


def test_figures_are_found_by_the_fraction_that_was_run() -> None:
    assert paper_value("mnist", "flip", 0.001, "glc") == 3.4  # printed as 5 percent
    assert paper_value("mnist", "flip", 0.05, "glc") == 2.6  # printed as 25 percent
    assert paper_value("sst", "uniform", 0.001, "trusted_only") == 45.4
    assert paper_value("mnist", "flip", 0.25, "glc") is None
    assert paper_value("twitter", "flip", 0.01, "glc") == paper_value("twitter", "flip", 0.1 * 0.1, "glc") is not None


def test_figures_are_found_by_the_printed_percent_if_that_was_run() -> None:
    values = {(r.dataset, r.noise, r.percent_printed): r.value for r in paper_results() if r.method == "glc"}
    for preset, dataset, percent in (("cifar10", "CIFAR-10", 5), ("imdb", "IMDB", 25), ("svhn", "SVHN", 0.1)):
        assert paper_value(preset, "flip", percent / 100, "glc") == values[dataset, "flip", percent]
    assert paper_value("cifar10", "weak", 0.01, "glc") == 26.9


def test_trusted_only_has_one_figure_for_every_noise() -> None:
    assert paper_value("mnist", None, 0.001, "trusted_only") == 37.6
    assert paper_value("mnist", None, 0.001, "glc") is None
