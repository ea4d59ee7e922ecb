# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The results file: no written line is lost if the writing process is killed."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

from glc_hf.experiments import results
from glc_hf.experiments.results import RESULTS_VERSION, append_results, read_results
from tests.experiments.made_up import result


def _append_often(path: Path, seed: int, times: int) -> None:
    for number in range(times):
        append_results(
            path, [result(seed=seed, strength=number / times, filler="x" * 3000), result(seed=seed, noise="b")]
        )


def test_appended_rows_are_read_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "new" / "results.jsonl"
    append_results(path, [result(seed=0), result(seed=1, anything={"else": [1]})])
    append_results(path, [result(seed=2, noise=None, strength=None)])
    rows = read_results(path)
    assert [row["seed"] for row in rows] == [0, 1, 2]
    assert rows[1] == {"version": RESULTS_VERSION, **result(seed=1, anything={"else": [1]})}
    assert rows[2]["noise"] is None


def test_numpy_values_are_written_as_plain_json(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    append_results(path, [result(error=np.float32(12.5), seed=np.int64(3), matrix=np.eye(2))])
    assert json.loads(path.read_text()) == {
        "version": 1,
        **result(error=12.5, seed=3, matrix=[[1.0, 0.0], [0.0, 1.0]]),
    }


def test_rows_of_one_call_are_written_with_one_synced_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written, synced = [], []
    write, fsync = os.write, os.fsync
    monkeypatch.setattr(os, "write", lambda file, content: written.append(content) or write(file, content))
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(len(written)) or fsync(file))
    append_results(tmp_path / "results.jsonl", [result(seed=0), result(seed=1)])
    assert [content.count(b"\n") for content in written] == [2]
    assert synced == [1]


def test_appending_nothing_makes_no_file(tmp_path: Path) -> None:
    append_results(tmp_path / "results.jsonl", [])
    assert not (tmp_path / "results.jsonl").exists()


def test_several_processes_can_append(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_append_often, args=(path, seed, 25)) for seed in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    rows = read_results(path)
    assert len(rows) == 4 * 25 * 2
    for first, second in zip(rows[::2], rows[1::2], strict=True):  # the two rows of a call stay together
        assert first["seed"] == second["seed"]


def test_appending_and_reading_wait_for_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    append_results(path, [result(seed=0)])
    before = path.read_bytes()
    found: list[int] = []
    threads = [
        threading.Thread(target=append_results, args=(path, [result(seed=1)])),
        threading.Thread(target=lambda: found.append(len(read_results(path)))),
    ]
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for thread in threads:
            thread.start()
            thread.join(0.3)
            assert thread.is_alive()
        assert path.read_bytes() == before
    for thread in threads:
        thread.join(30)
    assert len(read_results(path)) == 2
    assert found in ([1], [2])


@pytest.mark.parametrize("torn", [b'{"version": 1, "pres', '{"preset": "é'.encode()[:-1], b"\0\0\0", b"12"])
def test_torn_last_line_is_skipped_with_a_warning_and_removed_by_the_next_append(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "results.jsonl"
    append_results(path, [result(seed=0)])
    with path.open("ab") as file:
        file.write(torn)
    with pytest.warns(UserWarning, match=r"results.jsonl, line 2: the last line is cut short"):
        assert [row["seed"] for row in read_results(path)] == [0]
    with pytest.warns(UserWarning, match="removed the last line"):
        append_results(path, [result(seed=1)])
    assert [row["seed"] for row in read_results(path)] == [0, 1]
    assert path.read_bytes().count(b"{") == 2


def test_torn_line_longer_than_a_block_is_removed_completely(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    append_results(path, [result(seed=0)])
    with path.open("ab") as file:
        file.write(b'{"matrix": "' + b"x" * 200_000)
    with pytest.warns(UserWarning, match="removed the last line"):
        append_results(path, [result(seed=1)])
    assert [row["seed"] for row in read_results(path)] == [0, 1]
    assert path.stat().st_size < 1000


def test_file_with_a_single_torn_line_can_be_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_bytes(b'{"version"')
    with pytest.warns(UserWarning, match="removed the last line"):
        append_results(path, [result()])
    assert len(read_results(path)) == 1


def test_complete_last_line_without_a_line_end_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(result(seed=0)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(read_results(path)) == 1
        append_results(path, [result(seed=1)])
        assert [row["seed"] for row in read_results(path)] == [0, 1]


def test_incomplete_write_restores_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.jsonl"
    append_results(path, [result()])
    before = path.read_bytes()
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, content: write(file, content[:10]))
    with pytest.raises(OSError, match="is the disk full"):
        append_results(path, [result(seed=1)])
    assert path.read_bytes() == before


@pytest.mark.parametrize("line", ['{"preset": "mn', "[1]", "nonsense"])
def test_broken_line_in_the_middle_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "results.jsonl"
    good = json.dumps(result())
    path.write_text(f"{good}\n{line}\n{good}\n")
    with pytest.raises(ValueError, match=r"results\.jsonl, line 2: .*Delete or fix this line"):
        read_results(path)


def test_results_of_another_version_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(result(version=RESULTS_VERSION + 1)) + "\n")
    with pytest.raises(
        ValueError, match=r"line 1: results of version 2; this glc_hf reads version 1\. Use the glc_hf"
    ):
        read_results(path)


def test_lines_without_a_version_and_empty_lines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(result()) + "\n\n" + json.dumps(result(seed=1)) + "\n")
    assert len(read_results(path)) == 2


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("error", 101.0, "from 0 to 100, in percent"),
        ("error", None, "from 0 to 100"),
        ("error", True, "from 0 to 100"),
        ("trusted", 5, "from 0 to 1, a fraction"),
        ("strength", -0.1, "from 0 to 1 or null"),
        ("seed", 0.5, "must be an integer"),
        ("preset", None, "preset is None; it must be text"),
        ("method", "", "method is ''"),
        ("noise", 3, "it must be text or null"),
        ("reduced", ["rows"], "reduced is"),
    ],
)
def test_wrong_value_names_its_field_when_read_and_when_appended(
    tmp_path: Path, field: str, value: object, message: str
) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(result(**{field: value})) + "\n")
    before = path.read_bytes()
    with pytest.raises(ValueError, match=f"line 1: {field} is .*{message}" if "is" not in message else message):
        read_results(path)
    with pytest.raises(ValueError, match=f"row 1 for .*: {field} is"):
        append_results(path, [result(), result(**{field: value})])
    assert path.read_bytes() == before  # all or nothing


def test_missing_field_is_named(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    row = result()
    del row["seed"], row["error"]
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(ValueError, match=r"line 1: no seed, error\."):
        read_results(path)


@pytest.mark.parametrize("value", [float("nan"), object()])
def test_values_that_json_does_not_have_are_not_appended(tmp_path: Path, value: object) -> None:
    with pytest.raises(ValueError, match="row 0 for .* can't be written as JSON"):
        append_results(tmp_path / "results.jsonl", [result(other=value)])
    assert not (tmp_path / "results.jsonl").exists()


def test_missing_file_and_folder_give_clear_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no results file .*none\.jsonl: name the file that `glc-hf sweep`"):
        read_results(tmp_path / "none.jsonl")
    with pytest.raises(IsADirectoryError, match="is a folder: name the results file"):
        read_results(tmp_path)


def test_results_are_written_without_file_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "fcntl", None)
    append_results(tmp_path / "results.jsonl", [result()])
    assert len(read_results(tmp_path / "results.jsonl")) == 1
