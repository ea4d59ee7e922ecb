# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The layout of the package: imports between folders, and names of modules."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path


PACKAGE = Path(__file__).parents[1] / "glc_hf"
# A folder (or a module at the top) may import those before it, not those after it.
ORDER = (
    "_compat", "registry", "randomness", "intervals", "lbfgs", "run_files", "heat_map", "matrix", "labels",
    "data", "trusted", "hold_out", "noise", "correction", "voted", "methods", "hub",
    "audit", "training", "backbones", "experiments", "cli",
)  # fmt: skip
# The names of `glc_hf/__init__.py` are imported lazily, by their modules.
FILES = [path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py"]


def _room(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def _imported_rooms(path: Path) -> set[str]:
    """The folders that a file imports from anywhere in it: at the top, in functions, for type hints."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] == "glc_hf":
            parts = node.module.split(".")
            rooms |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names} - {"__version__"}
        if isinstance(node, ast.Import):
            rooms |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("glc_hf.")}
    return rooms


def test_every_folder_has_its_place_in_the_order():
    assert {_room(path) for path in FILES} == set(ORDER)


def test_imports_between_folders_go_one_way():
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {room}"
        for path in FILES
        for room in _imported_rooms(path) - {_room(path)}
        if room not in ORDER or ORDER.index(room) > ORDER.index(_room(path))
    ]
    assert not wrong


def test_backbones_import_no_other_folder():
    for path in (PACKAGE / "backbones").glob("*.py"):
        assert _imported_rooms(path) <= {"backbones"}, path


def test_no_two_modules_have_the_same_name():
    counts = Counter(path.stem for path in FILES if path.stem not in ("__init__", "base"))
    assert [name for name, count in counts.items() if count > 1] == []


def test_no_folder_has_more_than_a_dozen_modules_and_no_module_is_a_drawer():
    folders = Counter(path.parent for path in FILES if path.stem != "__init__")
    assert max(folders.values()) <= 12, folders.most_common(1)
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert max(lengths.values()) <= 450, max(lengths, key=lengths.get)
