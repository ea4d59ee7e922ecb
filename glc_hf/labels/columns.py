# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Columns of the inputs and the labels, found by their names and types; the task that follows from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from datasets import Features, Image, Value

from glc_hf.labels.reading import class_names, require_column


# Names that collators know, in the order in which they are preferred.
USUAL_LABEL_COLUMNS = ("labels", "label", "label_ids")
# Names that datasets use, for one label per row and for one per token.
_DATASET_LABELS = ("fine_label", "class", "category", "target")
_DATASET_TOKEN_LABELS = ("pos_tags", "ner_tags", "tags")
# Added by `glc-hf apply`: where each label comes from.
LABEL_SOURCE_COLUMN = "label_source"
_ALL_LABELS = (*USUAL_LABEL_COLUMNS, *_DATASET_LABELS, *_DATASET_TOKEN_LABELS, LABEL_SOURCE_COLUMN)

_TEXTS = (
    "text", "sentence", "content", "review", "question", "utterance", "tweet", "comment", "document", "body",
    "message",
)  # fmt: skip
_TEXT_PAIRS = (("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"), ("text1", "text2"))
_IMAGES = ("image", "img")
_TOKENS = ("tokens", "words")


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
    for option, name in (("--label-column", label_column), *(("the input", n) for n in sum(named.values(), ()))):
        if name is not None and name not in features:
            raise _unclear(f"there is no column {name!r} ({option})", features, "one of them")
    if task == "auto":
        task = _find_task(features, named, label_column, trusted_column)
    label = label_column or _find_label(features, features, task, trusted_column, "--label-column")
    candidates = [named[task]] if task in named else _inputs(features, task, (label, trusted_column))
    if len(candidates) == 1:
        return Columns(task, candidates[0], label)
    option = {"token": "--tokens-column", "image": "--image-column", "text": "--text-column"}[task]
    problem = f"several columns could be the {task}" if candidates else f"no column is known to hold the {task}"
    raise _unclear(problem, features, option)


def find_label_column(dataset: Any, label_column: str | None = None, trusted_column: str | None = None) -> str:
    """
    Return the column of the labels: the one named; else `labels`, `label` or `label_ids`; else the only column with a
    name that datasets use, such as `fine_label` or `ner_tags`; else the only column of classes.

    Args:
        dataset: A `Dataset`, or an `IterableDataset` with known columns.
        label_column (`str`, *optional*): Name of the column, which must exist.
        trusted_column (`str`, *optional*): Column of the flags, which is not the label.
    """
    names = list(dataset.column_names)
    if label_column is not None:
        require_column(names, label_column, "label_column")
        return label_column
    return _find_label(names, dataset.features or {}, None, trusted_column, "label_column=")


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
    raise _unclear(problem if candidates else "no column is known to hold the labels", features or names, option)


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
    problem = f"the task could be {' or '.join(tasks)}" if tasks else "the task is not clear"
    raise _unclear(f"{problem} from the names of the columns", features, "--task and the input's column")


def _inputs(features: Features, task: str, without: tuple[str | None, ...]) -> list[tuple[str, ...]]:
    """Return the columns, or pairs of columns, that could be the input of a task."""
    return _CANDIDATES[task]({name: feature for name, feature in features.items() if name not in without})


def _texts(features: dict[str, Any]) -> list[tuple[str, ...]]:
    strings = [name for name, feature in features.items() if _is_string(feature)]
    pairs = [pair for pair in _TEXT_PAIRS if set(pair) <= set(strings)]
    usual = [(name,) for name in _TEXTS if name in strings]
    other = [(name,) for name in strings if name not in _ALL_LABELS]
    return pairs or usual or (other if len(other) == 1 else [])


def _images(features: dict[str, Any]) -> list[tuple[str, ...]]:
    typed = [(name,) for name, feature in features.items() if isinstance(feature, Image)]
    return typed or [(name,) for name in _IMAGES if name in features]


def _tokens(features: dict[str, Any]) -> list[tuple[str, ...]]:
    lists = [name for name, feature in features.items() if is_list_feature(feature) and _is_string(feature.feature)]
    usual = [(name,) for name in _TOKENS if name in lists]
    other = [(name,) for name in lists if name not in _ALL_LABELS]
    return usual or (other if len(other) == 1 else [])


_CANDIDATES = {"token": _tokens, "image": _images, "text": _texts}


def _is_string(feature: Any) -> bool:
    return isinstance(feature, Value) and feature.dtype in ("string", "large_string", "string_view")


def _unclear(problem: str, columns: Iterable[str], option: str) -> ValueError:
    return ValueError(f"{problem}: name {option}. Columns: {', '.join(columns)}.")


def label_names_of(dataset: Any, label_column: str, model: Any) -> list[str] | None:
    """Return the class names of the dataset's `ClassLabel`, else those of the model's `id2label` if it has any."""
    config = getattr(model, "config", None)
    num_labels = getattr(config, "num_labels", None)
    names = class_names((getattr(dataset, "features", None) or {}).get(label_column))
    if names is not None and len(names) == num_labels:
        return names
    id2label = getattr(config, "id2label", None) or {}
    names = [id2label.get(label) for label in range(num_labels or 0)]
    if not names or None in names or names == [f"LABEL_{label}" for label in range(len(names))]:
        return None
    return [str(name) for name in names]


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
