# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Votes read from columns and from lists, their errors, and the labels that follow from them."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pytest
from datasets import ClassLabel, Dataset, Features, LargeList, List, Value
from hypothesis import given, settings
from hypothesis import strategies as st

from glc_hf.labels.label_batch import Votes
from glc_hf.labels.reading import Column, read_flags
from glc_hf.labels.vote_columns import fill_labels, majority_vote, read_votes


NAMES = ["ham", "news", "spam"]
DENSE = np.array([[0, -1, 2], [-1, -1, -1], [1, 1, 2], [-1, 0, 2]])


def dense(votes: Votes) -> list[list[int]]:
    """One list per item, -1 where there is no vote."""
    result = np.full((len(votes), len(votes.names)), -1)
    result[votes.items, votes.sources] = votes.labels
    for array in (votes.offsets, votes.sources, votes.labels):
        assert array.dtype == np.int64
    return result.tolist()


def as_kind(values: list[int], kind: str) -> tuple[list, object]:
    """Votes, -1 where there is none, as another type, and its feature."""
    if kind == "words":
        return [NAMES[value] if value >= 0 else None for value in values], Value("string")
    if kind == "empty words":
        return [NAMES[value] if value >= 0 else "" for value in values], Value("large_string")
    if kind == "classes":
        return values, ClassLabel(names=NAMES)
    if kind == "classes in another order":
        return [2 - value if value >= 0 else None for value in values], ClassLabel(names=NAMES[::-1])
    if kind == "floats":
        return [float(value) if value >= 0 else float("nan") for value in values], Value("float64")
    if kind == "None":
        return [value if value >= 0 else None for value in values], Value("int8")
    return values, Value("int32")


KINDS = ["-1", "None", "floats", "words", "empty words", "classes", "classes in another order"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("list_type", [List, LargeList])
def test_votes_are_the_same_in_columns_and_in_lists_of_any_type(kind, list_type):
    columns = {f"s{source}": as_kind(DENSE[:, source].tolist(), kind) for source in range(3)}
    features = Features({name: feature for name, (_, feature) in columns.items()})
    dataset = Dataset.from_dict({name: values for name, (values, _) in columns.items()}, features=features)
    votes = read_votes(dataset, source_columns=["s0", "s1", "s2"], label_names=NAMES)
    assert votes.names == ("s0", "s1", "s2")
    assert dense(votes) == DENSE.tolist()

    flat, feature = as_kind(DENSE.ravel().tolist(), kind)
    lists = {"votes": [flat[i : i + 3] for i in range(0, 12, 3)]}
    dataset = Dataset.from_dict(lists, features=Features({"votes": list_type(feature)}))
    votes = read_votes(dataset, votes_column="votes", label_names=NAMES)
    assert votes.names == ("0", "1", "2")
    assert dense(votes) == DENSE.tolist()


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_selection_of_rows_has_its_own_votes(data):
    num_rows, num_sources = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 4))
    rows = data.draw(
        st.lists(
            st.lists(st.integers(-1, 2), min_size=num_sources, max_size=num_sources),
            min_size=num_rows,
            max_size=num_rows,
        )
    )
    chosen = data.draw(st.lists(st.integers(0, num_rows - 1), min_size=1, max_size=10))
    columns = {f"s{source}": [row[source] for row in rows] for source in range(num_sources)}
    dataset = Dataset.from_dict({"votes": rows, **columns}).select(chosen)
    for view in (dataset, dataset.with_format("numpy"), dataset.with_transform(lambda batch: {})):
        for where in ({"votes_column": "votes"}, {"source_columns": list(columns)}):
            votes = read_votes(view, **where, num_labels=3, require_votes=False)
            assert dense(votes) == [rows[row] for row in chosen]
            assert all(np.all(np.diff(part) > 0) for part in np.split(votes.sources, votes.offsets[1:-1]))


def test_lists_of_votes_give_one_item_per_token():
    dataset = Dataset.from_dict(
        {
            "labels": [[0, -100, 2], None, [], [1]],
            "a": [[0, 1, -100], [2, 2], [], [None]],
            "b": [[None, -1, 2], None, [], [1]],
        }
    )
    votes = read_votes(dataset, source_columns=["a", "b"], num_labels=3, label_column="labels")
    assert dense(votes) == [[0, -1], [1, -1], [-1, 2], [2, -1], [2, -1], [-1, 1]]
    shuffled = dataset.select([3, 0])
    votes = read_votes(shuffled, source_columns=["a", "b"], num_labels=3, label_column="labels")
    assert dense(votes) == [[-1, 1], [0, -1], [1, -1], [-1, 2]]


def test_rows_without_a_list_have_no_votes():
    for list_type in (List(Value("int64")), List(Value("int64"), length=2)):
        dataset = Dataset.from_dict({"v": [None, [0, 1], None, [None, 1]]}, features=Features({"v": list_type}))
        votes = read_votes(dataset, votes_column="v", num_labels=2)
        assert dense(votes) == [[-1, -1], [0, 1], [-1, -1], [-1, 1]]


@pytest.mark.parametrize("kind", [int, float])
def test_integers_are_names_if_all_votes_of_all_sources_are(kind):
    stars = ["1", "2", "3"]
    dataset = Dataset.from_dict({"a": [kind(1), kind(2), None], "b": [kind(3), kind(1), kind(1)]})
    assert dense(read_votes(dataset, ["a", "b"], label_names=stars)) == [[0, 2], [1, 0], [-1, 0]]
    dataset = Dataset.from_dict({"a": [kind(1), kind(2), None], "b": [kind(0), kind(1), kind(1)]})
    assert dense(read_votes(dataset, ["a", "b"], label_names=stars)) == [[1, 0], [2, 1], [-1, 1]]


def test_sources_can_be_named():
    dataset = Dataset.from_dict({"votes": [[0, 1]], "a": [0], "b": [1]})
    assert read_votes(dataset, votes_column="votes", num_labels=2, source_names=["x", "y"]).names == ("x", "y")
    assert read_votes(dataset, ["a", "b"], num_labels=2, source_names=["x", "y"]).names == ("x", "y")


COLUMNS = {"a": [0, 1, None], "b": [1, 1, 0], "label": [0, 1, 1], "trusted": [1, 0, 0], "clean_label": [0, 1, 1]}
BAD_VOTES = {
    "outside": ({"b": [0, 7, 0]}, "vote 7 of source 'b' in row 1 .*0…2.*num_labels=8"),
    "negative": ({"b": [0, 0, -100]}, "vote -100 of source 'b' in row 2 is not a class.*None"),
    "fraction": ({"b": [0, 0.5, 1]}, "vote 0.5 of source 'b' in row 1 .*Probabilities"),
    "infinite": ({"b": [0, float("inf"), 1]}, "vote inf of source 'b' in row 1"),
    "words": ({"b": ["spam", "ham", ""]}, "'b' holds string, but the names .*class_encode_column.*id2label"),
    "never": ({"b": [None, -1, None]}, "source 'b' never votes .*remove it from source_columns"),
    "nested": ({"b": [[[1]], [[0]], [[1]]]}, "'b' holds lists.* but 'a' has one value per row"),
    "struct": ({"b": [{"x": 1}] * 3}, "'b' holds struct.*votes are class numbers or class names"),
}


@pytest.mark.parametrize("case", BAD_VOTES)
def test_bad_votes_raise_an_error_with_row_source_and_fix(case):
    columns, message = BAD_VOTES[case]
    dataset = Dataset.from_dict({**COLUMNS, **columns})
    with pytest.raises(ValueError, match=message):
        read_votes(dataset, ["a", "b"], num_labels=3)


def test_bad_names_of_classes_raise_an_error_with_row_source_and_classes():
    dataset = Dataset.from_dict({"a": ["ham", "news", "spam"], "b": ["spam", None, "egg"]})
    with pytest.raises(ValueError, match="vote 'egg' of source 'b' in row 2 is not a class: .* ham, news, spam"):
        read_votes(dataset, ["a", "b"], label_names=NAMES)
    with pytest.raises(ValueError, match="vote 'egg' of source 'b' in row 0"):
        read_votes(dataset.select([2, 0]), ["a", "b"], label_names=NAMES)
    other = dataset.cast_column("b", ClassLabel(names=["egg", "spam"]))
    with pytest.raises(ValueError, match="vote 'egg' of source 'b' in row 2"):
        read_votes(other, ["a", "b"], label_names=NAMES)
    two = Dataset.from_dict({"a": [0], "b": [1]}).cast_column("a", ClassLabel(names=["x", "y"]))
    with pytest.raises(ValueError, match="'b' has the classes y, x and another source has x, y"):
        read_votes(two.cast_column("b", ClassLabel(names=["y", "x"])), ["a", "b"], num_labels=2)


BAD_LISTS = {
    "outside": ([[0, 1], None, [0, 3]], "vote 3 of source '1' .column 'v'. in row 2"),
    "ignored label": ([[0, 1], [0, -100]], "vote -100 of source '1' .column 'v'. in row 1"),
    "lengths": ([[0, 1], None, [0]], "row 2 has 1 votes in column 'v' and row 0 has 2.*gather_votes"),
    "empty": ([[], []], "'v' are empty"),
    "no lists": ([0, 1], "'v' holds int64; it must hold lists.*source_columns"),
    "nested": ([[[0], [1]]], "'v' holds list.*For token labels use source_columns"),
    "never": ([[0, None, -1], [0, 1, None]], "source '2' never votes .*its place from the lists"),
    "several never": ([[0, None, -1], [0, None, None]], "2 sources never vote: '1', '2' .*about them"),
}


@pytest.mark.parametrize("case", BAD_LISTS)
def test_bad_lists_raise_an_error_with_row_source_and_fix(case):
    lists, message = BAD_LISTS[case]
    with pytest.raises(ValueError, match=message):
        read_votes(Dataset.from_dict({"v": lists}), votes_column="v", num_labels=3)


def test_bad_tokens_raise_an_error_with_row_and_token():
    dataset = Dataset.from_dict({"labels": [[0], [0, 1]], "a": [None, [1, 5]], "b": [[0], [1, 0]], "c": [[0], [1]]})
    with pytest.raises(ValueError, match="vote 5 of source 'a' in row 1, token 1"):
        read_votes(dataset, ["b", "a"], num_labels=2, label_column="labels")
    with pytest.raises(ValueError, match="row 1 has 1 values in column 'c' and 2 in 'labels'.*Write None"):
        read_votes(dataset, ["c"], num_labels=2, label_column="labels")
    with pytest.raises(ValueError, match="'v' has one vote of each source per row, but column 'labels' has lists"):
        read_votes(dataset.rename_column("b", "v"), votes_column="v", num_labels=2, label_column="labels")


def test_bad_arguments_raise_an_error():
    dataset = Dataset.from_dict({**COLUMNS, "v": [[0, 1]] * 3})
    cases = [
        ({"source_columns": ["a"], "votes_column": "v"}, "both are given"),
        ({}, "neither is given"),
        ({"source_columns": ["a", "c"]}, "no column of source_columns 'c'; the columns are a, b, label"),
        ({"votes_column": "w"}, "no column of votes_column 'w'; the columns are a, b"),
        ({"source_columns": ["a", "b", "a"]}, "names 'a' twice"),
        ({"source_columns": "ab"}, "must be a list of columns"),
        ({"source_columns": []}, "source_columns is empty"),
        ({"source_columns": ["a", "label"]}, "'label' is the label_column .*leave it out of source_columns"),
        ({"source_columns": ["a", "trusted"]}, "'trusted' is the trusted_column"),
        ({"source_columns": ["a", "clean_label"]}, "'clean_label' is the clean_column"),
        ({"votes_column": "label"}, "'label' is the label_column .*leave it out of votes_column"),
        ({"votes_column": "v", "source_names": ["x"]}, "has 1 names, but the lists in column 'v' have 2 places"),
        ({"source_columns": ["a", "b"], "source_names": list("xyz")}, "has 3 names, but there are 2 source_columns"),
        ({"votes_column": "v", "source_names": ["x", "x"]}, "has 'x' twice"),
    ]
    for arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            read_votes(dataset, **arguments, num_labels=3, label_column="label", trusted_column="trusted")


def test_many_places_are_read_in_seconds():
    num_rows, num_sources = 100_000, 200
    values = np.random.default_rng(0).integers(-1, 4, num_rows * num_sources, dtype=np.int8)
    offsets = pa.array(np.arange(0, len(values) + 1, num_sources, dtype=np.int32))
    dataset = Dataset(pa.table({"votes": pa.ListArray.from_arrays(offsets, pa.array(values))}))
    started = time.perf_counter()
    votes = read_votes(dataset, votes_column="votes", num_labels=4)
    assert time.perf_counter() - started < 8.0  # one second on an idle core
    assert len(votes.labels) == np.count_nonzero(values >= 0)
    assert np.array_equal(votes.labels, values[values >= 0])


# ---------------------------------------------------------------------- labels from votes
@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(-1, 3), min_size=4, max_size=4), min_size=1, max_size=12))
def test_majority_vote_is_a_class_with_most_votes(rows):
    votes = Votes.from_dense(np.array(rows))
    found = majority_vote(votes, 4)
    for row, label in zip(rows, found.tolist(), strict=True):
        most = max((row.count(vote) for vote in row if vote >= 0), default=0)
        assert (label == -1) if most == 0 else (row.count(label) == most)
    assert np.array_equal(majority_vote(votes), found)


def test_ties_of_the_majority_vote_favor_no_class():
    votes = Votes.from_dense(np.tile([0, 2], (4000, 1)))
    assert np.bincount(majority_vote(votes, 3), minlength=3) == pytest.approx([2000, 0, 2000], abs=150)


def test_majority_vote_is_the_same_in_chunks(monkeypatch):
    votes = Votes.from_dense(np.random.default_rng(0).integers(-1, 5, (100, 3)))
    whole = majority_vote(votes, 5)
    monkeypatch.setattr("glc_hf.labels.vote_columns._PLACES", 35)
    assert np.array_equal(majority_vote(votes, 5), whole)


def test_untrusted_rows_without_label_get_the_majority_vote():
    rows = {"a": [0, 1, 1, None, 0], "b": [0, 2, 2, None, 1], "trusted": [True, False, False, False, False]}
    for labels in ([1, None, 0, None, None], [1, -1, 0, -1, -1], [1.0, None, 0.0, float("nan"), None]):
        dataset = Dataset.from_dict({**rows, "label": labels}).select([4, 0, 1, 2, 3])
        votes = read_votes(dataset, ["a", "b"], num_labels=3, label_column="label")
        filled = fill_labels(dataset, votes, "label", read_flags(dataset, "trusted"), 3, ["a", "b"])
        assert filled.labels.offsets is None
        assert filled.labels.values.tolist() == [0, 1, 1, 0, -100]
        assert filled.given.tolist() == [False, True, False, True, False]
        assert filled.unlabeled.tolist() == [4]


def test_the_label_column_may_be_missing_if_no_row_is_trusted():
    dataset = Dataset.from_dict({"v": [[0, 0, 1], [None, 1, 1]]})
    votes = read_votes(dataset, votes_column="v", num_labels=2)
    for column in (None, "label"):
        filled = fill_labels(dataset, votes, column, Column(np.zeros(2, dtype=bool), None), 2)
        assert filled.labels.values.tolist() == [0, 1]
        assert not filled.given.any()
    with pytest.raises(ValueError, match="row 1 is trusted, but there is no column of labels.*set 'gold' to false"):
        fill_labels(dataset, votes, None, Column(np.array([False, True]), None), 2, trusted_column="gold")


def test_tokens_without_label_get_the_majority_vote():
    dataset = Dataset.from_dict(
        {
            "labels": [[0, -100, 2], None, [None, -1]],
            "a": [[1, 1, 1], [2, None], [0, None]],
            "trusted": [True, False, False],
            "flags": [[True, True, False], [False, False], [False, False]],
        }
    )
    votes = read_votes(dataset, ["a"], num_labels=3, label_column="labels")
    for flags in ("trusted", "flags"):
        filled = fill_labels(dataset, votes, "labels", read_flags(dataset, flags), 3, ["a"])
        assert filled.labels.values.tolist() == [0, -100, 2, 2, -100, 0, -100]
        assert filled.labels.offsets.tolist() == [0, 3, 5, 7]
        assert filled.given.tolist() == [True, False, True, False, False, False, False]
        assert filled.unlabeled.tolist() == [4, 6]
    flags = Column(np.array([False, False, True]), None)
    with pytest.raises(ValueError, match="row 2, token 0 is trusted, but has no label in column 'labels'"):
        fill_labels(dataset, votes, "labels", flags, 3, ["a"])


def test_bad_labels_beside_votes_raise_an_error_with_row_and_fix():
    rows = {"a": [0, 1, 1], "trusted": [False, True, False]}

    def fill(labels):
        dataset = Dataset.from_dict({**rows, "label": labels})
        votes = read_votes(dataset, ["a"], num_labels=2, label_column="label")
        return fill_labels(dataset, votes, "label", read_flags(dataset, "trusted"), 2, ["a"])

    for labels in ([0, None, 1], [0, -1, 1], [None, None, None]):
        with pytest.raises(
            ValueError, match="row 1 is trusted, but has no label in column 'label'.*'trusted' to false"
        ):
            fill(labels)
    with pytest.raises(ValueError, match="label 5 in column 'label', row 2, is not a class"):
        fill([None, 1, 5])
    with pytest.raises(ValueError, match="label -100 in column 'label', row 0"):
        fill([-100, 1, 1])
    with pytest.raises(ValueError, match="a label in column 'label', row 2, is not a class: .*whole"):
        fill([None, 1.0, 0.5])
    with pytest.raises(ValueError, match="'label' holds string.*class_encode_column"):
        fill(["x", "y", None])


def test_votes_of_some_sources_are_in_the_order_of_their_names():
    votes = Votes.from_dense(np.array([[0, 1, 2], [-1, 1, -1], [2, -1, 0]]), ("a", "b", "c"))
    some = votes.of_sources(["c", "never", "a"])
    expected = Votes.from_dense(np.array([[2, -1, 0], [-1, -1, -1], [0, -1, 2]]), ("c", "never", "a"))
    assert some.fingerprint == expected.fingerprint


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(-1, 2), min_size=3, max_size=3), min_size=1, max_size=10))
def test_one_more_source_is_one_more_column(rows):
    votes = np.array(rows)
    added = Votes.from_dense(votes[:, :2], ("a", "b")).with_source("c", votes[:, 2])
    whole = Votes.from_dense(votes, ("a", "b", "c"))
    assert dense(added) == votes.tolist()
    assert added.fingerprint == whole.fingerprint
    with pytest.raises(ValueError, match="two sources with the name 'b'"):
        added.with_source("b", votes[:, 0])
