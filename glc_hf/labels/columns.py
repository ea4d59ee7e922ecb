# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Which columns hold the inputs and the labels, and what kind of task that makes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import datasets
import torch
from datasets import ClassLabel, Features, Image, Value

from glc_hf.labels.reading import (
    class_names,
    require_column,
)


if TYPE_CHECKING:
    from glc_hf.cli.options import DataArguments


_TEXTS = (
    "text", "sentence", "content", "review", "question", "utterance", "tweet", "comment", "document", "body",
    "message",
)  # fmt: skip
_TEXT_PAIRS = (("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"), ("text1", "text2"))
_IMAGES = ("image", "img")
_TOKENS = ("tokens", "words")
_LABELS = ("label", "labels", "fine_label", "class", "category", "target")
_TOKEN_LABELS = ("pos_tags", "ner_tags", "tags", "labels", "label")


class Columns(NamedTuple):
    """
    What the columns are for.

    Attributes:
        task: `"text"`, `"image"` or `"token"`.
        inputs: The column of the input; two for pairs of texts.
        label: The column of the labels as given.
    """

    task: str
    inputs: tuple[str, ...]
    label: str


def find_columns(features: Features, data: DataArguments, task: str, label_column: str | None, flag: str) -> Columns:
    """
    Columns named by the user, the rest by what they hold and by their usual names.

    Args:
        features (`Features`): The columns of the training split.
        data (`DataArguments`): What the user named.
        task (`str`): `"auto"`, or the task.
        label_column (`str`, *optional*): The labels' column, if named.
        flag (`str`): The column of the trusted flags, which is neither input nor label.
    """
    named = {
        "token": (data.tokens_column,),
        "image": (data.image_column,),
        "text": (data.text_column, data.text_pair_column),
    }
    named = {kind: tuple(name for name in names if name) for kind, names in named.items() if names[0]}
    for option, name in (("--label-column", label_column), *(("the input", n) for n in sum(named.values(), ()))):
        _require(features, name, option)
    task = task if task != "auto" else _find_task(features, named, label_column, flag)
    label = label_column or _find_label(features, task, flag)
    inputs = named.get(task) or _find_inputs(features, task, label, flag)
    return Columns(task, inputs, label)


def is_list_feature(feature: Any) -> bool:
    """Whether a feature is a list of something."""
    return hasattr(feature, "feature")


def _find_task(features: Features, named: dict[str, tuple[str, ...]], label: str | None, flag: str) -> str:
    others = Features({name: kind for name, kind in features.items() if name not in (label, flag)})
    kinds = (("token", _tokens), ("image", _images), ("text", _texts))
    found = list(named) or [kind for kind, candidates in kinds if candidates(others)]
    if len(found) > 1 and "token" in found:  # words beside the running text: the labels tell
        label = label or next((name for name in _TOKEN_LABELS if name in features), None)
        found = ["token"] if is_list_feature(features.get(label)) else [kind for kind in found if kind != "token"]
    if len(found) == 1:
        return found[0]
    what = "could be " + " or ".join(found) if found else "is not to be told"
    raise _unclear(f"the kind of input {what} by the names of the columns", features, "--task and the input's column")


def _find_inputs(features: Features, task: str, label: str, flag: str) -> tuple[str, ...]:
    others = Features({name: kind for name, kind in features.items() if name not in (label, flag)})
    candidates = {"token": _tokens, "image": _images, "text": _texts}[task](others)
    if len(candidates) == 1:
        return candidates[0]
    option = {"token": "--tokens-column", "image": "--image-column", "text": "--text-column"}[task]
    what = f"several columns could be the {task}" if candidates else f"no column is known to hold the {task}"
    raise _unclear(what, features, option)


def _find_label(features: Features, task: str, flag: str) -> str:
    candidates = [name for name in (_TOKEN_LABELS if task == "token" else _LABELS) if name in features]
    if not candidates:
        candidates = [
            name
            for name, kind in features.items()
            if name != flag
            and isinstance(getattr(kind, "feature", kind), ClassLabel)
            and is_list_feature(kind) == (task == "token")
        ]
    if len(candidates) == 1:
        return candidates[0]
    what = "several columns could be the labels" if candidates else "no column is known to hold the labels"
    raise _unclear(what, features, "--label-column")


def _texts(features: Features) -> list[tuple[str, ...]]:
    strings = [name for name, kind in features.items() if _is_string(kind)]
    pairs = [pair for pair in _TEXT_PAIRS if set(pair) <= set(strings)]
    usual = [(name,) for name in _TEXTS if name in strings]
    other = [(name,) for name in strings if name not in _LABELS]
    return pairs or usual or (other if len(other) == 1 else [])


def _images(features: Features) -> list[tuple[str, ...]]:
    typed = [(name,) for name, kind in features.items() if isinstance(kind, Image)]
    return typed or [(name,) for name in _IMAGES if name in features]


def _tokens(features: Features) -> list[tuple[str, ...]]:
    lists = [name for name, kind in features.items() if is_list_feature(kind) and _is_string(kind.feature)]
    usual = [(name,) for name in _TOKENS if name in lists]
    other = [(name,) for name in lists if name not in _TOKEN_LABELS]
    return usual or (other if len(other) == 1 else [])


def _is_string(feature: Any) -> bool:
    return isinstance(feature, Value) and feature.dtype in ("string", "large_string", "string_view")


def _require(features: Features, name: str | None, option: str) -> None:
    if name is not None and name not in features:
        raise _unclear(f"there is no column {name!r} ({option})", features, "one of them")


def _unclear(what: str, columns: Iterable[str], option: str) -> ValueError:
    return ValueError(f"{what}: name {option}. Columns: {', '.join(columns)}.")


def label_names_of(dataset: Any, label_column: str, model: torch.nn.Module) -> list[str] | None:
    """Class names from the dataset's `ClassLabel`, else from the model's `id2label` where somebody filled it in."""
    num_labels = getattr(getattr(model, "config", None), "num_labels", None)
    features = getattr(dataset, "features", None) or {}
    feature = features.get(label_column)
    feature = getattr(feature, "feature", feature)  # the entry of a list
    if isinstance(feature, datasets.ClassLabel) and feature.num_classes == num_labels:
        return list(feature.names)
    id2label = getattr(getattr(model, "config", None), "id2label", None) or {}
    names = [id2label.get(label) for label in range(num_labels or 0)]
    if not names or None in names or names == [f"LABEL_{label}" for label in range(len(names))]:
        return None
    return [str(name) for name in names]


USUAL_LABEL_COLUMNS = ("labels", "label", "label_ids")


def find_label_column(dataset: Any, label_column: str | None) -> str:
    """
    The column that holds the labels: the one named, or else `labels`, `label` or `label_ids`, or else the only column
    of classes.

    Args:
        dataset: A `Dataset`, or an `IterableDataset` whose columns are known.
        label_column (`str`, *optional*): Its name, checked to be there.
    """
    names = list(dataset.column_names)
    if label_column is not None:
        require_column(names, label_column, "label_column")
        return label_column
    for name in USUAL_LABEL_COLUMNS:
        if name in names:
            return name
    classes = [name for name in names if class_names(dataset.features[name]) is not None] if dataset.features else []
    if len(classes) == 1:
        return classes[0]
    found = f"several columns hold classes ({', '.join(classes)})" if classes else "no column is called `labels`"
    raise ValueError(f"{found}, so say which one holds the labels with label_column=. Columns: {', '.join(names)}.")


def with_usual_label_column(dataset: Any, column: str | None, usual: str = "labels") -> Any:
    """
    The dataset with its labels under a name that collators know, and no other column of such a name beside them.

    Args:
        dataset: A `Dataset` or an `IterableDataset`; left as it is where it has no such column.
        column (`str`, *optional*): The labels' column; without it the dataset is left as it is.
        usual (`str`, *optional*, defaults to `"labels"`): What to call it, if it has not a usual name already.
    """
    names = dataset.column_names
    if column is None:
        return dataset
    if names is not None:
        if column not in names:
            return dataset
        others = [name for name in USUAL_LABEL_COLUMNS if name in names and name != column]
        dataset = dataset.remove_columns(others) if others else dataset
    return dataset if column in (*USUAL_LABEL_COLUMNS, usual) else dataset.rename_column(column, usual)
