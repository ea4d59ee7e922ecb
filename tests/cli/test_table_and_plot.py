# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The commands `glc-hf table` and `glc-hf plot`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from glc_hf.experiments.results import append_results
from tests.experiments.made_up import curve, result


@pytest.fixture
def results(tmp_path: Path) -> Path:
    path = tmp_path / "results.jsonl"
    append_results(path, curve(2, 6.6, trusted=0.001))
    append_results(path, curve(0, 20, preset="sst", trusted=0.01))
    return path


def test_table_is_printed_for_every_preset(glc_hf, results: Path) -> None:
    outcome = glc_hf("table", results)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("mnist: area under the error curve, percent\n")
    assert "4.3 (3.4)" in outcome.out
    assert "sst: area" in outcome.out


def test_table_has_options_for_preset_and_format(glc_hf, results: Path) -> None:
    outcome = glc_hf("table", results, "--preset", "sst", "--format", "markdown")
    assert outcome.out.startswith("### sst: area")
    assert "mnist" not in outcome.out
    assert glc_hf("table", results, "--format", "csv").out.startswith("preset,reduced,metric,noise,")


@pytest.mark.parametrize(("name", "start"), [("t.md", "### mnist"), ("t.csv", "preset,"), ("t.txt", "mnist: area")])
def test_table_format_follows_the_suffix(glc_hf, results: Path, name: str, start: str) -> None:
    output = results.parent / "new" / name
    outcome = glc_hf("table", results, "--output", output)
    assert (outcome.code, outcome.out) == (0, "")
    assert str(output) in outcome.err
    assert output.read_text(encoding="utf-8").startswith(start)


def test_table_has_an_option_for_strengths(glc_hf, results: Path) -> None:
    outcome = glc_hf("table", results, "--preset", "sst", "--strengths", "0", "0.5", "1")
    assert "Areas over strengths 0, 0.5, 1, not the paper's eleven." in outcome.out


def test_torn_last_line_gives_a_one_line_warning(glc_hf, results: Path, recwarn) -> None:
    with results.open("ab") as file:
        file.write(b'{"pre')
    outcome = glc_hf("table", results)
    assert outcome.code == 0
    assert "4.3 (3.4)" in outcome.out
    assert ["line 23: the last line is cut short" in str(warning.message) for warning in recwarn] == [True]


@pytest.mark.parametrize("command", [["table"], ["plot", "--output", "pictures"]], ids=lambda words: words[0])
def test_bad_results_give_a_one_line_error_with_the_fix(glc_hf, results: Path, command: list[str]) -> None:
    name, *options = command
    options = [str(results.parent / word) if word == "pictures" else word for word in options]

    def complaint(path: Path, *more: str) -> str:
        outcome = glc_hf(name, path, *options, *more)
        assert outcome.code == 2
        return outcome.complaint

    assert "there is no results file" in complaint(results.parent / "none.jsonl")
    assert "no results of preset 'mnits'; it has mnist, sst." in complaint(results, "--preset", "mnits")
    (results.parent / "empty.jsonl").touch()
    assert "has no results yet: run `glc-hf sweep` first" in complaint(results.parent / "empty.jsonl")
    append_results(results, [result(method="glcc")])
    assert "line 23: unknown method 'glcc'; did you mean glc?" in complaint(results)
    results.write_text("broken\n" + results.read_text())
    assert "line 1: not JSON" in complaint(results)
    assert not (results.parent / "pictures").exists()


def test_plot_writes_curves_and_matrices_and_prints_their_paths(glc_hf, results: Path) -> None:
    for method in ("glc", "confusion_matrix", "forward"):
        row = result(method=method, noise="uniform", matrix=np.eye(2), true_matrix=np.eye(2))
        append_results(results, [row, {**row, "seed": 1}])
    output = results.parent / "pictures"
    outcome = glc_hf("plot", results, "--output", output, "--preset", "mnist", "--matrices", "seed=1")
    assert (outcome.code, outcome.err) == (0, "")
    matrices = "matrices-mnist-uniform-trusted0.01-strength0.5-seed1"
    names = ["error-curves-mnist.png", "error-curves-mnist.svg", f"{matrices}.png", f"{matrices}.svg"]
    assert outcome.out.splitlines() == [str(output / name) for name in names]
    assert sorted(path.name for path in output.iterdir()) == sorted(names)


def test_bad_matrices_option_is_named(glc_hf, results: Path) -> None:
    outcome = glc_hf("plot", results, "--output", results.parent / "pictures", "--matrices", "seed")
    assert outcome.code == 2
    assert "--matrices takes values like noise=flip strength=0.6, not 'seed'" in outcome.complaint


def test_plot_of_weak_labels_alone_explains_why_there_is_no_plot(glc_hf, tmp_path: Path) -> None:
    append_results(tmp_path / "results.jsonl", [result(noise="weak", strength=None)])
    outcome = glc_hf("plot", tmp_path / "results.jsonl", "--output", tmp_path / "pictures")
    assert outcome.code == 0
    assert "no error curves: labels of a weak classifier have no strengths" in outcome.out
