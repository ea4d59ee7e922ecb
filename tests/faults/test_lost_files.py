# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Files of the user, and of other runs, are not overwritten and not removed."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from glc_hf import GLCTrainer, run_files
from glc_hf.run_files import LOCK_FILE, locked
from tests.training.tiny import bert, config, noisy_text_rows

from .conftest import noisy_csv


def _trainer(folder: Path, **settings) -> GLCTrainer:
    arguments = {"save_strategy": "steps", "save_steps": 1, "max_steps": 3, "method": "no_correction", **settings}
    return GLCTrainer(bert(), config(folder, **arguments), train_dataset=noisy_text_rows(24))


@pytest.mark.parametrize("name", ["README.md", "config.json", "results.json", "notes/plan.txt"])
def test_files_of_the_user_are_not_overwritten(train, tmp_path: Path, name: str) -> None:
    file = tmp_path / "out" / name
    file.parent.mkdir(parents=True)
    file.write_text("mine")
    outcome = train()
    assert outcome.code == 2
    assert f"has files that no run has written ({Path(name).parts[0]})" in outcome.complaint
    assert "--overwrite-output-dir" in outcome.complaint
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == [file]
    assert file.read_text() == "mine"


def test_folder_is_used_if_it_is_allowed_or_of_a_run_or_empty(train, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.mkdir()
    (output / "README.md").write_text("mine")
    assert train("--overwrite-output-dir").code == 0
    assert "glc_hf" in (output / "README.md").read_text()
    (output / "notes.txt").write_text("mine")
    assert train().code == 0  # it has a model of a run
    assert (output / "notes.txt").read_text() == "mine"
    new = tmp_path / "new"
    new.mkdir()
    (new / "train.log").touch()  # the output of this run
    assert train("--compare", "no_correction", output=new).code == 0
    assert train("--compare", "no_correction", output=new).code == 0
    assert not list(tmp_path.rglob(LOCK_FILE))


def test_script_keeps_the_readme_of_the_user(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "README.md").write_text("# My project\n")
    trainer = _trainer(tmp_path, save_strategy="no", max_steps=1)
    trainer.train()
    trainer.save_model()
    trainer.save_model()
    assert (tmp_path / "README.md").read_text() == "# My project\n"
    assert "README.md is not a card of glc_hf and is kept" in caplog.text


@pytest.mark.parametrize("name", ["_run_state", "stage1"])
def test_target_of_a_link_keeps_its_files(tmp_path: Path, name: str) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.png").write_text("a cat")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).symlink_to(tmp_path / "photos")
    with pytest.raises(ValueError, match=rf"{name} is a symbolic link to .*photos.*Delete the link"):
        _trainer(tmp_path / "out").train()
    assert (tmp_path / "photos" / "cat.png").read_text() == "a cat"


def test_state_folder_of_the_user_keeps_its_files(tmp_path: Path) -> None:
    (tmp_path / "_run_state").mkdir()
    (tmp_path / "_run_state" / "thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"_run_state has files, but no glc_run\.json"):
        _trainer(tmp_path).train()
    assert (tmp_path / "_run_state" / "thesis.txt").read_text() == "mine"


def test_newest_checkpoint_stays_whatever_the_times_of_files_are(tmp_path: Path) -> None:
    """One of another run has more steps and a time in the future; one of the user is not of a run."""
    (tmp_path / "checkpoint-7").mkdir()
    _trainer(tmp_path, max_steps=5, save_steps=5).train()
    for name in ("checkpoint-5", "checkpoint-7"):
        os.utime(tmp_path / name, (time.time() + 9e6,) * 2)
    _trainer(tmp_path, save_total_limit=2).train()
    names = sorted(path.name for path in tmp_path.glob("checkpoint-*"))
    assert names == ["checkpoint-2", "checkpoint-3", "checkpoint-7"]


def test_second_run_in_a_folder_is_refused(train, tmp_path: Path) -> None:
    """The other process holds the lock until it is killed; then the file that it leaves behind locks nothing."""
    output = tmp_path / "out"
    code = f"""
import fcntl, json, os, time
file = open({str(output / LOCK_FILE)!r}, "w")
fcntl.flock(file, fcntl.LOCK_EX)
print(json.dumps({{"pid": os.getpid(), "host": "here"}}), file=file, flush=True)
print("locked", flush=True)
time.sleep(60)
"""
    output.mkdir()
    other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert other.stdout.readline() == b"locked\n"
        complaint = train().complaint
        assert f"another run is writing to {output} (process {other.pid} on here)" in complaint
        with pytest.raises(ValueError, match="another run is writing"):
            _trainer(output).train()
    finally:
        other.kill()
        other.wait()
    assert (output / LOCK_FILE).is_file()
    assert train().code == 0
    assert not (output / LOCK_FILE).exists()


def test_lock_is_released_after_an_error_and_marks_the_folder(tmp_path: Path, train) -> None:
    output = tmp_path / "out"
    with pytest.raises(RuntimeError), locked(output):
        raise RuntimeError
    assert not (output / LOCK_FILE).exists()  # nothing was written
    with pytest.raises(FileNotFoundError), locked(output), locked(output):
        (output / "model.safetensors").write_text("half of it").bit_length() and (output / "none").read_text()
    assert train(data=noisy_csv(tmp_path / "train.csv")).code == 0


def test_folder_is_locked_without_fcntl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows: its module `msvcrt` is imitated with the locks of bytes that this system has."""
    fcntl, output = pytest.importorskip("fcntl"), tmp_path / "out"

    def locking(file: int, mode: int, size: int) -> None:
        try:
            fcntl.lockf(file, mode, size, 0, os.SEEK_CUR)
        except BlockingIOError:
            raise PermissionError(errno.EACCES, "Permission denied") from None

    modes = {"LK_NBLCK": fcntl.LOCK_EX | fcntl.LOCK_NB, "LK_UNLCK": fcntl.LOCK_UN}
    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(locking=locking, **modes))
    monkeypatch.setattr(run_files, "fcntl", None)
    with locked(output):
        other = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
        command = [sys.executable, "-c", other, str(output / LOCK_FILE)]
        assert "BlockingIOError" in subprocess.run(command, capture_output=True, text=True).stderr
        assert json.loads((output / LOCK_FILE).read_text())["pid"] == os.getpid()
    assert not (output / LOCK_FILE).exists()

    other = """
import fcntl, json, os, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print(json.dumps({"pid": os.getpid(), "host": "here"}), file=file, flush=True)
print("locked", flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", other, str(output / LOCK_FILE)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"locked\n"
        message = rf"another run is writing .*process {process.pid} on here"
        with pytest.raises(ValueError, match=message), locked(output):
            pass
    finally:
        process.kill()
        process.wait()
    with locked(output):  # the file that it left behind locks nothing
        pass
    assert not (output / LOCK_FILE).exists()
