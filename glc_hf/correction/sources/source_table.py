# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""What each source is worth: a table with one row per source, from its votes and the trusted items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, overload

import numpy as np
import torch

from glc_hf.correction.sources.source_model import SourceModel
from glc_hf.intervals import (
    ACCURACY_LEVEL,
    format_accuracy,
    format_count,
    format_interval,
    format_level,
    wilson_interval,
)
from glc_hf.labels.label_batch import Votes


# Expected share of sources that are named wrongly, among all that are named.
FALSE_NAMES = 0.05
# With more sources, only half as many of the best and of the worst are shown.
MAX_SHOWN = 20
_MAX_SENTENCES = 10
_CONFUSIONS, _SMALLEST_CONFUSION = 2, 0.005
# The estimate from all votes counts as this many trusted votes in the order of the sources.
_ESTIMATE_VOTES = 10.0
_NUMBERS_PER_CHUNK = 2**22
_DIGITS = 6


@dataclass(frozen=True)
class SourceRow:
    """
    What one source is worth.

    Attributes:
        name: Name of the source.
        votes: Number of rows (or tokens) that it voted on.
        coverage: Their share.
        trusted_votes: Number of trusted rows that it voted on.
        right: Number of its votes on trusted rows that are right.
        accuracy: Their share; `None` without votes on trusted rows.
        low, high: 90% interval of the accuracy.
        estimated_accuracy: Mean probability that its votes are right, given the votes of all sources on the row. It is
            all there is for a source with few votes on trusted rows, and only as good as the model of the votes.
        chance: Share of right votes if they had nothing to do with the row; see [`judge_sources`].
        agreement: Share of equal votes among the pairs of its votes and other sources' votes on the same row.
        weight: Exponent of its votes: 1, or less if other sources vote like it.
        confusions: Its most frequent errors, at most two: `true` and `vote` are classes, and `share` is their share of
            its votes, estimated like `estimated_accuracy`.
        hurts: Whether its votes are right less often than by chance.
    """

    name: str
    votes: int
    coverage: float
    trusted_votes: int
    right: int
    accuracy: float | None
    low: float | None
    high: float | None
    estimated_accuracy: float | None
    chance: float | None
    agreement: float | None
    weight: float
    confusions: list[dict[str, Any]]
    hurts: bool

    def to_dict(self) -> dict[str, Any]:
        """The fields, ready for JSON."""
        return asdict(self)

    @property
    def sentence(self) -> str:
        """Why the source hurts."""
        assert self.low is not None
        assert self.high is not None
        interval = f"{format_level(ACCURACY_LEVEL)} interval {format_interval(self.low, self.high)}"
        return (
            f"{_one_line(self.name)} hurts: {self.right:,} of its {format_count(self.trusted_votes, 'votes')} on "
            f"trusted rows are right ({self.accuracy:.1%}, {interval}); the same votes on random rows would be right "
            f"in {self.chance:.1%}."
        )


class SourceTable(Sequence[SourceRow]):
    """
    What each source is worth, the best first and those that hurt last. `table[0]` and `table["anna"]` are rows, and
    `print(table)` shows at most the 10 best and the 10 worst.

    Args:
        rows (`Sequence[SourceRow]`): One per source.
    """

    header = (
        "source",
        "votes",
        f"right on trusted rows ({format_level(ACCURACY_LEVEL)} interval)",
        "right, estimated from all votes",
        "agreement",
        "weight",
        "most frequent errors",
    )

    def __init__(self, rows: Sequence[SourceRow]) -> None:
        self.rows = list(rows)

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, key: int | str) -> SourceRow: ...
    @overload
    def __getitem__(self, key: slice) -> SourceTable: ...
    def __getitem__(self, key: int | str | slice) -> SourceRow | SourceTable:
        if isinstance(key, slice):
            return SourceTable(self.rows[key])
        if isinstance(key, str):
            for row in self.rows:
                if row.name == key:
                    return row
            raise KeyError(f"there is no source {key!r}; the sources are {_named([row.name for row in self.rows])}.")
        return self.rows[key]

    def to_list(self) -> list[dict[str, Any]]:
        """The rows as dictionaries, ready for JSON."""
        return [row.to_dict() for row in self.rows]

    @classmethod
    def from_list(cls, rows: Sequence[dict[str, Any]]) -> SourceTable:
        """The table from what [`~SourceTable.to_list`] returned."""
        return cls([SourceRow(**row) for row in rows])

    @property
    def hurting(self) -> list[SourceRow]:
        """The sources that hurt."""
        return [row for row in self.rows if row.hurts]

    def sentences(self) -> list[str]:
        """One sentence per source that hurts, the worst first, at most ten of them."""
        hurting = self.hurting[::-1]
        sentences = [row.sentence for row in hurting[:_MAX_SENTENCES]]
        more = len(hurting) - len(sentences)
        return [*sentences, f"{more:,} more {'sources hurt' if more > 1 else 'source hurts'}."] if more else sentences

    def cells(self, most: int = MAX_SHOWN) -> list[tuple[str, ...]]:
        """The table as text, one tuple per line. With more than `most` sources the middle is left out, and a line says
        how many there are."""
        if len(self.rows) <= most:
            return [_cells(row) for row in self.rows]
        half = most // 2
        gap = (f"… {len(self.rows) - 2 * half:,} more", *[""] * (len(self.header) - 1))
        return [*map(_cells, self.rows[:half]), gap, *map(_cells, self.rows[-half:])]

    def __str__(self) -> str:
        lines = [self.header, *self.cells()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
        return "\n".join([*(line.rstrip() for line in text), *self.sentences()])

    def __repr__(self) -> str:
        return f"SourceTable({len(self.rows):,} sources, {len(self.hurting):,} of them hurt)"


def judge_sources(
    votes: Votes,
    model: SourceModel,
    trusted_items: np.ndarray,
    trusted_labels: np.ndarray,
    label_names: Sequence[str] | None = None,
) -> SourceTable:
    """
    Count and estimate what each source is worth.

    A source hurts if its votes on trusted items are right less often than by chance. Chance is Σ_v q[v] · p[v], where
    q are the frequencies of its votes on trusted items and p those of the true classes of all trusted items: what
    the same votes on random items would reach. A rule for a rare class may be wrong often, as long as the class is
    more frequent where it votes. The test is that of the binomial distribution, and of the sources that are named, at
    most 5% are expected to be no worse than chance (Benjamini and Hochberg 1995). No source is named without trusted
    items.

    Args:
        votes ([`Votes`]): The votes on all items.
        model ([`SourceModel`]): What they say, from [`fit_sources`].
        trusted_items, trusted_labels (`np.ndarray` of integers): Numbers of the trusted items, and their true classes.
        label_names (`Sequence[str]`, *optional*): Names of the classes.
    """
    num_sources, num_labels = len(votes.names), model.num_labels
    number = np.bincount(votes.sources, minlength=num_sources)
    truth = np.full(len(votes), -1)
    truth[trusted_items] = trusted_labels
    own_truth = truth[votes.items]
    known = own_truth >= 0
    sources, labels = votes.sources[known], votes.labels[known]
    trusted = np.bincount(sources, minlength=num_sources)
    right = np.bincount(sources[labels == own_truth[known]], minlength=num_sources)
    frequencies = np.bincount(trusted_labels, minlength=num_labels) / max(len(trusted_labels), 1)
    some = np.maximum(trusted, 1)
    accuracy = right / some
    chance = np.bincount(sources, frequencies[labels], minlength=num_sources) / some
    low, high = wilson_interval(accuracy, trusted, ACCURACY_LEVEL)
    hurts = _worse_than_chance(right, trusted, chance)
    counts = _expected_counts(votes, model, truth)
    estimated = np.trace(counts, axis1=1, axis2=2) / np.maximum(number, 1)
    agreement = _agreement(votes, num_labels)
    names = [str(name) for name in (label_names if label_names is not None else range(num_labels))]
    confusions = _confusions(counts, names)
    rows = [
        SourceRow(
            name=name,
            votes=int(number[source]),
            coverage=_rounded(number[source] / max(len(votes), 1)),
            trusted_votes=int(trusted[source]),
            right=int(right[source]),
            accuracy=_rounded(accuracy[source]) if trusted[source] else None,
            low=_rounded(low[source]) if trusted[source] else None,
            high=_rounded(high[source]) if trusted[source] else None,
            estimated_accuracy=_rounded(estimated[source]) if number[source] else None,
            chance=_rounded(chance[source]) if trusted[source] else None,
            agreement=None if np.isnan(agreement[source]) else _rounded(agreement[source]),
            weight=_rounded(model.weights[source]),
            confusions=confusions[source],
            hurts=bool(hurts[source]),
        )
        for source, name in enumerate(votes.names)
    ]
    likely = (right + _ESTIMATE_VOTES * estimated) / (trusted + _ESTIMATE_VOTES)
    return SourceTable([rows[source] for source in np.lexsort((-likely, number == 0, hurts)).tolist()])


def _expected_counts(votes: Votes, model: SourceModel, truth: np.ndarray) -> np.ndarray:
    """Expected number of votes per source, vote and true class, `(S, K, K)`, from p(true class | all votes)."""
    size = model.num_labels
    counts = torch.zeros(len(votes.names) * size, size, dtype=torch.float64)
    step = max(1, _NUMBERS_PER_CHUNK // size)
    for start in range(0, len(votes), step):
        items = np.arange(start, min(start + step, len(votes)))
        part, own = votes.select(items), torch.from_numpy(truth[items])
        posterior = torch.from_numpy(model.posterior(part))
        posterior[own >= 0] = torch.eye(size, dtype=torch.float64)[own[own >= 0]]
        index, item = torch.from_numpy(part.sources * size + part.labels), torch.from_numpy(part.items)
        for some in torch.arange(len(index)).split(step):
            counts.index_add_(0, index[some], posterior[item[some]])
    return counts.view(-1, size, size).numpy()


def _agreement(votes: Votes, num_labels: int) -> np.ndarray:
    """Share of equal votes among the pairs of each source; NaN for a source that votes alone."""
    items = votes.items
    _, group, size = np.unique(items * num_labels + votes.labels, return_inverse=True, return_counts=True)
    equal = size[group] - 1
    pairs = np.diff(votes.offsets)[items] - 1
    sums = [np.bincount(votes.sources, part, minlength=len(votes.names)) for part in (equal, pairs)]
    return np.where(sums[1] > 0, sums[0] / np.maximum(sums[1], 1), np.nan)


def _confusions(counts: np.ndarray, names: list[str]) -> list[list[dict[str, Any]]]:
    """The largest errors of each source, with their share of its votes."""
    size, result = len(names), []
    for source in counts:
        shares = source / max(source.sum(), 1.0)
        np.fill_diagonal(shares, 0.0)
        most = min(_CONFUSIONS, shares.size)
        largest = np.argpartition(-shares.reshape(-1), most - 1)[:most]
        largest = largest[np.argsort(-shares.reshape(-1)[largest], kind="stable")]
        result.append(
            [
                {"true": names[entry % size], "vote": names[entry // size], "share": _rounded(shares.flat[entry])}
                for entry in largest.tolist()
                if shares.flat[entry] >= _SMALLEST_CONFUSION
            ]
        )
    return result


def _worse_than_chance(right: np.ndarray, number: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """Which sources have fewer right votes than a share of `chance` explains, by the test in [`judge_sources`]."""
    tested = np.flatnonzero(number)
    values = _lower_tail(right[tested], number[tested], chance[tested])
    order = np.argsort(values, kind="stable")
    passed = np.flatnonzero(values[order] <= FALSE_NAMES * np.arange(1, len(order) + 1) / max(len(order), 1))
    result = np.zeros(len(number), dtype=bool)
    if len(passed):
        result[tested[order[: passed[-1] + 1]]] = True
    return result


def _lower_tail(right: np.ndarray, number: np.ndarray, share: np.ndarray) -> np.ndarray:
    """P(X ≤ right) of binomial variables."""
    lengths = right + 1
    which = np.repeat(np.arange(len(right)), lengths)
    hits = torch.from_numpy(np.arange(len(which)) - np.repeat(np.cumsum(lengths) - lengths, lengths)).double()
    total, p = (torch.from_numpy(values.astype(np.float64)[which]) for values in (number, share.clip(0.0, 1.0)))
    log_ways = torch.lgamma(total + 1) - torch.lgamma(hits + 1) - torch.lgamma(total - hits + 1)
    terms = (log_ways + torch.xlogy(hits, p) + torch.xlogy(total - hits, 1 - p)).exp().numpy()
    return np.minimum(np.bincount(which, terms, minlength=len(right)), 1.0)


# ---------------------------------------------------------------------- text
def _cells(row: SourceRow) -> tuple[str, ...]:
    def share(value: float | None) -> str:
        return "-" if value is None else f"{value:.1%}"

    return (
        _one_line(row.name),
        f"{row.votes:,} ({row.coverage:.0%})",
        "-" if row.accuracy is None else format_accuracy(row.accuracy, row.trusted_votes, "votes"),
        share(row.estimated_accuracy),
        share(row.agreement),
        f"{row.weight:.2f}",
        ", ".join(f"{entry['true']} → {entry['vote']} {entry['share']:.0%}" for entry in row.confusions) or "-",
    )


def _one_line(name: str) -> str:
    return " ".join(name.split())


def _named(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")


def _rounded(value: Any) -> float:
    return round(float(value), _DIGITS)
