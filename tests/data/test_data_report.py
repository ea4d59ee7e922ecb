# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""A look at rows with votes of several sources or soft labels, with and without trusted rows."""

from __future__ import annotations

from typing import Any

import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

from glc_hf.data.dataset_check import check_dataset


def _rows(number: int = 6, **columns: list[Any]) -> Dataset:
    empty = {"label": [None] * number} if "label" not in columns else {}
    return Dataset.from_dict({"text": [f"text {row}" for row in range(number)], **empty, **columns})


SOFT = [[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], None, [0.0, 0.0, 1.0], [0.2, 0.5, 0.3], [1.0, 0.0, 0.0]]


def test_votes_alone_are_enough_and_the_missing_trusted_rows_are_named() -> None:
    report = check_dataset(
        _rows(a=["cat", "dog", None, "cat", "", "dog"], b=["cat", "Dog", None, None, "cat", "dog"]),
        vote_columns=["a", "b"],
    )
    assert report.errors == []
    assert [finding.kind for finding in report.warnings] == [
        "rows_without_votes", "votes_without_trusted_rows", "label_spellings", "classes_with_one_row",
    ]  # fmt: skip
    assert report.warnings[0].rows == [2]
    assert "the accuracy of the sources is estimated from their agreement" in report.warnings[1].message
    assert [(entry.name, entry.train) for entry in report.classes] == [("cat", 4), ("dog", 3), ("Dog", 1)]
    summary = dict(report.summary())
    assert summary["columns"] == "text in text, votes in a and b"
    assert summary["votes"] == "8 votes of 2 sources on 5 rows"
    assert report.to_dict()["votes"] == 8


def test_soft_labels_alone_need_trusted_rows() -> None:
    report = check_dataset(_rows(probs=SOFT), soft_label_column="probs")
    assert {finding.kind: finding.rows for finding in report.errors} == {
        "rows_without_votes": [2],
        "no_trusted_rows": [],
    }
    assert "Soft labels are corrected with the help of trusted rows" in str(report)
    assert dict(report.summary())["columns"] == "text in text, soft labels in probs"
    assert dict(report.summary())["votes"] == "5 soft labels on 5 rows"
    assert [entry.train for entry in report.classes] == [2, 2, 1]
    # A trusted row needs no soft label, and an untrusted row with a label none either.
    for flags in ([False, False, True, True, False, False], [True, False, False, False, False, False]):
        rows = _rows(probs=SOFT, label=[0, None, 1, 2, None, None], trusted=flags)
        assert check_dataset(rows, soft_label_column="probs").errors == []
    assert check_dataset(_rows(probs=SOFT), soft_label_column="probs", needs_trusted=False).errors[0].rows == [2]


@pytest.mark.parametrize("value", [[0.5, 0.6, 0.4], [2.0, -1.0, 0.0], [0.5, 0.5], [None, 0.5, 0.5]])
def test_lists_that_are_no_probabilities_are_an_error_that_names_the_row(value: list[Any]) -> None:
    report = check_dataset(
        _rows(probs=[*SOFT[:4], value, SOFT[5]], trusted=[True, False] * 3, label=[0] * 6), soft_label_column="probs"
    )
    assert [finding.kind for finding in report.errors] == ["wrong_soft_labels"]
    assert "row 4" in report.errors[0].message


def test_no_votes_at_all_is_an_error() -> None:
    report = check_dataset(_rows(votes=[[-1, None], [None], [], None, [-1], [None, -1]]), vote_columns=["votes"])
    assert [(finding.kind, finding.count) for finding in report.errors] == [("rows_without_votes", 6)]


def test_numbers_next_to_names_are_places_and_no_classes() -> None:
    rows = _rows(votes=[[0, 1]] * 6, label=["cat", "dog", None, None, None, None], trusted=[True, True] + [False] * 4)
    assert [entry.name for entry in check_dataset(rows, vote_columns=["votes"]).classes] == ["cat", "dog"]


VOTE = st.one_of(st.none(), st.integers(-1, 3))


@given(st.lists(st.lists(VOTE, max_size=3), min_size=1, max_size=8), st.data())
def test_any_votes_are_read_and_rows_without_votes_found(votes: list[list[int | None]], data: Any) -> None:
    flags = data.draw(st.lists(st.booleans(), min_size=len(votes), max_size=len(votes)))
    labels = [0 if flag else None for flag in flags]
    report = check_dataset(_rows(len(votes), votes=votes, trusted=flags, label=labels), vote_columns=["votes"])
    given = [[vote for vote in row if vote is not None and vote >= 0] for row in votes]
    assert report.votes.num_votes == sum(map(len, given))
    without = [row for row, own in enumerate(given) if not own and not flags[row]]
    found = [finding.count for finding in report.findings if finding.kind == "rows_without_votes"]
    assert found == ([len(without)] if without else [])
