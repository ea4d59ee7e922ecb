# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Labels and flags as files hold them (names, numbers, yes and no) converted to classes and booleans."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import ClassLabel, Dataset, Features, IterableDataset, List, Value

from glc_hf.labels.columns import (
    find_label_column,
    is_list_feature,
    is_number,
    label_names_of,
    names_in_files,
    type_of_values,
    values_of,
)
from glc_hf.labels.reading import class_names, read_flags
from glc_hf.labels.storage import RowIndex, column_in_order, flat_values, is_list_type, to_arrow, value_type


_NEW_COLUMN = "__encoded__"
# A vote or label that is missing, and a value that is not a class, until an error names it.
NO_VOTE, NO_CLASS = -1, -2
MISSING_RULE = "None, -1, NaN and empty text are missing votes"


def encode_labels(
    parts: dict[str, Dataset],
    column: str,
    second: str | None = None,
    names: list[str] | None = None,
    unlabeled: tuple[str, ...] = (),
    votes: Sequence[str] = (),
) -> tuple[dict[str, Dataset], list[str] | None]:
    """
    Encode labels so that all parts (training split, evaluation split, trusted file) have the same classes.

    Names (strings, booleans) become classes in the sorted order of all parts together; if a part has a `ClassLabel`,
    its order is used. Integers are kept; next to classes with names they are read as names if all of them are names,
    and otherwise as class numbers. (`Dataset.class_encode_column` and `align_labels_with_mapping` work on one dataset
    and name no row in their errors.)

    Args:
        parts (`dict[str, Dataset]`): By the name used in messages; the `ClassLabel` of the first part that has one
            counts.
        column (`str`): Column of the labels.
        second (`str`, *optional*): Second column of labels, encoded the same way in the parts that have it. A missing
            label becomes -1.
        names (`list[str]`, *optional*): The classes if they are known: those of a trained model.
        unlabeled (`tuple[str, ...]`, *optional*): Parts in which a missing label becomes -1 and is not an error.
        votes (`Sequence[str]`, *optional*): Columns of votes. Names that occur only there are classes too.

    Returns:
        The parts, and the names of the classes (`None` if they have none).
    """
    if names is None:
        known = (class_names(part.features[column]) for part in parts.values())
        names = next((found for found in known if found is not None), None) or names_in_files(parts, column, votes)
    encoded = {}
    for name, part in parts.items():
        for labels in (column, second):
            if labels is not None and labels in part.column_names:
                allow_missing = labels == second or name in unlabeled
                if names is None:
                    part = _as_integers(part, labels, name, allow_missing)
                else:
                    part = _as_classes(part, labels, names, name, allow_missing)
        encoded[name] = part
    return encoded, names


def encode_flags(dataset: Dataset, column: str) -> Dataset:
    """Convert trusted flags (see [`~glc_hf.labels.reading.read_flags`]) to booleans, which `datasets` can merge."""
    feature: Any = Value("bool")
    if type_of_values(dataset.features[column]) == pa.bool_():
        return dataset
    flags = read_flags(dataset, column)
    feature = feature if flags.offsets is None else List(feature)
    arrow_type = pa.bool_() if flags.offsets is None else pa.list_(pa.bool_())
    return _with_column(dataset, column, to_arrow(flags.values, flags.offsets, arrow_type), feature)


def _as_classes(dataset: Dataset, column: str, names: list[str], part: str, allow_missing: bool) -> Dataset:
    own = class_names(dataset.features[column])
    if own == names and not (allow_missing and values_of(dataset, column).null_count):
        return dataset
    class_of = {name: label for label, name in enumerate(names)}
    numbers = own is None and pa.types.is_integer(type_of_values(dataset.features[column]))
    distinct = values_of(dataset, column).unique().to_pylist()
    by_number = numbers and not all(str(value) in class_of for value in distinct if value is not None and value >= 0)
    classes = f"{', '.join(names[:10])}{', …' if len(names) > 10 else ''}"

    def encode(value: Any) -> int:
        if value is None:
            if allow_missing:
                return NO_VOTE
            raise ValueError("is not a class: the label is missing. Fill it in, or drop the row with `dataset.filter`")
        if isinstance(value, int) and not isinstance(value, bool) and value < 0:
            return value  # -100 for a token without label; others are refused when labels are read
        if by_number:
            if value < len(names):
                return value
            raise ValueError(f"is not a class: the classes are {classes}, or 0 to {len(names) - 1}")
        name = own[value] if own is not None else str(value)
        if name in class_of:
            return class_of[name]
        raise ValueError(f"{f'({name}) ' if own is not None else ''}is none of the classes {classes}")

    return _encode(dataset, column, ClassLabel(names=names), encode, part)


def _as_integers(dataset: Dataset, column: str, part: str, allow_missing: bool) -> Dataset:
    kind = type_of_values(dataset.features[column])
    if pa.types.is_integer(kind) and not (allow_missing and values_of(dataset, column).null_count):
        return dataset
    if not (is_number(kind) or (allow_missing and pa.types.is_null(kind))):
        raise ValueError(f"column {column!r} of {part} holds {kind}; labels are classes: names or integers.")

    def integer(value: Any) -> int:
        if value is None and allow_missing:
            return NO_VOTE
        if value is None or value != int(value):
            raise ValueError("is not a class: classes are names or integers")
        return int(value)

    return _encode(dataset, column, Value("int64"), integer, part)


def _encode(dataset: Dataset, column: str, feature: Any, encode: Callable[[Any], int], part: str) -> Dataset:
    """Encode each distinct value once, so that large files take little time."""
    values, offsets = flat_values(column_in_order(dataset, column))
    distinct = values.unique()
    codes = []
    for value in distinct.to_pylist():
        try:
            codes.append(encode(value))
        except (ValueError, TypeError) as error:
            position = pc.index(values.is_null() if value is None else values, True if value is None else value)
            row = RowIndex().name_value(position.as_py(), offsets)
            raise ValueError(f"column {column!r} of {part}, {row}: {value!r} {error}.") from error
    encoded = pa.array(codes, pa.int64()).take(pc.index_in(values, value_set=distinct))
    if offsets is None:
        return _with_column(dataset, column, encoded, feature)
    return _with_column(dataset, column, to_arrow(encoded.to_numpy(), offsets, pa.list_(pa.int64())), List(feature))


def _with_column(dataset: Dataset, column: str, values: Any, feature: Any) -> Dataset:
    # The new column first: a dataset without columns forgets its number of rows.
    dataset = dataset.add_column(_NEW_COLUMN, values, feature=feature)
    return dataset.remove_columns(column).rename_column(_NEW_COLUMN, column)


# ---------------------------------------------------------------------- classes written as words, in Python
def encode_words(dataset: Any, column: str | None, names: Sequence[str] | None, part: str) -> Any:
    """
    Encode labels that are words (strings, booleans) by the names of the classes. Other labels, datasets with a
    transform, and labels without known names stay as they are, for the checks that name the column and the fix.

    Args:
        dataset: A `Dataset`, or an `IterableDataset` whose features are known; anything else is returned unchanged.
        column (`str`, *optional*): Column of the labels.
        names (`Sequence[str]`, *optional*): Names of the classes.
        part (`str`): Name of the dataset in messages.
    """
    if names is None or column is None or not holds_words(dataset, column):
        return dataset
    if isinstance(dataset, Dataset):
        return _as_classes(dataset, column, [str(name) for name in names], part, allow_missing=False)
    class_of = {str(name): label for label, name in enumerate(names)}

    def encode(row: dict[str, Any]) -> dict[str, Any]:
        words = row[column] if isinstance(row[column], list) else [row[column]]
        unknown = [word for word in words if str(word) not in class_of]
        if unknown:
            raise ValueError(
                f"column {column!r} of {part}: {unknown[0]!r} is none of the classes {', '.join(class_of)}."
            )
        classes = [class_of[str(word)] for word in words]
        return {column: classes if isinstance(row[column], list) else classes[0]}

    feature: Any = ClassLabel(names=list(class_of))
    feature = List(feature) if is_list_feature(dataset.features[column]) else feature
    return dataset.map(encode, features=Features({**dataset.features, column: feature}))


def holds_words(dataset: Any, column: str | None) -> bool:
    """Whether a column of a dataset holds strings or booleans, or lists of them, which no transform changes."""
    features = getattr(dataset, "features", None) or {}
    if not isinstance(dataset, (Dataset, IterableDataset)) or column is None or column not in features:
        return False
    if isinstance(dataset, Dataset) and dataset.format["type"] == "custom":
        return False
    feature = features[column].feature if is_list_feature(features[column]) else features[column]
    return isinstance(feature, Value) and feature.dtype in ("string", "large_string", "bool")


def encode_training_words(
    dataset: Any, label_column: str | None, trusted_column: str, model: Any
) -> tuple[Any, list[str] | None]:
    """
    Encode the labels of a training set that are words, by the model's `label2id`. If the model has no names for its
    classes, they are the words in sorted order, and a warning says so.

    Returns:
        The dataset, and the names of the classes if labels were encoded.
    """
    known = isinstance(dataset, (Dataset, IterableDataset)) and dataset.column_names is not None
    try:
        column = find_label_column(dataset, label_column, trusted_column) if known else None
    except ValueError:
        return dataset, None  # an error that names the columns follows
    if column is None or not holds_words(dataset, column):
        return dataset, None
    names = label_names_of(None, "", model)
    if names is None and isinstance(dataset, IterableDataset):
        raise ValueError(
            f"column {column!r} of the stream holds words, and the model does not name its classes: load it with "
            "label2id={…} and id2label={…}, or encode the column as integers."
        )
    if names is None:
        names = names_in_files({"train_dataset": dataset}, column, ()) or []
        some = ", ".join(f"{label} {name}" for label, name in enumerate(names[:10]))
        warnings.warn(
            f"column {column!r} holds words: they become the classes {some}{', …' if len(names) > 10 else ''}, which "
            "are stored in the configuration of the model. Load the model with label2id={…} and id2label={…} for "
            "another order.",
            stacklevel=3,
        )
    return encode_words(dataset, column, names, "train_dataset"), names


def check_words(dataset: Dataset, words: str, label: str, part: str) -> None:
    """
    Raise if a row has missing words, or not one label per word.

    Args:
        dataset (`Dataset`): Checked only if both columns hold lists.
        words, label (`str`): The columns.
        part (`str`): Name of the dataset in messages.
    """
    if not (is_list_feature(dataset.features[words]) and is_list_feature(dataset.features[label])):
        return
    lists = column_in_order(dataset, words)
    num_words, num_labels = (
        pc.list_value_length(column).to_pylist() for column in (lists, column_in_order(dataset, label))
    )
    for row, (number, labels) in enumerate(zip(num_words, num_labels, strict=True)):
        if number is None:
            raise ValueError(f"column {words!r} of {part}, row {row}: there are no words.")
        if labels != number:
            raise ValueError(f"{part}, row {row}: {number} words ({words!r}) have {labels or 0} labels ({label!r}).")
    values, offsets = flat_values(lists)
    if values.null_count:
        where = RowIndex().name_value(pc.index(values.is_null(), True).as_py(), offsets)
        raise ValueError(f"column {words!r} of {part}, {where}: a word is missing.")


# ---------------------------------------------------------------------- votes
class VoteEncoder:
    """
    Converts the votes of a column to classes.

    Args:
        column (`pa.ChunkedArray`): The column, for its type.
        name (`str`): Its name, for messages.
        own_names (`list[str]`, *optional*): Names of the column's own `ClassLabel`.
        label_names (`Sequence[str]`, *optional*): Names of the classes.
        num_labels (`int`, *optional*): K.
        by_name (`bool`): Whether integers are names.
        same_as (`list[str]`, *optional*): Names that `own_names` must equal if the names of the classes are not known.
    """

    def __init__(
        self,
        column: pa.ChunkedArray,
        name: str,
        own_names: list[str] | None,
        label_names: Sequence[str] | None,
        num_labels: int | None,
        by_name: bool = False,
        same_as: list[str] | None = None,
    ) -> None:
        self.kind, self.name, self.own_names = value_type(column), name, own_names
        self.label_names = None if label_names is None else [str(label) for label in label_names]
        self.num_labels = num_labels
        types, kind = pa.types, self.kind
        if types.is_floating(kind) or types.is_null(kind):
            kind = pa.int64()
        self.are_names = by_name or not types.is_integer(kind)
        if not (types.is_integer(kind) or types.is_string(kind) or types.is_large_string(kind) or kind == pa.bool_()):
            nested = is_list_type(kind) or types.is_nested(kind)
            fix = "For token labels use source_columns, one column of lists per source." if nested else ""
            raise ValueError(
                f"column {name!r} holds {column.type}; votes are class numbers or class names. {fix}".rstrip()
            )
        if self.are_names and label_names is None:
            raise ValueError(
                f"column {name!r} holds {column.type}, but the names of the classes are not known. Use a `ClassLabel` "
                "for the labels (`dataset.class_encode_column`), set `id2label` in the model's configuration, or "
                "write the votes as class numbers."
            )
        if label_names is None and own_names is not None and same_as is not None and own_names != same_as:
            raise ValueError(
                f"column {name!r} has the classes {_first_names(own_names)} and another source has "
                f"{_first_names(same_as)}: use the same order in both (`dataset.align_labels_with_mapping`)."
            )
        self._class_of = {label: number for number, label in enumerate(self.label_names or ())}

    def __call__(self, values: pa.ChunkedArray, missing: tuple[int, ...] = (NO_VOTE,)) -> np.ndarray:
        """Return the classes as int64: -1 for a missing vote, -2 for a value that is not a class."""
        if pa.types.is_null(values.type):
            return np.full(len(values), NO_VOTE, dtype=np.int64)
        if self.are_names:
            return self._names_to_classes(values, missing)
        return self._numbers_to_classes(whole_numbers(values), missing)

    def _numbers_to_classes(self, numbers: np.ndarray, missing: tuple[int, ...]) -> np.ndarray:
        # Names to translate; empty if numbers mean the classes themselves.
        own_names = None if self.label_names is None or self.own_names == self.label_names else self.own_names
        limit = self.num_labels if own_names is None else len(own_names)
        negative = numbers < 0
        known = ~negative if limit is None else ~negative & (numbers < limit)
        classes = np.where(known, numbers, NO_CLASS)
        for value in missing:
            classes[numbers == value] = NO_VOTE
        if own_names is not None:
            table = np.array([self._class_of.get(name, NO_CLASS) for name in own_names], dtype=np.int64)
            classes[known] = table[numbers[known]]
        return classes

    def _names_to_classes(self, values: pa.ChunkedArray, missing: tuple[int, ...]) -> np.ndarray:
        """Look each distinct value up once."""

        def class_of(value: Any) -> int:
            if isinstance(value, float):
                value = None if math.isnan(value) else int(value) if value.is_integer() else value
            if value is None or value == "" or (not isinstance(value, (str, bool)) and value in missing):
                return NO_VOTE
            return self._class_of.get(str(value), NO_CLASS)

        # One more entry for null, whose index is null.
        encoded = values.combine_chunks().dictionary_encode()
        encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
        classes = np.array([*map(class_of, encoded.dictionary.to_pylist()), NO_VOTE], dtype=np.int64)
        return classes[pc.fill_null(encoded.indices, len(classes) - 1).to_numpy(zero_copy_only=False)]

    def error(self, value: Any, source: str, row: str) -> ValueError:
        """The error about a value that is not a class."""
        if self.own_names is not None and isinstance(value, int) and 0 <= value < len(self.own_names):
            value = self.own_names[value]
        where = f"vote {value!r} of source {source!r} (column {self.name!r}) in {row}"
        if source == self.name:
            where = f"vote {value!r} of source {source!r} in {row}"
        if self.label_names is not None:
            classes = _first_names(self.label_names)
            if not self.are_names and self.own_names is None:
                classes += f" (0…{len(self.label_names) - 1})"
        else:
            classes = "0 or more" if self.num_labels is None else f"0…{self.num_labels - 1}"
        fix = f"Correct it, or write None ({MISSING_RULE})."
        if isinstance(value, float) and not value.is_integer():
            fix += " Probabilities are not votes."
        elif self.label_names is None and isinstance(value, (int, float)) and value >= (self.num_labels or math.inf):
            fix += f" If it is a class, set num_labels={int(value) + 1} or more in the model."
        return ValueError(f"{where} is not a class: the classes are {classes}. {fix}")


def _first_names(names: Sequence[str]) -> str:
    return ", ".join(map(str, names[:10])) + (", …" if len(names) > 10 else "")


def whole_numbers(values: pa.ChunkedArray) -> np.ndarray:
    """Convert integers, or floats that stand for them, to int64: -1 for None and NaN, -2 for fractions."""
    if pa.types.is_null(values.type):
        return np.full(len(values), NO_VOTE, dtype=np.int64)
    if pa.types.is_floating(values.type):
        floats = values.to_numpy()  # nulls become NaN
        whole = (floats == np.floor(floats)) & (np.abs(floats) < 2**53)
        return np.where(np.isnan(floats), NO_VOTE, np.where(whole, floats, NO_CLASS)).astype(np.int64)
    # Unsigned numbers beyond int64 wrap around to negative ones.
    numbers = (pc.fill_null(values, 0) if values.null_count else values).to_numpy().astype(np.int64)
    if values.null_count:
        numbers[values.is_null().to_numpy()] = NO_VOTE
    return numbers
