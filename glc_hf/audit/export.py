# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""An audit as files: Parquet, CSV, and the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from datasets import Dataset, Image, LargeList, List, Value

from glc_hf.audit.findings import COLUMNS, GIVEN, SUGGESTED, Findings
from glc_hf.audit.page import make_page


PARQUET_FILE, CSV_FILE, PAGE_FILE = "audit.parquet", "audit.csv", "audit.html"


def write_audit(
    folder: str | Path,
    audited: Dataset,
    findings: Findings,
    inputs: tuple[str, ...],
    task: str,
    title: str,
    page_rows: int,
) -> list[Path]:
    """
    Writes all three and returns their paths. Classes stand in the files by name, where they have names.

    Args:
        folder (`str`): Made if it is not there.
        audited (`Dataset`): The rows with the columns of the audit.
        findings (`Findings`): The same label by label.
        inputs, task, title, page_rows: See [`glc_hf.audit.page.make_page`].
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in (PARQUET_FILE, CSV_FILE, PAGE_FILE)]
    named = _with_names(audited, findings.matrix.label_names)
    named.to_parquet(str(paths[0]))
    _to_csv(named, paths[1])
    paths[2].write_text(make_page(findings, audited, inputs, task, title, page_rows), encoding="utf-8")
    return paths


def _with_names(audited: Dataset, names: list[str] | None) -> Dataset:
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


def _to_csv(audited: Dataset, path: Path) -> None:
    """Without images, which a CSV can't hold; lists and groups of values as JSON, so that they can be read back."""
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
    frame.to_csv(path, index=False)
