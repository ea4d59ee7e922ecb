# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Tables of made-up results with known values."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from glc_hf.experiments.curves import PAPER_METHODS, Setting
from glc_hf.experiments.results import append_results
from glc_hf.experiments.tables import Entry, Table, make_tables, to_csv, to_markdown, to_terminal
from tests.experiments.made_up import curve, result


def tables_of(tmp_path: Path, rows: list[dict[str, Any]], **options: Any) -> list[Table]:
    path = tmp_path / "results.jsonl"
    append_results(path, rows)
    return make_tables(path, **options)


def entry(table: Table, noise: str | None, trusted: float, method: str) -> Entry:
    return dict(table.rows)[Setting(noise, trusted)][table.methods.index(method)]


def mean(table: Table, method: str) -> Entry:
    return table.mean[table.methods.index(method)]


def texts_of(markdown: str, *start: str) -> dict[str, str]:
    """The row of the only table that starts with these texts, by column name."""
    lines = [line.strip("| ").split(" | ") for line in markdown.splitlines() if line.startswith("| ")]
    return next(dict(zip(lines[0], line, strict=True)) for line in lines[1:] if line[: len(start)] == list(start))


def test_value_is_the_area_beside_the_papers_figure(tmp_path: Path) -> None:
    (table,) = tables_of(tmp_path, curve(2, 6.6, noise="flip", trusted=0.001))
    assert table.methods == list(PAPER_METHODS)
    found = entry(table, "flip", 0.001, "glc")
    assert found.value == pytest.approx(4.3)
    assert found.paper == 3.4
    row = texts_of(to_markdown([table]), "flip", "0.1")
    assert row["glc"] == "4.3 (3.4)"
    assert row["no correction"] == "(50.1)"  # not run: the paper's alone
    assert any("0.1 (printed as 5)" in note for note in table.notes)


def test_seeds_are_averaged_with_their_standard_deviation(tmp_path: Path) -> None:
    rows = [*curve(0, 20, seed=0), *curve(0, 24, seed=1), *curve(0, 28, seed=7)]
    (table,) = tables_of(tmp_path, rows)
    found = entry(table, "flip", 0.01, "glc")
    assert found.value == pytest.approx(12.0)
    assert found.spread == pytest.approx(2.0)  # of 10, 12 and 14
    assert texts_of(to_markdown([table]), "flip")["glc"] == "12.0 ± 2.0 (2.9)"
    assert any("standard deviation over seeds (up to 3)" in note for note in table.notes)


def test_mean_over_rows_has_the_spread_of_the_means_of_each_seed(tmp_path: Path) -> None:
    rows = [*curve(0, 20, seed=0, trusted=0.01), *curve(0, 24, seed=1, trusted=0.01)]
    rows += [*curve(0, 40, seed=0, trusted=0.05), *curve(0, 48, seed=1, trusted=0.05)]
    (table,) = tables_of(tmp_path, rows)
    assert mean(table, "glc").seeds == pytest.approx({0: 15.0, 1: 18.0})
    assert mean(table, "glc").value == pytest.approx(16.5)
    assert mean(table, "glc").spread == pytest.approx(4.5**0.5)
    (uneven,) = tables_of(tmp_path / "uneven", rows[:-11])  # a row of two seeds, and one of one
    assert mean(uneven, "glc").value == pytest.approx(15.5)
    assert mean(uneven, "glc").spread is None


def test_incomplete_curve_is_a_dash_with_a_footnote(tmp_path: Path) -> None:
    rows = [*curve(0, 20, method="glc")[:7], *curve(0, 20, method="forward")]
    (table,) = tables_of(tmp_path, rows)
    assert entry(table, "flip", 0.01, "glc").value is None
    text = to_markdown([table])
    assert texts_of(text, "flip")["glc"] == "– [1] (2.9)"
    assert "- [1] seed 0: 7 of 11 runs\n" in text
    assert texts_of(text, "mean")["glc"] == "–"
    assert "No mean: no row is complete." in text
    assert "--strengths" not in text  # forward has all eleven
    (few,) = tables_of(tmp_path / "few", curve(0, 20, method="glc")[:3])
    assert "For areas over the available strengths: --strengths 0 0.1 0.2." in to_markdown([few])


def test_incomplete_seed_is_left_out_with_a_footnote(tmp_path: Path) -> None:
    (table,) = tables_of(tmp_path, [*curve(0, 20, seed=0), *curve(50, 90, seed=1)[:10]])
    assert entry(table, "flip", 0.01, "glc").value == pytest.approx(10.0)
    text = to_markdown([table])
    assert texts_of(text, "flip")["glc"] == "10.0 [1] (2.9)"
    assert "[1] seed 1: 10 of 11 runs, left out of the mean" in text


def test_method_without_runs_in_a_row_is_a_dash(tmp_path: Path) -> None:
    (table,) = tables_of(tmp_path, [*curve(0, 20), *curve(0, 20, trusted=0.05), *curve(0, 40, method="forward")])
    text = to_markdown([table])
    assert texts_of(text, "flip", "5")["forward"] == "– [1] (50.2)"
    assert "[1] 0 of 11 runs" in text


def test_mean_and_paper_mean_cover_the_same_rows(tmp_path: Path) -> None:
    rows = [
        *curve(0, 20, method="glc", trusted=0.001),  # 10, the paper 3.4
        *curve(0, 40, method="forward", trusted=0.001),  # 20, the paper 51.7
        *curve(0, 40, method="glc", trusted=0.01),  # 20, the paper 2.9
        *curve(0, 80, method="forward", trusted=0.01),  # 40, the paper 48.8
        *curve(0, 100, method="glc", trusted=0.02),  # not in the paper
        *curve(0, 100, method="forward", trusted=0.02),
        *curve(0, 100, method="glc", trusted=0.05),
        *curve(0, 100, method="forward", trusted=0.05)[1:],  # not complete
        *curve(0, 2, method="true_matrix", trusted=0.01),  # not of the paper's tables: does not decide
    ]
    (table,) = tables_of(tmp_path, rows)
    assert table.mean_rows == [Setting("flip", 0.001), Setting("flip", 0.01)]
    assert (mean(table, "glc").value, mean(table, "forward").value) == (pytest.approx(15.0), pytest.approx(30.0))
    assert mean(table, "glc").paper == pytest.approx((3.4 + 2.9) / 2)
    assert mean(table, "forward").paper == pytest.approx((51.7 + 48.8) / 2)
    assert mean(table, "true_matrix").value is None
    text = to_markdown([table])
    assert texts_of(text, "mean")["glc"] == "**15.0 (3.1)**"  # the lowest; 3.15 as a float is below
    assert "of these over the paper's if there are any: flip 0.1, flip 1." in text


@pytest.mark.parametrize("noise", [None, "flip"])
def test_trusted_only_is_given_once_or_per_strength(tmp_path: Path, noise: str | None) -> None:
    once = [result(method="trusted_only", noise=noise, strength=None, error=12.0, seed=seed) for seed in (0, 1)]
    (table,) = tables_of(tmp_path, [*curve(0, 20), *once])
    assert entry(table, "flip", 0.01, "trusted_only").value == pytest.approx(12.0)
    assert entry(table, "flip", 0.01, "trusted_only").spread == 0.0
    (tmp_path / "each").mkdir()
    each = curve(12, 12, method="trusted_only", noise=noise)
    (table,) = tables_of(tmp_path / "each", [*curve(0, 20), *each])
    assert entry(table, "flip", 0.01, "trusted_only").value == pytest.approx(12.0)


def test_trusted_only_without_noise_counts_for_every_noise_of_its_fraction(tmp_path: Path) -> None:
    rows = [*curve(0, 20, noise="flip"), *curve(0, 30, noise="uniform")]
    rows.append(result(method="trusted_only", noise=None, strength=None, error=13.0))
    rows.append(result(method="trusted_only", noise=None, strength=None, error=40.0, trusted=0.001))
    (table,) = tables_of(tmp_path, rows)
    settings = [setting for setting, _ in table.rows]
    assert settings == [Setting("uniform", 0.01), Setting("flip", 0.01), Setting(None, 0.001)]
    assert entry(table, "uniform", 0.01, "trusted_only").value == 13.0
    assert entry(table, "flip", 0.01, "trusted_only").value == 13.0
    assert texts_of(to_markdown([table]), "any", "0.1")["trusted only"] == "40.0 (37.6)"


def test_labels_of_a_weak_classifier_get_a_table_of_errors(tmp_path: Path) -> None:
    weak = [
        result(preset="cifar10", noise="weak", strength=None, trusted=trusted, error=error)
        for trusted, error in ((0.01, 30.0), (0.05, 20.0), (0.1, 13.0))
    ]
    trusted_only = result(preset="cifar10", method="trusted_only", noise=None, strength=None, trusted=0.05, error=41.0)
    area, error = tables_of(tmp_path, [*curve(0, 20, preset="cifar10", trusted=0.05), *weak, trusted_only])
    assert (area.metric, error.metric) == ("area", "error")
    assert entry(error, "weak", 0.01, "glc").value == 30.0
    assert entry(error, "weak", 0.01, "glc").paper == 26.9
    assert entry(error, "weak", 0.05, "trusted_only").value == 41.0
    assert mean(area, "glc").value == pytest.approx(10.0)  # not mixed with errors


def test_reduced_runs_get_a_separate_table_that_says_so(tmp_path: Path) -> None:
    full, reduced = tables_of(tmp_path, [*curve(0, 20), *curve(0, 40, reduced="5 epochs instead of 10")])
    assert (full.reduced, reduced.reduced) == (None, "5 epochs instead of 10")
    assert entry(full, "flip", 0.01, "glc").value == pytest.approx(10.0)
    assert entry(reduced, "flip", 0.01, "glc").value == pytest.approx(20.0)
    text = to_markdown([reduced])
    assert text.startswith("### mnist (reduced): ")
    assert "- Reduced runs, not the paper's settings: 5 epochs instead of 10.\n" in text
    assert "reduced" not in to_markdown([full]).lower()


def test_columns_and_rows_are_in_the_papers_order(tmp_path: Path) -> None:
    methods = ["reweight", "glc", "true_matrix", "trusted_only", "forward"]
    rows = [row for method in methods for row in curve(0, 20, method=method, preset="cifar100", trusted=0.05)]
    rows += [result(preset="cifar100", noise=noise, trusted=0.05) for noise in ("other", "hierarchical", "uniform")]
    rows += [result(preset="cifar100", trusted=0.25), result(preset="cifar100", trusted=0.1)]
    (table,) = tables_of(tmp_path, rows)
    assert table.methods == [*PAPER_METHODS, "reweight", "true_matrix"]
    assert [(setting.noise, setting.trusted) for setting, _ in table.rows] == [
        ("uniform", 0.05),
        ("flip", 0.05),
        ("flip", 0.1),
        ("flip", 0.25),
        ("hierarchical", 0.05),
        ("other", 0.05),
    ]
    assert entry(table, "flip", 0.05, "reweight").paper == 67.2


def test_preset_outside_the_paper_shows_only_what_was_run(tmp_path: Path) -> None:
    (table,) = tables_of(tmp_path, curve(0, 20, preset="mine"))
    assert table.methods == ["glc"]
    assert entry(table, "flip", 0.01, "glc").paper is None
    assert table.notes == [
        "The paper has no figures for mine; it has them for mnist, cifar10, cifar100, sst, imdb, twitter, svhn."
    ]


def test_strengths_of_a_complete_curve_can_be_chosen(tmp_path: Path) -> None:
    rows = [result(strength=strength, error=error) for strength, error in ((0.0, 10.0), (0.5, 20.0), (1.0, 60.0))]
    (table,) = tables_of(tmp_path, rows, strengths=[1.0, 0.0, 0.5])
    assert entry(table, "flip", 0.01, "glc").value == pytest.approx(27.5)  # 0.5 · 15 + 0.5 · 40
    assert "Areas over strengths 0, 0.5, 1, not the paper's eleven." in table.notes
    (table,) = make_tables(tmp_path / "results.jsonl", strengths=[0.0, 1.0])
    assert entry(table, "flip", 0.01, "glc").value == pytest.approx(35.0)
    assert "Runs at strengths 0.5 are not used." in table.notes
    with pytest.raises(ValueError, match="two strengths or more"):
        make_tables(tmp_path / "results.jsonl", strengths=[0.5])


def test_repeated_run_counts_once_and_contradicting_run_raises(tmp_path: Path) -> None:
    rows = curve(0, 20)
    (table,) = tables_of(tmp_path, [*rows, rows[3]])
    assert entry(table, "flip", 0.01, "glc").value == pytest.approx(10.0)
    with pytest.raises(ValueError, match=r"results\.jsonl, line 13: the same run as line 4 with a different error, 7"):
        tables_of(tmp_path, [{**rows[3], "error": 7.0}])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (result(method="glcc"), r"line 2: unknown method 'glcc'; did you mean glc\?"),
        (result(noise=None), "line 2: noise is null, which is allowed only for trusted_only, not for glc"),
        (result(strength=None), "line 2: strength is null, .* not for glc under 'flip'"),
    ],
)
def test_rows_with_bad_names_name_their_line(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tables_of(tmp_path, [result(), row], known_methods=["forward", "glc", "trusted_only"])


def test_empty_file_and_unknown_preset_give_clear_errors(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(ValueError, match=r"empty\.jsonl has no results yet: run `glc-hf sweep` first"):
        make_tables(tmp_path / "empty.jsonl")
    with pytest.raises(ValueError, match="no results of preset 'mnits'; it has mnist, sst"):
        tables_of(tmp_path, [result(), result(preset="sst")], preset="mnits")


def test_preset_selects_its_tables(tmp_path: Path) -> None:
    (table,) = tables_of(tmp_path, [*curve(0, 20), *curve(0, 40, preset="sst")], preset="sst")
    assert table.preset == "sst"


def test_csv_has_one_unrounded_line_per_value(tmp_path: Path) -> None:
    rows = [*curve(0, 20, seed=0), *curve(0, 20.5, seed=1), *curve(0, 20, seed=2)[:5]]
    text = to_csv(tables_of(tmp_path, rows))
    lines = list(csv.DictReader(io.StringIO(text)))
    assert len(lines) == 2 * 7  # a row and the mean, seven methods
    found = next(line for line in lines if line["method"] == "glc")
    assert (found["preset"], found["noise"], found["trusted"], found["metric"]) == ("mnist", "flip", "0.01", "area")
    assert float(found["value"]) == pytest.approx(10.125)
    assert (found["seeds"], found["complete_seeds"], found["paper"]) == ("3", "2", "2.9")
    assert lines[-1]["noise"] == "mean"


def test_terminal_table_has_the_same_values_and_fits_a_width(tmp_path: Path) -> None:
    tables = tables_of(tmp_path, curve(2, 6.6, trusted=0.001))
    text = to_terminal(tables)
    assert "4.3 (3.4)" in text
    assert "printed as 5" in text
    assert max(map(len, to_terminal(tables, width=80).splitlines())) <= 80
