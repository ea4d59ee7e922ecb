# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Labels and flags as files hold them (words, numbers, yes and no) turned into classes and booleans."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from datasets import ClassLabel, Dataset, List, Value

from glc_hf.labels.columns import is_list_feature


_NEW_COLUMN = "__encoded__"
# What spreadsheets and programs write where there is nothing.
_SAY_MISSING = ("na", "n/a", "#n/a", "<na>", "nan", "null", "none")
_TRUE, _FALSE = ("true", "t", "yes", "y", "1", "1.0"), ("false", "f", "no", "n", "0", "0.0")


def encode_labels(
    parts: dict[str, Dataset], column: str, second: str | None = None, names: list[str] | None = None
) -> tuple[dict[str, Dataset], list[str] | None]:
    """
    The same classes for every part (training split, evaluation split, trusted file).

    Names (strings, booleans) become classes in sorted order, of all parts together; where one part has a `ClassLabel`,
    its order holds. Whole numbers stay as they are; beside classes with names they are names if all of them are, and
    otherwise places in the order.

    Args:
        parts (`dict[str, Dataset]`): By a name for messages; the first one's `ClassLabel` comes first.
        column (`str`): The labels' column.
        second (`str`, *optional*): Another column of labels, encoded alike in the parts that have it.
        names (`list[str]`, *optional*): The classes, where they are known: those of a trained model.

    Returns:
        The parts, and the names of the classes; `None` where there are none.
    """
    if names is None:
        known = [_class_label(part.features[column]) for part in parts.values()]
        class_label = next((feature for feature in known if feature is not None), None)
        names = list(class_label.names) if class_label is not None else _names_in_files(parts, column)
    encoded = {}
    for name, part in parts.items():
        for labels in (column, second):
            if labels is not None and labels in part.column_names:
                part = _as_integers(part, labels, name) if names is None else _as_classes(part, labels, names, name)
        encoded[name] = part
    return encoded, names


def encode_flags(dataset: Dataset, column: str) -> Dataset:
    """The trusted flags as booleans: from true/false, yes/no or 1/0, whether numbers or words."""
    feature = dataset.features[column]
    if _value_type(feature) == pa.bool_():
        return dataset

    def flag(value: Any) -> bool:
        word = str(value).strip().lower()
        if word not in _TRUE + _FALSE:
            raise ValueError("is no trusted flag: flags are true/false, yes/no or 1/0")
        return word in _TRUE

    return _replace(dataset, column, Value("bool"), flag, "the dataset")


def number_of_classes(parts: list[Dataset], column: str, names: list[str] | None) -> int:
    """K: the number of names, or one more than the largest label."""
    if names is not None:
        return len(names)
    bounds = [pc.min_max(_values(part, column)).as_py() for part in parts if len(part)]
    known = [bound for bound in bounds if bound["max"] is not None]
    if min(bound["min"] for bound in known) == 1:
        warnings.warn(
            "the labels start at 1, and classes are counted from 0: class 0 has no rows. Subtract 1, or write the "
            "classes as words.",
            stacklevel=2,
        )
    return max(bound["max"] for bound in known) + 1


def has_labels(dataset: Dataset, column: str) -> bool:
    """Whether any row has one: test splits published without labels hold -1, or nothing, throughout."""
    if column not in dataset.features:
        return False
    values = _values(dataset, column)
    if pa.types.is_integer(values.type):
        return pc.any(pc.greater_equal(values, 0)).as_py() is True
    return values.null_count < len(values)


def _names_in_files(parts: dict[str, Dataset], column: str) -> list[str] | None:
    """The distinct words, sorted; in the order of the numbers where all of them are numbers."""
    types = [_value_type(part.features[column]) for part in parts.values()]
    if not any(pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.bool_() for kind in types):
        return None
    words = {
        name: {str(value) for value in _values(part, column).unique().to_pylist() if value is not None}
        for name, part in parts.items()
    }
    _check_same_words(words)
    names = set().union(*words.values())
    _check_missing_words(names, column)
    if all(name.lstrip("-").isdigit() for name in names):
        return sorted(names, key=int)
    return sorted(names)


def _check_same_words(words: dict[str, set[str]]) -> None:
    """Parts that have no label in common were written by different hands; a label of one part alone may be a slip."""
    (first, known), *others = words.items()
    for name, found in others:
        if found and known and not found & known:
            raise ValueError(
                f"{name} and {first} have no label in common: {_some(found)} against {_some(known)}. Write the "
                "classes alike in both."
            )
        if found - known:
            warnings.warn(f"{name} has labels that {first} has not: {_some(found - known)}.", stacklevel=2)


def _check_missing_words(names: set[str], column: str) -> None:
    missing = {name for name in names if name.strip().lower() in _SAY_MISSING}
    if not missing:
        return
    told = f"column {column!r} holds labels {_some(missing)}"
    if all(name.lstrip("-").isdigit() for name in names - missing):
        raise ValueError(f"{told} among numbers: leave rows without a label out, or write the classes as words.")
    warnings.warn(
        f"{told}, taken as a class like any other; if it says that the label is missing, leave those rows out.",
        stacklevel=2,
    )


def _some(words: set[str]) -> str:
    return ", ".join(sorted(words)[:5]) + (", …" if len(words) > 5 else "")


def _as_classes(dataset: Dataset, column: str, names: list[str], part: str) -> Dataset:
    feature = dataset.features[column]
    own = _class_label(feature)
    if own is not None and list(own.names) == names:
        return dataset
    place = {name: label for label, name in enumerate(names)}
    numbers = own is None and pa.types.is_integer(_value_type(feature))
    found = _values(dataset, column).unique().to_pylist()
    in_order = numbers and not all(str(value) in place for value in found if value is not None and value >= 0)

    def encode(value: Any) -> int:
        if value is None:
            raise ValueError("is no class: the label is missing")
        if isinstance(value, int) and not isinstance(value, bool) and value < 0:
            return value  # -100 for a token without label; any other is refused when labels are read
        classes = f"{', '.join(names[:10])}{', …' if len(names) > 10 else ''}"
        if in_order:
            if value < len(names):
                return value
            raise ValueError(f"is no class: they are {classes}, or 0 to {len(names) - 1}")
        name = own.names[value] if own is not None else str(value)
        if name in place:
            return place[name]
        raise ValueError(f"{f'({name}) ' if own is not None else ''}is none of the classes {classes}")

    return _replace(dataset, column, ClassLabel(names=names), encode, part)


def _as_integers(dataset: Dataset, column: str, part: str) -> Dataset:
    kind = _value_type(dataset.features[column])
    if pa.types.is_integer(kind):
        return dataset
    if not pa.types.is_floating(kind):
        raise ValueError(f"column {column!r} of {part} holds {kind}; labels are classes: words or whole numbers.")

    def whole(value: Any) -> int:
        if value is None or value != int(value):
            raise ValueError("is no class: classes are words or whole numbers")
        return int(value)

    return _replace(dataset, column, Value("int64"), whole, part)


def _replace(dataset: Dataset, column: str, feature: Any, encode: Callable[[Any], Any], part: str) -> Dataset:
    """The column with each value encoded; each distinct value once, so that large files cost little."""
    values = _values(dataset, column)
    distinct = values.unique()
    codes = []
    for value in distinct.to_pylist():
        try:
            codes.append(encode(value))
        except (ValueError, TypeError) as error:
            place = pc.index(values.is_null() if value is None else values, True if value is None else value).as_py()
            row = _row_of(dataset, column, place)
            raise ValueError(f"column {column!r} of {part}, row {row}: {value!r} {error}.") from error
    codes_of_values = pa.array(codes).take(pc.index_in(values, value_set=distinct))
    if is_list_feature(dataset.features[column]):
        lengths = pc.list_value_length(_column(dataset, column)).fill_null(0).to_pylist()
        flat = codes_of_values.to_pylist()
        ends = accumulate(lengths)
        encoded: list[Any] = [flat[end - length : end] for end, length in zip(ends, lengths, strict=True)]
        feature = List(feature)
    else:
        encoded = codes_of_values.to_pylist()
    # The new one first: a dataset whose only column is removed forgets how many rows it has.
    dataset = dataset.add_column(_NEW_COLUMN, encoded, feature=feature)
    return dataset.remove_columns(column).rename_column(_NEW_COLUMN, column)


def _row_of(dataset: Dataset, column: str, place: int) -> int:
    if not is_list_feature(dataset.features[column]):
        return place
    lengths = pc.list_value_length(_column(dataset, column)).fill_null(0).to_pylist()
    return next(row for row, end in enumerate(accumulate(lengths)) if place < end)


def _column(dataset: Dataset, column: str) -> pa.Array:
    table = dataset.select_columns([column]).with_format("arrow")[:]
    return table.column(column).combine_chunks()


def _values(dataset: Dataset, column: str) -> pa.Array:
    values = _column(dataset, column)
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], type=values.type)
    return values.flatten() if is_list_feature(dataset.features[column]) else values


def _class_label(feature: Any) -> ClassLabel | None:
    feature = getattr(feature, "feature", feature)
    return feature if isinstance(feature, ClassLabel) else None


def _value_type(feature: Any) -> pa.DataType:
    feature = getattr(feature, "feature", feature)
    if not isinstance(feature, (ClassLabel, Value)):
        raise ValueError(f"a column of labels or flags holds {feature}; it must hold words or numbers.")
    return feature.pa_type


def check_words(dataset: Dataset, words: str, label: str, part: str) -> None:
    """
    Refuses rows whose words are missing, or not as many as their labels.

    Args:
        dataset (`Dataset`): Its label column may hold anything: nothing is checked unless both columns hold lists.
        words, label (`str`): The columns.
        part (`str`): What to call the dataset in messages.
    """
    if not (is_list_feature(dataset.features[words]) and is_list_feature(dataset.features[label])):
        return
    table = dataset.select_columns([words, label]).with_format("arrow")[:]
    number_of_words, number_of_labels = (pc.list_value_length(table[name]).to_pylist() for name in (words, label))
    for row, (number, labels) in enumerate(zip(number_of_words, number_of_labels, strict=True)):
        if number is None:
            raise ValueError(f"column {words!r} of {part}, row {row}: there are no words.")
        if labels != number:
            raise ValueError(f"{part}, row {row}: {number} words ({words!r}) have {labels or 0} labels ({label!r}).")
    missing = pc.list_parent_indices(table[words]).filter(pc.list_flatten(table[words]).is_null())
    if len(missing):
        raise ValueError(f"column {words!r} of {part}, row {missing[0]}: a word is missing.")
