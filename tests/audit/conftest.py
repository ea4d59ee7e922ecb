# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""A real browser for the tests of the page."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .review_pages import Page


@pytest.fixture(scope="package")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Headless Chromium, if installed."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver_path = shutil.which("chromedriver")
    if program is None or driver_path is None:
        pytest.skip("chromium and chromedriver are not installed")
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    profile = tmp_path_factory.mktemp("profile")
    for option in ("headless", "no-sandbox", "disable-gpu", "disable-background-networking", "disable-dev-shm-usage"):
        options.add_argument(f"--{option}")
    options.add_argument(f"--user-data-dir={profile}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver_path))
    yield driver
    driver.quit()


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Callable[..., Page]:
    """Open a page with an empty storage, at a width of 1400 pixels."""
    size = {"width": 1400, "height": 900, "deviceScaleFactor": 1, "mobile": False}

    def open_page(html: str) -> Page:
        path = tmp_path / "audit.html"
        path.write_text(html, encoding="utf-8")
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
        folder = {"behavior": "allow", "downloadPath": str(tmp_path)}
        browser.execute_cdp_cmd("Browser.setDownloadBehavior", folder)
        # The picker of files can't be operated without a screen; a test of its own replaces it.
        added = browser.execute_cdp_cmd(
            "Page.addScriptToEvaluateOnNewDocument", {"source": "delete window.showSaveFilePicker"}
        )
        added_scripts.append(added["identifier"])
        browser.get_log("browser")
        browser.get(path.as_uri())
        browser.execute_script("localStorage.clear(); decisions.clear(); tell(''); filter()")
        return Page(browser)

    added_scripts: list[str] = []
    yield open_page
    for identifier in added_scripts:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", {"identifier": identifier})
