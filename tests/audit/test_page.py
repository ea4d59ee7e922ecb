# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The HTML page of an audit: self-contained, safe for any text, and usable in a real browser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset
from PIL import Image

from glc_hf import CorruptionMatrix
from glc_hf.audit import page as page_module
from glc_hf.audit.findings import Findings
from glc_hf.audit.page import make_page
from glc_hf.correction.sources import SourceRow, SourceTable


NAMES = ["cat", "dog", "<b>cow</b>"]
EVIL = [
    "</script><script>document.title='taken'</script>",
    "<img src=x onerror=\"document.title='taken'\">",
    "&lt;not markup&gt; \u2028 @DATA@ @SCRIPT@",
]


def _findings(number: int, seed: int = 0) -> Findings:
    generator = np.random.default_rng(seed)
    given, suggested = generator.integers(3, size=(2, number))
    p_wrong = np.where(given == suggested, generator.uniform(0, 0.4, number), generator.uniform(0.5, 1, number))
    matrix = CorruptionMatrix.uniform(3, 0.3, label_names=NAMES)
    return Findings(matrix, np.arange(number), None, given, suggested, p_wrong)


def _page(number: int = 3000, limit: int = 1000, warnings: tuple[str, ...] = ()) -> tuple[str, Findings]:
    findings = _findings(number)
    rows = Dataset.from_dict({"text": [f"{EVIL[n % 3]} number {n}" for n in range(number)]})
    return make_page(findings, rows, ("text",), "text", "Label audit: <animals>", limit, warnings), findings


def _data(page: str) -> dict[str, Any]:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def test_page_contains_the_issues_first_and_the_total_number() -> None:
    page, findings = _page()
    data = _data(page)
    shown = data["rows"]["p"]
    assert len(shown) == 1000
    assert shown == sorted(shown, reverse=True)
    assert min(shown) >= np.sort(findings.p_wrong)[-1000] - 1e-6
    assert data["limit"].startswith("1,000 of 3,000 rows are on this page")
    assert data["summary"].startswith(f"{findings.num_issues:,} of 3,000 labels are issues: another label is more")
    assert f"Estimated number of wrong labels: {findings.total_wrong}." in data["summary"]
    assert [entry["given"] for entry in data["classes"]] == np.bincount(findings.given).tolist()


def test_page_contains_the_warnings_of_the_run() -> None:
    warnings = ("few trusted rows for <b>cow</b>", EVIL[0])
    page, _ = _page(30, warnings=warnings)
    assert _data(page)["warnings"] == list(warnings)
    assert "</script><script>" not in page
    assert page.index('id="warnings"') < page.index('id="summary"')
    assert _data(_page(30)[0])["warnings"] == []


def _sources(number: int = 2) -> SourceTable:
    rows = [
        SourceRow(f"{EVIL[0]} {n}", 90, 0.9, 30, 3, 0.1, 0.05, 0.2, 0.1, 0.3, None, 1.0, [], hurts=True)
        for n in range(number)
    ]
    return SourceTable(rows)


def test_page_shows_what_the_sources_are_worth() -> None:
    assert _data(_page(30)[0])["sources"] is None
    rows = Dataset.from_dict({"text": ["x"] * 30})
    page = make_page(_findings(30), rows, ("text",), "text", "t", 10, sources=_sources(50))
    data = _data(page)
    assert "</script><script>" not in page
    assert data["sources"]["header"] == list(SourceTable.header)
    assert len(data["sources"]["lines"]) == 21
    assert data["sources"]["lines"][10][0] == "… 30 more"
    assert data["sources"]["hurting"][0].startswith(EVIL[0])
    assert data["sources"]["hurting"][-1] == "40 more sources hurt."
    assert data["matrixNote"].startswith("Mean over the votes of all sources.")


def test_page_loads_nothing_from_the_network() -> None:
    page, _ = _page(50)
    shell = page.replace(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1], "")
    assert not re.search(r"https?://|//[a-z]|@import|url\(|<link|<iframe|src=", shell)
    assert "default-src 'none'" in shell


def test_text_of_rows_is_never_interpreted_as_html() -> None:
    page, _ = _page(30)
    assert "</script><script>" not in page
    assert page.count("<script") == 2
    texts = _data(page)["rows"]["text"]
    assert any(text.startswith(EVIL[0]) for text in texts)
    assert any(text.startswith(EVIL[2]) for text in texts)
    assert "<title>Label audit: &lt;animals&gt;</title>" in page


def test_images_become_thumbnails_and_words_keep_their_context() -> None:
    findings = _findings(4)
    pictures = [Image.new("RGB", size, (200, 20, 20)) for size in ((8, 8), (640, 480), (96, 20), (1, 1))]
    page = make_page(findings, Dataset.from_dict({"image": pictures}), ("image",), "image", "t", 10)
    for image in _data(page)["rows"]["image"]:
        assert image.startswith(("data:image/png;base64,", "data:image/jpeg;base64,"))
        assert len(image) < 8000
    findings.word = np.array([0, 30, 1, 2])
    words = [[f"w{n}" for n in range(60)]] * 4
    page = make_page(findings, Dataset.from_dict({"tokens": words}), ("tokens",), "token", "t", 10)
    shown = _data(page)["rows"]
    for row, position, context, mark in zip(*(shown[n] for n in ("row", "position", "words", "mark")), strict=True):
        assert position == findings.word[row]
        assert context[mark] == f"w{position}"
        assert len(context) <= 41


def test_images_can_be_paths(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    rows = Dataset.from_dict({"image": [str(tmp_path / "a.png")] * 3})
    page = make_page(_findings(3), rows, ("image",), "image", "t", 10)
    assert all(image.startswith("data:image/png;base64,") for image in _data(page)["rows"]["image"])


def test_texts_of_many_rows_are_cut_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Dataset.from_dict({"text": ["x" * 9000] * 30})
    texts = _data(make_page(_findings(30), rows, ("text",), "text", "t", 30))["rows"]["text"]
    assert {len(text) for text in texts} == {4002}
    monkeypatch.setattr(page_module, "_MAX_PAGE_CHARACTERS", 15_000)
    texts = _data(make_page(_findings(30), rows, ("text",), "text", "t", 30))["rows"]["text"]
    assert {len(text) for text in texts} == {502}


def test_decisions_are_kept_per_dataset_and_classes() -> None:
    def review(texts: list[str], names: list[str] = NAMES, seed: int = 0) -> dict[str, Any]:
        findings = _findings(len(texts), seed)
        findings.matrix = CorruptionMatrix.uniform(3, 0.3, label_names=names)
        rows = Dataset.from_dict({"text": texts, "label": [0] * len(texts)})
        return _data(make_page(findings, rows, ("text",), "text", "t", 9, label_column="label"))["review"]

    first = review(["a", "b", "c"])
    assert first["dataset"]["input_columns"] == ["text"]
    assert first["dataset"]["label_column"] == "label"
    assert review(["a", "b", "c"], seed=7) == first  # another audit of the same rows
    assert review(["a", "c", "b"])["key"] != first["key"]
    assert review(["a", "b", "c"], ["x", "y", "z"])["key"] != first["key"]


def test_matrix_with_many_classes_is_described_in_text() -> None:
    matrix = CorruptionMatrix.flip(100, 0.4)
    findings = Findings(matrix, np.arange(5), None, np.arange(5), np.arange(5), np.zeros(5))
    data = _data(make_page(findings, Dataset.from_dict({"text": ["x"] * 5}), ("text",), "text", "t", 10))
    assert data["matrix"] is None
    assert data["review"]["named"] is False
    assert "Too many classes to draw" in data["matrixNote"]


def test_sources_are_shown_as_text_in_a_real_browser(browser: Any, tmp_path: Path) -> None:
    rows = Dataset.from_dict({"text": ["x"] * 30})
    for sources, lines in ((None, 0), (_sources(), 3)):
        page = make_page(_findings(30), rows, ("text",), "text", "t", 10, sources=sources)
        (tmp_path / "audit.html").write_text(page, encoding="utf-8")
        browser.get((tmp_path / "audit.html").as_uri())
        panel = browser.find_element("css selector", "#sources-panel")
        assert panel.is_displayed() == (sources is not None)
        assert len(browser.find_elements("css selector", "#sources tr")) == lines
        assert not browser.find_elements("css selector", "#sources-panel script")
    assert browser.find_element("css selector", "#sources td").text == f"{EVIL[0]} 0"
    assert len(browser.find_elements("css selector", "#hurting li")) == 2
