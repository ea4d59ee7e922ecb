# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`glc-hf train --compare`, and labels of a weak classifier."""

from __future__ import annotations

import json
import re
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForSequenceClassification

from glc_hf.cli.report import print_comparison
from glc_hf.cli.terminal import SaveOnInterrupt
from glc_hf.intervals import format_accuracy

from .conftest import results_in, text_rows, write_csv


QUICK = ["--max_steps", "4", "--save_strategy", "no", "--per_device_train_batch_size", "8"]


def _folder(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    data.mkdir()
    write_csv(data / "train.csv", text_rows(120))
    write_csv(data / "test.csv", text_rows(30, seed=1))
    return data


def test_methods_are_compared_in_one_table_and_share_stage_1(glc_hf, tmp_path: Path, tiny_bert: Path) -> None:
    output = tmp_path / "out"
    methods = ["no_correction", "trusted_only", "confusion_matrix", "glc"]
    outcome = glc_hf(
        "train", "--dataset", _folder(tmp_path), "--model", tiny_bert, "--output-dir", output, "--noise", "flip",
        "--trusted-fraction", "0.2", "--trusted_min_updates", "4", "--compare", *methods, *QUICK,
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    rows = json.loads((output / "comparison.json").read_text())["methods"]
    assert {row["method"] for row in rows} == set(methods)
    assert {row["method"]: row["shared_stages"] for row in rows}["glc"] == 1
    accuracies = [row["accuracy_after_correction"] for row in rows]
    assert accuracies == sorted(accuracies, reverse=True)
    lines = outcome.out.splitlines()
    header = next(index for index, line in enumerate(lines) if line.startswith("method"))
    assert [line.split()[0] for line in lines[header + 1 : header + 5]] == [row["method"] for row in rows]
    assert "accuracy (90% interval)" in lines[header]
    assert f"{format_accuracy(accuracies[0], 30)}  " in lines[header + 1]
    assert "before correction (glc, confusion_matrix): full training on the noisy labels" in (
        outcome.out.replace("(confusion_matrix, glc)", "(glc, confusion_matrix)")
    )
    assert re.search(r"\non 30 rows, differences below \d+\.\d points mean nothing", outcome.out)
    for method in methods:
        AutoModelForSequenceClassification.from_pretrained(output / method)
        assert results_in(output / method)["method"] == method
        card = (output / method / "README.md").read_text(encoding="utf-8")
        assert f"| `{method}` (this model) |" in card
        assert all(f"| `{other}`" in card for other in methods)
    assert not (output / "no_correction" / "corruption_matrix.json").exists()
    assert (output / "glc" / "corruption_matrix.json").exists()


def _result(method: str, accuracy: float, rows: int, **others: Any) -> dict[str, Any]:
    result = {
        "method": method, "accuracy_after_correction": accuracy, "accuracy_before_correction": None,
        "before_correction": None, "distance_to_true_matrix": None, "seconds": 1.0, "shared_stages": 0,
        "evaluated": {"number": rows, "unit": "rows"}, "warnings": [],
    }  # fmt: skip
    return {**result, **others}


@pytest.mark.parametrize(
    ("accuracies", "rows", "line"),
    [
        (
            {"glc": 0.9, "trusted_only": 0.85, "reweight": 0.82, "forward": 0.3},
            60,
            "on 60 rows, differences below 11.0 points mean nothing: glc, trusted_only and reweight can't be told "
            "apart",
        ),
        (
            {"glc": 0.9, "trusted_only": 0.85},
            60,
            "on 60 rows, differences below 11.0 points mean nothing: glc and trusted_only can't be told apart",
        ),
        (
            {"glc": 0.9, "trusted_only": 0.85},
            6000,
            "on 6,000 rows, differences below 0.9 points mean nothing; glc is better by more",
        ),
        (
            {"glc": 1.0, "trusted_only": 0.0},
            1,
            "on 1 row, no difference means anything: glc and trusted_only can't be told apart",
        ),
        ({"glc": 0.9}, 60, "on 60 rows, differences below 11.0 points mean nothing"),
    ],
)
def test_comparison_names_the_methods_that_cannot_be_told_apart(
    capsys: pytest.CaptureFixture[str], accuracies: dict[str, float], rows: int, line: str
) -> None:
    print_comparison([_result(method, accuracy, rows) for method, accuracy in accuracies.items()], "folder")
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == [line, "saved to: folder"]


def test_comparison_prints_what_was_measured_before_correction_and_the_warnings(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stage = {"accuracy_before_correction": 0.4, "before_correction": "short training on the noisy labels"}
    other = {"accuracy_before_correction": 0.5, "before_correction": "short training on all labels"}
    rows = [
        _result("glc", 0.9, 60, **stage, warnings=["few trusted rows."]),
        _result("forward", 0.8, 60, **other),
        _result("confusion_matrix", 0.7, 60, **stage),
        _result("no_correction", 0.3, 0),
    ]
    print_comparison(rows, "folder")
    out = capsys.readouterr().out
    assert "\nbefore correction (glc, confusion_matrix): short training on the noisy labels\n" in out
    assert "\nbefore correction (forward): short training on all labels\n" in out
    assert "\nwarning (glc): few trusted rows.\n" in out


def test_a_method_gives_the_same_alone_and_in_a_comparison(glc_hf, tmp_path: Path, tiny_bert: Path) -> None:
    data = _folder(tmp_path)
    common = ["train", "--dataset", data, "--model", tiny_bert, "--noise", "flip", "--trusted-fraction", "0.2", *QUICK]
    glc_hf(*common, "--output-dir", tmp_path / "both", "--compare", "confusion_matrix", "glc")
    glc_hf(*common, "--output-dir", tmp_path / "alone", "--method", "glc")
    both, alone = (
        results_in(folder)["metrics"]["eval_loss"] for folder in (tmp_path / "both" / "glc", tmp_path / "alone")
    )
    assert abs(both - alone) < 1e-7


def test_option_that_a_method_can_not_use_stops_a_comparison_before_the_first_training(
    glc_hf, tmp_path: Path, tiny_bert: Path
) -> None:
    common = ["train", "--dataset", _folder(tmp_path), "--model", tiny_bert, "--noise", "flip", *QUICK]
    methods = ["--compare", "no_correction", "glc", "--estimator", "paired"]
    outcome = glc_hf(*common, "--output-dir", tmp_path / "both", *methods)
    assert outcome.code == 2
    assert "estimator='paired' counts which label the noisy source gave" in outcome.complaint
    assert "stage 1 of" not in outcome.out + outcome.err


def test_auto_is_compared_with_options_that_only_glc_has(glc_hf, tmp_path: Path, tiny_bert: Path) -> None:
    common = ["train", "--dataset", _folder(tmp_path), "--model", tiny_bert, "--noise", "flip", *QUICK]
    outcome = glc_hf(*common, "--output-dir", tmp_path / "both", "--stage1", "short", "--compare", "glc", "auto")
    assert outcome.code == 0, outcome.err
    rows = json.loads((tmp_path / "both" / "comparison.json").read_text())["methods"]
    assert {row["before_correction"] for row in rows} == {"short training on the noisy labels"}
    assert {row["method"]: row["shared_stages"] for row in rows} == {"glc": 0, "auto": 1}


def test_an_interrupted_comparison_resumes(
    glc_hf, tmp_path: Path, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = ["train", "--dataset", _folder(tmp_path), "--model", tiny_bert, "--noise", "flip", "--max_steps", "4"]
    common += [
        "--trusted-fraction",
        "0.2",
        "--per_device_train_batch_size",
        "8",
        "--compare",
        "confusion_matrix",
        "glc",
    ]
    assert glc_hf(*common, "--output-dir", tmp_path / "whole").code == 0
    steps = []

    def press(self: SaveOnInterrupt, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        steps.append(state.global_step)
        if (
            len(steps) == 10
        ):  # in the last stage of the second method: 4 shared steps, 4 of the first method, 2 of its own
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(SaveOnInterrupt, "on_step_begin", press)
        stopped = glc_hf(*common, "--output-dir", tmp_path / "cut")
    assert stopped.code == 130
    command = shlex.split(stopped.err.splitlines()[-1])
    steps.clear()
    monkeypatch.setattr(SaveOnInterrupt, "on_step_begin", lambda self, args, state, *_, **__: steps.append(1))
    assert glc_hf(*command[1:]).code == 0
    assert len(steps) == 2
    for method in ("confusion_matrix", "glc"):
        whole, cut = (results_in(tmp_path / name / method)["metrics"]["eval_loss"] for name in ("whole", "cut"))
        assert cut == pytest.approx(whole, abs=1e-6)


def test_unknown_method_to_compare_raises_before_anything_is_loaded(glc_hf, tmp_path: Path) -> None:
    outcome = glc_hf("train", "--compare", "glc", "gold", "--output-dir", tmp_path / "out")
    assert outcome.code == 2
    assert "unknown method 'gold'" in outcome.complaint
    assert not (tmp_path / "out").exists()


def test_accuracy_of_the_weak_classifiers_labels_is_reported(glc_hf, tmp_path: Path, tiny_bert: Path) -> None:
    output = tmp_path / "out"
    outcome = glc_hf(
        "train", "--dataset", _folder(tmp_path), "--model", tiny_bert, "--output-dir", output, "--noise", "weak",
        "--weak-epochs", "2", "--learning-rate", "5e-3", "--trusted-fraction", "0.2", *QUICK,
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    noise = results_in(output)["simulated_noise"]
    assert noise["kind"] == "weak"
    assert 1 / 3 < noise["label_accuracy"] < 1
    assert f"weak, {noise['label_accuracy']:.1%} of the untrusted labels are correct" in outcome.out
