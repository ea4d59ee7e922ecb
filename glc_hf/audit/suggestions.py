# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Suggestions of an audit that are probable enough to be taken without review."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from datasets import Dataset, Value

from glc_hf.audit.decisions import TAKE, Decision
from glc_hf.audit.findings import GIVEN, P_WRONG, SUGGESTED
from glc_hf.audit.page import CSV_FILE, PARQUET_FILE
from glc_hf.data.data_files import unmark_formula
from glc_hf.labels.storage import column_in_order


_NEEDED = (GIVEN, SUGGESTED, P_WRONG)
_ISSUE = "is_label_issue"


def read_suggestions(path: str | Path, minimum: float, dataset: Dataset) -> list[Decision]:
    """
    Return the suggestions with `p_wrong` of at least `minimum`.

    Args:
        path (`str`): `audit.csv` or `audit.parquet`, or the folder that contains them. Lines may have been removed.
        minimum (`float`): Smallest `p_wrong`, above 0 and at most 1.
        dataset (`Dataset`): The audited rows. Texts that differ from those of the audit are an error.
    """
    if not 0.0 < minimum <= 1.0:
        raise ValueError(f"--auto-fix is a probability, above 0 and at most 1; got {minimum}.")
    path = Path(path).expanduser()
    if path.is_dir():
        found = [path / part / PARQUET_FILE for part in ("", "audit")]
        path = next((file for file in found if file.is_file()), path / CSV_FILE)
    if not path.is_file():
        raise FileNotFoundError(f"there is no audit {path}: `glc-hf audit` writes {PARQUET_FILE} and {CSV_FILE}.")
    texts = [name for name, feature in dataset.features.items() if feature == Value("string")]
    table, rows = _read(path, (*_NEEDED, _ISSUE, *texts))
    for name in _NEEDED:
        if name not in table:
            raise ValueError(f"{path} is not an audit: it has no column {name!r}.")
    suggestions = []
    issues = table.get(_ISSUE, [None] * len(rows))
    for row, given, suggested, p_wrong, issue in zip(
        rows, table[GIVEN], table[SUGGESTED], table[P_WRONG], issues, strict=True
    ):
        for word, *label in _labels(given, suggested, p_wrong, issue):
            own, better, wrong, is_issue = label
            known = own is not None and better is not None and wrong is not None and is_issue is not False
            if known and wrong >= minimum and own != better:
                suggestions.append(Decision(row, word, TAKE, better, own))
    _check_texts(path, table, rows, [name for name in texts if name in table], dataset)
    return suggestions


def _check_texts(
    path: Path, table: dict[str, list[Any]], rows: list[int], columns: list[str], dataset: Dataset
) -> None:
    """Raise if the audit is of other rows."""
    for row in rows:
        if not 0 <= row < len(dataset):
            raise ValueError(
                f"{path.name}, row {row}: the dataset has no such row, it has {len(dataset):,} rows. The audit is of "
                "another dataset."
            )
    for name in columns:
        own = column_in_order(dataset, name).to_pylist()
        for row, text in zip(rows, table[name], strict=True):
            if (own[row] or "").casefold().split() != (text or "").casefold().split():
                raise ValueError(
                    f"{path.name}, row {row}: column {name!r} has other text than the dataset. The audit is of "
                    "another dataset, or the dataset has changed since."
                )


def _labels(given: Any, suggested: Any, p_wrong: Any, issue: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the position (`None` for a row with one label) and the findings of each label of a row."""
    if not isinstance(given, list):
        yield None, given, suggested, p_wrong, issue
        return
    issues = issue if isinstance(issue, list) else [None] * len(given)
    for word, entry in enumerate(zip(given, suggested, p_wrong, issues, strict=True)):
        yield (word, *entry)


def _read(path: Path, names: tuple[str, ...]) -> tuple[dict[str, list[Any]], list[int]]:
    """Return those of the columns that the audit has, and the row of each line."""
    if path.suffix.lower() == ".parquet":
        import pyarrow.parquet as pq

        table = pq.read_table(path, columns=[name for name in pq.read_schema(path).names if name in names])
        return table.to_pydict(), list(range(table.num_rows))
    import pandas as pd

    frame = pd.read_csv(path, dtype=str, keep_default_na=False).rename(columns=unmark_formula).map(unmark_formula)
    number = "audit_row" if "audit_row" in frame.columns else "row"  # a dataset may have a column "row"
    if number not in frame.columns:
        raise ValueError(f"{path} is not an audit: it has no column 'row'.")
    rows = [_number(value, path, line, "row", int) for line, value in enumerate(frame[number], start=2)]
    columns = {name: frame[name].tolist() for name in names if name in frame.columns}
    for name in (*_NEEDED, _ISSUE):
        if name in columns:
            columns[name] = [_cell(name, value, path, line) for line, value in enumerate(columns[name], start=2)]
    return columns, rows


def _cell(name: str, value: str, path: Path, line: int) -> Any:
    """Read a value of a CSV file; values per word are JSON."""
    if value == "":
        return None
    if value.startswith("["):
        try:
            return json.loads(value)
        except json.JSONDecodeError as error:
            if name == P_WRONG:
                raise ValueError(f"{path}, line {line}: {name} is damaged ({error}).") from error
    if name == P_WRONG:
        return _number(value, path, line, name, float)
    return value.strip().lower() == "true" if name == _ISSUE else value


def _number(value: str, path: Path, line: int, name: str, kind: type) -> Any:
    try:
        return kind(value)
    except ValueError as error:
        raise ValueError(f"{path}, line {line}: {name} is {value!r}, which is not a number.") from error
