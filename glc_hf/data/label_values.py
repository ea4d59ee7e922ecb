# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Labels and flags as they are given, missing and wrong ones included, and spellings of class names merged."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import ClassLabel, Dataset, List, Value

from glc_hf.labels.columns import MISSING_NAMES, Columns
from glc_hf.labels.reading import IGNORED_LABEL, class_names, parse_flag
from glc_hf.labels.storage import column_in_order, flat_values


# Codes of values that are neither a class nor a flag.
MISSING, WRONG, IGNORED = -1, -2, -3
# Codes of flags.
NO, YES = 0, 1
_FIRST_ROWS = 1000
# Names of the parts of a dataset.
TRAIN, EVAL, GOLD = "the training split", "the evaluation split", "the trusted dataset"


@dataclass
class GivenValues:
    """
    The labels or the flags of a dataset.

    Attributes:
        names: Names of the classes that occur, in the order in which they are numbered; of flags `["no", "yes"]`.
        codes: Per value, its position in `names`; or `MISSING`, `WRONG`, or `IGNORED` for a token without label.
        offsets: For lists: row i has values offsets[i] to offsets[i + 1].
        num_rows: Number of rows.
        examples: Values that are wrong.
    """

    names: list[str]
    codes: np.ndarray
    offsets: np.ndarray | None
    num_rows: int
    examples: list[Any]

    def rows_with(self, code: int) -> np.ndarray:
        """Return the rows that contain a value with this code, in order."""
        return self.rows_where(self.codes == code)

    def rows_where(self, mask: np.ndarray) -> np.ndarray:
        """Return the rows with a value for which the mask is true, in order."""
        positions = np.flatnonzero(mask)
        if self.offsets is None:
            return positions
        return np.unique(np.searchsorted(self.offsets, positions, side="right") - 1)

    def counts(self) -> np.ndarray:
        """Return the number of values per name."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.names))

    def per_row(self, key: Callable[[str], str]) -> np.ndarray:
        """
        Return one number per row, the same for rows with the same values; `MISSING` if any value is missing.

        Args:
            key (`Callable`): Names with the same key are the same.
        """
        keys = [key(name) for name in self.names]
        merged = np.array([keys.index(own) for own in keys] + [IGNORED, WRONG, MISSING], dtype=np.int64)
        codes = merged[self.codes]  # the codes of values that are not a class count from the end
        if self.offsets is None:
            return np.where(codes >= 0, codes, MISSING)
        distinct: dict[bytes, int] = {}
        rows = np.empty(self.num_rows, dtype=np.int64)
        for row in range(self.num_rows):
            content = codes[self.offsets[row] : self.offsets[row + 1]].tobytes()
            rows[row] = distinct.setdefault(content, len(distinct))
        rows[self.rows_with(MISSING)] = MISSING
        return rows


def read_given_labels(dataset: Dataset, column: str) -> GivenValues:
    """
    Read labels of any kind without raising an error.

    Missing are `None`, NaN, empty text and -1; among numbers also words such as "NA". Wrong are other negative
    numbers, fractions, and numbers that a `ClassLabel` does not have.
    """
    known = class_names(dataset.features[column])
    values, offsets, no_list = _values_of(dataset, column)
    distinct = values.unique().to_pylist()
    names = [_class_name(value, known, offsets is not None) for value in distinct]
    words = {name for name in names if isinstance(name, str)}
    if known is None and are_numbers(words - missing_words(words)):
        names = [MISSING if isinstance(name, str) and name in missing_words(words) else name for name in names]
    found = {name for name in names if isinstance(name, str)}
    if known is not None:
        ordered = [name for name in dict.fromkeys(known) if name in found]
    else:
        ordered = sorted(found, key=int) if are_numbers(found) else sorted(found)
    given = _encode(values, distinct, names, ordered)
    return _with_missing_lists(given, offsets, no_list, len(dataset))


def read_given_flags(dataset: Dataset, column: str) -> GivenValues:
    """Read flags of any kind without raising an error: 0 is no, 1 is yes. Missing are `None`, NaN and empty text."""
    values, offsets, no_list = _values_of(dataset, column)
    distinct = values.unique().to_pylist()
    flags = [MISSING if is_missing(value) else parse_flag(value) for value in distinct]
    names = [WRONG if flag is None else flag if flag is MISSING else ("yes" if flag else "no") for flag in flags]
    return _with_missing_lists(_encode(values, distinct, names, ["no", "yes"]), offsets, no_list, len(dataset))


def missing_words(names: Iterable[str]) -> set[str]:
    """Return the names that programs write for a missing value, such as NA and None."""
    return {name for name in names if name.strip().lower() in MISSING_NAMES}


def are_numbers(names: Iterable[str]) -> bool:
    """Whether there are names, and all of them are integers."""
    names = list(names)
    return bool(names) and all(name.strip().lstrip("-").isdigit() for name in names)


def _values_of(dataset: Dataset, column: str) -> tuple[pa.ChunkedArray, np.ndarray | None, np.ndarray]:
    arrow = column_in_order(dataset, column)
    values, offsets = flat_values(arrow)
    no_list = np.flatnonzero(arrow.is_null().to_numpy()) if offsets is not None else np.empty(0, dtype=np.int64)
    return values, offsets, no_list


def possible_flags(dataset: Dataset, columns: Columns) -> str:
    """Return a sentence that names the columns which could be flags; if there is none, all columns."""
    simple = [name for name, feature in dataset.features.items() if isinstance(feature, Value)]
    first = dataset.with_format(None).select_columns(simple)[:_FIRST_ROWS]
    found = []
    for name in simple:
        flags = {parse_flag(value) for value in first[name] if not is_missing(value)}
        if flags == {True, False} and name not in (*columns.inputs, columns.label):
            found.append(repr(name))
    if found:
        return f" Column {' or '.join(found)} could be the flags."
    return f" The columns are {', '.join(dataset.column_names)}."


def is_missing(value: Any) -> bool:
    """Whether a value is `None`, NaN or empty text."""
    return (
        value is None
        or (isinstance(value, float) and math.isnan(value))
        or (isinstance(value, str) and not value.strip())
    )


def _class_name(value: Any, known: list[str] | None, in_list: bool) -> str | int:
    """Return the name of a label, or the code of one that is not a class."""
    if is_missing(value):
        return MISSING
    if isinstance(value, (str, bool)):
        return str(value)
    if not isinstance(value, (int, float)) or value != int(value):
        return WRONG
    if value == IGNORED_LABEL and in_list:
        return IGNORED
    if value < 0:
        return MISSING if value == -1 else WRONG
    if known is None:
        return str(int(value))
    return known[int(value)] if value < len(known) else WRONG


def _encode(values: pa.ChunkedArray, distinct: list, names: list[str | int], ordered: list[str]) -> GivenValues:
    """Return the codes of values, given the name or code of each distinct one and the order of the names."""
    code_of = {name: code for code, name in enumerate(ordered)}
    codes = np.array([code_of[name] if isinstance(name, str) else name for name in names], dtype=np.int64)
    places = pc.index_in(values, value_set=values.unique()).to_numpy() if len(values) else np.empty(0, dtype=np.int64)
    examples = [value for value, name in zip(distinct, names, strict=True) if name == WRONG]
    return GivenValues(ordered, codes[places], None, len(values), examples)


def _with_missing_lists(
    given: GivenValues, offsets: np.ndarray | None, no_list: np.ndarray, num_rows: int
) -> GivenValues:
    """Add the offsets; a row without a list gets one missing value."""
    if offsets is not None and len(no_list):
        given.codes = np.insert(given.codes, offsets[no_list], MISSING)
        lengths = np.diff(offsets)
        lengths[no_list] = 1
        offsets = np.concatenate([[0], np.cumsum(lengths)])
    given.offsets, given.num_rows = offsets, num_rows
    return given


def skip_missing(
    parts: dict[str, Dataset], label_column: str, trusted_column: str | None = None, votes: bool = False
) -> dict[str, Dataset]:
    """
    Leave out the rows without a label, and the training rows without a flag.

    Args:
        parts (`dict[str, Dataset]`): By their names, `TRAIN`, `EVAL` and `GOLD`.
        label_column (`str`): Column of the labels.
        trusted_column (`str`, *optional*): Column of the flags; ignored if there is none.
        votes (`bool`): Whether training rows have votes, so that only trusted ones need a label.
    """
    kept = {}
    for name, part in parts.items():
        missing = read_given_labels(part, label_column).rows_with(MISSING)
        flags = (
            read_given_flags(part, trusted_column)
            if name == TRAIN and trusted_column is not None and trusted_column in part.column_names
            else None
        )
        if votes and name == TRAIN:
            missing = np.intersect1d(missing, flags.rows_with(YES)) if flags is not None else missing[:0]
        if flags is not None:
            missing = np.union1d(missing, flags.rows_with(MISSING))
        if len(part) and len(missing) == len(part):
            raise ValueError(
                f"every row of {name} lacks a label ({label_column!r}) or a flag ({trusted_column!r}): nothing is "
                "left with --on-missing skip."
            )
        kept[name] = part.select(np.setdiff1d(np.arange(len(part)), missing)) if len(missing) else part
    return kept


# ---------------------------------------------------------------------- spellings
def spelling_key(name: str) -> str:
    """Return what spellings of a class have in common: its words, in lower case."""
    return " ".join(name.split()).casefold()


def different_spellings(counts: Mapping[str, int]) -> list[list[str]]:
    """Return the groups of names that differ only in case or spaces, each with its most frequent spelling first."""
    groups: dict[str, list[str]] = {}
    for name in sorted(counts, key=lambda name: (-counts[name], name)):
        groups.setdefault(spelling_key(name), []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def normalize_labels(
    parts: dict[str, Dataset], columns: Sequence[str], names: list[str] | None = None
) -> tuple[dict[str, Dataset], int, int]:
    """
    Merge class names that differ only in case or spaces: each class gets its most frequent spelling in the first
    column (else in any), without spaces at its ends and with single spaces within.

    Args:
        parts (`dict[str, Dataset]`): The datasets, which have the same classes.
        columns (`Sequence[str]`): Columns of labels and of votes, of names or lists of names. Numbers are not changed.
        names (`list[str]`, *optional*): The spellings to use, for example those of a trained model.

    Returns:
        The parts, the number of spellings, and the number of classes that remain.
    """
    targets = [(part, column) for part, data in parts.items() for column in columns if column in data.column_names]
    counts: dict[str, np.ndarray] = {}  # in the first column, and in all
    for part, column in targets:
        for name, count in _name_counts(parts[part], column).items():
            counts.setdefault(name, np.zeros(2, dtype=np.int64))
            counts[name] += [count if column == columns[0] else 0, count]
    clean: dict[str, dict[str, np.ndarray]] = {}
    for name, both in counts.items():
        spellings, spelling = clean.setdefault(spelling_key(name), {}), " ".join(name.split())
        spellings[spelling] = spellings[spelling] + both if spelling in spellings else both
    chosen = {
        key: min(spellings, key=lambda spelling: (*-spellings[spelling], spelling)) for key, spellings in clean.items()
    }
    chosen.update({spelling_key(name): name for name in names or ()})
    spelling_of = {name: chosen[spelling_key(name)] for name in counts}
    parts = dict(parts)
    if any(name != spelling for name, spelling in spelling_of.items()):
        for part, column in targets:
            parts[part] = _respell(parts[part], column, spelling_of)
    return parts, len(counts), len(set(spelling_of.values()))


def _name_counts(dataset: Dataset, column: str) -> dict[str, int]:
    """Return how often each name occurs; nothing for numbers. All names of a `ClassLabel` are included."""
    values, _ = flat_values(column_in_order(dataset, column))
    known = class_names(dataset.features[column])
    if known is None and not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return {}
    counts = dict.fromkeys(known or (), 0)
    for entry in pc.value_counts(values).to_pylist():
        value, count = entry["values"], entry["counts"]
        if known is not None and value is not None and 0 <= value < len(known):
            counts[known[value]] += count
        elif known is None and not is_missing(value):
            counts[value] = count
    return counts


def _respell(dataset: Dataset, column: str, spelling_of: dict[str, str]) -> Dataset:
    known = class_names(dataset.features[column])
    values, offsets = flat_values(arrow := column_in_order(dataset, column))
    if known is None:
        if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
            return dataset
        distinct = values.unique()
        new = pa.array([spelling_of.get(value, value) for value in distinct.to_pylist()], pa.string())
        feature: Any = Value("string")
    else:
        merged = list(dict.fromkeys(spelling_of.get(name, name) for name in known))
        number_of = {number: merged.index(spelling_of.get(name, name)) for number, name in enumerate(known)}
        distinct = values.unique()
        new = pa.array([number_of.get(value, value) for value in distinct.to_pylist()], pa.int64())
        feature = ClassLabel(names=merged)
    result: Any = new.take(pc.index_in(values, value_set=distinct))
    if offsets is not None:
        feature = List(feature)
        result = _lists(result, offsets, arrow, new.type)
    # The new column first: a dataset without columns forgets its number of rows.
    dataset = dataset.add_column("__spelled__", result, feature=feature)
    order = dataset.column_names[:-1]
    return dataset.remove_columns(column).rename_column("__spelled__", column).select_columns(order)


def _lists(values: Any, offsets: np.ndarray, like: pa.ChunkedArray, kind: pa.DataType) -> Any:
    """Return lists of the values, `None` where `like` has none."""
    flat = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    mask = pa.array(like.is_null().to_numpy())
    lists = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), flat, mask=mask)
    return lists.cast(pa.list_(kind))
