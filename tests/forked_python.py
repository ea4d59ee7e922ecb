# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
A Python whose processes start with the libraries imported, which takes a new process longer than most tests.

`python()` returns a program for `subprocess`, to use in place of `sys.executable` and with the same arguments. A
server process imports the libraries once, but not `glc_hf`, and forks for every start of the program. Output, exit
code, working directory, environment, open files and signals are those of a new process. Variables that the libraries
read at import can't change in a fork: if they differ from those of the server, the program starts a new interpreter.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from typing import Any, NoReturn


LIBRARIES = (
    "torch", "torch.distributed.run", "datasets", "transformers.trainer", "accelerate.commands.launch",
    "matplotlib.figure", "pytest", "sklearn.metrics", "timm",
)  # fmt: skip
# Variables that are read at import or by the interpreter, and names like them that are not, or that a fork can change.
AT_IMPORT = ("HF_", "TRANSFORMERS_", "DATASETS_", "TOKENIZERS_", "OMP_", "MKL_", "PYTHON", "LANG", "LC_")
LATER = ("HF_TOKEN", "HF_DATASETS_CACHE", "PYTHONPATH")
FORWARDED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2")
SIZE = 8  # bytes of a number in a message
# The program of the process that started the tests, for its worker processes: one server is enough for all of them.
SHARED = "GLC_HF_FORKED_PYTHON"
# Set in the environment of a process, it makes the process free its modules when it ends, as a new interpreter does.
WHOLE_EXIT = "GLC_HF_WHOLE_EXIT"


def look_for_packages_once() -> None:
    """Remember which packages are installed: accelerate looks for one that is not in every step of an optimizer."""
    from functools import cache

    import accelerate.utils.imports as imports

    if not hasattr(imports._is_package_available, "cache_info"):
        imports._is_package_available = cache(imports._is_package_available)


# ---------------------------------------------------------------------- in the tests
_servers: dict[tuple, tuple[Any, Any, int]] = {}


def python(**variables: str | None) -> str:
    """
    The program. Its server starts with the first call and ends with the tests.

    Args:
        variables (`str` or `None`): Variables of the environment of the server that differ; `None` removes one.
    """
    import shlex
    import subprocess
    import tempfile
    from pathlib import Path

    if not hasattr(os, "fork") or not hasattr(socket, "send_fds"):
        return sys.executable
    if not variables and SHARED in os.environ:
        return os.environ[SHARED]
    key = tuple(sorted(variables.items()))
    if key not in _servers:
        folder = tempfile.TemporaryDirectory(prefix="python-")  # the address of a socket has at most 107 characters
        address, program = Path(folder.name, "socket"), Path(folder.name, "python")
        words = [sys.executable, "-IS", __file__, "client", str(address), sys.executable]
        program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
        root = str(Path(__file__).parents[1])
        environment = {**os.environ, "PYTHONPATH": root, **variables}
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(address))
            listener.listen(64)
            server = subprocess.Popen(
                [sys.executable, __file__, "server", str(listener.fileno()), str(program)],
                env={name: value for name, value in environment.items() if value is not None},
                cwd=root,
                stdin=subprocess.PIPE,  # the server ends when this process does
                stdout=subprocess.DEVNULL,
                pass_fds=[listener.fileno()],
            )
        _servers[key] = (server, folder, os.getpid())
    return os.path.join(_servers[key][1].name, "python")


def share() -> None:
    """Start the server now, for this process and the worker processes that it will start."""
    os.environ[SHARED] = python()


def stop(**variables: str | None) -> None:
    """Stop the server that [`python`] has started with these variables."""
    server, folder, process = _servers.pop(tuple(sorted(variables.items())), (None, None, None))
    if process == os.getpid():  # not in a fork of it
        server.stdin.close()
        server.wait()
        folder.cleanup()


@atexit.register
def _stop_all() -> None:
    for key in list(_servers):
        stop(**dict(key))


# ---------------------------------------------------------------------- in the program
def run_client(address: str, executable: str, argv: list[str]) -> NoReturn:
    """Send the arguments and the open files to the server, wait for the forked process, and end as it does."""
    files = [number for number in _open_files() if number < 3 or os.get_inheritable(number)]
    request = {"argv": argv, "cwd": os.getcwd(), "environment": dict(os.environ), "files": files}
    message = json.dumps(request).encode()
    # The forked process may start before this one forwards signals to it: until then, they wait.
    forwarded = {getattr(signal, name) for name in FORWARDED}
    signal.pthread_sigmask(signal.SIG_BLOCK, forwarded)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    socket.send_fds(connection, [len(message).to_bytes(SIZE, "big")], files)
    connection.sendall(message)
    child = _receive_number(connection)
    if child != 0:
        for number in forwarded:
            signal.signal(number, lambda number, _: os.kill(child, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, forwarded)
    if child == 0:  # refused
        os.execv(executable, [executable, *argv])
    status = _receive_number(connection)
    if os.WIFSIGNALED(status):
        if os.WTERMSIG(status) != signal.SIGKILL:
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))


def _open_files() -> list[int]:
    folder = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    return [number for number in map(int, os.listdir(folder)) if _is_open(number)]


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _receive_number(connection: socket.socket) -> int:
    message = _receive(connection, SIZE)
    if len(message) < SIZE:
        sys.exit("the server of forked processes has ended")
    return int.from_bytes(message, "big")


def _receive(connection: socket.socket, size: int) -> bytes:
    message = b""
    while len(message) < size and (part := connection.recv(size - len(message))):
        message += part
    return message


# ---------------------------------------------------------------------- in the server
def serve(listener: socket.socket) -> dict[str, Any]:
    """Fork for every request. Returns in the forked processes, with the request; the server itself exits."""
    import selectors

    wake, woken = os.pipe()
    for number in (wake, woken):
        os.set_blocking(number, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, which then end the server
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    children: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as selector:
        for file in (0, wake, listener):
            selector.register(file, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj == 0:  # the tests have ended
                    for child in children:
                        _kill(child)
                    os._exit(0)
                elif key.fileobj == wake:
                    os.read(wake, 4096)
                    _report_ended(children, selector)
                elif key.fileobj is listener:
                    connection, _ = listener.accept()
                    try:
                        request, files = _receive_request(connection)
                    except (OSError, ValueError):  # the program was killed before it had sent all
                        connection.close()
                        continue
                    if _needs_a_new_interpreter(request["argv"], request["environment"]):
                        _send_number(connection, 0)
                        connection.close()
                    elif child := os.fork():
                        _send_number(connection, child)
                        children[child] = connection
                        selector.register(connection, selectors.EVENT_READ, child)
                    else:
                        return {**request, "received": files}
                    for number in files:
                        os.close(number)
                elif key.data in children:  # the program was killed
                    _kill(key.data)
                    selector.unregister(key.fileobj)


def _send_number(connection: socket.socket, number: int) -> None:
    with suppress(OSError):  # the program was killed, and the selector finds its connection closed
        connection.sendall(number.to_bytes(SIZE, "big"))


def _receive_request(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    size, files, *_ = socket.recv_fds(connection, SIZE, 253)
    return json.loads(_receive(connection, int.from_bytes(size, "big"))), files


def _needs_a_new_interpreter(argv: list[str], environment: dict[str, str]) -> bool:
    """Whether variables that are read at import differ, or an option of the interpreter is not known here."""
    options = {word for word in argv[:1] if word.startswith("-")}
    if not argv or not options <= {"-c", "-m", "-u"}:
        return True
    names = [name for name in {*environment, *os.environ} if name.startswith(AT_IMPORT) and name not in LATER]
    return any(environment.get(name) != os.environ.get(name) for name in names)


def _report_ended(children: dict[int, socket.socket], selector: Any) -> None:
    while children:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child == 0:
            return
        connection = children.pop(child)
        if connection in selector.get_map():
            selector.unregister(connection)
            _send_number(connection, status)
        connection.close()


def _kill(child: int) -> None:
    """Kill a forked process with the processes that it has started."""
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError):
            kill(child, signal.SIGKILL)


# ---------------------------------------------------------------------- in a forked process
def set_up(request: dict[str, Any], program: str, server_path: str | None) -> None:
    """Make this process like a new one with the arguments, the files and the environment of the program."""
    import multiprocessing
    from pathlib import Path

    import datasets
    import numpy as np

    os.setsid()  # so that the server can kill what this process starts
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # The received files get the numbers that they have in the program. Above all open files no number is taken.
    above = max([*request["files"], *_open_files()]) + 1
    moved = {number: os.dup2(file, above + place) for place, (number, file) in enumerate(_pairs(request))}
    os.closerange(0, above)
    for number, file in moved.items():
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    own = [path for path in (server_path or "").split(os.pathsep) if path]
    given = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = given + [path for path in sys.path if path not in own]
    sys.executable = program
    multiprocessing.set_executable(program)
    if "HF_DATASETS_CACHE" in os.environ:
        datasets.config.HF_DATASETS_CACHE = Path(os.environ["HF_DATASETS_CACHE"])
    np.random.seed()


def _pairs(request: dict[str, Any]) -> list[tuple[int, int]]:
    return list(zip(request["files"], request["received"], strict=True))


def run_main(argv: list[str]) -> None:
    """Run a command line of Python in a new `__main__`: code (`-c`), a module (`-m`) or a file."""
    import builtins
    import importlib.util
    from types import ModuleType

    main = ModuleType("__main__")
    main.__builtins__ = builtins
    sys.modules["__main__"] = main
    if argv[0] == "-u":
        argv = argv[1:]
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(write_through=True)
    kind, *rest = argv
    if kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path.insert(0, "")
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    elif kind == "-m":
        sys.path.insert(0, os.getcwd())
        spec = importlib.util.find_spec(rest[0])
        sys.argv = [spec.origin, *rest[1:]]
        main.__spec__, main.__loader__, main.__package__ = spec, spec.loader, spec.parent
        main.__file__, main.__cached__ = spec.origin, spec.cached
        exec(spec.loader.get_code(rest[0]), main.__dict__)
    else:
        sys.argv = [kind, *rest]
        sys.path.insert(0, os.path.dirname(os.path.abspath(kind)))
        main.__file__ = kind
        with open(kind, "rb") as file:
            exec(compile(file.read(), kind, "exec"), main.__dict__)


def _serve_and_run(listener: int, program: str) -> None:
    import gc
    from importlib import import_module

    path = os.environ.get("PYTHONPATH")
    del sys.path[0]  # the folder of this file
    for name in LIBRARIES:
        with suppress(ImportError):  # as without an extra
            import_module(name)
    look_for_packages_once()
    gc.collect()
    gc.freeze()
    request = serve(socket.socket(fileno=listener))
    set_up(request, program, path)
    code: Any = None
    try:
        run_main(request["argv"])
    except SystemExit as stop:
        code = stop.code
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    _exit(code)


def _exit(code: Any) -> NoReturn:
    """End as the interpreter does, but do not free the modules first, which would take longer than most tests."""
    import gc

    if WHOLE_EXIT in os.environ and code != -signal.SIGINT:
        gc.unfreeze()
        sys.exit(code)
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if code == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit((code or 0) & 0xFF)


if __name__ == "__main__":
    if sys.argv[1] == "client":
        run_client(sys.argv[2], sys.argv[3], sys.argv[4:])
    _serve_and_run(int(sys.argv[2]), sys.argv[3])
