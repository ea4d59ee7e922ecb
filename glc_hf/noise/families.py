# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Registry of noise families: functions that build a corruption matrix, by the name that the command line and sweeps use.

Imports nothing heavier than numpy, because `glc-hf table` and the options of `glc-hf train` read the names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from glc_hf.matrix import CorruptionMatrix


NoiseFamily = Callable[[int, float, int, Sequence[Any] | None], CorruptionMatrix]

# Labels drawn from a weak classifier. They have no matrix, so this is not a registered family.
WEAK = "weak"
_RESERVED = ("none", WEAK)
_FAMILIES: dict[str, NoiseFamily] = {}


def noise_family(name: str) -> Callable[[NoiseFamily], NoiseFamily]:
    """
    Register a noise family under a name.

    The decorated function takes `(num_labels, strength, seed, groups)`, of which it may ignore some, and returns a
    `CorruptionMatrix`.

    Example:

    ```python
    >>> @noise_family("next_class")
    ... def next_class(num_labels, strength, seed, groups):
    ...     probs = (1 - strength) * np.eye(num_labels) + strength * np.roll(np.eye(num_labels), 1, axis=1)
    ...     return CorruptionMatrix(probs)
    ```
    """

    def register(function: NoiseFamily) -> NoiseFamily:
        if name in _FAMILIES or name in _RESERVED:
            raise ValueError(f"there is a noise family {name!r} already: choose another name.")
        _FAMILIES[name] = function
        return function

    return register


def noise_families() -> tuple[str, ...]:
    """Return the names of the registered families, in order of registration."""
    return tuple(_FAMILIES)


def noise_matrix(
    family: str,
    num_labels: int,
    strength: float,
    *,
    seed: int = 0,
    groups: Sequence[Any] | None = None,
    label_names: Sequence[str] | None = None,
) -> CorruptionMatrix:
    """
    Build the matrix of a noise family.

    Args:
        family (`str`): One of [`noise_families`].
        num_labels (`int`): K.
        strength (`float`): From 0 to 1.
        seed (`int`, *optional*, defaults to 0): Seed of families that draw at random: the target classes of `flip`.
        groups (`Sequence`, *optional*): Groups of similar classes for `hierarchical`, as in
            `CorruptionMatrix.hierarchical`.
        label_names (`Sequence[str]`, *optional*): Names of the classes.
    """
    if family not in _FAMILIES:
        raise ValueError(f"there is no noise family {family!r}; the families are {', '.join(_FAMILIES)}.")
    matrix = _FAMILIES[family](num_labels, strength, seed, groups)
    if matrix.num_labels != num_labels:
        raise ValueError(f"noise {family!r} covers {matrix.num_labels} classes, the labels have {num_labels}.")
    return matrix.with_names(label_names)


@noise_family("uniform")
def _uniform(num_labels: int, strength: float, seed: int, groups: Sequence[Any] | None) -> CorruptionMatrix:
    return CorruptionMatrix.uniform(num_labels, strength)


@noise_family("flip")
def _flip(num_labels: int, strength: float, seed: int, groups: Sequence[Any] | None) -> CorruptionMatrix:
    return CorruptionMatrix.flip(num_labels, strength, seed=seed)


@noise_family("hierarchical")
def _hierarchical(num_labels: int, strength: float, seed: int, groups: Sequence[Any] | None) -> CorruptionMatrix:
    if groups is None:
        raise ValueError("hierarchical noise needs groups of classes, and there are none: use uniform or flip.")
    return CorruptionMatrix.hierarchical(groups, strength)
