# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""docs/extending.md is true: its classes work where they are, named as the page names them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from glc_hf.cli.main import main
from glc_hf.methods import get_method
from tests.cli.conftest import text_rows, tiny_bert, write_csv  # noqa: F401  (a fixture)
from tests.forked_python import python


ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the page's two files."""
    for name, block in zip(
        ("my_methods.py", "my_presets.py"), re.findall(r"```python\n(.*?)```", PAGE, flags=re.S), strict=True
    ):
        (tmp_path / name).write_text(block, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for name in ("my_methods", "my_presets"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_own_method_is_named_on_the_command_line(folder: Path, tiny_bert: Path) -> None:  # noqa: F811
    rows = [{**row, "trusted": place % 4 == 0} for place, row in enumerate(text_rows(60))]
    write_csv(folder / "reviews.csv", rows)
    # As an installed command runs it: the working directory is not where Python looks.
    command = "import sys; from glc_hf.cli.main import main; sys.path.remove(''); sys.exit(main(sys.argv[1:]))"
    words = ["--method", "my_methods:Bootstrap", "--max_steps", "3", "--save_strategy", "no", "--output-dir", "out"]
    done = subprocess.run(
        [python(), "-c", command, "train", "--dataset", "reviews.csv", "--model", str(tiny_bert), *words],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "out" / "results.json").read_text())["method"] == "my_methods:Bootstrap"


def test_own_preset_is_swept_and_tabled(folder: Path, capsys: pytest.CaptureFixture) -> None:
    rng = np.random.default_rng(0)
    (folder / "data" / "me" / "tickets").mkdir(parents=True)
    for split, number in (("train", 200), ("test", 60)):
        rows = [{"text": f"w{rng.integers(9)} c{place % 4}", "label": place % 4} for place in range(number)]
        write_csv(folder / "data" / "me" / "tickets" / f"{split}.csv", rows)
    words = ["--preset", "my_presets:Tickets", "--data-root", "data", "--methods", "glc", "no_correction"]
    words += ["--noise", "flip", "--trusted", "0.1", "--strengths", "0", "0.6", "--workers", "1"]
    assert main(["sweep", *words, "--output", "tickets.jsonl"]) == 0
    assert main(["table", "tickets.jsonl", "--strengths", "0", "0.6"]) == 0
    shown = capsys.readouterr()
    assert "my_presets:Tickets: area under the error curve" in shown.out, shown.err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere:Mine", "method 'nowhere:Mine': No module named 'nowhere'"),
        ("my_methods:Mine", "method 'my_methods:Mine': .* has no attribute 'Mine'"),
        ("my_methods:torch", "is not a class: <module"),
        ("pathlib:Path", "is not a subclass of glc_hf.methods.base.Method"),
        ("needs_more:Mine", "No module named 'not_installed'"),
    ],
)
def test_unknown_method_raises_clear_error(folder: Path, name: str, message: str) -> None:
    (folder / "needs_more.py").write_text("import not_installed\n", encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        get_method(name)


def test_every_folder_and_module_at_the_top_is_in_the_table() -> None:
    table = PAGE.partition("## Folders")[2].partition("## Which files")[0]
    named = set(
        re.findall(r"`([\w/.]+)`", "".join(line.split("|")[1] for line in table.splitlines() if line[:1] == "|"))
    )
    found = {path for path in (ROOT / "glc_hf").iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert named == {f"{path.name}/" if path.is_dir() else path.name for path in found} - {"__init__.py"}


def test_every_file_to_change_exists() -> None:
    table = PAGE.partition("## Which files")[2].partition("## A method")[0]
    named = re.findall(r"`([\w/]+/(?:[\w.]+\.\w+)?)`", table)
    assert len(named) > 20
    missing = [name for name in named if not any((ROOT / top / name).exists() for top in ("glc_hf", "."))]
    assert missing == []
