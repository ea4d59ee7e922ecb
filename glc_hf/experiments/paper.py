# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The figures of the paper's tables, read from `paper_results.csv`."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files
from typing import NamedTuple


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
