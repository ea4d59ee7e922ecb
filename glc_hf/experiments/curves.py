# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Error curves from a results file, the area under them, and the figures that the paper prints."""

from __future__ import annotations

import csv
import difflib
import math
from collections.abc import Collection, Sequence
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from glc_hf.experiments.results import RUN_FIELDS, numbered_results
from glc_hf.noise.families import WEAK, noise_families


_NOISES = (*noise_families(), WEAK)
# The columns of the paper's tables, and the strengths of its curves.
PAPER_METHODS = (
    "trusted_only", "no_correction", "forward", "forward_gold", "distillation", "confusion_matrix", "glc",
)  # fmt: skip
STRENGTHS = tuple(tenth / 10 for tenth in range(11))
# From strength (`None` for noise without one) to percent error.
ErrorCurve = dict[float | None, float]


class Setting(NamedTuple):
    """A row of the tables and a panel of the plots: noise (`None` if all its methods see no noise) and trusted
    fraction."""

    noise: str | None
    trusted: float


class Runs:
    """The runs of one preset that belong in one table: all at the paper's size (`reduced` is `None`), or all reduced
    in the same way."""

    def __init__(self, preset: str, reduced: str | None) -> None:
        self.preset = preset
        self.reduced = reduced
        self._curves: dict[tuple[Setting, str], dict[int, ErrorCurve]] = {}

    def add(self, row: dict[str, Any]) -> None:
        """Add a line of the results file."""
        key = Setting(row["noise"], round(row["trusted"], 6)), row["method"]
        self._curves.setdefault(key, {}).setdefault(row["seed"], {})[_strength(row)] = row["error"]

    @property
    def settings(self) -> list[Setting]:
        """In the order of the paper's tables. Noise is `None` only for fractions without any run under noise."""
        settings = {setting for setting, _ in self._curves}
        under_noise = {setting.trusted for setting in settings if setting.noise is not None}
        settings = {setting for setting in settings if setting.noise is not None or setting.trusted not in under_noise}
        return sorted(settings, key=lambda one: (_rank(one.noise, _NOISES), one.noise or "", one.trusted))

    @property
    def methods(self) -> list[str]:
        """The methods that were run, in the order of [`method_order`]."""
        return sorted({method for _, method in self._curves}, key=method_order)

    def curves(self, setting: Setting, method: str) -> dict[int, ErrorCurve]:
        """
        Return the curve of each seed.

        Trusted rows have no noise, so runs of `trusted_only` without a noise count for every noise. If they have no
        strength either, the curve is flat and its only key is `None`.
        """
        curves = {seed: dict(curve) for seed, curve in self._curves.get((setting, method), {}).items()}
        if method == "trusted_only" and setting.noise is not None:
            for seed, curve in self._curves.get((Setting(None, setting.trusted), method), {}).items():
                curves[seed] = {**curve, **curves.get(seed, {})}
        return dict(sorted(curves.items()))


def method_order(name: str) -> tuple[int, str]:
    """Sort key: the methods of the paper's tables in their order, then the others by name."""
    return _rank(name, PAPER_METHODS), name


def read_runs(path: str | Path, preset: str | None = None, known_methods: Collection[str] | None = None) -> list[Runs]:
    """
    Read the runs of a results file, grouped by preset and by how they were reduced.

    Args:
        path (`str` or `Path`): The results file of a sweep.
        preset (`str`, *optional*): Return only the runs of this preset.
        known_methods (`Collection[str]`, *optional*): Raise for any other method name.
    """
    numbered = numbered_results(path)
    if not numbered:
        raise ValueError(f"{path} has no results yet: run `glc-hf sweep` first.")
    presets = list(dict.fromkeys(row["preset"] for _, row in numbered))
    if preset is not None and preset not in presets:
        raise ValueError(f"{path} has no results of preset {preset!r}; it has {', '.join(presets)}.")
    groups: dict[tuple[str, str | None], Runs] = {}
    seen: dict[tuple[Any, ...], tuple[int, float]] = {}
    for number, row in numbered:
        position = f"{path}, line {number}"
        _check_names(row, position, known_methods)
        run = (*(row[name] for name in RUN_FIELDS if name != "strength"), row.get("reduced"), _strength(row))
        earlier, error = seen.setdefault(run, (number, row["error"]))
        if error != row["error"]:
            raise ValueError(
                f"{position}: the same run as line {earlier} with a different error, {row['error']} instead of "
                f"{error}. Delete one of the two lines."
            )
        if preset is None or preset == row["preset"]:
            key = row["preset"], row.get("reduced")
            groups.setdefault(key, Runs(*key)).add(row)
    return sorted(groups.values(), key=lambda runs: (presets.index(runs.preset), runs.reduced or ""))


def _check_names(row: dict[str, Any], position: str, known_methods: Collection[str] | None) -> None:
    method, noise = row["method"], row["noise"]
    if known_methods is not None and method not in known_methods and ":" not in method:
        close = difflib.get_close_matches(method, known_methods, 1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise ValueError(f"{position}: unknown method {method!r}; {hint}The methods are {', '.join(known_methods)}.")
    if method == "trusted_only":
        return
    if noise is None:
        raise ValueError(f"{position}: noise is null, which is allowed only for trusted_only, not for {method}.")
    if _strength(row) is None and noise != WEAK:
        raise ValueError(
            f"{position}: strength is null, which is allowed only for trusted_only and noise {WEAK!r}, not for "
            f"{method} under {noise!r}."
        )


def _strength(row: dict[str, Any]) -> float | None:
    """Labels of a weak classifier have no strength, whatever the line says."""
    return None if row["strength"] is None or row["noise"] == WEAK else round(row["strength"], 6)


def _rank(name: str | None, order: tuple[str, ...]) -> int:
    return order.index(name) if name in order else len(order)


def area_under_error_curve(errors: Sequence[float], strengths: Sequence[float] = STRENGTHS) -> float:
    """
    Area under a curve of percent errors by the trapezoid rule, Σ (s[i+1] − s[i]) · (e[i] + e[i+1]) / 2.

    Over strengths from 0 to 1 this is also the mean height of the curve, in percent. An area over a shorter range
    can't be compared with the paper's.

    Args:
        errors (`Sequence[float]`): Percent errors, 0 to 100, one per strength.
        strengths (`Sequence[float]`, *optional*): Two or more different strengths in any order. Defaults to the
            paper's eleven, 0, 0.1, …, 1.
    """
    if len(errors) != len(strengths):
        raise ValueError(
            f"{len(errors)} errors for {len(strengths)} strengths: every strength needs one error. Pass the strengths "
            "of the curve in `strengths` if they are not 0, 0.1, …, 1."
        )
    if len(strengths) < 2:
        raise ValueError(f"an area needs two strengths or more, not {len(strengths)}.")
    for number, (error, strength) in enumerate(zip(errors, strengths, strict=True)):
        if not 0 <= error <= 100:  # NaN too
            raise ValueError(f"error {number} is {error}; errors are percentages, 0 to 100.")
        if not 0 <= strength <= 1:
            raise ValueError(f"strength {number} is {strength}; strengths are numbers from 0 to 1.")
    curve = sorted(zip(strengths, errors, strict=True))
    for (before, _), (after, _) in pairwise(curve):
        if math.isclose(before, after, abs_tol=1e-9):
            raise ValueError(f"strength {after:g} appears twice: give one error per strength.")
    return math.fsum((s1 - s0) * (e0 + e1) / 2 for (s0, e0), (s1, e1) in pairwise(curve))


class PaperResult(NamedTuple):
    """One figure of the paper, in percent."""

    table: str  # vision, nlp, weak_classifier, supplement_vision (SVHN) or supplement_ren (Ren et al.)
    dataset: str  # as the paper spells it, for example CIFAR-10
    noise: str  # uniform, flip, hierarchical or weak (labels of a weak classifier)
    percent_printed: float  # the table's column "percent trusted"
    fraction_run: float | None  # in the authors' code, which differs for MNIST, SST and Twitter; unknown for IMDB
    method: str  # as this library calls it
    metric: str  # area under the error curve, or percent error (labels of a weak classifier)
    value: float

    @property
    def preset(self) -> str:
        """Name of the preset with the settings of this figure."""
        return self.dataset.lower().replace("-", "")

    @property
    def fraction(self) -> float:
        """Fraction of trusted rows to compare with: as run, or as printed if the former is unknown."""
        return round(self.percent_printed / 100 if self.fraction_run is None else self.fraction_run, 6)


@cache
def paper_results() -> tuple[PaperResult, ...]:
    """Return every figure of the paper's tables, in the paper's order."""
    text = files("glc_hf.experiments").joinpath("paper_results.csv").read_text(encoding="utf-8")
    return tuple(
        PaperResult(table, dataset, noise, float(percent), float(run) if run else None, method, metric, float(value))
        for table, dataset, noise, percent, run, method, metric, value in list(csv.reader(text.splitlines()))[1:]
    )


def paper_presets() -> list[str]:
    """Return the presets that the paper has figures for."""
    return list(dict.fromkeys(result.preset for result in paper_results()))


def paper_preset(preset: str) -> str:
    """Return the preset with the paper's settings for the dataset of a preset: `cifar10` for `cifar10-features`."""
    return preset.removesuffix("-features")


def paper_value(preset: str, noise: str | None, fraction: float, method: str) -> float | None:
    """Return the paper's figure for a row and a method, or `None` if there is none. Noise `None` stands for figures
    that are equal under uniform and flip noise, as for `trusted_only`."""
    preset = paper_preset(preset)
    values = {
        result.value
        for result in paper_results()
        if (result.preset, result.fraction, result.method) == (preset, round(fraction, 6), method)
        and (result.noise == noise or (noise is None and result.metric == "area"))
    }
    return values.pop() if len(values) == 1 else None


def printed_percents(preset: str) -> dict[float, float]:
    """Map fractions as run to the percentages that the paper's tables print for them."""
    results = (result for result in paper_results() if result.preset == paper_preset(preset))
    return {result.fraction: result.percent_printed for result in results}
