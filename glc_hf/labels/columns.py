# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Columns of the inputs and the labels, found by their names and types; the task and the classes of a file."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import ClassLabel, Dataset, Features, Image, Value

from glc_hf.labels.reading import IGNORED_LABEL, class_names, require_column
from glc_hf.labels.storage import column_in_order, flat_values


# Names that collators know, in the order in which they are preferred.
USUAL_LABEL_COLUMNS = ("labels", "label", "label_ids")
# Names that datasets use, for one label per row and for one per token.
_DATASET_LABELS = ("fine_label", "class", "category", "target")
_DATASET_TOKEN_LABELS = ("pos_tags", "ner_tags", "tags")
# Added by `glc-hf apply`: where each label comes from.
LABEL_SOURCE_COLUMN = "label_source"
# Added by it too: the label of the noisy source. Not `given_label`, which is a column of audits.
ORIGINAL_LABEL_COLUMN = "original_label"
_ADDED_COLUMNS = (LABEL_SOURCE_COLUMN, ORIGINAL_LABEL_COLUMN)
_ALL_LABELS = (*USUAL_LABEL_COLUMNS, *_DATASET_LABELS, *_DATASET_TOKEN_LABELS, *_ADDED_COLUMNS)

_TEXTS = (
    "text", "sentence", "content", "review", "question", "utterance", "tweet", "comment", "document", "body",
    "message",
)  # fmt: skip
_TEXT_PAIRS = (("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"), ("text1", "text2"))
_IMAGES = ("image", "img")
_TOKENS = ("tokens", "words")
# What spreadsheets and programs write for a missing value.
MISSING_NAMES = ("na", "n/a", "#n/a", "<na>", "nan", "null", "none")
# A class number from this one on is implausible, unless there are many different ones.
_MOST_CLASSES, _MOST_PER_CLASS = 1000, 20


class NoLabelColumn(ValueError):
    """Raised if no column is known to hold the labels."""


class Columns(NamedTuple):
    """
    Roles of the columns.

    Attributes:
        task: `"text"`, `"image"` or `"token"`.
        inputs: Column of the input; two for pairs of texts.
        label: Column of the labels as given.
    """

    task: str
    inputs: tuple[str, ...]
    label: str


def find_columns(
    features: Features,
    inputs: Mapping[str, tuple[str | None, ...]],
    task: str,
    label_column: str | None,
    trusted_column: str,
) -> Columns:
    """
    Find the columns that the user did not name, by their types and usual names.

    Args:
        features (`Features`): Columns of the training split.
        inputs (`Mapping`): Input columns that the user named, by task; entries that start with `None` are not named.
        task (`str`): `"auto"`, or the task.
        label_column (`str`, *optional*): Column of the labels, if named.
        trusted_column (`str`): Column of the flags, which is neither input nor label.
    """
    named = {kind: tuple(name for name in names if name) for kind, names in inputs.items() if names[0]}
    inputs_named = [(_INPUT_OPTIONS[kind], name) for kind, names in named.items() for name in names]
    for option, name in (("--label-column", label_column), *inputs_named):
        if name is not None and name not in features:
            raise _unclear(f"there is no column {name!r} ({option})", features, "one of them")
    if task == "auto":
        task = _find_task(features, named, label_column, trusted_column)
    label = label_column or _find_label(features, features, task, trusted_column, "--label-column")
    candidates = [named[task]] if task in named else _inputs(features, task, (label, trusted_column))
    if len(candidates) == 1:
        return Columns(task, candidates[0], label)
    problem = f"several columns could be the {task}" if candidates else f"no column is known to hold the {task}"
    raise _unclear(problem, features, _INPUT_OPTIONS[task])


def find_label_column(
    dataset: Any, label_column: str | None = None, trusted_column: str | None = None, option: str = "label_column"
) -> str:
    """
    Return the column of the labels: the one named; else `labels`, `label` or `label_ids`; else the only column with a
    name that datasets use, such as `fine_label` or `ner_tags`; else the only column of classes. Raises
    [`NoLabelColumn`] if there is none.

    Args:
        dataset: A `Dataset`, or an `IterableDataset` with known columns.
        label_column (`str`, *optional*): Name of the column, which must exist.
        trusted_column (`str`, *optional*): Column of the flags, which is not the label.
        option (`str`, *optional*, defaults to `"label_column"`): What the caller calls `label_column`, for errors.
    """
    names = list(dataset.column_names)
    if label_column is not None:
        require_column(names, label_column, option)
        return label_column
    return _find_label(names, dataset.features or {}, None, trusted_column, option)


def _find_label(
    names: Iterable[str], features: Mapping[str, Any], task: str | None, trusted_column: str | None, option: str
) -> str:
    """The rule of [`find_label_column`]; for a known task, labels of tokens are lists."""
    names = [name for name in names if name != trusted_column]
    possible = names
    if task == "token":
        possible = [name for name in names if is_list_feature(features[name])]
    for name in USUAL_LABEL_COLUMNS:
        if name in possible:
            return name
    usual = {"token": _DATASET_TOKEN_LABELS, None: (*_DATASET_LABELS, *_DATASET_TOKEN_LABELS)}
    candidates = [name for name in usual.get(task, _DATASET_LABELS) if name in possible]
    problem = f"several columns could be the labels ({', '.join(candidates)})"
    if not candidates:
        classes = [name for name in possible if class_names(features.get(name)) is not None]
        if task is not None:
            classes = [name for name in classes if is_list_feature(features[name]) == (task == "token")]
        problem = f"several columns hold classes ({', '.join(classes)})"
        # A label per row in a token task is reported later, by its name.
        candidates = classes or [name for name in USUAL_LABEL_COLUMNS if name in names][:1]
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        raise _unclear(
            "no column is known to hold the labels",
            features or names,
            f"{option}, or the columns of votes or soft labels",
            NoLabelColumn,
        )
    raise _unclear(problem, features or names, option)


def is_list_feature(feature: Any) -> bool:
    """Whether a feature is a list."""
    return hasattr(feature, "feature")


def _find_task(features: Features, named: dict[str, tuple[str, ...]], label: str | None, trusted_column: str) -> str:
    tasks = list(named) or [task for task in _CANDIDATES if _inputs(features, task, (label, trusted_column))]
    if len(tasks) > 1 and "token" in tasks:  # words next to the whole text: the labels decide
        label = label or _find_label(features, features, None, trusted_column, "--label-column")
        tasks = ["token"] if is_list_feature(features[label]) else [task for task in tasks if task != "token"]
    if len(tasks) == 1:
        return tasks[0]
    options = [_INPUT_OPTIONS[task] for task in tasks or _INPUT_OPTIONS]
    problem = f"the task could be {' or '.join(tasks)}" if tasks else "no column is known to hold the input"
    nested = [name for name, feature in features.items() if _is_nested(feature)]
    if nested and not tasks:
        problem = (
            f"column {nested[0]!r} holds nested fields, which are not read: write each field as a column of its own "
            "(`dataset.flatten()` does so in Python). If another column is the input"
        )
    raise _unclear(problem, features, f"{', '.join(options[:-1])} or {options[-1]}")


def _is_nested(feature: Any) -> bool:
    """Whether a column holds dicts, or lists of lists or dicts."""
    inner = getattr(feature, "feature", feature)
    return isinstance(inner, dict) or is_list_feature(inner)


def _inputs(features: Features, task: str, without: tuple[str | None, ...]) -> list[tuple[str, ...]]:
    """Return the columns, or pairs of columns, that could be the input of a task."""
    return _CANDIDATES[task]({name: feature for name, feature in features.items() if name not in without})


def _texts(features: dict[str, Any]) -> list[tuple[str, ...]]:
    strings = [name for name, feature in features.items() if _is_string(feature)]
    pairs: list[tuple[str, ...]] = [pair for pair in _TEXT_PAIRS if set(pair) <= set(strings)]
    usual: list[tuple[str, ...]] = [(name,) for name in _TEXTS if name in strings]
    other: list[tuple[str, ...]] = [(name,) for name in strings if name not in _ALL_LABELS]
    return pairs or usual or (other if len(other) == 1 else [])


def _images(features: dict[str, Any]) -> list[tuple[str, ...]]:
    typed: list[tuple[str, ...]] = [(name,) for name, feature in features.items() if isinstance(feature, Image)]
    return typed or [(name,) for name in _IMAGES if name in features]


def _tokens(features: dict[str, Any]) -> list[tuple[str, ...]]:
    lists = [name for name, feature in features.items() if is_list_feature(feature) and _is_string(feature.feature)]
    usual: list[tuple[str, ...]] = [(name,) for name in _TOKENS if name in lists]
    other: list[tuple[str, ...]] = [(name,) for name in lists if name not in _ALL_LABELS]
    return usual or (other if len(other) == 1 else [])


_INPUT_OPTIONS = {"text": "--text-column", "image": "--image-column", "token": "--tokens-column"}
_CANDIDATES = {"token": _tokens, "image": _images, "text": _texts}


def _is_string(feature: Any) -> bool:
    return isinstance(feature, Value) and feature.dtype in ("string", "large_string", "string_view")


def _unclear(problem: str, columns: Iterable[str], option: str, kind: type[ValueError] = ValueError) -> ValueError:
    return kind(f"{problem}: name {option}. Columns: {', '.join(columns)}.")


def label_names_of(dataset: Any, label_column: str | None, model: Any) -> list[str] | None:
    """Return the class names of the dataset's `ClassLabel`, else those of the model's `id2label` if it has any."""
    config = getattr(model, "config", None)
    num_labels = getattr(config, "num_labels", None)
    names = class_names((getattr(dataset, "features", None) or {}).get(label_column))
    if names is not None and len(names) == num_labels:
        return names
    id2label = getattr(config, "id2label", None) or {}
    own = [id2label.get(label) for label in range(num_labels or 0)]
    if not own or None in own or own == [f"LABEL_{label}" for label in range(len(own))]:
        return None
    return [str(name) for name in own]


def with_usual_label_column(dataset: Any, column: str | None, usual: str = "labels") -> Any:
    """
    Rename the label column to a name that collators know, and remove other columns with such a name.

    Args:
        dataset: A `Dataset` or an `IterableDataset`; returned unchanged if it does not have the column.
        column (`str`, *optional*): Column of the labels; if not given, the dataset is returned unchanged.
        usual (`str`, *optional*, defaults to `"labels"`): New name, unless the column has a usual name already.
    """
    names = dataset.column_names
    if column is None:
        return dataset
    if names is not None:
        if column not in names:
            return dataset
        rest = [name for name in USUAL_LABEL_COLUMNS if name in names and name != column]
        dataset = dataset.remove_columns(rest) if rest else dataset
    return dataset if column in (*USUAL_LABEL_COLUMNS, usual) else dataset.rename_column(column, usual)


# ---------------------------------------------------------------------- classes in files
def number_of_classes(parts: list[Dataset], column: str, names: list[str] | None, votes: Sequence[str] = ()) -> int:
    """Return K: the number of names, or the largest label or vote plus one. `votes` are the columns of the votes."""
    if names is not None:
        return len(names)
    columns = [values_of(part, name) for part in parts for name in (column, *votes) if name in part.column_names]
    values = [value for found in columns if is_number(found.type) for value in found.unique().to_pylist()]
    # NaN, None and -1 are missing, and -100 is ignored.
    for value in values:
        if value is not None and value < 0 and value not in (-1, IGNORED_LABEL):
            place = _place_of(parts, (column, *votes), value)
            raise ValueError(f"{place} is not a class: classes are names, or integers from 0. Correct it.")
    classes = [int(value) for value in values if value is not None and value >= 0]
    if not classes:
        raise ValueError(f"there is no label in column {column!r}{' and no vote' if votes else ''}.")
    largest = implausible_class(classes)
    if largest is not None:
        raise ValueError(
            f"{_place_of(parts, (column, *votes), largest)} would mean {largest + 1:,} classes, but there are "
            f"{len(set(classes))} different labels. Correct it, or, if the numbers are codes, write the classes as "
            "names."
        )
    if min(classes) == 1:
        warnings.warn(
            "the labels start at 1, but classes are counted from 0: class 0 has no rows. Subtract 1, or write the "
            "classes as names.",
            stacklevel=2,
        )
    return max(classes) + 1


def implausible_class(classes: Collection[int]) -> int | None:
    """Return the largest class number if it is far above the number of classes that occur: a typing error, an id or a
    code, for which a network would need gigabytes. `None` if it is plausible."""
    largest = max(classes, default=0)
    return largest if largest >= max(_MOST_CLASSES, _MOST_PER_CLASS * len(set(classes))) else None


def _place_of(parts: list[Dataset], columns: Sequence[str], value: int) -> str:
    for part in parts:
        for name in columns:
            if name in part.column_names:
                values, offsets = flat_values(column_in_order(part, name))
                position = pc.index(values, pa.scalar(value, values.type)).as_py() if is_number(values.type) else -1
                if position >= 0:
                    row = position if offsets is None else int(np.searchsorted(offsets, position, side="right")) - 1
                    return f"label {value} in column {name!r}, row {row},"
    return f"label {value}"


def has_labels(dataset: Dataset, column: str) -> bool:
    """Whether any row has a label: test splits published without labels hold only -1 or nothing."""
    if column not in dataset.features:
        return False
    values = values_of(dataset, column)
    if pa.types.is_integer(values.type):
        return pc.any(pc.greater_equal(values, 0)).as_py() is True
    return values.null_count < len(values)


def names_in_files(parts: dict[str, Dataset], column: str, votes: Sequence[str]) -> list[str] | None:
    """Return the distinct names, sorted; sorted as numbers if all of them are numbers. If a source has a `ClassLabel`
    with all of them, its order is used."""
    voted, own = _names_in_votes(parts, votes)
    if not any(_is_name(type_of_values(part.features[column])) for part in parts.values()):
        labels = (values_of(part, column) for part in parts.values())
        if own is None and any(values.null_count < len(values) for values in labels):
            return None
        return own or _in_order(voted) or None
    names_of = {
        part: {str(value) for value in values_of(dataset, column).unique().to_pylist() if value is not None}
        for part, dataset in parts.items()
    }
    names = set().union(*names_of.values())
    _check_same_names(names_of)
    _check_same_names({f"column {column!r}": names, "a source of votes": voted})
    missing = {name for name in names if name.strip().lower() in MISSING_NAMES}
    if missing and _are_numbers(names - missing):
        raise ValueError(
            f"column {column!r} holds labels {_some(missing)} among numbers: leave rows without a label out, or write "
            "the classes as names."
        )
    if missing:
        warnings.warn(
            f"column {column!r} holds labels {_some(missing)}, taken as a class like any other; if it means that the "
            "label is missing, leave those rows out.",
            stacklevel=2,
        )
    names |= voted
    return own if own is not None and names <= set(own) else _in_order(names)


def _names_in_votes(parts: dict[str, Dataset], columns: Sequence[str]) -> tuple[set[str], list[str] | None]:
    """Return the names that occur as votes, and the classes of the first source that has a `ClassLabel`. What programs
    write for a missing value is not a class; the vote is refused when votes are read."""
    names: set[str] = set()
    own: list[str] | None = None
    for part in parts.values():
        for column in (name for name in columns if name in part.column_names):
            classes = class_names(part.features[column])
            own = own or classes
            values = values_of(part, column)
            if classes is not None:
                names.update(classes)
            elif _is_name(values.type):
                names.update(str(value) for value in values.unique().to_pylist() if value is not None and value != "")
    return {name for name in names if name.strip().lower() not in MISSING_NAMES}, own


def _in_order(names: set[str]) -> list[str]:
    return sorted(names, key=int) if _are_numbers(names) else sorted(names)


def _are_numbers(names: set[str]) -> bool:
    return all(name.lstrip("-").isdigit() for name in names)


def _is_name(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.bool_()


def is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def _check_same_names(names_of: dict[str, set[str]]) -> None:
    """Raise if parts have no label in common; warn about labels of one part only, which may be typing errors."""
    filled = [(part, names) for part, names in names_of.items() if names]
    first, known = filled[0] if filled else ("", set())
    for part, names in filled[1:]:
        if not names & known:
            raise ValueError(
                f"{part} and {first} have no label in common: {_some(names)} and {_some(known)}. Use the same class "
                "names in both."
            )
        if names - known:
            warnings.warn(f"{part} has labels that {first} does not have: {_some(names - known)}.", stacklevel=2)


def _some(names: set[str]) -> str:
    return ", ".join(sorted(names)[:5]) + (", …" if len(names) > 5 else "")


def values_of(dataset: Dataset, column: str) -> pa.ChunkedArray:
    """The values of a column, those in lists one after the other."""
    return flat_values(column_in_order(dataset, column))[0]


def type_of_values(feature: Any) -> pa.DataType:
    """The type of the values of a column of labels, flags or votes, or of those in its lists."""
    feature = getattr(feature, "feature", feature)
    if not isinstance(feature, (ClassLabel, Value)):
        raise ValueError(f"a column of labels or flags holds {feature}; it must hold names or numbers.")
    return feature.pa_type


def check_plain_values(column: str, feature: Any) -> None:
    """Raise if a column of labels or flags holds something else than single values, or lists of them."""
    inner = getattr(feature, "feature", feature)
    if not isinstance(inner, (ClassLabel, Value)):
        kind = "lists of lists" if is_list_feature(inner) else "nested fields" if isinstance(inner, dict) else inner
        raise ValueError(
            f"column {column!r} holds {kind}, but labels and flags are single values, or lists with one value per "
            "word: write them as a column of their own (`dataset.flatten()` does so for nested fields)."
        )
