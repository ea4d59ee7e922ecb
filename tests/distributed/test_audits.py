# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Audits with two processes find the same as with one, and write their files once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd

from glc_hf.cli.main import main
from tests.cli.conftest import CLASSES, text_rows, tiny_bert, write_csv  # noqa: F401
from tests.distributed.launch import run
from tests.distributed.run_audit import audits
from tests.forked_python import WHOLE_EXIT


def test_two_processes_find_the_same_labels_as_one(tmp_path: Path) -> None:
    one = audits(tmp_path / "one")
    run("torchrun", 2, "tests.distributed.run_audit", tmp_path)
    several = [json.loads((tmp_path / f"results-{rank}.json").read_text()) for rank in range(2)]
    assert several[0] == several[1]
    for case, columns in one.items():
        ours = several[0][case]
        assert ours["given_label"] == columns["given_label"]
        # Rounding changes the weights and the fits a little.
        np.testing.assert_allclose(ours["p_wrong"], columns["p_wrong"], atol=0.02, err_msg=case)
        sure = np.abs(np.array(columns["p_wrong"]) - 0.5) > 0.02  # as far as rounding can change it
        assert sure.mean() > 0.9
        same = np.array(ours["suggested_label"]) == np.array(columns["suggested_label"])
        assert same[sure].all()
        assert len(set(ours["suggested rows"]) & set(columns["suggested rows"])) >= 7, case


def test_the_command_writes_its_files_once(tmp_path: Path, tiny_bert: Path) -> None:  # noqa: F811
    rows = [
        {**row, "label": row["label"] if number % 5 else CLASSES[number % 3 - 1], "trusted": number % 4 == 0}
        for number, row in enumerate(text_rows(90))
    ]
    data, model = write_csv(tmp_path / "train.csv", rows), tmp_path / "model"
    quick = ["--method", "glc", "--num-train-epochs", "4", "--learning-rate", "5e-3", "--save-strategy", "no"]
    argv = ["train", "--dataset", data, "--model", tiny_bert, "--output-dir", model, *quick]
    assert main([str(word) for word in argv]) == 0
    argv = ["audit", model, "--dataset", data, "--suggest", "4", "--export", "argilla", "--folds", "0", "--output-dir"]
    assert main([str(word) for word in [*argv, tmp_path / "one"]]) == 0
    # The command ends without destroying the process group, in an interpreter that frees all its modules.
    out = run("accelerate", 2, "glc_hf.cli.main", *argv, tmp_path / "two", **{WHOLE_EXIT: "1"})
    assert out.count("label issues: ") == out.count("written to: ") == 1
    files = [{path.relative_to(tmp_path / name) for path in (tmp_path / name).rglob("*")} for name in ("one", "two")]
    assert files[0] == files[1]
    for name in ("audit.csv", "suggest.csv"):
        one, two = (pd.read_csv(tmp_path / folder / name) for folder in ("one", "two"))
        pd.testing.assert_frame_equal(one, two, atol=1e-6)
    assert (tmp_path / "one" / "audit.html").read_text() == (tmp_path / "two" / "audit.html").read_text()
