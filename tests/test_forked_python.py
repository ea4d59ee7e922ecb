# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The forked Python of the tests runs, fails and ends as a new one."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.forked_python import SIZE, WHOLE_EXIT, python


pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked on this system")

STATE = """
import json, os, sys
print(json.dumps({
    "name": __name__, "argv": sys.argv[1:], "cwd": os.getcwd(), "path": sys.path[0], "variable": os.environ.get("MY"),
    "modules": [name for name in ("torch", "transformers", "glc_hf") if name in sys.modules],
}))
"""


def run(*words: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run([python(), *words], capture_output=True, text=True, timeout=120, **options)


def test_code_modules_and_files_run_as_the_main_module(tmp_path: Path) -> None:
    (tmp_path / "state.py").write_text(STATE)
    environment = {**os.environ, "MY": "own"}
    folder = str(tmp_path)
    for words, path in ((["-c", STATE], ""), (["-m", "state"], folder), (["state.py"], folder)):
        done = run(*words, "a", "--b", cwd=tmp_path, env=environment)
        state = json.loads(done.stdout)
        assert state.pop("modules") == ["torch", "transformers"]  # this package is imported anew
        assert state == {"name": "__main__", "argv": ["a", "--b"], "cwd": folder, "path": path, "variable": "own"}
        assert done.stderr == ""


@pytest.mark.parametrize(
    ("code", "returned", "out", "err"),
    [
        ("print('done')", 0, "done\n", ""),
        ("import atexit, sys; atexit.register(print, 'last'); sys.exit(3)", 3, "last\n", ""),
        ("raise SystemExit('stopped')", 1, "", "stopped\n"),
        ("1 / 0", 1, "", "ZeroDivisionError: division by zero\n"),
        ("raise KeyboardInterrupt", -signal.SIGINT, "", "KeyboardInterrupt\n"),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL, "", ""),
        ("import threading, time; threading.Timer(0.2, print, ['late']).start()", 0, "late\n", ""),
    ],
)
def test_exit_code_and_output_are_those_of_the_process(code: str, returned: int, out: str, err: str) -> None:
    done = run("-c", code)
    assert (done.returncode, done.stdout) == (returned, out)
    assert done.stderr.endswith(err)
    assert bool(done.stderr) == bool(err)


def test_process_frees_its_modules_if_told_to() -> None:
    code = "class Last:\n    def __del__(self, write=__import__('os').write): write(1, b'freed')\nlast = Last()\n"
    for variables, out in (({}, "end\n"), ({WHOLE_EXIT: "1"}, "end\nfreed")):
        done = run("-c", code + "print('end')\nraise SystemExit(3)", env={**os.environ, **variables})
        assert (done.returncode, done.stdout, done.stderr) == (3, out, "")


def test_folder_of_cached_datasets_is_that_of_the_environment(tmp_path: Path) -> None:
    code = "import sys; print('torch' in sys.modules); import datasets; print(datasets.config.HF_DATASETS_CACHE)"
    done = run("-c", code, env={**os.environ, "HF_DATASETS_CACHE": str(tmp_path)})
    assert done.stdout == f"True\n{tmp_path}\n"


def test_variable_that_is_read_at_import_starts_a_new_interpreter(tmp_path: Path) -> None:
    for name, new in (("HF_HOME", True), ("PYTHONHASHSEED", True), ("HF_TOKEN", False)):
        done = run("-c", STATE, env={**os.environ, name: "1"})
        assert json.loads(done.stdout)["modules"] == ([] if new else ["torch", "transformers"]), name
    done = run("-X", "utf8", "-c", "import sys; print(sys.flags.utf8_mode)")
    assert done.stdout == "1\n"


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_signals_reach_the_process_and_a_killed_one_ends() -> None:
    code = (
        "import os, signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print(os.getpid(), flush=True)\ntime.sleep(100)"
    )
    for end, returned in ((subprocess.Popen.terminate, 7), (subprocess.Popen.kill, -signal.SIGKILL)):
        process = subprocess.Popen([python(), "-c", code], stdout=subprocess.PIPE)
        forked = int(process.stdout.readline())
        end(process)
        assert process.wait(60) == returned
        process.stdout.close()
        deadline = time.monotonic() + 60
        while is_alive(forked) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not is_alive(forked)


def test_program_that_is_killed_early_does_not_end_the_server() -> None:
    address = str(Path(python()).with_name("socket"))
    request = {"argv": ["-c", "pass"], "cwd": "/", "environment": dict(os.environ), "files": []}
    for content in (b"", json.dumps(request).encode()):
        with socket.socket(socket.AF_UNIX) as program:
            program.connect(address)
            program.sendall(len(content or b"lost").to_bytes(SIZE, "big") + content)
    assert run("-c", "print('served')").stdout == "served\n"


def test_process_starts_forks_of_its_own() -> None:
    code = """
import multiprocessing, subprocess, sys
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=queue.put, args=("from a worker",))
    process.start()
    print(queue.get())
    process.join()
    code = "import sys; print('torch' in sys.modules, sys.stdin.read())"
    print(process.exitcode, subprocess.run([sys.executable, "-c", code], input=b"given", capture_output=True).stdout)
"""
    assert run("-c", code).stdout == "from a worker\n0 b'True given\\n'\n"
    assert python() != sys.executable
