# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The audit as one HTML file: nothing is fetched, so it opens from a disk, in a mail, on a machine without network."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
from importlib.resources import files
from typing import Any

import numpy as np
from datasets import Dataset, Image

from glc_hf.audit.findings import Findings


_MAX_CLASSES_DRAWN = 60
_MAX_CHARACTERS = 600
_WORDS_AROUND = 20
_THUMBNAIL = 96


def make_page(findings: Findings, rows: Dataset, inputs: tuple[str, ...], task: str, title: str, limit: int) -> str:
    """
    The page.

    Args:
        findings (`Findings`): The audit, label by label.
        rows (`Dataset`): The rows that were audited.
        inputs (`tuple[str, ...]`): Their columns of text, words or images.
        task (`str`): `"text"`, `"token"` or `"image"`.
        title (`str`): Its headline.
        limit (`int`): How many labels it holds at most, the most suspect ones.
    """
    places = findings.most_suspect(limit)
    unit = "labels" if findings.word is not None else "rows"
    suspect, expected = int(findings.suspect.sum()), float(findings.p_wrong.sum())
    matrix = findings.matrix
    drawn = matrix.num_labels <= _MAX_CLASSES_DRAWN
    content = {
        "title": title,
        "told": f"{suspect:,} of {len(findings):,} {unit} are more probably wrong than right; in all, about "
        f"{expected:,.0f} wrong labels are to be expected ({expected / max(len(findings), 1):.1%}).",
        "how": "p(wrong) is one minus the probability that the given label is the true one, from what the model sees "
        "in the row and from how often the noisy source mistakes one class for another.",
        "limit": f"{len(places):,} of {len(findings):,} {unit} are on this page, the most suspect ones; the Parquet "
        "and CSV files beside it hold all of them. Rows are counted from 0.",
        "names": [matrix.name_of(label) for label in range(matrix.num_labels)],
        "matrix": matrix.probs.round(4).tolist() if drawn else None,
        "matrixNote": "Click a cell to see the rows that were given its label and should have its class."
        if drawn
        else "Too many classes to draw. The largest confusions: "
        + "; ".join(f"{e['true']} → {e['noisy']} {e['probability']:.0%}" for e in matrix.largest_confusions(10)),
        "classes": _classes(findings),
        "rows": _entries(findings, places, rows, inputs, task),
    }
    folder = files("glc_hf.audit")
    script = folder.joinpath("page.js").read_text(encoding="utf-8")
    page = folder.joinpath("page.html").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # With `<` written as an escape, no text of a row can end the element it stands in.
    data = json.dumps(content, ensure_ascii=False).replace("<", "\\u003c")
    for mark, text in (("SCRIPT_HASH", digest), ("TITLE", html.escape(title)), ("SCRIPT", script), ("DATA", data)):
        page = page.replace(f"@{mark}@", text)
    return page


def _classes(findings: Findings) -> list[dict[str, Any]]:
    size = findings.matrix.num_labels
    given = np.bincount(findings.given, minlength=size)
    suspect = np.bincount(findings.given[findings.suspect], minlength=size)
    return [
        {"noise": round(float(noise), 4), "given": int(given[label]), "suspect": int(suspect[label])}
        for label, noise in enumerate(findings.matrix.noise_rates)
    ]


def _entries(
    findings: Findings, places: np.ndarray, rows: Dataset, inputs: tuple[str, ...], task: str
) -> list[dict[str, Any]]:
    chosen = rows.select(findings.row[places]).select_columns(list(inputs)).with_format(None)
    if task == "image" and not isinstance(chosen.features[inputs[0]], Image):  # paths in a CSV
        chosen = chosen.cast_column(inputs[0], Image())
    entries = []
    for place, row in zip(places.tolist(), chosen, strict=True):
        entry = {
            "p": round(float(findings.p_wrong[place]), 6),
            "given": int(findings.given[place]),
            "suggested": int(findings.suggested[place]),
            "row": int(findings.row[place]),
            "text": "",
        }
        if task == "image":
            entry["image"] = _thumbnail(row[inputs[0]])
        elif task == "token":
            entry.update(_words(row[inputs[0]], int(findings.word[place])))
        else:
            text = " ⏐ ".join(str(row[name]) for name in inputs if row[name] is not None)
            entry["text"] = text if len(text) <= _MAX_CHARACTERS else text[:_MAX_CHARACTERS] + " …"
        entries.append(entry)
    return entries


def _words(words: list[str], word: int) -> dict[str, Any]:
    start = max(0, word - _WORDS_AROUND)
    around = [str(entry)[:_MAX_CHARACTERS] for entry in words[start : word + _WORDS_AROUND + 1]]
    return {"text": " ".join(around), "words": around, "word": word - start}


def _thumbnail(image: Any) -> str:
    from PIL import Image as Picture

    image = image.convert("RGB")
    largest = max(image.size)
    if largest > _THUMBNAIL:
        image.thumbnail((_THUMBNAIL, _THUMBNAIL))
        kind, settings = "jpeg", {"quality": 82}
    else:
        factor = max(1, _THUMBNAIL // (2 * largest))
        image = image.resize((image.width * factor, image.height * factor), Picture.Resampling.NEAREST)
        kind, settings = "png", {"optimize": True}
    buffer = io.BytesIO()
    image.save(buffer, kind, **settings)
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"
