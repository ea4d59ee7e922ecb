# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Decisions applied to a dataset: corrected labels, flags of checked rows, and where each label comes from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset, Features, List, Value

from glc_hf._compat import indices_table
from glc_hf.audit.dataset_file import as_text, fingerprint, row_checks
from glc_hf.audit.decisions import SKIP, Decision, Decisions, read_suggestions
from glc_hf.labels.columns import LABEL_SOURCE_COLUMN, ORIGINAL_LABEL_COLUMN, find_label_column
from glc_hf.labels.reading import IGNORED_LABEL, class_names, parse_flag
from glc_hf.labels.storage import column_in_order, is_list_type, with_columns


GIVEN, REVIEWED, SUGGESTED = SOURCES = ("given", "reviewed", "suggested")
_TRUSTED = "trusted"
_OTHER_DATASET = "The decisions belong to another dataset, or the dataset has changed since the audit"


class Corrections(NamedTuple):
    """
    A corrected dataset, and what was done.

    Attributes:
        dataset: The dataset.
        reviewed: Number of labels that a person checked.
        changed: Number of those that differ from the given label.
        suggested: Number of suggestions taken without review.
        skipped: Number of labels that a person skipped; they stay as they are.
        trusted_before, trusted: Number of trusted labels, before and after.
        label_column: Column of the labels.
        trusted_column: Column of the flags.
        changed_rows: Rows whose labels have changed.
        added: Columns that the dataset did not have, and the flags, which have become booleans.
    """

    dataset: Dataset
    reviewed: int
    changed: int
    suggested: int
    skipped: int
    trusted_before: int
    trusted: int
    label_column: str
    trusted_column: str
    changed_rows: set[int]
    added: tuple[str, ...]


def apply_decisions(
    dataset: Dataset,
    decisions: Decisions | str | Path | Iterable[Mapping[str, Any]],
    label_column: str | None = None,
    trusted_column: str | None = None,
    auto_fix: float | None = None,
    audit: str | Path | None = None,
    force: bool = False,
) -> Dataset:
    """
    Correct the labels of a dataset. All other columns and the order of rows and columns stay.

    - The label column gets the labels decided on.
    - The trusted column is true for checked labels. Other rows keep their flag; without such a column they get false.
    - The column `label_source` is `"reviewed"` for labels that a person checked, `"suggested"` for suggestions taken
      without review, and `"given"` for the rest. Values of an earlier round stay.
    - The column `original_label` has the label of the noisy source: the one before the decisions, or none (`None`) if
      it was trusted already. A column with this name stays as it is; decisions on votes add none.

    If rows contain lists of labels, the flags, `label_source` and `original_label` are lists too.

    Args:
        dataset (`Dataset`): The rows that were audited, in the same order. It is not changed.
        decisions ([`Decisions`] or `str`): Decisions, the path of a file, or dicts with `row` and `label`.
        label_column (`str`, *optional*): Column of the labels; by default that of the audit, or found by its name.
        trusted_column (`str`, *optional*): Column of the flags; by default that of the audit, or `trusted`.
        auto_fix (`float`, *optional*): Take suggestions with `p_wrong` of at least this without review, except for
            labels that a person decided on or skipped.
        audit (`str`, *optional*): `audit.csv` or `audit.parquet` with the suggestions.
        force (`bool`, *optional*, defaults to `False`): Accept that rows without a decision have changed.

    Raises:
        `ValueError`: A decision does not fit the dataset; the message names its row.
    """
    return correct_labels(dataset, decisions, label_column, trusted_column, auto_fix, audit, force).dataset


def correct_labels(
    dataset: Dataset,
    decisions: Decisions | str | Path | Iterable[Mapping[str, Any]],
    label_column: str | None = None,
    trusted_column: str | None = None,
    auto_fix: float | None = None,
    audit: str | Path | None = None,
    force: bool = False,
    label_option: str = "label_column",
) -> Corrections:
    """Apply decisions as [`apply_decisions`] does, and return the counts too. `label_option` is what the caller calls
    the column of the labels, for errors."""
    if (auto_fix is None) != (audit is None):
        raise ValueError("auto_fix (a probability) takes suggestions from audit (a file): give both or none of them.")
    suggestions = [] if audit is None or auto_fix is None else read_suggestions(audit, auto_fix, dataset)
    if isinstance(decisions, (str, Path)):
        decisions = Decisions.read(decisions)
    elif not isinstance(decisions, Decisions):
        decisions = Decisions.of_rows(decisions)
    _check_dataset(dataset, decisions, force)
    trusted_column = trusted_column or decisions.trusted_column or _TRUSTED
    if decisions.from_votes and decisions.label_column is None and label_column not in dataset.column_names:
        # Only votes so far: checked rows are the first that have a label.
        label_column = label_column or "label"
        kind = Value("string") if decisions.label_names is not None else Value("int64")
        dataset = dataset.add_column(label_column, [None] * len(dataset), feature=kind)
    column = find_label_column(dataset, label_column or decisions.label_column, trusted_column, label_option)
    labels = _Labels(dataset, column, decisions)
    flags = _flags(dataset, trusted_column, labels)
    sources = _sources(dataset, labels)
    kept = ORIGINAL_LABEL_COLUMN in dataset.column_names or decisions.from_votes
    original = None if kept else _originals(labels.values, flags, sources)
    counts = dict.fromkeys(("reviewed", "changed", "suggested", "skipped"), 0)
    counts["trusted_before"] = _number_of(flags)
    decided, changed = set(), set()
    for entry in decisions.entries:
        labels.check(entry, decisions.origin, decisions.from_votes)
        decided.add((entry.row, entry.word))
        if entry.decision == SKIP:
            counts["skipped"] += 1
            continue
        counts["reviewed"] += 1
        if labels.set(entry, decisions.origin):
            counts["changed"] += 1
            changed.add(entry.row)
        _put(flags, entry, True)
        _put(sources, entry, REVIEWED)
    for entry in suggestions:
        if (entry.row, entry.word) not in decided:
            labels.check(entry, "the audit", decisions.from_votes)
            if labels.set(entry, "the audit"):
                counts["suggested"] += 1
                changed.add(entry.row)
                _put(sources, entry, SUGGESTED)
    counts["trusted"] = _number_of(flags)
    result = _with_new_columns(dataset, column, trusted_column, labels, flags, sources, original)
    added = (trusted_column, LABEL_SOURCE_COLUMN, *(() if original is None else (ORIGINAL_LABEL_COLUMN,)))
    return Corrections(
        result, **counts, label_column=column, trusted_column=trusted_column, changed_rows=changed, added=added
    )


def with_texts(corrections: Corrections, texts: Dataset) -> Dataset:
    """
    Return the corrected dataset with all values as they are written in a file, except those that were corrected.

    Args:
        corrections ([`Corrections`]): The corrected dataset.
        texts (`Dataset`): The same rows, all columns as text.
    """
    dataset, columns, features = corrections.dataset, {}, {}
    for name in dataset.column_names:
        if name in corrections.added:
            continue
        values = column_in_order(texts, name)
        if name == corrections.label_column:
            new, names = column_in_order(dataset, name), class_names(dataset.features[name])
            values = [
                as_text(new[row].as_py(), names) if row in corrections.changed_rows else text
                for row, text in enumerate(values.to_pylist())
            ]
            values = pa.chunked_array([pa.array(values, pa.string())])
        columns[name], features[name] = values, Value("string")
    if ORIGINAL_LABEL_COLUMN in corrections.added:
        known = column_in_order(dataset, ORIGINAL_LABEL_COLUMN).is_valid()
        values = pc.if_else(known, column_in_order(texts, corrections.label_column), None)
        columns[ORIGINAL_LABEL_COLUMN], features[ORIGINAL_LABEL_COLUMN] = values, Value("string")
    return with_columns(dataset, columns, Features({**dataset.features, **features}), {}, "with_texts", {})


def _put(values: list[Any], entry: Decision, value: Any) -> None:
    if entry.word is None:
        values[entry.row] = value
    else:
        values[entry.row][entry.word] = value


def _check_dataset(dataset: Dataset, decisions: Decisions, force: bool) -> None:
    """Raise if the decisions were not made for these rows. The message names a row that differs, if there is one."""
    for entry in decisions.entries:
        if entry.row >= len(dataset):
            raise ValueError(
                f"{decisions.origin}, {entry.place}: the dataset has no such row, it has {len(dataset):,} rows. "
                f"{_OTHER_DATASET}."
            )
    if decisions.fingerprint is None:
        return
    columns = [*decisions.input_columns, *([decisions.label_column] if decisions.label_column else [])]
    for name in columns:
        if name not in dataset.column_names:
            raise ValueError(
                f"{decisions.origin}: the audited dataset has a column {name!r}, this one has "
                f"{', '.join(dataset.column_names)}. {_OTHER_DATASET}."
            )
    checks = row_checks(dataset, columns)
    if fingerprint(checks) == decisions.fingerprint:
        return
    for entry in decisions.entries:
        if entry.check is not None and entry.check != checks[entry.row]:
            raise ValueError(
                f"{decisions.origin}, {entry.place}: the row has other content than the one that was decided on "
                f"({', '.join(columns)}). {_OTHER_DATASET}."
            )
    if not force:
        number = (
            "" if decisions.num_rows == len(dataset) else f" It had {decisions.num_rows} rows, now {len(dataset)}."
        )
        raise ValueError(
            f"{decisions.origin}: the rows with decisions are the same, but other rows differ.{number} "
            f"{_OTHER_DATASET}. To apply them anyway, use force=True (--force)."
        )


class _Labels:
    """The labels of a dataset as they are stored, and the stored value of each class."""

    def __init__(self, dataset: Dataset, column: str, decisions: Decisions) -> None:
        self.column, self.names = column, class_names(dataset.features[column])
        stored = column_in_order(dataset, column)
        self.type, self.is_list = stored.type, is_list_type(stored.type)
        self.values: list[Any] = stored.to_pylist()
        self.value_of = self._values_of_classes(decisions)

    def _values_of_classes(self, decisions: Decisions) -> dict[str, Any]:
        """Return the stored value of each class, by the name of the class or by its number."""
        known, number = decisions.label_names, decisions.num_labels
        kind = self.type.value_type if self.is_list else self.type
        if self.names is not None:
            # The number of a class is accepted too, unless it is a name.
            return {**{str(place): place for place in range(len(self.names))}, **_places(self.names)}
        flat = (value for row in self.values for value in (row or () if self.is_list else (row,)))
        present = {as_text(value): value for value in flat if value is not None and value != IGNORED_LABEL}
        if known is None:
            numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind)
            return {**({str(place): place for place in range(number or 0)} if numeric else {}), **present}
        if pa.types.is_boolean(kind):
            return {"True": True, "False": False}
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            by_name = set(present) <= set(known)
            return {name: int(name) for name in known if _is_number(name)} if by_name else _places(known)
        return {name: name for name in known}

    def check(self, entry: Decision, origin: str, from_votes: bool) -> None:
        """Raise if the label that was decided on does not exist, or is not the given one any more."""
        value = self._get(entry, origin)
        if entry.given_label is None or from_votes or value is None:
            return
        given, own = as_text(entry.given_label), as_text(value, self.names)
        if not self._same(own, given) and self.value_of.get(given) != value:
            raise ValueError(
                f"{origin}, {entry.place}: the given label was {given!r}, but column {self.column!r} has {own!r}. "
                f"{_OTHER_DATASET}."
            )

    def set(self, entry: Decision, origin: str) -> bool:
        """Set a label. Returns whether it differs from the one before."""
        label, value = as_text(entry.label), self._get(entry, origin)
        if label not in self.value_of:
            classes = list(self.names or self.value_of)
            shown = f"{', '.join(map(str, classes[:10]))}{', …' if len(classes) > 10 else ''}"
            raise ValueError(f"{origin}, {entry.place}: {label!r} is none of the classes {shown}.")
        if value is not None and self._same(as_text(value, self.names), label):
            return False
        _put(self.values, entry, self.value_of[label])
        return self.value_of[label] != value

    def _same(self, own: str, label: str) -> bool:
        """Whether a stored label is this class. Names that are not classes may have been normalized for training."""
        return own == label or (own not in self.value_of and own.strip().casefold() == label.strip().casefold())

    def _get(self, entry: Decision, origin: str) -> Any:
        if entry.row >= len(self.values):
            raise ValueError(
                f"{origin}, {entry.place}: the dataset has no such row, it has {len(self.values):,} rows. "
                f"{_OTHER_DATASET}."
            )
        row = self.values[entry.row]
        if not self.is_list and entry.word is not None:
            raise ValueError(
                f"{origin}, {entry.place}: the rows of this dataset have one label each, not one per word."
            )
        if not self.is_list:
            return row
        if entry.word is None:
            raise ValueError(f"{origin}, {entry.place}: its labels are a list; the decision must name the word.")
        if entry.word >= len(row or ()):
            raise ValueError(f"{origin}, {entry.place}: the row has {len(row or ())} words. {_OTHER_DATASET}.")
        return row[entry.word]


def _places(names: list[str]) -> dict[str, int]:
    return {name: place for place, name in enumerate(names)}


def _is_number(name: str) -> bool:
    return name.lstrip("-").isdigit()


def _flags(dataset: Dataset, column: str, labels: _Labels) -> list[Any]:
    """Return the flags, `None` where they are missing; one per label if rows contain lists."""
    if column not in dataset.column_names:
        flags: list[Any] = [False] * len(dataset)
    else:
        flags = [
            _read_flag(value, column, row) for row, value in enumerate(column_in_order(dataset, column).to_pylist())
        ]
    if not labels.is_list:
        return flags
    return [
        flag if isinstance(flag, list) else [flag] * len(row or ())
        for flag, row in zip(flags, labels.values, strict=True)
    ]


def _number_of(flags: list[Any]) -> int:
    return sum(_number_of(flag) if isinstance(flag, list) else bool(flag) for flag in flags)


def _read_flag(value: Any, column: str, row: int) -> Any:
    if isinstance(value, list):
        return [_read_flag(entry, column, row) for entry in value]
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return None
    flag = parse_flag(value)
    if flag is None:
        raise ValueError(
            f"column {column!r} has {value!r} in row {row}, which is not a trusted flag: name the column of the flags "
            "with trusted_column (--trusted-column), or correct it."
        )
    return flag


def _sources(dataset: Dataset, labels: _Labels) -> list[Any]:
    """Return where each label comes from: as an earlier round has left it, or `"given"`."""
    if LABEL_SOURCE_COLUMN in dataset.column_names:
        sources = column_in_order(dataset, LABEL_SOURCE_COLUMN).to_pylist()
        for row, source in enumerate(sources):
            for value in source if isinstance(source, list) else (source,):
                if value is not None and value not in SOURCES:
                    raise ValueError(
                        f"the dataset has a column {LABEL_SOURCE_COLUMN!r} of its own, {value!r} in row {row}: "
                        f"rename it; the result needs this name for {', '.join(SOURCES)}."
                    )
        return [source if source is not None or labels.is_list else GIVEN for source in sources]
    if not labels.is_list:
        return [GIVEN] * len(dataset)
    return [[GIVEN] * len(row or ()) for row in labels.values]


def _originals(labels: list[Any], flags: list[Any], sources: list[Any]) -> list[Any]:
    """Return the labels of the noisy source: those that nobody has checked or changed, `None` for others."""
    if any(isinstance(row, list) for row in labels):
        return [
            None if row is None else _originals(row, flag, source or [None] * len(row))
            for row, flag, source in zip(labels, flags, sources, strict=True)
        ]
    return [
        label if source in (GIVEN, None) and not flag else None
        for label, flag, source in zip(labels, flags, sources, strict=True)
    ]


def _with_new_columns(
    dataset: Dataset,
    column: str,
    trusted_column: str,
    labels: _Labels,
    flags: list[Any],
    sources: list[Any],
    original: list[Any] | None,
) -> Dataset:
    if indices_table(dataset) is not None:
        dataset = dataset.with_format(None).flatten_indices()
    flag_type, source_type = pa.bool_(), pa.string()
    flag_feature, source_feature = Value("bool"), Value("string")
    if labels.is_list:
        flag_type, source_type = pa.list_(flag_type), pa.list_(source_type)
        flag_feature, source_feature = List(flag_feature), List(source_feature)
    columns = {
        column: pa.chunked_array([pa.array(labels.values, labels.type)]),
        trusted_column: pa.chunked_array([pa.array(flags, flag_type)]),
        LABEL_SOURCE_COLUMN: pa.chunked_array([pa.array(sources, source_type)]),
    }
    features = Features({**dataset.features, trusted_column: flag_feature, LABEL_SOURCE_COLUMN: source_feature})
    if original is not None:
        columns[ORIGINAL_LABEL_COLUMN] = pa.chunked_array([pa.array(original, labels.type)])
        features[ORIGINAL_LABEL_COLUMN] = dataset.features[column]
    return with_columns(dataset, columns, features, {}, "apply_decisions", {})
