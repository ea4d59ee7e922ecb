# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The labels of an audit, which of them are probably wrong, and the suggested labels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from datasets import ClassLabel, Dataset, List, Value

from glc_hf.correction.likelihood import posterior_over_true_labels
from glc_hf.correction.sources import SourceModel
from glc_hf.intervals import ACCURACY_LEVEL, format_count, format_level, normal_quantile, wilson_interval
from glc_hf.labels.columns import find_label_column, label_names_of
from glc_hf.labels.encoding import encode_words
from glc_hf.labels.label_batch import Votes
from glc_hf.labels.labeled_rows import LabeledRows
from glc_hf.labels.reading import IGNORED_LABEL
from glc_hf.labels.storage import is_list_type, with_format_of
from glc_hf.matrix import CorruptionMatrix
from glc_hf.voted.voted_rows import has_votes, label_by_probabilities, label_by_votes, label_column_of


GIVEN, SUGGESTED, P_WRONG, IS_ISSUE, SCORE = (
    "given_label", "suggested_label", "p_wrong", "is_label_issue", "label_score",
)  # fmt: skip
COLUMNS = GIVEN, SUGGESTED, P_WRONG, IS_ISSUE, SCORE
_PROBABILITIES_AT_ONCE = 2**22


class GivenLabels(NamedTuple):
    """
    The labels of the rows to audit.

    Attributes:
        dataset: The rows with these labels.
        rows: Labels and flags.
        matrix: The matrix of the labels, if they are of one source.
        sources, votes: What the votes say, and the votes on each label that is not -100, if they are of several.
        missing: Numbers of the rows that have no label: without votes, and not trusted.
        noisy: `(T, 2)`, the trusted labels and those of the noisy source, for trusted labels that have both.
    """

    dataset: Dataset
    rows: LabeledRows
    matrix: CorruptionMatrix | None
    sources: SourceModel | None
    votes: Votes | None
    missing: np.ndarray
    noisy: np.ndarray


def given_labels(
    dataset: Dataset,
    args: Any,
    model: Any,
    num_labels: int | None,
    matrix: CorruptionMatrix | None,
    sources: SourceModel | None,
) -> GivenLabels:
    """
    Read the labels of the rows to audit. Untrusted rows with votes or soft labels have the class that these make most
    probable.

    Args:
        dataset (`Dataset`): The rows.
        args (`GLCConfig`): Names the columns.
        model (`PreTrainedModel`): Its configuration may have the names of the classes.
        num_labels (`int`): K.
        matrix ([`CorruptionMatrix`], *optional*): The matrix of the labels of a single source.
        sources ([`SourceModel`], *optional*): What the votes of several sources say.
    """
    votes, missing = None, np.empty(0, dtype=np.int64)
    if sources is not None and not has_votes(args):
        raise ValueError(
            f"the model was trained on the votes of {len(sources.names):,} sources: name the columns of the votes "
            "with source_columns or votes_column."
        )
    if has_votes(args):
        names = label_names_of(dataset, label_column_of(dataset, args), model)
        dataset, votes, missing, sources_of_votes = label_by_votes(dataset, args, num_labels, names, sources)
        sources = None if sources is None else sources_of_votes
    elif args.soft_label_column in dataset.column_names:
        dataset = label_by_probabilities(dataset, args, num_labels).dataset
    label_column = label_column_of(dataset, args)
    if votes is None:
        column = label_column or find_label_column(dataset, None, args.trusted_column)
        dataset = encode_words(dataset, column, label_names_of(dataset, column, model), "the dataset")
    rows = LabeledRows(dataset, label_column, args.trusted_column, num_labels, "audit", needs_flags=False)
    known = rows.item_labels("trusted")
    noisy = np.full(len(known), IGNORED_LABEL)
    if sources is None:
        if args.noisy_label_column in dataset.column_names:
            noisy = rows.item_labels("trusted", args.noisy_label_column)
        return GivenLabels(dataset, rows, matrix, None, None, missing, _both(known, noisy))
    assert votes is not None  # there are sources
    votes = votes.select(np.flatnonzero(rows.counted))
    on_known = votes.select(np.flatnonzero(rows.trusted[rows.counted]))
    has_vote = np.isin(np.arange(len(known)), on_known.items)
    noisy = np.where(has_vote, sources.posterior(on_known).argmax(axis=1), noisy)
    return GivenLabels(dataset, rows, None, sources, votes, missing, _both(known, noisy))


def _both(known: np.ndarray, noisy: np.ndarray) -> np.ndarray:
    return np.stack([known, noisy], axis=1)[noisy >= 0]


class Verdicts(NamedTuple):
    """Per label: the most probable true label, and the probabilities that the given label is wrong and that it is
    right. The sum of the two is 1; each of them is exact where it is close to 0."""

    suggested: np.ndarray
    p_wrong: np.ndarray
    score: np.ndarray


def verdicts_on(
    logits: torch.Tensor, given: torch.Tensor, matrix: CorruptionMatrix, trusted: torch.Tensor | None = None
) -> Verdicts:
    """
    Return the most probable true label, p_wrong = 1 − p(true = given | x, given), and the score 1 − p_wrong, where
    p(true = y | x, given) ∝ g(x)_y · C[y, given]. If the given label is as probable as any other, it is the suggested
    one.

    Args:
        logits (`Tensor` of shape `(N, K)`): Logits of the classifier of true labels.
        given (`Tensor` of shape `(N,)`): Labels in the dataset.
        matrix ([`CorruptionMatrix`]): `C[i, j] = p(noisy = j | true = i)`.
        trusted (`Tensor` of shape `(N,)`, *optional*): Flags of correct labels. Their suggested label is the given
            one, their p_wrong is 0, and their score 1.
    """
    # In parts, so that the float64 probabilities of all rows are never in memory at once.
    size = max(1, _PROBABILITIES_AT_ONCE // matrix.num_labels)
    parts = [slice(first, first + size) for first in range(0, max(len(given), 1), size)]
    verdicts = [
        _verdicts(
            posterior_over_true_labels(logits[part].double(), given[part], matrix),
            given[part],
            None if trusted is None else trusted[part],
        )
        for part in parts
    ]
    return Verdicts(*map(np.concatenate, zip(*verdicts, strict=True)))


def verdicts_by_votes(
    logits: torch.Tensor, given: torch.Tensor, sources: SourceModel, votes: Votes, trusted: torch.Tensor | None = None
) -> Verdicts:
    """
    Return the same as [`verdicts_on`] for the votes of several sources:
    p(true = y | x, votes) ∝ g(x)_y · Π_s p(vote_s | y).

    Args:
        logits (`Tensor` of shape `(N, K)`): Logits of the classifier of true labels.
        given (`Tensor` of shape `(N,)`): Labels that follow from the votes.
        sources ([`SourceModel`]): What the votes of each source say.
        votes ([`Votes`]): The votes on the N items, of the same sources.
        trusted (`Tensor` of shape `(N,)`, *optional*): As in [`verdicts_on`].
    """
    posterior = sources.posterior(votes, torch.log_softmax(logits.double(), dim=-1).numpy())
    return _verdicts(torch.from_numpy(posterior), given, trusted)


def _verdicts(posterior: torch.Tensor, given: torch.Tensor, trusted: torch.Tensor | None) -> Verdicts:
    # In float64 and as a sum over the other classes: rows with p_wrong close to 0 or 1 keep their order.
    score = posterior.gather(1, given.unsqueeze(1)).squeeze(1)
    highest, suggested = posterior.max(dim=-1)
    suggested = torch.where(highest > score, suggested, given)
    p_wrong = posterior.scatter(1, given.unsqueeze(1), 0.0).sum(dim=1)
    if trusted is not None:
        suggested, p_wrong = torch.where(trusted, given, suggested), p_wrong.masked_fill(trusted, 0.0)
        score = score.masked_fill(trusted, 1.0)
    return Verdicts(suggested.numpy(), p_wrong.numpy(), score.numpy())


def check_audit_columns(dataset: Dataset) -> None:
    """Raise if the dataset already has a column with the name of an audit column."""
    for name in COLUMNS:
        if name in dataset.column_names:
            raise ValueError(f"the dataset already has a column {name!r} from another audit: remove or rename it.")


def add_audit_columns(
    dataset: Dataset, labels: GivenLabels, logits: torch.Tensor, label_names: list[str] | None
) -> Dataset:
    """
    Return the dataset with the columns `given_label`, `suggested_label`, `p_wrong`, `is_label_issue` and
    `label_score`.

    A label is an issue if another one is more probable. A label of -100 is kept and has p_wrong 0. If the labels are
    lists, the columns are lists too. A row without a label (no vote, not trusted) gets the given label -100, p_wrong
    0, and the prediction of the model as suggestion; it is not an issue.

    Args:
        dataset (`Dataset`): The audited rows.
        labels ([`GivenLabels`]): Their labels and votes.
        logits (`Tensor` of shape `(N, K)`): One row per label that is not -100, in the order of the labels.
        label_names (`list[str]`, *optional*): Names of the classes.
    """
    values, offsets = labels.rows.labels
    given = values.astype(np.int64)
    counted = given != IGNORED_LABEL
    suggested, p_wrong, score = given.copy(), np.zeros(len(given)), np.ones(len(given))
    own, trusted = torch.from_numpy(given[counted]), torch.from_numpy(labels.rows.trusted[counted])
    if labels.votes is None:
        assert labels.matrix is not None
        verdicts = verdicts_on(logits, own, labels.matrix, trusted)
    else:
        assert labels.sources is not None
        verdicts = verdicts_by_votes(logits, own, labels.sources, labels.votes, trusted)
    suggested[counted], p_wrong[counted], score[counted] = verdicts
    missing = labels.missing
    given[missing], p_wrong[missing], score[missing] = IGNORED_LABEL, 0.0, 1.0
    suggested[missing] = logits[missing].argmax(dim=-1)
    classes = ClassLabel(names=label_names) if label_names is not None else Value("int64")
    columns = {
        GIVEN: (given, classes),
        SUGGESTED: (suggested, classes),
        P_WRONG: (p_wrong, Value("float64")),
        IS_ISSUE: ((suggested != given) & (given != IGNORED_LABEL), Value("bool")),
        SCORE: (score, Value("float64")),
    }
    audited = dataset.with_format(None)
    for name, (values, feature) in columns.items():
        column: Any = values
        if offsets is not None:
            column, feature = pa.ListArray.from_arrays(offsets.astype(np.int32), pa.array(values)), List(feature)
        audited = audited.add_column(name, column, feature=feature)
    return with_format_of(dataset, audited)


class Evidence(NamedTuple):
    """
    What is known about the number of wrong labels, besides the probabilities of an audit.

    Attributes:
        independent: Σ 1 − p(given | x) over the untrusted labels: the number of wrong labels, if the given label of
            an example says no more about its class than the example itself.
        compared: Number of trusted labels for which the label of the noisy source is known too.
        compared_wrong: How many of these labels of the noisy source are wrong.
    """

    independent: float
    compared: int = 0
    compared_wrong: int = 0


class Total(NamedTuple):
    """The estimated number of wrong labels, its interval, the level of the interval, and what it follows from."""

    expected: float
    low: float
    high: float
    level: float
    basis: str

    def __str__(self) -> str:
        interval = f"{format_level(self.level)} interval {self.low:,.0f} to {self.high:,.0f}"
        return f"{self.expected:,.0f} ({interval}, {self.basis})"


@dataclass
class Findings:
    """
    Result of an audit, one entry per label. Labels without a result (-100, truncated words) are left out.

    Attributes:
        matrix: The corruption matrix, with the names of the classes. For votes, the mean of those of the sources.
        row: Row of the label, starting at 0.
        word: Position in the row if rows contain lists, else `None`.
        given, suggested: Classes.
        p_wrong: Probability that `given` is wrong.
        score: Probability that it is right.
        note: Where the probabilities come from, if not from the predictions of the network.
        evidence: What else is known about the number of wrong labels.
    """

    matrix: CorruptionMatrix
    row: np.ndarray
    word: np.ndarray | None
    given: np.ndarray
    suggested: np.ndarray
    p_wrong: np.ndarray
    score: np.ndarray = None  # type: ignore[assignment]  # __post_init__ sets it
    note: str | None = None
    evidence: Evidence | None = None

    def __post_init__(self) -> None:
        if self.score is None:
            self.score = 1.0 - self.p_wrong

    @classmethod
    def of(
        cls, audited: Dataset, matrix: CorruptionMatrix, note: str | None = None, evidence: Evidence | None = None
    ) -> Findings:
        """Return the findings of a dataset with the audit columns."""
        names = (GIVEN, SUGGESTED, P_WRONG, SCORE)
        table = audited.select_columns(list(names)).with_format("arrow")[:]
        if not is_list_type(table.column(GIVEN).type):
            columns = [table.column(name).to_numpy() for name in names]
            rows = np.flatnonzero(columns[0] != IGNORED_LABEL)
            classes = [column[rows] for column in columns[:2]]
            p_wrong, score = (column[rows].astype(np.float64) for column in columns[2:])
            return cls(matrix, rows, None, classes[0], classes[1], p_wrong, score, note, evidence)
        given, *others = (table.column(name).to_pylist() for name in names)
        entries = [
            (row, word, *entry)
            for row, lists in enumerate(zip(given, *others, strict=True))
            for word, entry in enumerate(zip(*lists, strict=True))
            if entry[0] != IGNORED_LABEL and entry[2] is not None
        ]
        columns = list(map(np.asarray, zip(*entries, strict=True))) if entries else [np.empty(0, int)] * 6
        row, word, labels, suggested = columns[:4]
        p_wrong, score = (column.astype(np.float64) for column in columns[4:])
        return cls(matrix, row, word, labels, suggested, p_wrong, score, note, evidence)

    def __len__(self) -> int:
        return len(self.given)

    @property
    def is_issue(self) -> np.ndarray:
        """Whether another label is more probable than the given one."""
        return self.suggested != self.given

    @property
    def num_issues(self) -> int:
        """Number of label issues."""
        return int(self.is_issue.sum())

    def ranked(self, number: int) -> np.ndarray:
        """Return the positions of the first labels to look at: the issues, then the others, each by their score."""
        return np.lexsort((self.score, ~self.is_issue))[:number]

    @cached_property
    def total_wrong(self) -> Total:
        """
        The estimated number of wrong labels, with a 90% interval.

        If the labels of the noisy source are known for some trusted rows, wrong ones are counted on these rows. The
        interval is that of a share (Wilson), widened by chance on the other rows. It holds if the trusted rows are
        drawn at random.

        Otherwise the number is not known without an assumption. If errors depend on the class only, it is about
        Σ p_wrong. If the given label of an example says no more about its class than the example itself, it is about
        [`Evidence.independent`]. Errors of people, rules and language models are between the two: the interval
        includes both, and the estimate is the middle. Without evidence, only the first is used.
        """
        evidence = self.evidence
        if evidence is not None and evidence.compared:
            return self._counted(evidence.compared_wrong / evidence.compared, evidence.compared)
        first = self._if_errors_depend_on_class
        if evidence is None:
            return first
        most, number = float((self.p_wrong > 0).sum()), evidence.independent
        by_chance = normal_quantile(first.level) * math.sqrt(max(number * (1 - number / max(most, 1.0)), 0.0))
        return Total(
            (first.expected + number) / 2,
            min(first.low, max(number - by_chance, 0.0)),
            max(first.high, min(number + by_chance, most)),
            first.level,
            f"estimated {self._origin}",
        )

    def _counted(self, share: float, rows: int) -> Total:
        """The number of wrong labels, from their share on some rows."""
        level, number = ACCURACY_LEVEL, int((self.p_wrong > 0).sum())
        low, high = wilson_interval(share, rows, level)
        by_chance = normal_quantile(level) * math.sqrt(share * (1 - share) / max(number, 1))
        low, high = share - math.hypot(share - low, by_chance), share + math.hypot(high - share, by_chance)
        return Total(
            number * share,
            number * max(low, 0.0),
            number * min(high, 1.0),
            level,
            f"counted on {format_count(rows, 'trusted rows')} with their noisy labels",
        )

    @property
    def _origin(self) -> str:
        trusted = self.matrix.trusted_rows
        if trusted is None:
            return "with the matrix that was given"
        return f"from {format_count(round(trusted.sum()), 'trusted rows')}, whose noisy labels are not known"

    @property
    def _if_errors_depend_on_class(self) -> Total:
        """
        Σ p_wrong, with an interval. Half its width is √(a² + b²). a = z·√(Σ p(1 − p)) is the deviation of the number
        for known probabilities. b comes from the matrix: √(Σ_k (n_k·d_k)²), d_k the distance of the noise rate of
        class k to the bound of its interval, and n_k the number of untrusted labels that are probably of class k. It
        is 0 for a known matrix.
        """
        level, matrix = ACCURACY_LEVEL, self.matrix
        uncertain = self.p_wrong > 0  # not trusted
        expected = float(self.p_wrong.sum())
        by_chance = normal_quantile(level) * math.sqrt(float((self.p_wrong * (1 - self.p_wrong)).sum()))
        below = above = by_chance
        if matrix.trusted_rows is not None:
            number = np.bincount(self.suggested[uncertain], minlength=matrix.num_labels)
            low, high = matrix.noise_rate_interval(level)
            below = math.hypot(by_chance, np.linalg.norm(number * (matrix.noise_rates - low)))
            above = math.hypot(by_chance, np.linalg.norm(number * (high - matrix.noise_rates)))
        most = float(uncertain.sum())
        basis = "if errors depend on the class only"
        return Total(expected, max(expected - below, 0.0), min(expected + above, most), level, basis)

    def corrections(self, number: int = 3) -> list[tuple[str, str, int]]:
        """Return the most frequent (given, suggested, count) among the issues."""
        size, issues = self.matrix.num_labels, self.is_issue
        pairs, counts = np.unique(self.given[issues] * size + self.suggested[issues], return_counts=True)
        return [
            (self.matrix.name_of(pairs[i] // size), self.matrix.name_of(pairs[i] % size), int(counts[i]))
            for i in np.argsort(-counts, kind="stable")[:number].tolist()
        ]
