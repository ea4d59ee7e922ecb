# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The review page in a real browser: decisions by mouse and keyboard, undo, filters, storage, files, and many rows."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from pathlib import Path

import numpy as np
from datasets import Dataset
from PIL import Image

from glc_hf import CorruptionMatrix
from glc_hf.audit.corrections import correct_labels
from glc_hf.audit.decisions import Decisions
from glc_hf.audit.findings import Findings
from glc_hf.audit.page import make_page

from .review_pages import EVIL, NAMES, page_dataset, page_html


def test_decisions_by_keyboard_undo_and_progress(show) -> None:
    from selenium.webdriver.common.keys import Keys

    page = show(page_html())
    assert page.row == 0
    page.keys("k")
    page.keys("s")
    page.keys(Keys.ENTER)
    page.keys("3")
    page.keys("x")
    assert page.row == 5
    assert page.text("#counts") == "4 of 30 decided: 1 kept, 3 changed; 1 skipped"
    for line, state in zip(page.listed, ("✓ kept", "→ <b>cow</b>", "→ cat", "→ <b>cow</b>", "skipped"), strict=False):
        assert state in line.split("\n")
    assert page.script("return [...decisions].map(([key, d]) => [key, d.code, d.label])") == [
        ["0", 1, 0],
        ["1", 2, 2],
        ["2", 2, 0],
        ["3", 3, 2],
        ["4", 4, None],
    ]
    page.keys("u")
    assert page.row == 4
    assert page.text("#counts") == "4 of 30 decided: 1 kept, 3 changed; 0 skipped"
    page.keys(Keys.CONTROL + "z" + Keys.NULL)
    assert page.row == 3
    page.keys(Keys.ARROW_DOWN)
    assert page.row == 4
    page.keys(Keys.ARROW_UP)
    page.keys("j")
    page.keys("p")
    assert page.row == 3
    # The last row has no suggestion: the key does nothing.
    page.keys(Keys.END)
    page.keys("s")
    assert page.row == 29
    assert not page.find("#take").is_enabled()
    page.keys("n")
    assert page.row == 3  # the first undecided row after the last one
    assert page.severe() == []


def test_decisions_by_mouse_and_another_class(show) -> None:
    page = show(page_html())
    page.click("#take")
    page.click("#keep")
    page.click("#skip")
    assert page.row == 3
    page.click("#chips button:nth-child(3)")
    assert page.row == 4
    assert page.script("return [...decisions].map(([key, d]) => [d.code, d.label])") == [
        [2, 1],
        [1, 1],
        [4, None],
        [3, 2],
    ]
    # After a click, Enter takes the suggestion of the next row; it does not press the button again.
    page.click(".row[data-position='5']")
    assert page.row == 5
    page.click("#keep")
    assert page.row == 6
    page.keys("\ue007")
    assert page.script("return decisions.get('6').code") == 2
    page.click("#undo")
    assert page.row == 6
    assert page.script("return decisions.has('6')") is False
    # A decided row shows its decision, and can be decided on again.
    page.click(".row[data-position='0']")
    assert page.find("#take").get_attribute("aria-pressed") == "true"
    page.click("#keep")
    assert page.script("return decisions.get('0').code") == 1


def test_text_of_rows_is_shown_as_text(show) -> None:
    page = show(page_html())
    assert page.driver.title == "Review"
    assert page.text("#content") == f"{EVIL} number 0"
    assert (
        page.script("return document.querySelectorAll('#list img, #list script, #card img, #card script, b').length")
        == 0
    )
    page.keys("2", "2", "2")
    assert "→ dog" in page.listed[0]
    assert page.driver.title == "Review"


def test_rows_suggested_to_check_next_are_marked_filtered_and_ordered(show) -> None:
    # Row 29 is not among the 20 most suspicious ones, but suggested.
    page = show(page_html(limit=20, reasons={29: "the model predicts cat 51% or dog 49%", 4: "<b>why</b>", 11: "new"}))
    assert page.text("#limit").startswith("21 of 30 rows")
    marked = [line for line in page.listed if "check next" in line]
    assert len(marked) == 2  # row 29 is below the visible part
    assert not page.find("#reason").is_displayed()
    page.click("#next-filter")
    assert page.text("#count") == "3 of 21 match"
    assert page.row == 4
    assert page.text("#reason") == "Suggested to check next: <b>why</b>"
    page.choose("#order", "next")
    assert [line.split("number ")[1] for line in page.listed] == ["29", "4", "11"]
    page.keys("k")  # the focus is on the select element
    page.find("#list").send_keys("k")
    assert page.row == 4
    assert page.script("return [...decisions.keys()]") == ["29"]
    page.click("#clear")
    assert page.text("#count") == "21 of 21 match"
    assert [line.split("number ")[1] for line in page.listed][:4] == ["29", "4", "11", "0"]
    assert page.severe() == []


def test_without_suggested_rows_there_is_no_filter_for_them(show) -> None:
    page = show(page_html())
    assert not page.find("#next-filter").is_displayed()
    assert page.driver.find_elements("css selector", "#order option[value=next]") == []
    assert not any("check next" in line for line in page.listed)


def test_filters_by_pair_state_text_and_probability(show) -> None:
    page = show(page_html())
    page.choose("#pair", "1")  # cat → dog
    assert page.text("#count") == "8 of 30 match"
    assert all("cat → dog" in line for line in page.listed)
    page.find("#list").send_keys("s", "s")
    page.choose("#state", "open")
    assert page.text("#count") == "6 of 30 match"
    # A decided row leaves the list of undecided rows, and the next one takes its place; undo brings it back.
    first = page.row
    page.find("#list").send_keys("k")
    assert page.text("#count") == "5 of 30 match"
    assert page.row > first
    page.find("#list").send_keys("u")
    assert page.row == first
    assert page.text("#count") == "6 of 30 match"
    page.choose("#state", "changed")
    assert page.text("#count") == "2 of 30 match"
    page.choose("#state", "skip")
    assert page.find("#empty").is_displayed()
    assert not page.find("#keep").is_enabled()
    page.click("#clear")
    assert page.text("#count") == "30 of 30 match"
    page.find("#text").send_keys("NUMBER 17")
    assert page.text("#count") == "1 of 30 match"
    assert page.row == 17
    page.click("#clear")
    page.find("#minimum").clear()
    page.find("#minimum").send_keys("0.9")
    assert page.text("#count") == "3 of 30 match"
    page.click("#clear")
    page.choose("#order", "doubt")
    assert page.row in (14, 15)
    # A cell of the matrix: true dog, given cat.
    page.script("document.querySelectorAll('#heat button')[3].click()")
    assert page.text("#count") == "8 of 30 match"
    page.script("document.querySelectorAll('#heat button')[1].click()")  # no row has this pair
    assert page.text("#count") == "0 of 30 match"
    assert page.severe() == []


def _saved(folder: Path) -> Path:
    for _ in range(100):
        if (folder / "decisions.json").exists():
            return folder / "decisions.json"
        time.sleep(0.05)
    raise AssertionError("nothing was downloaded")


def test_reload_continues_and_the_saved_file_can_be_applied_and_loaded(show, tmp_path: Path) -> None:
    page = show(page_html())
    page.keys("k", "s", "3", "x")
    page.reload()
    assert page.text("#status") == "4 decisions from your last visit."
    assert page.text("#counts") == "3 of 30 decided: 2 kept, 1 changed; 1 skipped"
    assert page.row == 4  # the first undecided row
    page.click("#save")
    path = _saved(tmp_path)
    assert page.text("#status").startswith("4 decisions saved as decisions.json")
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["format_version"] == 1
    assert content["label_names"] == NAMES
    assert {key: content["decisions"][1][key] for key in ("row", "decision", "label", "given_label")} == {
        "row": 1,
        "decision": "suggested",
        "label": NAMES[2],
        "given_label": "dog",
    }
    corrections = correct_labels(page_dataset(30), Decisions.read(path))
    assert (corrections.reviewed, corrections.changed, corrections.skipped) == (3, 1, 1)
    assert corrections.dataset["label"][:3] == ["cat", NAMES[2], NAMES[2]]

    # Another browser: the file brings the decisions back, in one step that can be undone.
    page.script("localStorage.clear(); decisions.clear(); location.reload()")
    page.wait_for("#counts", "0 of 30")
    page.find("#file").send_keys(str(path))
    page.wait_for("#status", "4 decisions loaded from decisions.json.")
    assert page.text("#counts") == "3 of 30 decided: 2 kept, 1 changed; 1 skipped"
    page.click("#undo")
    assert page.text("#counts").startswith("0 of 30")


def test_files_that_do_not_fit_are_not_loaded(show, tmp_path: Path) -> None:
    page = show(page_html())
    page.keys("k", "s")
    text = page.script("return fileText()")
    page.keys("u", "u")
    for number, (old, new, message) in enumerate(
        [
            (text[60:], "", "cut short"),
            (text, "[]", "not a decisions file"),
            ('"fingerprint": "', '"fingerprint": "0', "another dataset"),
            ('"row":1,', '"row":99,', "row 99: there is no such row"),
            ('"label":"cat"', '"label":"cats"', "row 0: there is no class “cats”"),
            ('"decision":"keep"', '"decision":"kept"', "row 0: there is no decision “kept”"),
            ('"num_decisions": 2', '"num_decisions": 3', "some of its decisions are missing"),
        ]
    ):
        path = tmp_path / f"other-{number}.json"
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")
        page.find("#file").send_keys(str(path))
        page.wait_for("#status", f"{path.name} was not loaded")
        assert message in page.text("#status")
        assert "problem" in page.find("#status").get_attribute("class")
        assert page.text("#counts").startswith("0 of 30")


def test_a_picked_file_is_written_after_every_decision(show) -> None:
    page = show(page_html())
    page.script(
        """
        window.written = [];
        window.showSaveFilePicker = async (options) => ({
          name: options.suggestedName,
          createWritable: async () => ({ write: async (text) => window.written.push(text), close: async () => {} }),
        });
        """
    )
    page.keys("k")
    page.click("#save")
    page.script("document.getElementById('list').focus()")
    page.keys("s")
    time.sleep(0.4)
    counts = [json.loads(text)["num_decisions"] for text in page.script("return window.written")]
    assert counts[0] == 1
    assert counts[-1] == 2
    assert page.text("#status").startswith("Saved to decisions.json")


def test_full_storage_is_reported_and_decisions_stay(show) -> None:
    page = show(page_html())
    page.script("Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError') }")
    page.keys("k")
    page.wait_for("#status", "save them to a file before you close the page")
    assert page.text("#counts").startswith("1 of 30")
    page.script("unsaved = 0")  # no question when the next test leaves the page


def test_search_for_one_of_many_classes(show) -> None:
    names = [f"class {n}" for n in range(200)]
    rows = np.arange(40)
    findings = Findings(CorruptionMatrix.flip(200, 0.4, label_names=names), rows, None, rows, rows + 7, rows / 40)
    page = show(make_page(findings, page_dataset(40), ("text",), "text", "Review", 100))
    assert len(page.driver.find_elements("css selector", "#chips button")) == 10
    first = page.row
    page.keys("c")
    page.keys("class 15")
    chips = [button.text.split("\n")[-1] for button in page.driver.find_elements("css selector", "#chips button")]
    assert chips[:2] == ["class 15", "class 150"]
    page.keys("\ue007")
    assert page.script(f"return nameOf(decisions.get('{first}').label)") == "class 15"
    page.keys("s")  # the keys act on the list again
    assert page.script("return decisions.size") == 2
    page.keys("c")
    page.keys("nothing", "\ue007")
    assert page.text("#status") == "No class has this name."
    assert page.script("return decisions.size") == 2


def test_classes_that_are_digits_have_their_own_keys(show) -> None:
    given = np.arange(10)
    findings = Findings(
        CorruptionMatrix.flip(10, 0.4), given, None, given, (given + 1) % 10, np.linspace(0.9, 0.8, 10)
    )
    page = show(make_page(findings, page_dataset(10), ("text",), "text", "Review", 100))
    assert not page.find("#class-search").is_displayed()
    page.keys("7", "0")
    assert page.script("return [decisions.get('0').label, decisions.get('1').label]") == [7, 0]


def test_images_and_words_in_context(show) -> None:
    findings = Findings(
        CorruptionMatrix.uniform(3, 0.3),
        np.arange(3),
        None,
        np.zeros(3, int),
        np.ones(3, int),
        np.linspace(0.9, 0.8, 3),
    )
    pictures = [Image.new("RGB", size, (200, 20, 20)) for size in ((8, 8), (640, 480), (96, 20))]
    page = show(make_page(findings, Dataset.from_dict({"image": pictures}), ("image",), "image", "t", 10))
    assert page.find("#content img").get_attribute("alt") == "row 0"
    assert page.script("return document.querySelector('#content img').naturalWidth") == 8
    assert not page.find("#text-filter").is_displayed()
    page.keys("s")
    assert json.loads(page.script("return fileText()"))["decisions"][0]["label"] == 1  # classes without names

    findings.word = np.array([2, 0, 1])
    page = show(
        make_page(findings, Dataset.from_dict({"tokens": [["a", "b", "<i>"]] * 3}), ("tokens",), "token", "t", 10)
    )
    assert page.text("#content mark") == "<i>"
    assert page.text("#content") == "a b <i>"
    page.keys("k")
    assert json.loads(page.script("return fileText()"))["decisions"][0]["word"] == 2


def test_a_hundred_thousand_rows_are_fluent(show, tmp_path: Path) -> None:
    html = page_html(100_000)
    assert len(html) < 12_000_000
    page = show(html)
    times = page.script(
        "const t = performance.getEntriesByType('navigation')[0]; return t.domComplete - t.responseEnd"
    )
    assert times < 5000
    assert len(page.listed) < 40
    scroll = """
        const start = performance.now(), list = document.getElementById("list"), done = arguments[0];
        let step = 0;
        const next = () => {
          if (step++ === 60) return done((performance.now() - start) / 60);
          list.scrollTop = (step * 6_000_000) / 60;
          requestAnimationFrame(() => requestAnimationFrame(next));
        };
        next();
    """
    assert page.driver.execute_async_script(scroll) < 150  # milliseconds per jump to other rows
    assert "number 99999" in page.listed[-1]
    decide = (
        "const s = performance.now(); for (let n = 0; n < 20; n++) keepLabel(); return (performance.now() - s) / 20"
    )
    assert page.script(decide) < 100
    page.choose("#state", "open")
    assert page.text("#count") == "99,980 of 100,000 match"
    start = time.perf_counter()
    page.find("#text").send_keys("99998")
    assert page.text("#count") == "1 of 100,000 match"
    assert time.perf_counter() - start < 5


def test_more_rows_than_the_browser_can_place_are_all_reachable(show) -> None:
    # As if the largest height of an element were 6,000 pixels, a third of the list.
    html = page_html(300).replace("MAX_HEIGHT = 12_000_000", "MAX_HEIGHT = 6_000")
    script = re.search(r"<script>(.*?)</script>", html, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = show(re.sub(r"sha256-[^']*", lambda _: f"sha256-{digest}", html, count=1))
    page.script("list.scrollTop = 1e9")
    time.sleep(0.1)
    assert "number 299" in page.listed[-1]
    page.keys("\ue011")  # home, then through the list
    for position in (0, 100, 150, 299):
        page.script("current = arguments[0]; draw()", position)
        box = page.script(
            "const r = byId(`row-${shown[current]}`).getBoundingClientRect(), l = list.getBoundingClientRect();"
            "return r.top >= l.top - 1 && r.bottom <= l.bottom + 1"
        )
        assert box, position
