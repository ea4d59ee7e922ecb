# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Export of an audit: Parquet, CSV, and an HTML page to review the labels, which works offline."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from datasets import Dataset, Image, LargeList, List, Value

from glc_hf.audit.dataset_file import dataset_facts, row_checks
from glc_hf.audit.findings import COLUMNS, GIVEN, SUGGESTED, Findings
from glc_hf.correction.sources import SourceTable
from glc_hf.data.data_files import mark_formula


PARQUET_FILE, CSV_FILE, PAGE_FILE = "audit.parquet", "audit.csv", "audit.html"
_MAX_CLASSES_DRAWN = 60
# Texts on the page are cut so that all of them together have about this many characters.
_MAX_PAGE_CHARACTERS = 40_000_000
_FEWEST_CHARACTERS, _MOST_CHARACTERS = 300, 4000
_MAX_WORD_CHARACTERS = 600
_CONTEXT_WORDS = 20
_THUMBNAIL_SIZE = 160
_SCRIPTS = ("page.js", "decisions.js", "review.js")


def write_audit(
    folder: str | Path,
    audited: Dataset,
    findings: Findings,
    inputs: tuple[str, ...],
    task: str,
    title: str,
    page_rows: int,
    warnings: Sequence[str] = (),
    sources: SourceTable | None = None,
    label_column: str | None = None,
    reasons: Mapping[int, str] | None = None,
    trusted_column: str = "trusted",
) -> list[Path]:
    """
    Write `audit.parquet`, `audit.csv` and `audit.html`. The files contain class names where they are known.

    Args:
        folder (`str`): Output folder, created if needed.
        audited (`Dataset`): The rows with the audit columns.
        findings (`Findings`): The findings of `audited`.
        inputs, task, title, page_rows, warnings, sources, label_column, reasons, trusted_column: See [`make_page`].

    Returns:
        `list[Path]`: Paths of the three files.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in (PARQUET_FILE, CSV_FILE, PAGE_FILE)]
    named = _with_class_names(audited, findings.matrix.label_names)
    named.to_parquet(str(paths[0]))
    _write_csv(named, paths[1])
    page = make_page(
        findings, audited, inputs, task, title, page_rows, warnings, sources, label_column, reasons, trusted_column
    )
    paths[2].write_text(page, encoding="utf-8")
    return paths


def _with_class_names(audited: Dataset, names: list[str] | None) -> Dataset:
    if names is None:
        return audited

    def name(label: Any) -> Any:
        if isinstance(label, list):
            return [name(entry) for entry in label]
        return names[label] if label is not None and label >= 0 else None

    for column in (GIVEN, SUGGESTED):
        labels = [name(label) for label in audited.with_format(None)[column]]
        feature = List(Value("string")) if hasattr(audited.features[column], "feature") else Value("string")
        audited = audited.remove_columns(column).add_column(column, labels, feature=feature)
    return audited.select_columns([*(name for name in audited.column_names if name not in COLUMNS), *COLUMNS])


def _write_csv(audited: Dataset, path: Path) -> None:
    """Write a CSV without images; lists and dicts are stored as JSON."""
    images = [name for name, feature in audited.features.items() if isinstance(feature, Image)]
    audited = audited.remove_columns(images).with_format(None)
    nested = [name for name, feature in audited.features.items() if isinstance(feature, (dict, List, LargeList))]
    frame = audited.remove_columns(nested).to_pandas()
    for name in nested:
        frame[name] = [
            None if value is None else json.dumps(value, default=str, ensure_ascii=False) for value in audited[name]
        ]
    frame = frame[audited.column_names]
    frame.insert(0, "row" if "row" not in frame.columns else "audit_row", range(len(frame)))
    write_frame(frame, path)


def write_frame(frame: pd.DataFrame, path: Path) -> None:
    """Write a table as CSV, without formulas that a spreadsheet would run."""
    for name in frame.columns:
        if not pd.api.types.is_numeric_dtype(frame[name]):
            frame[name] = [mark_formula(value) for value in frame[name]]
    frame.rename(columns=mark_formula).to_csv(path, index=False)


def make_page(
    findings: Findings,
    rows: Dataset,
    inputs: tuple[str, ...],
    task: str,
    title: str,
    page_rows: int,
    warnings: Sequence[str] = (),
    sources: SourceTable | None = None,
    label_column: str | None = None,
    reasons: Mapping[int, str] | None = None,
    trusted_column: str = "trusted",
) -> str:
    """
    Return the HTML page of an audit, on which a person decides on each label and saves the decisions (see
    [`~glc_hf.audit.decisions.Decisions`]). It contains everything it needs and loads nothing from the network.

    Args:
        findings (`Findings`): The audit, one entry per label.
        rows (`Dataset`): The audited rows.
        inputs (`tuple[str, ...]`): Columns with text, words or images.
        task (`str`): `"text"`, `"token"` or `"image"`.
        title (`str`): Title of the page.
        page_rows (`int`): Maximum number of labels on the page, besides those of `reasons`; issues come first.
        warnings (`Sequence[str]`, *optional*): Reasons not to rely on the run, shown above the numbers.
        sources ([`SourceTable`], *optional*): The quality of each source, if labels are votes of several sources.
        label_column (`str`, *optional*): Column of `rows` with the labels as they are in the dataset, if there is one.
        reasons (`Mapping[int, str]`, *optional*): The rows that are suggested to be checked next, best first, and why.
            They are marked. Of several labels of a row the most suspicious one is.
        trusted_column (`str`, *optional*, defaults to `"trusted"`): Column of the flags, for the decisions file.
    """
    positions, marks = _positions(findings, page_rows, reasons or {})
    unit = "labels" if findings.word is not None else "rows"
    matrix, total = findings.matrix, findings.total_wrong
    given_counts = np.bincount(findings.given, minlength=matrix.num_labels)
    issue_counts = np.bincount(findings.given[findings.is_issue], minlength=matrix.num_labels)
    drawn = matrix.num_labels <= _MAX_CLASSES_DRAWN
    evidence, of_matrix = "the rates at which the noisy source confuses the classes", ""
    if sources is not None:
        evidence = "what the votes of each source say about the class. The given label is the one that the votes make "
        evidence += "most probable"
        of_matrix = "Mean over the votes of all sources. "
    checks = row_checks(rows, [*inputs, *([] if label_column is None else [label_column])])
    content: dict[str, Any] = {
        "title": title,
        "warnings": list(warnings),
        "summary": f"{findings.num_issues:,} of {len(findings):,} labels are issues: another label is more probable. "
        f"Estimated number of wrong labels: {total}.",
        "explanation": "p(wrong) is the probability that the given label is not the true label. It combines the "
        f"prediction of the model for the row with {evidence}." + (f" {findings.note}" if findings.note else ""),
        "limit": f"{len(positions):,} of {len(findings):,} {unit} are on this page, issues first. The Parquet and CSV "
        "files in the same folder contain all of them. Row numbers start at 0. Decisions are kept in this browser "
        "until you save them to a file; `glc-hf apply` writes a dataset with them.",
        "names": [matrix.name_of(label) for label in range(matrix.num_labels)],
        "matrix": matrix.probs.round(4).tolist() if drawn else None,
        "matrixNote": of_matrix
        + (
            "Click a cell to show the rows with that given and suggested label."
            if drawn
            else "Too many classes to draw. Largest confusions: "
            + "; ".join(f"{e['true']} → {e['noisy']} {e['probability']:.0%}" for e in matrix.largest_confusions(10))
        ),
        "sources": None if sources is None else _sources_panel(sources),
        "classes": [
            {"noise": round(float(noise), 4), "given": int(given), "suspect": int(issues)}
            for noise, given, issues in zip(matrix.noise_rates, given_counts, issue_counts, strict=True)
        ],
        "rows": {
            **_page_rows(findings, positions, rows, inputs, task),
            "check": [checks[row] for row in findings.row[positions].tolist()],
        },
        # Position on the page: rank, and why it should be checked.
        "next": marks,
    }
    facts = dataset_facts(checks, inputs, label_column, sources is not None, trusted_column)
    content["review"] = _review_facts(facts, findings)
    return _fill_in(content)


def _positions(
    findings: Findings, number: int, reasons: Mapping[int, str]
) -> tuple[np.ndarray, dict[int, tuple[int, str]]]:
    """Return the labels on the page: the first ones of the ranking, and those of the suggested rows; and for the
    places of the latter their rank and reason."""
    ranked = findings.ranked(len(findings))
    rank_of = {row: rank for rank, row in enumerate(reasons, start=1)}
    first_of: dict[int, int] = {}  # place in the ranking of the most suspicious label of a suggested row
    for place in np.flatnonzero(np.isin(findings.row[ranked], list(reasons))).tolist() if reasons else ():
        first_of.setdefault(int(findings.row[ranked[place]]), place)
    shown = sorted({*range(min(number, len(ranked))), *first_of.values()})
    place_of = {place: position for position, place in enumerate(shown)}
    marks = {place_of[place]: (rank_of[row], reasons[row]) for row, place in first_of.items()}
    return ranked[shown], marks


def _review_facts(dataset: dict[str, Any], findings: Findings) -> dict[str, Any]:
    """What the decisions file says about the dataset, and the key of the decisions in the browser's storage."""
    names = findings.matrix.label_names
    classes = json.dumps([dataset["fingerprint"], findings.matrix.num_labels, names, findings.word is not None])
    # A new audit of the same rows continues with the same decisions.
    return {
        "key": hashlib.sha256(classes.encode()).hexdigest()[:32],
        "named": names is not None,
        "dataset": dataset,
    }


def _fill_in(content: dict[str, Any]) -> str:
    folder = files("glc_hf.audit")
    script = "".join(folder.joinpath(name).read_text(encoding="utf-8") for name in _SCRIPTS)
    page, style = (folder.joinpath(name).read_text(encoding="utf-8") for name in ("page.html", "page.css"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # With `<` escaped, the text of a row can't close the <script> element.
    data = json.dumps(content, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    title = html.escape(content["title"]).replace("@", "&#64;")
    parts = {"SCRIPT_HASH": digest, "STYLE": style, "SCRIPT": script, "TITLE": title, "DATA": data}
    # The data comes last: its text is not searched for placeholders.
    for name, text in parts.items():
        page = page.replace(f"@{name}@", text)
    return page


def _sources_panel(sources: SourceTable) -> dict[str, Any]:
    return {"header": SourceTable.header, "lines": sources.cells(), "hurting": sources.sentences()}


def _page_rows(
    findings: Findings, positions: np.ndarray, rows: Dataset, inputs: tuple[str, ...], task: str
) -> dict[str, list[Any]]:
    """Return the columns of the page, one entry per label; a list of dicts would repeat their keys 100,000 times."""
    chosen = rows.select(findings.row[positions]).select_columns(list(inputs)).with_format(None)
    if task == "image":
        chosen = with_images(chosen, inputs[0])
    columns = {
        "p": findings.p_wrong[positions].round(6).tolist(),
        "given": findings.given[positions].tolist(),
        "suggested": findings.suggested[positions].tolist(),
        "row": findings.row[positions].tolist(),
    }
    if task == "image":
        return {**columns, "image": [thumbnail(row[inputs[0]]) for row in chosen], "text": [""] * len(positions)}
    if task == "token":
        assert findings.word is not None
        position = findings.word[positions].tolist()
        starts = [max(0, word - _CONTEXT_WORDS) for word in position]
        words = [
            [str(text)[:_MAX_WORD_CHARACTERS] for text in row[inputs[0]][start : word + _CONTEXT_WORDS + 1]]
            for row, start, word in zip(chosen, starts, position, strict=True)
        ]
        marks = [word - start for word, start in zip(position, starts, strict=True)]
        return {**columns, "position": position, "words": words, "mark": marks, "text": [" ".join(w) for w in words]}
    limit = min(max(_MAX_PAGE_CHARACTERS // max(len(positions), 1), _FEWEST_CHARACTERS), _MOST_CHARACTERS)
    texts = [" ⏐ ".join(str(row[name]) for name in inputs if row[name] is not None) for row in chosen]
    return {**columns, "text": [text if len(text) <= limit else text[:limit] + " …" for text in texts]}


def with_images(dataset: Dataset, column: str) -> Dataset:
    """Return the dataset with a column of images; the column may hold paths, as in a CSV."""
    return dataset if isinstance(dataset.features[column], Image) else dataset.cast_column(column, Image())


def thumbnail(image: Any, size: int = _THUMBNAIL_SIZE) -> str:
    """Return an image as a data URL; images with more than `size` pixels in a row or column are scaled down."""
    image = image.convert("RGB")
    options: dict[str, Any] = {"optimize": True}
    file_format = "png"
    if max(image.size) > size:
        image.thumbnail((size, size))
        file_format, options = "jpeg", {"quality": 82}
    buffer = io.BytesIO()
    image.save(buffer, file_format, **options)
    return f"data:image/{file_format};base64,{base64.b64encode(buffer.getvalue()).decode()}"
