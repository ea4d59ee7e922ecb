# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""From the cells of a results file to curves: the errors of a method over strengths, for each seed."""

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

from glc_hf.experiments.results import CELL_FIELDS, numbered_results


WEAK = "weak"
_NOISES = ("uniform", "flip", "hierarchical", WEAK)
# Strength (None where there is none) to percent error.
Curve = dict[float | None, float]


class Setting(NamedTuple):
    """
    A row of the tables, a panel of the pictures.

    Attributes:
        noise (`str` or `None`): `None` where only methods that see no noise were run.
        trusted (`float`): The fraction of trusted rows.
    """

    noise: str | None
    trusted: float


class Runs:
    """
    The runs of one preset that may stand in one table: all at the paper's size, or all reduced in the same way.

    Args:
        preset (`str`): Its name.
        reduced (`str` or `None`): What was made smaller.
    """

    def __init__(self, preset: str, reduced: str | None) -> None:
        self.preset = preset
        self.reduced = reduced
        self._curves: dict[tuple[Setting, str], dict[int, Curve]] = {}

    def add(self, row: dict[str, Any]) -> None:
        """Takes in a cell."""
        key = Setting(row["noise"], round(row["trusted"], 6)), row["method"]
        self._curves.setdefault(key, {}).setdefault(row["seed"], {})[_strength(row)] = row["error"]

    @property
    def settings(self) -> list[Setting]:
        """In the order of the paper's tables. Noise `None` only for fractions that were run under no noise."""
        found = {setting for setting, _ in self._curves}
        under_noise = {setting.trusted for setting in found if setting.noise is not None}
        found = {setting for setting in found if setting.noise is not None or setting.trusted not in under_noise}
        return sorted(found, key=lambda setting: (_rank(setting.noise, _NOISES), setting.noise or "", setting.trusted))

    @property
    def methods(self) -> list[str]:
        """Those that were run, in the order of the paper's tables, others behind."""
        return sorted({method for _, method in self._curves}, key=method_order)

    def curves(self, setting: Setting, method: str) -> dict[int, Curve]:
        """
        From seed to curve. Trusted rows are never noisy, so cells of `trusted_only` without a noise stand for every
        noise; where they have no strength either, the curve is flat and has the one key `None`.
        """
        curves = {seed: dict(curve) for seed, curve in self._curves.get((setting, method), {}).items()}
        if method == "trusted_only" and setting.noise is not None:
            for seed, curve in self._curves.get((Setting(None, setting.trusted), method), {}).items():
                curves[seed] = {**curve, **curves.get(seed, {})}
        return dict(sorted(curves.items()))


def method_order(name: str) -> tuple[int, str]:
    """To sort methods by: those of the paper's tables as they stand there, then the others by name."""
    return _rank(name, PAPER_METHODS), name


def read_runs(path: str | Path, preset: str | None = None, known_methods: Collection[str] | None = None) -> list[Runs]:
    """
    The runs in a results file, by preset, and those that were reduced in different ways apart.

    Args:
        path (`str` or `Path`): The results file of a sweep.
        preset (`str`, *optional*): Only the runs of this preset.
        known_methods (`Collection[str]`, *optional*): Any other method's name is an error.
    """
    numbered = numbered_results(path)
    if not numbered:
        raise ValueError(f"{path} has no results yet: run `glc-hf sweep` first.")
    presets = list(dict.fromkeys(row["preset"] for _, row in numbered))
    if preset is not None and preset not in presets:
        raise ValueError(f"{path} has no results of preset {preset!r}; it has {', '.join(presets)}.")
    runs: dict[tuple[str, str | None], Runs] = {}
    seen: dict[tuple[Any, ...], tuple[int, float]] = {}
    for number, row in numbered:
        place = f"{path}, line {number}"
        _check_names(row, place, known_methods)
        cell = (*(row[name] for name in CELL_FIELDS if name != "strength"), row.get("reduced"), _strength(row))
        earlier, error = seen.setdefault(cell, (number, row["error"]))
        if error != row["error"]:
            raise ValueError(
                f"{place}: the same cell as line {earlier} with another error, {row['error']} instead of {error}. "
                "Delete one of the two lines."
            )
        if preset is None or preset == row["preset"]:
            key = row["preset"], row.get("reduced")
            runs.setdefault(key, Runs(*key)).add(row)
    return sorted(runs.values(), key=lambda those: (presets.index(those.preset), those.reduced or ""))


def _check_names(row: dict[str, Any], place: str, known_methods: Collection[str] | None) -> None:
    method = row["method"]
    if known_methods is not None and method not in known_methods and ":" not in method:
        close = difflib.get_close_matches(method, known_methods, 1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise ValueError(f"{place}: unknown method {method!r}; {hint}The methods are {', '.join(known_methods)}.")
    if method == "trusted_only":
        return
    if row["noise"] is None:
        raise ValueError(f"{place}: noise is null, which only trusted_only may have, not {method}.")
    if _strength(row) is None and row["noise"] != WEAK:
        raise ValueError(
            f"{place}: strength is null, which only trusted_only and noise {WEAK!r} may have, not {method} under "
            f"{row['noise']!r}."
        )


def _strength(row: dict[str, Any]) -> float | None:
    """Labels of a weak classifier have no strength, whatever was written down."""
    return None if row["strength"] is None or row["noise"] == WEAK else round(row["strength"], 6)


def _rank(name: str | None, order: tuple[str, ...]) -> int:
    return order.index(name) if name in order else len(order)


PAPER_METHODS = (
    "trusted_only",
    "no_correction",
    "forward",
    "forward_gold",
    "distillation",
    "confusion_matrix",
    "glc",
)


class PaperResult(NamedTuple):
    """
    One figure of the paper.

    Attributes:
        table (`str`): The table it stands in: `vision`, `nlp`, `weak_classifier`, `supplement_vision` (SVHN) or
            `supplement_ren` (Ren et al.).
        dataset (`str`): As the paper writes it, such as `CIFAR-10`.
        noise (`str`): `uniform`, `flip`, `hierarchical` or `weak` (labels of a weak classifier).
        percent_printed (`float`): The table's column "percent trusted".
        fraction_run (`float` or `None`): The fraction of trusted rows in the authors' own code, which for MNIST, SST
            and Twitter is not what the tables print; `None` where it is not known (IMDB).
        method (`str`): A name of this library's methods.
        metric (`str`): `area` under the error curve, or `error` (percent), which labels of a weak classifier have.
        value (`float`): The figure, in percent.
    """

    table: str
    dataset: str
    noise: str
    percent_printed: float
    fraction_run: float | None
    method: str
    metric: str
    value: float

    @property
    def preset(self) -> str:
        """The name of the preset with the settings of this figure."""
        return self.dataset.lower().replace("-", "")

    @property
    def fraction(self) -> float:
        """The fraction of trusted rows to compare with: as run, or as printed where that is all there is."""
        return self.percent_printed / 100 if self.fraction_run is None else self.fraction_run


@cache
def paper_results() -> tuple[PaperResult, ...]:
    """Every figure of the paper's tables, in the paper's order."""
    text = files("glc_hf.experiments").joinpath("paper_results.csv").read_text(encoding="utf-8")
    return tuple(
        PaperResult(
            **{
                **row,
                "percent_printed": float(row["percent_printed"]),
                "fraction_run": float(row["fraction_run"]) if row["fraction_run"] else None,
                "value": float(row["value"]),
            }
        )
        for row in csv.DictReader(text.splitlines())
    )


def paper_presets() -> list[str]:
    """The presets that the paper has figures for."""
    return list(dict.fromkeys(result.preset for result in paper_results()))


def paper_value(preset: str, noise: str | None, fraction: float, method: str) -> float | None:
    """
    The paper's figure for a row and a method, or `None` where it has none.

    Args:
        preset (`str`): Such as `cifar10`.
        noise (`str` or `None`): `None` asks for a figure that is the same under uniform and flip noise, as that of
            `trusted_only` is.
        fraction (`float`): Of trusted rows, as run.
        method (`str`): A method's name.
    """
    values = {
        result.value
        for result in paper_results()
        if result.preset == preset
        and (result.noise == noise or (noise is None and result.metric == "area"))
        and round(result.fraction, 6) == round(fraction, 6)
        and result.method == method
    }
    return values.pop() if len(values) == 1 else None


def printed_percents(preset: str) -> dict[float, float]:
    """From fractions as run to the percentages that the paper's tables print for them."""
    return {round(result.fraction, 6): result.percent_printed for result in paper_results() if result.preset == preset}


STRENGTHS = tuple(tenth / 10 for tenth in range(11))


def area_under_error_curve(errors: Sequence[float], strengths: Sequence[float] = STRENGTHS) -> float:
    """
    The area under a curve of percent errors by the trapezoid rule, Σ (s[i+1] − s[i]) · (e[i] + e[i+1]) / 2.

    Over strengths from 0 to 1 this is also the mean height of the curve, in percent. Over a shorter range it is the
    area alone, and not to be compared with the paper's.

    Args:
        errors (`Sequence[float]`): Percent errors, 0 to 100, one for each strength.
        strengths (`Sequence[float]`, *optional*): Two or more, each once, in any order. Left out: the paper's eleven,
            0, 0.1, …, 1, in this order.
    """
    if len(errors) != len(strengths):
        raise ValueError(
            f"{len(errors)} errors for {len(strengths)} strengths: every strength needs its error. A curve over other "
            "strengths than 0, 0.1, …, 1 needs them in `strengths`."
        )
    if len(strengths) < 2:
        raise ValueError(f"a curve needs two strengths or more to have an area, not {len(strengths)}.")
    for place, (error, strength) in enumerate(zip(errors, strengths, strict=True)):
        if not 0 <= error <= 100:  # NaN too
            raise ValueError(f"error {place} is {error}; errors are percentages, 0 to 100.")
        if not 0 <= strength <= 1:
            raise ValueError(f"strength {place} is {strength}; strengths are numbers from 0 to 1.")
    curve = sorted(zip(strengths, errors, strict=True))
    for (before, _), (after, _) in pairwise(curve):
        if math.isclose(before, after, abs_tol=1e-9):
            raise ValueError(f"strength {after:g} is there twice: give one error for each strength.")
    return math.fsum((s1 - s0) * (e0 + e1) / 2 for (s0, e0), (s1, e1) in pairwise(curve))
