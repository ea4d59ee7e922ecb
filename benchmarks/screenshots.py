# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
The screenshots of the review page in docs/: light, dark, and as on a phone. The rows are made up. Needs Chromium.

    python benchmarks/screenshots.py
"""

from __future__ import annotations

import argparse
import io
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from glc_hf import CorruptionMatrix
from glc_hf.audit.findings import Evidence, Findings
from glc_hf.audit.page import make_page


DOCS = Path(__file__).parents[1] / "docs"
COLORS = 96
# Name: width, height, dark.
PICTURES = {"light": (1400, 900, False), "dark": (1400, 900, True), "narrow": (390, 844, False)}
CLASSES = ("account", "billing", "delivery", "praise", "technical")
SENTENCES = {
    "account": ("I can't log in since I changed my e-mail address", "Please delete my account and all my data"),
    "billing": ("I was charged twice for the same order", "The invoice shows the wrong VAT number"),
    "delivery": ("My parcel has been in the depot for nine days", "The courier left the box in the rain"),
    "praise": ("The new search is great, thank you", "Your team solved it within minutes, wonderful"),
    "technical": ("The app closes itself when I open a photo", "Exporting to PDF shows a blank page"),
}
ENDINGS = (
    "", ". Can someone help?", ". I have written twice already.", ". It worked last week.",
    ". Order 48213, please have a look, I would like to sort this out before the weekend.",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=DOCS, help="folder for the pictures (default: docs)")
    output = parser.parse_args().output
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "audit.html"
        page.write_text(example_page(), encoding="utf-8")
        for name, (width, height, dark) in PICTURES.items():
            target = output / f"review-{name}.png"
            _save_small(screenshot(page, width, height, dark), target)
            print(f"{target}: {target.stat().st_size:,} bytes")


def example_page(number: int = 1380) -> str:
    """Return a review page of made-up messages to a shop."""
    generator = np.random.default_rng(2)
    true = generator.integers(len(CLASSES), size=number)
    probs = np.full((5, 5), 0.04) + np.diag([0.8] * 5)
    probs[0], probs[4] = [0.66, 0.04, 0.03, 0.01, 0.26], [0.22, 0.02, 0.03, 0.01, 0.72]
    matrix = CorruptionMatrix(probs / probs.sum(axis=1, keepdims=True), list(CLASSES))
    given = np.array([generator.choice(5, p=matrix.probs[label]) for label in true])
    p_wrong = np.where(given == true, generator.beta(1, 12, number), generator.beta(12, 1, number))
    texts = [
        generator.choice(SENTENCES[CLASSES[label]]) + generator.choice(ENDINGS, p=[0.2, 0.2, 0.2, 0.2, 0.2])
        for label in true
    ]
    findings = Findings(matrix, np.arange(number), None, given, true, p_wrong, evidence=Evidence(0.0, 120, 25))
    rows = Dataset.from_dict({"text": texts, "label": [CLASSES[label] for label in given]})
    # As `--suggest 60` marks them.
    chosen = findings.ranked(400)[5::7]
    reasons = {int(row): f"the model predicts {CLASSES[true[row]]} 53% or {CLASSES[given[row]]} 41%" for row in chosen}
    title, inputs = "Label audit: messages.csv", ("text",)
    return make_page(findings, rows, inputs, "text", title, 1000, label_column="label", reasons=reasons)


def screenshot(page: Path, width: int, height: int, dark: bool) -> bytes:
    """Decide on a few rows and return the picture of the page as PNG."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for option in ("headless", "no-sandbox", "disable-gpu", "hide-scrollbars"):
        options.add_argument(f"--{option}")
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        _emulate(driver, width, height, dark)
        driver.get(page.as_uri())
        body = driver.find_element("css selector", "#list")
        for key in "sskssxss2sss":
            body.send_keys(key)
        driver.execute_script("window.scrollTo(0, 0)")
        return driver.get_screenshot_as_png()
    finally:
        driver.quit()


def _emulate(driver: Any, width: int, height: int, dark: bool) -> None:
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def _save_small(picture: bytes, target: Path) -> None:
    """Save with a palette of few colors: a third of the bytes, without a visible difference."""
    from PIL import Image

    with Image.open(io.BytesIO(picture)) as image:
        image.convert("RGB").quantize(COLORS, dither=Image.Dither.NONE).save(target, optimize=True)


if __name__ == "__main__":
    main()
