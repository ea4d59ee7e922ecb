# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Review pages to show in a browser, and a page that is shown."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from datasets import Dataset

from glc_hf import CorruptionMatrix
from glc_hf.audit.findings import Findings
from glc_hf.audit.page import make_page


NAMES = ["cat", "dog", "<b>cow</b>"]
EVIL = "</script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"


class Page:
    """A page in the browser."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def text(self, selector: str) -> str:
        return self.find(selector).text

    def keys(self, *keys: str) -> None:
        """Press keys while the list has the focus, as it has after loading."""
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def click(self, selector: str) -> None:
        self.find(selector).click()

    def wait_for(self, selector: str, text: str) -> None:
        """Wait until an element contains a text: reading a file takes a moment."""
        for _ in range(100):
            if text in self.text(selector):
                return
            time.sleep(0.03)
        raise AssertionError(f"{selector} has {self.text(selector)!r}, not {text!r}")

    def choose(self, selector: str, value: str) -> None:
        """Choose an option of a select element."""
        self.find(f"{selector} option[value='{value}']").click()

    def script(self, code: str, *arguments: Any) -> Any:
        return self.driver.execute_script(code, *arguments)

    @property
    def row(self) -> int:
        """The number of the current row."""
        return int(self.text("#place span").split()[1].replace(",", "").rstrip(","))

    @property
    def listed(self) -> list[str]:
        return self.script("return [...document.querySelectorAll('.row')].map((row) => row.innerText)")

    def reload(self) -> None:
        self.driver.refresh()

    def severe(self) -> list[Any]:
        return [entry for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]


def page_dataset(number: int) -> Dataset:
    given = np.arange(number) % 3
    texts = [f"{EVIL if n % 5 == 0 else 'text'} number {n}" for n in range(number)]
    return Dataset.from_dict({"text": texts, "label": [NAMES[label] for label in given]})


def page_html(
    number: int = 30, names: list[str] | None = NAMES, limit: int = 100_000, reasons: Mapping[int, str] | None = None
) -> str:
    """Rows in the order of the page: row n has class n mod 3 and the next class as suggestion; the last rows are no
    issues."""
    rows = np.arange(number)
    given = rows % 3
    suggested = np.where(rows >= 0.8 * number, given, (given + 1) % 3)
    p_wrong = np.linspace(0.999, 0.001, number)
    findings = Findings(CorruptionMatrix.uniform(3, 0.3, label_names=names), rows, None, given, suggested, p_wrong)
    return make_page(
        findings, page_dataset(number), ("text",), "text", "Review", limit, label_column="label", reasons=reasons
    )
