# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Export of an audit to Label Studio and Argilla."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow.compute as pc
from datasets import Dataset, Image

from glc_hf.audit.exchange.argilla_records import write_argilla
from glc_hf.audit.exchange.label_studio import write_label_studio
from glc_hf.audit.exchange.review_items import ReviewItems, check_exportable, issues_and
from glc_hf.audit.findings import COLUMNS, GIVEN, SUGGESTED, Findings
from glc_hf.labels.reading import class_names
from glc_hf.labels.storage import column_in_order, flat_values, is_list_type
from glc_hf.matrix import CorruptionMatrix


# Tool: what writes the files, and the name in the folder of an audit.
TOOLS: dict[str, tuple[Callable[[ReviewItems, Path], list[Path]], str]] = {
    "label-studio": (write_label_studio, "label_studio.json"),
    "argilla": (write_argilla, "argilla"),
}


def export_audit(
    audited: Dataset,
    path: str | Path,
    tool: str,
    input_columns: str | Sequence[str] = "text",
    label_column: str | None = "label",
    rows: Sequence[int] | None = None,
    trusted_column: str = "trusted",
) -> list[Path]:
    """
    Write labels of an audit to files that another tool imports. People check them there, and
    [`~glc_hf.apply_decisions`] takes the tool's export.

    Args:
        audited (`Dataset`): The result of [`GLCTrainer.audit`], with one label per row.
        path (`str`): A new file for `"label-studio"`; the labeling configuration is written beside it, with the suffix
            `.xml`. A new folder for `"argilla"`, which `rg.Dataset.from_disk` reads.
        tool (`str`): `"label-studio"` or `"argilla"`.
        input_columns (`str` or `Sequence[str]`, *optional*, defaults to `"text"`): The column of the texts or images,
            or the two columns of pairs of texts.
        label_column (`str`, *optional*, defaults to `"label"`): Column of the labels. `None` if there is none.
        rows (`Sequence[int]`, *optional*): The rows to export, in this order, for example
            `trainer.suggest(dataset, 100)["row"]`. By default all label issues, the most suspicious ones first.
        trusted_column (`str`, *optional*, defaults to `"trusted"`): Column of the flags, in which
            [`~glc_hf.apply_decisions`] marks the checked rows.

    Returns:
        `list[Path]`: The files written.
    """
    if tool not in TOOLS:
        raise ValueError(f"tool={tool!r}: exports are for {' and '.join(TOOLS)}.")
    inputs = (input_columns,) if isinstance(input_columns, str) else tuple(input_columns)
    for name in (*COLUMNS, *inputs, *(() if label_column is None else (label_column,))):
        if name not in audited.column_names:
            raise ValueError(
                f"there is no column {name!r}; the columns are {', '.join(audited.column_names)}. Export the result "
                "of `trainer.audit`, and name its columns with input_columns and label_column."
            )
    is_list = is_list_type(column_in_order(audited, GIVEN).type)
    task = "token" if is_list else "image" if isinstance(audited.features[inputs[0]], Image) else "text"
    check_exportable(task)
    findings = Findings.of(audited, classes_of(audited))
    items = ReviewItems(findings, audited, inputs, task, label_column, trusted_column=trusted_column)
    if rows is not None:
        for row in rows:
            if row not in findings.row:
                raise ValueError(f"row {row} can't be exported: there is no such row, or it has no label.")
        items.positions = issues_and(findings, rows, 0)
    path = Path(path).expanduser()
    for existing in (path, path.with_suffix(".xml")):
        if existing.exists():
            raise FileExistsError(f"{existing} exists and is not overwritten: name another one, or move it away.")
    return write_export(items, path, tool)


def write_export(items: ReviewItems, path: Path, tool: str) -> list[Path]:
    """Write the files of a tool, completely or not at all. Files of an earlier export are replaced."""
    if tool == "label-studio" and path.suffix.lower() != ".json":
        raise ValueError(f"{path}: the tasks of Label Studio are written to a .json file.")
    if not len(items):
        raise ValueError("there is nothing to export: no label of the audit is an issue.")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        files = TOOLS[tool][0](items, Path(folder) / path.name)
        paths = [path.parent / file.relative_to(folder) for file in files]
        for file, target in zip(files, paths, strict=True):
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(file, target)
    return paths


def classes_of(audited: Dataset) -> CorruptionMatrix:
    """A matrix with the names of the classes. Nothing else of it is used."""
    names = class_names(audited.features[GIVEN])
    if names is not None:
        return CorruptionMatrix.identity(len(names)).with_names(names)
    highest = [pc.max(flat_values(column_in_order(audited, name))[0]).as_py() for name in (GIVEN, SUGGESTED)]
    return CorruptionMatrix.identity(max(*(number or 0 for number in highest), 1) + 1)
