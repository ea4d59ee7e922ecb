# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Project files agree with each other: versions of Python and of tools, make targets, links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import glc_hf


ROOT = Path(__file__).parents[1]


def _text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _yaml(name: str) -> dict:
    return yaml.safe_load(_text(name))


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def _pinned(name: str) -> str:
    return re.search(rf"^{name}==(.*)$", _text("constraints.txt"), flags=re.M)[1]


def test_workflow_tests_the_versions_of_python_that_the_package_claims() -> None:
    claimed = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', _text("pyproject.toml"))
    jobs = _yaml(".github/workflows/ci.yml")["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == claimed == sorted(claimed, key=_version)
    lowest = re.search(r'requires-python = ">=(.*)"', _text("pyproject.toml"))[1]
    assert claimed[0] == lowest
    for page in ("README.md", "CONTRIBUTING.md"):
        assert f"Python {lowest} or newer" in _text(page)


def test_dependencies_can_be_installed_with_the_oldest_claimed_python() -> None:
    # A lower bound that equals the pinned version must support that Python. Newer versions never support older ones.
    from importlib.metadata import metadata

    lowest = _version(re.search(r'requires-python = ">=(.*)"', _text("pyproject.toml"))[1])
    block = re.search(r"^dependencies = \[(.*?)^\]", _text("pyproject.toml"), flags=re.M | re.S)[1]
    bounds = dict(re.findall(r'"(\w+)>=([\d.]+)"', block))
    assert {"torch", "transformers"} <= set(bounds)
    for name, bound in bounds.items():
        installed = metadata(name)
        if installed["Version"].split("+")[0].startswith(bound) and installed["Requires-Python"]:
            needed = re.search(r">=\s*([\d.]+)", installed["Requires-Python"])[1]
            assert _version(needed)[:2] <= lowest, f"{name} {bound} needs Python {needed}"


def test_lower_bounds_are_the_oldest_versions_that_are_tested() -> None:
    oldest = dict(re.findall(r"^([\w-]+)==(.*)$", _text("constraints-oldest.txt"), flags=re.M))
    pinned = {name.lower(): version for name, version in oldest.items()}
    block = re.search(r"^dependencies = \[(.*?)^\]", _text("pyproject.toml"), flags=re.M | re.S)[1]
    extras = re.findall(r"^(?:plots|terminal|demo|peft|vision|experiments|ray) = (.*)$", _text("pyproject.toml"), re.M)
    assert len(extras) == 7
    bounds = re.findall(r'"([\w-]+)>=([\d.]+)"', "\n".join([block, *extras]))
    assert len(bounds) >= 20
    for name, bound in bounds:
        version = _version(pinned[name.lower()])
        assert version[: len(_version(bound))] == _version(bound), name


def test_workflow_calls_targets_of_the_makefile() -> None:
    targets = set(re.search(r"^\.PHONY: (.*)$", _text("Makefile"), flags=re.M)[1].split())
    for name in (".github/workflows/ci.yml", "CONTRIBUTING.md", ".github/pull_request_template.md"):
        called = set(re.findall(r"(?:^|`|run: )make (\w+)", _text(name), flags=re.M))
        assert called
        assert called <= targets
    assert {"test", "docs", "wheel"} <= set(re.findall(r"run: make (\w+)", _text(".github/workflows/ci.yml")))


def test_linter_before_a_commit_is_that_of_the_tests() -> None:
    (repository,) = _yaml(".pre-commit-config.yaml")["repos"]
    assert repository["rev"] == "v" + _pinned("ruff")
    assert {hook["id"] for hook in repository["hooks"]} == {"ruff-check", "ruff-format"}


def test_type_checker_is_pinned_and_hardly_silenced() -> None:
    assert _pinned("mypy")
    makefile = _text("Makefile")
    assert re.search(r"^MYPY := .*\$\(BIN\)/mypy", makefile, flags=re.M)
    assert len(re.findall(r"^\t\$\(MYPY\)", makefile, flags=re.M)) == 2  # in `lint` and in `test`
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "glc_hf").rglob("*.py")]
    silenced = [line for text in sources for line in text.splitlines() if "type: ignore" in line]
    assert len(silenced) <= 10
    assert all(re.search(r"# type: ignore\[[a-z-]+\]  # \w", line) for line in silenced)


def test_tools_of_the_site_are_pinned() -> None:
    extra = re.search(r"^docs = \[(.*)\]", _text("pyproject.toml"), flags=re.M)[1]
    names = re.findall(r'"([\w-]+)>=', extra)
    assert "mkdocs-material" in names
    for name in names:
        _pinned(name)


def test_site_is_built_in_strict_mode() -> None:
    (command,) = re.findall(r"mkdocs build.*", _text("Makefile"))
    assert command == "mkdocs build --strict"  # with --quiet, strict mode does not see warnings


def test_citation_has_the_version_and_the_paper() -> None:
    citation = _yaml("CITATION.cff")
    assert str(citation["version"]) == glc_hf.__version__
    (paper,) = citation["references"]
    authors = " and ".join(f"{author['family-names']}, {author['given-names']}" for author in paper["authors"])
    assert f"author={{{authors}}}" in _text("README.md")
    assert f"title={{{paper['title']}}}" in _text("README.md")


@pytest.mark.parametrize("name", ["bug", "feature"])
def test_issue_form_is_complete(name: str) -> None:
    form = _yaml(f".github/ISSUE_TEMPLATE/{name}.yml")
    assert {"name", "description", "body"} <= set(form)
    assert any(field.get("validations", {}).get("required") for field in form["body"])
    assert all(field["attributes"]["label"] for field in form["body"])
