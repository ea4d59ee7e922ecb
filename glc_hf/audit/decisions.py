# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Decisions on labels: of people (files of the review page, tables with the columns `row` and `label`, exports of other
tools), and suggestions of an audit that are taken without review.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from datasets import Dataset, Value

from glc_hf.audit.annotation_tools import (
    RECORDS_FILE,
    argilla_answers,
    is_argilla,
    is_label_studio,
    is_label_studio_line,
    label_studio_answers,
    label_studio_lines,
)
from glc_hf.audit.findings import GIVEN, IS_ISSUE, P_WRONG, SUGGESTED
from glc_hf.audit.page import CSV_FILE, PARQUET_FILE
from glc_hf.audit.review_items import read_answers
from glc_hf.data.data_files import unmark_formula
from glc_hf.labels.storage import column_in_order


FORMAT, FORMAT_VERSION = "glc_hf decisions", 1
KEEP, TAKE, CLASS, SKIP = DECISIONS = ("keep", "suggested", "class", "skip")
_LAST_ROW = re.compile(r'"row"\s*:\s*(\d+)')
_FIX = "Save the decisions again on the review page, or export them again."
# Exports of other tools: how to recognize an entry, and what reads them.
_TOOLS = (
    (is_label_studio, label_studio_answers),
    (is_argilla, argilla_answers),
    (is_label_studio_line, label_studio_lines),
)
_AUDIT_COLUMNS = (GIVEN, SUGGESTED, P_WRONG)


class Decision(NamedTuple):
    """
    The decision on one label.

    Attributes:
        row: Row of the dataset, starting at 0.
        word: Position in the row, if rows contain lists of labels.
        decision: `"keep"`, `"suggested"` (the suggestion is taken), `"class"` (another class) or `"skip"`.
        label: The label that the row should have: a name, or a class number if the classes have no names.
        given_label: The label when it was decided on, if known.
        check: Hash of the row when it was decided on, if known; see [`~glc_hf.audit.dataset_file.row_checks`].
    """

    row: int
    word: int | None = None
    decision: str = CLASS
    label: str | int | float | None = None
    given_label: str | int | None = None
    check: str | None = None

    @property
    def place(self) -> str:
        """The row, for messages."""
        return f"row {self.row}" if self.word is None else f"row {self.row}, word {self.word}"


@dataclass
class Decisions:
    """
    Decisions, and what is known about the dataset that they were made for.

    Attributes:
        entries: The decisions, at most one per label.
        label_names: Names of the classes, if known.
        num_labels: Number of classes, if known.
        fingerprint, num_rows: Hash and number of rows of the dataset, if known.
        input_columns, label_column: The columns that the hashes are of.
        trusted_column: Column of the flags, if known.
        from_votes: Whether the given labels follow from votes of several sources, not from a column.
        origin: Name of the file, for messages.
    """

    entries: list[Decision]
    label_names: list[str] | None = None
    num_labels: int | None = None
    fingerprint: str | None = None
    num_rows: int | None = None
    input_columns: list[str] = field(default_factory=list)
    label_column: str | None = None
    trusted_column: str | None = None
    from_votes: bool = False
    origin: str = "the decisions"

    def __post_init__(self) -> None:
        seen: set[tuple[int, int | None]] = set()
        for entry in self.entries:
            if (entry.row, entry.word) in seen:
                raise ValueError(f"{self.origin}, {entry.place}: there are two decisions for it. Keep one of them.")
            seen.add((entry.row, entry.word))

    def __len__(self) -> int:
        return len(self.entries)

    @classmethod
    def read(cls, path: str | Path) -> Decisions:
        """
        Read a file.

        Args:
            path (`str`): JSON that the review page has saved; a CSV, TSV, JSON or JSONL table with the columns `row`
                and `label`, and optionally `word`, `decision` and `given_label`; or an export of Label Studio (JSON,
                JSON-MIN, CSV) or Argilla (`records.json`, or the folder that contains it).
        """
        path = Path(path).expanduser()
        if (path / RECORDS_FILE).is_file():
            path /= RECORDS_FILE
        if not path.is_file():
            raise FileNotFoundError(f"there is no decisions file {path}.")
        kind, origin = path.suffix.lower(), path.name
        text = path.read_text(encoding="utf-8-sig")
        if kind in (".csv", ".tsv"):
            return cls._of_list(_read_table(text, origin), origin)
        if kind == ".jsonl":
            return cls._of_list(_read_lines(text, origin), origin)
        if kind != ".json":
            raise ValueError(f"{path}: a decisions file ends in .json, .jsonl, .csv or .tsv, not in {kind!r}.")
        try:
            content = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"{origin} is cut short or damaged {_after_last_row(text)} ({error}). {_FIX}") from error
        if isinstance(content, list):
            return cls._of_list(content, origin)
        return cls._of_page(content, origin)

    @classmethod
    def _of_list(cls, content: list[Any], origin: str) -> Decisions:
        first = next((entry for entry in content if isinstance(entry, Mapping)), {})
        for recognizes, answers in _TOOLS:
            if recognizes(first):
                entries, facts = read_answers(answers(content, origin), origin)
                return cls._with_facts(cls.of_rows(entries, origin).entries, facts, facts, origin)
        return cls.of_rows(content, origin)

    @classmethod
    def of_rows(cls, rows: Iterable[Mapping[str, Any]], origin: str = "the decisions") -> Decisions:
        """Make decisions from dicts with `row` and `label`, and optionally `word`, `decision` and `given_label`."""
        return cls([_decision(row, number, origin) for number, row in enumerate(rows)], origin=origin)

    @classmethod
    def _of_page(cls, content: Any, origin: str) -> Decisions:
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError(
                f"{origin} is not a decisions file: it must be saved by the review page (`glc-hf review`), or be a "
                "table with the columns row and label."
            )
        version = content.get("format_version")
        if version != FORMAT_VERSION:
            raise ValueError(
                f"{origin} has format_version {version!r}; this version of glc_hf reads {FORMAT_VERSION}."
            )
        entries, dataset = content.get("decisions"), content.get("dataset")
        if not isinstance(entries, list) or not isinstance(dataset, dict):
            raise ValueError(f"{origin} is damaged: it has no list of decisions, or no dataset. {_FIX}")
        decisions = [_decision(entry, number, origin) for number, entry in enumerate(entries)]
        if content.get("num_decisions") != len(entries):
            last = f"after {decisions[-1].place}" if decisions else "before the first row"
            raise ValueError(
                f"{origin} is cut short {last}: it has {len(entries)} of {content.get('num_decisions')} decisions. "
                f"{_FIX}"
            )
        return cls._with_facts(decisions, dataset, content, origin)

    @classmethod
    def _with_facts(
        cls, decisions: list[Decision], dataset: Mapping[str, Any], classes: Mapping[str, Any], origin: str
    ) -> Decisions:
        names = classes.get("label_names")
        return cls(
            decisions,
            label_names=None if names is None else [str(name) for name in names],
            num_labels=classes.get("num_labels"),
            fingerprint=dataset.get("fingerprint"),
            num_rows=dataset.get("rows"),
            input_columns=list(dataset.get("input_columns") or ()),
            label_column=dataset.get("label_column"),
            trusted_column=dataset.get("trusted_column"),
            from_votes=dataset.get("given_labels") == "votes",
            origin=origin,
        )


def _decision(entry: Any, number: int, origin: str) -> Decision:
    if not isinstance(entry, Mapping) or "row" not in entry:
        raise ValueError(f"{origin}, entry {number + 1}: it has no row. Each decision needs a row and a label.")
    row = _integer(entry["row"])
    if row is None or row < 0:
        raise ValueError(f"{origin}, entry {number + 1}: row {entry['row']!r} is not a row number; they start at 0.")
    given_word, word = entry.get("word"), None
    place = f"{origin}, row {row}"
    if given_word not in (None, ""):
        word = _integer(given_word)
        if word is None or word < 0:
            raise ValueError(f"{place}: word {given_word!r} is not the position of a word; they start at 0.")
    label, kind = entry.get("label"), entry.get("decision") or CLASS
    if kind not in DECISIONS:
        raise ValueError(f"{place}: there is no decision {kind!r}; the decisions are {', '.join(DECISIONS)}.")
    if kind == SKIP:
        label = None
    elif label is None or label == "":
        raise ValueError(f"{place}: the decision has no label.")
    elif not isinstance(label, (str, int, float)):
        raise ValueError(f"{place}: the label {label!r} is neither a name nor a class number.")
    given, check = entry.get("given_label"), entry.get("check")
    return Decision(row, word, str(kind), label, None if given == "" else given, check)


def _integer(value: Any) -> int | None:
    """Return a whole number; `None` if it is not one."""
    if isinstance(value, bool):
        return None
    try:
        return int(value) if float(value) == int(float(value)) else None
    except (TypeError, ValueError, OverflowError):
        return None


def _after_last_row(text: str) -> str:
    rows = _LAST_ROW.findall(text)
    return f"after row {rows[-1]}" if rows else "before its first row"


def _read_table(text: str, origin: str) -> list[dict[str, Any]]:
    # The separator that gives most columns; a .csv file may have tabs or semicolons.
    first = text.partition("\n")[0]
    lines = csv.reader(text.splitlines(keepends=True), delimiter=max(",\t;", key=first.count))
    header = [name.strip() for name in next(lines, [])]
    for name in ("row", "label"):
        if name not in header:
            raise ValueError(f"{origin} has no column {name!r}; its columns are {', '.join(header) or 'missing'}.")
    rows = []
    for values in lines:
        if not values:
            continue
        if len(values) != len(header):
            row = values[header.index("row")] if len(values) > header.index("row") else "?"
            raise ValueError(
                f"{origin}, line {lines.line_num} (row {row}): {len(values)} values for {len(header)} columns; the "
                "file is cut short or damaged."
            )
        rows.append(dict(zip(header, map(unmark_formula, values), strict=True)))
    return rows


def _read_lines(text: str, origin: str) -> list[Any]:
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            if line.strip():
                rows.append(json.loads(line))
        except json.JSONDecodeError as error:
            where = _after_last_row("\n".join(text.splitlines()[:number]))
            raise ValueError(f"{origin}, line {number}, is cut short or damaged {where} ({error}).") from error
    return rows


# ---------------------------------------------------------------------- suggestions
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
    table, rows = _read_audit(path, (*_AUDIT_COLUMNS, IS_ISSUE, *texts))
    for name in _AUDIT_COLUMNS:
        if name not in table:
            raise ValueError(f"{path} is not an audit: it has no column {name!r}.")
    suggestions = []
    issues = table.get(IS_ISSUE, [None] * len(rows))
    for row, given, suggested, p_wrong, issue in zip(
        rows, table[GIVEN], table[SUGGESTED], table[P_WRONG], issues, strict=True
    ):
        for word, *label in _labels_of_row(given, suggested, p_wrong, issue):
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


def _labels_of_row(given: Any, suggested: Any, p_wrong: Any, issue: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the position (`None` for a row with one label) and the findings of each label of a row."""
    if not isinstance(given, list):
        yield None, given, suggested, p_wrong, issue
        return
    issues = issue if isinstance(issue, list) else [None] * len(given)
    for word, entry in enumerate(zip(given, suggested, p_wrong, issues, strict=True)):
        yield (word, *entry)


def _read_audit(path: Path, names: tuple[str, ...]) -> tuple[dict[str, list[Any]], list[int]]:
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
    for name in (*_AUDIT_COLUMNS, IS_ISSUE):
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
    return value.strip().lower() == "true" if name == IS_ISSUE else value


def _number(value: str, path: Path, line: int, name: str, kind: type) -> Any:
    try:
        return kind(value)
    except ValueError as error:
        raise ValueError(f"{path}, line {line}: {name} is {value!r}, which is not a number.") from error
