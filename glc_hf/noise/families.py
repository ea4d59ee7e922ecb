# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The matrix of the noise that the command line simulates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glc_hf.labels.reading import read_integers
from glc_hf.matrix import CorruptionMatrix


if TYPE_CHECKING:
    from datasets import Dataset

    from glc_hf.cli.options import NoiseArguments


def noise_matrix_of_options(
    noise: NoiseArguments, train: Dataset, label_column: str, num_labels: int, names: list[str] | None, seed: int
) -> CorruptionMatrix:
    """
    The matrix that `--noise` names.

    Args:
        noise (`NoiseArguments`): The family or the file, its strength, its groups.
        train (`Dataset`): The training split with all its columns, for groups given as a column.
        label_column (`str`): Its labels.
        num_labels (`int`): K.
        names (`list[str]`, *optional*): The classes' names.
        seed (`int`): Of flip noise.
    """
    if noise.noise == "uniform":
        return CorruptionMatrix.uniform(num_labels, noise.noise_strength, names)
    if noise.noise == "flip":
        return CorruptionMatrix.flip(num_labels, noise.noise_strength, seed, names)
    if noise.noise == "hierarchical":
        groups = _groups(noise.noise_groups, train, label_column, num_labels)
        return CorruptionMatrix.hierarchical(groups, noise.noise_strength, names)
    matrix = read_matrix(noise.noise, "--noise")
    if matrix.num_labels != num_labels:
        raise ValueError(f"--noise {noise.noise} has {matrix.num_labels} classes, the labels have {num_labels}.")
    return matrix


def read_matrix(path: str, option: str) -> CorruptionMatrix:
    """A matrix from a file, a folder or a Hub repository, with the option in the message if it is none."""
    try:
        return CorruptionMatrix.from_pretrained(Path(path).expanduser() if Path(path).expanduser().exists() else path)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{option} {path}: {error}") from error


def _groups(given: str, train: Dataset, label_column: str, num_labels: int) -> list[Any]:
    if given in train.column_names:
        return _groups_from_column(given, train, label_column, num_labels)
    try:
        groups = json.loads(given)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"--noise-groups is a column ({', '.join(train.column_names)}) or a JSON list such as [[0, 1], [2, 3]]; "
            f"{given!r} is neither."
        ) from error
    if not isinstance(groups, list):
        raise ValueError(f"--noise-groups must be a list, got {given!r}.")
    classes = sum(len(group) if isinstance(group, list) else 1 for group in groups)
    if classes != num_labels:
        raise ValueError(f"--noise-groups covers {classes} classes, the labels have {num_labels}.")
    return groups


def _groups_from_column(column: str, train: Dataset, label_column: str, num_labels: int) -> list[int]:
    """The group of each class, which must be the same in all its rows; a class without rows is alone in its group."""
    labels = read_integers(train, label_column).values
    names = np.asarray(train.select_columns([column]).with_format(None)[:][column])
    if len(names) != len(labels) or names.ndim != 1:
        raise ValueError(f"--noise-groups: column {column!r} must give one group a label.")
    groups = np.unique(names, return_inverse=True)[1]
    of_class = np.arange(num_labels) + len(labels)  # groups that no row has
    for label in np.unique(labels[labels >= 0]):
        found = np.unique(groups[labels == label])
        if len(found) > 1:
            raise ValueError(
                f"--noise-groups: class {label} has rows in {len(found)} groups of column {column!r}; a class belongs "
                "to one group."
            )
        of_class[label] = found[0]
    return of_class.tolist()
