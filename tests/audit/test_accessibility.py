# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The review page and the rules of axe-core, wide and narrow, light and dark."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset
from PIL import Image

from glc_hf import CorruptionMatrix
from glc_hf.audit.findings import Findings
from glc_hf.audit.page import make_page
from glc_hf.correction.sources import SourceRow, SourceTable

from .review_pages import Page, page_html


def _axe() -> str:
    """The source of axe-core: of the npm package if it is installed here, else of the Python package."""
    path = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
    spec = importlib.util.find_spec("axe_core_python")
    if not path.is_file() and spec is not None:
        path = Path(spec.origin).parent / "axe.min.js"
    if not path.is_file():
        pytest.skip("axe-core is not installed: `pip install axe-core-python` or `npm install axe-core`")
    return path.read_text(encoding="utf-8")


def _violations(page: Page) -> list[Any]:
    page.driver.execute_script(_axe())
    result = page.driver.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
    return [(rule["id"], [node["html"][:120] for node in rule["nodes"][:3]]) for rule in result["violations"]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
def test_page_passes_the_accessibility_rules_of_axe(show, scheme: str, width: int) -> None:
    _axe()
    page = show(page_html(200, reasons={3: "the model predicts dog 51% or cat 49%", 150: "new"}))
    metrics = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 600}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    page.reload()
    page.keys("k", "s", "x")
    assert page.script("return document.documentElement.scrollWidth <= window.innerWidth")
    assert _violations(page) == []


def test_images_many_classes_warnings_and_sources_pass_the_rules_of_axe(show) -> None:
    _axe()
    rows = np.arange(30)
    findings = Findings(CorruptionMatrix.flip(40, 0.4), rows, None, rows, rows + 1, rows / 30)
    pictures = Dataset.from_dict({"image": [Image.new("RGB", (8, 8))] * 30})
    source = SourceRow("rule", 90, 0.9, 30, 3, 0.1, 0.05, 0.2, 0.1, 0.3, None, 1.0, [], hurts=True)
    warnings, sources = ["few trusted rows"], SourceTable([source])
    page = show(make_page(findings, pictures, ("image",), "image", "t", 100, warnings, sources))
    assert _violations(page) == []
    page.choose("#state", "skip")  # nothing matches
    assert _violations(page) == []
