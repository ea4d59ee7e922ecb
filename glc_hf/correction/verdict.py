# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`Verdict`: the accuracy of ways of training on true labels, from trusted items that they were not trained on."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from glc_hf.intervals import (
    ACCURACY_LEVEL,
    format_count,
    format_interval,
    format_level,
    normal_quantile,
    wilson_interval,
)


VERDICT_FILE = "verdict.json"
# Ways of every verdict: the final model, and plain training.
FINAL, PLAIN = "auto", "no_correction"
PLAIN_NETWORK = "network after stage 1"
_TITLES = {
    PLAIN: "plain training on the noisy labels",
    "trusted_only": "training on the trusted rows only",
    "glc": "training with the corrected loss",
    "pool": "several linear models combined",
    "majority_vote": "training on the majority vote",
    "all_sources": "training on the votes of all sources",
}
_UNKNOWN = "It can't be told if correction helps"
_NARROWER = 0.7


@dataclass(frozen=True)
class Way:
    """
    A way of training, and an estimate of its accuracy on true labels.

    Attributes:
        accuracy: The estimate.
        low, high: Its interval, at the level of the verdict.
        measured: What was measured, and on how many items.
    """

    accuracy: float
    low: float
    high: float
    measured: str


@dataclass(frozen=True)
class Verdict:
    """
    Whether correction helps, and the accuracy of the model on true labels.

    Attributes:
        chosen: Name of the way of the final model.
        ways: The ways that were considered, by name.
        sentence: Whether correction helps.
        helps: `True`, `False`, or `None` if it can't be told.
        trusted_rows: Number of trusted items behind the accuracies.
        decisions: What was decided, and why, one sentence each.
        level: Level of the intervals.
        final: Whether the final model was evaluated.
    """

    chosen: str
    ways: dict[str, Way]
    sentence: str
    helps: bool | None
    trusted_rows: int
    decisions: list[str] = field(default_factory=list)
    level: float = ACCURACY_LEVEL
    final: bool = False

    @property
    def judges_model(self) -> bool:
        """Whether it has an accuracy of the final model. Otherwise it compares nothing, and is not shown."""
        return self.chosen in self.ways

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as a dictionary that is ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Verdict:
        """Return the verdict that [`~Verdict.to_dict`] was called on."""
        content = dict(content)
        content["ways"] = {name: Way(**way) for name, way in content["ways"].items()}
        return cls(**content)

    def __str__(self) -> str:
        lines = [self.sentence, *self.decisions]
        if self.ways:
            level = format_level(self.level)
            lines.append(f"Accuracies on trusted rows that were not used for training, with {level} intervals:")
        for name, way in self.ways.items():
            interval = format_interval(way.low, way.high)
            lines.append(f"  {self.title_of(name)}: {way.accuracy:.1%} ({interval}; {way.measured})")
        return "\n  ".join(lines)

    def title_of(self, name: str) -> str:
        """What to call one of `ways`."""
        if name == self.chosen:
            return "this model" if self.final else "best model before the last stage"
        return _TITLES.get(name, name)


def save_verdict(verdict: Verdict | None, folder: str | Path) -> None:
    """Write `verdict.json` into the folder of a model. Without a verdict, remove that of an earlier run."""
    if verdict is None:
        (Path(folder) / VERDICT_FILE).unlink(missing_ok=True)
        return
    text = json.dumps(verdict.to_dict(), indent=2, ensure_ascii=False)
    (Path(folder) / VERDICT_FILE).write_text(text + "\n", encoding="utf-8")


def load_verdict(folder: str | Path) -> Verdict | None:
    """Read `verdict.json` from a folder; `None` if there is none."""
    file = Path(folder) / VERDICT_FILE
    return Verdict.from_dict(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else None


# ---------------------------------------------------------------------- estimates
def way_of(correct: np.ndarray, measured: str, level: float = ACCURACY_LEVEL) -> Way:
    """The way whose prediction of each trusted item is right or wrong as `correct` says."""
    accuracy, number = float(np.mean(correct)), len(correct)
    low, high = wilson_interval(accuracy, number, level)
    return Way(accuracy, float(low), float(high), f"{measured}, {number:,} trusted labels")


def way_with_control(
    correct: np.ndarray,
    held_out: np.ndarray,
    control: np.ndarray,
    measured: str,
    level: float = ACCURACY_LEVEL,
) -> Way:
    """
    The way that was judged on some of the trusted items, with another way that was judged on all of them as control:

        accuracy = mean_all(control) + mean_held_out(correct − control)

    If the two ways mostly agree, their difference varies less than the accuracy itself, and the interval is Wilson's
    with the number of items that would give the same variance. If they don't, the control adds nothing but noise: the
    accuracy is then that of the held-out items alone, if this makes the interval at least 30 % narrower.

    Args:
        correct (`np.ndarray` of shape `(m,)`): Whether the prediction of each held-out item is right.
        held_out (`np.ndarray` of shape `(m,)`): Positions of these items in `control`.
        control (`np.ndarray` of shape `(n,)`): Whether the other way's prediction of each trusted item is right.
        measured (`str`): What was measured.
        level (`float`, *optional*, defaults to 0.9): Level of the interval.
    """
    control = np.asarray(control, dtype=np.float64)
    difference = np.asarray(correct, dtype=np.float64) - control[held_out]
    number, share = len(control), len(difference) / len(control)
    accuracy = float(np.clip(control.mean() + difference.mean(), 0.0, 1.0))
    middle = (accuracy * number + 1) / (number + 2)
    variance = middle * (1 - middle) / number + (1 - share) * _spread(difference) / len(difference)
    effective = middle * (1 - middle) / variance
    low, high = wilson_interval(accuracy, effective, level)
    alone = wilson_interval(float(np.mean(correct)), len(difference), level)
    if _is_narrower(alone, (low, high)):
        accuracy, (low, high) = float(np.mean(correct)), alone
    text = f"{measured}, {len(difference):,} of {number:,} trusted labels"
    return Way(accuracy, float(low), float(high), text)


def difference_with_control(
    correct: np.ndarray, held_out: np.ndarray, control: np.ndarray, other: np.ndarray, level: float = ACCURACY_LEVEL
) -> tuple[float, float]:
    """
    Interval of the accuracy of [`way_with_control`] minus the accuracy of another way:

        mean_all(control − other) + mean_held_out(correct − control)

    or on the held-out items alone, see [`difference_interval`], if that is clearly narrower.

    Args:
        correct, held_out, control, level: As in [`way_with_control`].
        other (`np.ndarray` of shape `(n,)`): Whether the other way's prediction of each trusted item is right.
    """
    control, other = np.asarray(control, dtype=np.float64), np.asarray(other, dtype=np.float64)
    on_all, on_some = control - other, np.asarray(correct, dtype=np.float64) - control[held_out]
    share = len(on_some) / len(on_all)
    variance = _spread(on_all) / len(on_all) + (1 - share) * _spread(on_some) / len(on_some)
    middle, half = float(on_all.mean() + on_some.mean()), normal_quantile(level) * math.sqrt(variance)
    controlled = max(middle - half, -1.0), min(middle + half, 1.0)
    alone = difference_interval(np.asarray(correct, dtype=bool), other[held_out] > 0.5, level)
    return alone if _is_narrower(alone, controlled) else controlled


def _is_narrower(first: tuple[float, float], second: tuple[float, float]) -> bool:
    """Whether an interval is clearly narrower: always taking the narrower one would be too sure."""
    return first[1] - first[0] < _NARROWER * (second[1] - second[0])


def _spread(values: np.ndarray) -> float:
    """Variance with one more value that differs by one half: few values may all be equal by chance."""
    return float((np.square(values - values.mean()).sum() + 0.5) / (len(values) + 1))


def difference_interval(first: np.ndarray, second: np.ndarray, level: float = ACCURACY_LEVEL) -> tuple[float, float]:
    """
    Interval of the difference of two accuracies on the same items (Agresti and Min): from the numbers of items that
    only one of them got right, with half an item added to each.
    """
    number = len(first) + 2
    only_first = float(np.sum(first & ~second)) + 0.5
    only_second = float(np.sum(second & ~first)) + 0.5
    difference = (only_first - only_second) / number
    error = math.sqrt(only_first + only_second - (only_first - only_second) ** 2 / number) / number
    half = normal_quantile(level) * error
    return difference - half, difference + half


# ---------------------------------------------------------------------- the verdict of `auto`
def first_verdict(
    plain: np.ndarray,
    ways: dict[str, Way],
    reasons: Sequence[str] = (),
    measured: str = PLAIN_NETWORK,
    fewest: int = 0,
) -> Verdict:
    """The verdict before the last stage was evaluated, which needs at least `fewest` trusted labels."""
    number = len(plain)
    why = "the model is judged after two thirds of its last stage"
    if number < fewest:
        why = f"the training has {format_count(number, 'trusted labels')}, and {fewest} are needed"
    ways = {PLAIN: way_of(plain, measured), **ways}
    return Verdict(FINAL, ways, f"{_UNKNOWN}: {why}.", None, number, list(reasons))


def no_verdict(trusted_rows: int, why: str, reason: str) -> Verdict:
    """The verdict where trusted labels can't judge a model, with the decision that was made without them."""
    return Verdict(FINAL, {}, f"{_UNKNOWN}: {why}.", None, trusted_rows, [reason])


def final_verdict(first: Verdict, way: Way, interval: tuple[float, float], no_linear_gain: bool = False) -> Verdict:
    """
    The verdict with the way of the final model, and the interval of its difference from plain training.

    Args:
        first ([`Verdict`]): The verdict before.
        way ([`Way`]): The final model.
        interval (`tuple`): Of the difference.
        no_linear_gain (`bool`, *optional*, defaults to `False`): Whether plain training is a linear model, and the
            pool of linear models is not clearly better than it. That the final model is better can then be due to
            the network, and does not show that correction helps.
    """
    low, high = interval
    helps = None if low <= 0 <= high or (low > 0 and no_linear_gain) else low > 0
    plain, number = first.ways[PLAIN], format_count(first.trusted_rows, "trusted labels")
    values = f"an estimated {way.accuracy:.1%} of the predictions are right, against {plain.accuracy:.1%} after plain"
    values += f" training on the noisy labels (difference {100 * low:+.1f} to {100 * high:+.1f} points, {number})."
    if low > 0 and helps is None:
        values += " Plain training is a linear model here, and several combined were not clearly better than it."
    linear = {name: other for name, other in first.ways.items() if name not in (FINAL, PLAIN)}
    if linear:  # then plain training is a linear model, too
        linear[PLAIN] = plain
    best = max(linear, key=lambda name: linear[name].accuracy, default=None)
    if best is not None and way.high < linear[best].low:
        # A network that has learned little does not speak against correction.
        helps = helps or None
        values += (
            f" The network is worse than a linear model on its features ({first.title_of(best)}: "
            f"{linear[best].accuracy:.1%}), so it has not been trained enough: train for more steps or with a higher "
            "learning rate."
        )
    start = {
        True: "Correction helps",
        False: "Correction does not help",
        None: _UNKNOWN,
    }
    return replace(
        first, ways={**first.ways, FINAL: way}, sentence=f"{start[helps]}: {values}", helps=helps, final=True
    )
