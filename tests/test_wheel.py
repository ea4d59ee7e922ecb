# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The wheel built from the sources contains everything that `glc-hf` needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from tests.cli.conftest import text_rows, tiny_bert, write_csv  # noqa: F401  (a fixture)
from tests.forked_python import python


ROOT = Path(__file__).parents[1]
BUILD = "import setuptools.build_meta as backend, sys; print(backend.build_{kind}(sys.argv[1]))"


def _build(kind: str, source: Path, output: Path) -> Path:
    """Build an `sdist` or a `wheel` without network and return its path."""
    command = [sys.executable, "-c", BUILD.format(kind=kind), str(output)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=True)
    return output / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the source distribution of a copy of this tree."""
    folder = tmp_path_factory.mktemp("build")
    tree = folder / "tree"
    shutil.copytree(ROOT / "glc_hf", tree / "glc_hf", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    with tarfile.open(_build("sdist", tree, folder)) as archive:
        archive.extractall(folder / "sdist", filter="data")
    (source,) = (folder / "sdist").iterdir()
    return _build("wheel", source, folder)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment with the wheel, which takes only the dependencies from this environment."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    # Python does not read the .pth files in a folder that a .pth file adds, such as that of an editable install.
    dependencies = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (packages / "dependencies.pth").write_text("\n".join(dependencies), encoding="utf-8")
    return folder / "bin" / "python"


def _run(python: object, folder: Path, *argv: object, **variables: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    environment.update({"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", **variables})
    command = [str(word) for word in (python, *argv)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_wheel_contains_every_file_of_the_package(wheel: Path) -> None:
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "glc_hf").rglob("*") if path.is_file()}
    with zipfile.ZipFile(wheel) as archive:
        packaged = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packaged == {name for name in sources if "__pycache__" not in name}


def test_installed_wheel_trains_and_audits_away_from_the_sources(
    installed: Path,
    tmp_path: Path,
    tiny_bert: Path,  # noqa: F811
) -> None:
    location = _run(installed, tmp_path, "-c", "import glc_hf; print(glc_hf.__file__)").strip()
    assert Path(location).is_relative_to(installed.parents[1])
    entry_point = "from importlib.metadata import distribution as d; exit(d('glc_hf').entry_points['glc-hf'].load()())"
    glc_hf = [installed, tmp_path, "-c", entry_point]
    caches = {"HF_HOME": str(tmp_path / "cache")}
    rows = [{**row, "trusted": "yes" if index % 4 == 0 else "no"} for index, row in enumerate(text_rows(60))]
    data = write_csv(tmp_path / "train.csv", rows)
    out = _run(
        *glc_hf, "train", "--dataset", data, "--model", tiny_bert, "--output-dir", "model", "--max-steps", "20",
        "--learning-rate", "5e-3", "--save-strategy", "no", **caches,
    )  # fmt: skip
    assert "saved to: model" in out
    assert (tmp_path / "model" / "corruption_matrix.json").is_file()
    card = ModelCard.load(tmp_path / "model" / "README.md")
    assert "## Label noise" in card.text
    assert "estimated noise rate" in card.text
    assert "{{" not in card.content
    # Later commands import the same files in processes that have already imported the dependencies.
    where = f"import glc_hf; assert glc_hf.__file__ == {location!r}, glc_hf.__file__; "
    glc_hf = [python(), tmp_path, "-c", where + entry_point]
    caches = {"HF_DATASETS_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(Path(location).parents[1])}
    _run(*glc_hf, "audit", "model", "--dataset", data, **caches)
    page = (tmp_path / "model" / "audit" / "audit.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "hammer was here" in page
    versions = _run(*glc_hf, "env", **caches)
    assert versions.startswith("glc_hf ")
