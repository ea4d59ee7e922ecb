# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Answers, one per line, gathered into one list of votes per item."""

from __future__ import annotations

import pickle
import time

import numpy as np
import pandas as pd
import pytest
from datasets import (
    ClassLabel,
    Dataset,
    DatasetDict,
    Features,
    LargeList,
    List,
    Value,
    concatenate_datasets,
    load_from_disk,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from glc_hf import gather_votes
from glc_hf.labels.vote_columns import read_votes


ANSWERS = [
    {"item": "t2", "worker": "eva", "answer": "spam"},
    {"item": "t1", "worker": "ann", "answer": "ham"},
    {"item": "t2", "worker": "ann", "answer": "ham"},
    {"item": "t3", "worker": "bob", "answer": "spam"},
    {"item": "t2", "worker": "eva", "answer": "spam"},  # the same again
]
VOTES = {"item": ["t2", "t1", "t3"], "votes": [["ham", None, "spam"], ["ham", None, None], [None, "spam", None]]}


@pytest.mark.parametrize("kind", [list, Dataset.from_list, pd.DataFrame, "category", "shuffled"], ids=str)
def test_answers_are_gathered_by_item_in_the_order_of_their_first_answers(kind):
    rows = kind(ANSWERS) if callable(kind) else None
    if kind == "category":
        rows = pd.DataFrame(ANSWERS).astype("category")
    if kind == "shuffled":
        rows = Dataset.from_list(ANSWERS[::-1]).select(range(4, -1, -1)).with_transform(lambda batch: {})
    dataset, names = gather_votes(rows, return_names=True)
    assert names == ["ann", "bob", "eva"]
    assert dataset.to_dict() == VOTES
    assert dataset.column_names == ["item", "votes"]
    assert gather_votes(rows).to_dict() == VOTES


def test_columns_of_any_name_are_gathered():
    rows = pd.DataFrame(ANSWERS).rename(columns={"item": "id", "worker": "by", "answer": "tag"})
    dataset = gather_votes(rows, row="id", source="by", label="tag")
    assert dataset.to_dict() == {"id": VOTES["item"], "votes": VOTES["votes"]}


@pytest.mark.parametrize(
    ("feature", "answers"),
    [
        (ClassLabel(names=["no", "yes"]), [1, 0]),
        (Value("string"), ["yes", "no"]),
        (Value("large_string"), ["yes", "no"]),
        (Value("int8"), [1, 0]),
        (Value("bool"), [True, False]),
    ],
)
def test_labels_and_items_keep_their_type(feature, answers):
    rows = Dataset.from_dict(
        {"item": [7, 9], "worker": [10, 9], "answer": answers},
        features=Features({"item": Value("int32"), "worker": Value("int64"), "answer": feature}),
    )
    dataset, names = gather_votes(rows, return_names=True)
    assert dataset.features == Features({"item": Value("int32"), "votes": List(feature)})
    assert dataset.to_dict() == {"item": [7, 9], "votes": [[None, answers[0]], [answers[1], None]]}
    assert names == ["9", "10"]  # in the order of the numbers
    assert pickle.loads(pickle.dumps(dataset)).to_dict() == dataset.to_dict()


def test_whole_numbers_in_float_columns_become_integers():
    rows = pd.DataFrame({"item": [1, None, 2], "worker": [3.0, 3.0, 4.0], "answer": [0.0, 1.0, 1.0]}).dropna()
    dataset = gather_votes(rows)
    assert dataset.features == Features({"item": Value("int64"), "votes": List(Value("int64"))})
    assert dataset.to_dict() == {"item": [1, 2], "votes": [[0, None], [None, 1]]}


def test_label_names_make_classes_of_answers():
    names = ["ham", "spam"]
    expected = [[0, None, 1], [0, None, None], [None, 1, None]]
    dataset = gather_votes(ANSWERS, label_names=names)
    assert dataset.features["votes"] == List(ClassLabel(names=names))
    assert dataset["votes"][:] == expected
    encoded = Dataset.from_list(ANSWERS).cast_column("answer", ClassLabel(names=["spam", "ham"]))
    assert gather_votes(encoded, label_names=names)["votes"][:] == expected
    rows = [{"item": 0, "worker": "a", "answer": 2}, {"item": 1, "worker": "a", "answer": 1}]
    assert gather_votes(rows, label_names=["1", "2"])["votes"][:] == [[1], [0]]  # all are names
    assert gather_votes(rows, label_names=["x", "y", "z"])["votes"][:] == [[2], [1]]
    with pytest.raises(ValueError, match="'answer' has 'spam' in line 0, which is none of the classes ham, egg"):
        gather_votes(ANSWERS, label_names=["ham", "egg"])
    with pytest.raises(ValueError, match="'answer' has 2 in line 0, which is none of the classes x, y"):
        gather_votes(rows, label_names=["x", "y"])


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.tuples(st.integers(0, 5), st.integers(0, 4)), st.integers(0, 2), min_size=1), st.data())
def test_gathered_votes_are_read_as_the_answers(answers, data):
    lines = [{"item": i, "worker": w, "answer": a} for (i, w), a in answers.items()]
    dataset, names = gather_votes(data.draw(st.permutations(lines + lines[:2])), return_names=True)
    votes = read_votes(dataset, votes_column="votes", num_labels=3, source_names=names)
    items = np.array(dataset["item"][:])[votes.items].tolist()
    workers = [int(votes.names[source]) for source in votes.sources]
    assert dict(zip(zip(items, workers, strict=True), votes.labels.tolist(), strict=True)) == answers
    assert len(votes.labels) == len(answers)


# ---------------------------------------------------------------------- with a dataset
TEXTS = {"item": ["t9", "t1", "t2", "t4"], "text": ["i", "a", "b", "d"]}


def test_votes_are_added_to_a_dataset():
    dataset, names = gather_votes(ANSWERS, dataset=Dataset.from_dict(TEXTS), return_names=True)
    assert names == ["ann", "eva"]  # bob answers only on an item that is not in the dataset
    assert dataset.to_dict() == {**TEXTS, "votes": [[None, None], ["ham", None], ["ham", "spam"], [None, None]]}
    assert dataset.features["votes"] == List(Value("string"))


def test_votes_follow_the_order_of_a_dataset_that_stays_as_it_is():
    base = Dataset.from_dict(TEXTS)
    several = concatenate_datasets([base, Dataset.from_dict({"item": ["t3"], "text": ["c"]})])
    views = [several.select([4, 2, 2, 0]), several.shuffle(seed=1), several.with_format("numpy", columns=["text"])]
    for view in views:
        dataset, names = gather_votes(ANSWERS, dataset=view, return_names=True)
        assert dataset.format["type"] == view.format["type"]
        plain = dataset.with_format(None)
        expected = {"t1": {"ann": "ham"}, "t2": {"ann": "ham", "eva": "spam"}, "t3": {"bob": "spam"}}
        assert plain["item"][:] == view.with_format(None)["item"][:]
        for item, votes in zip(plain["item"][:], plain["votes"][:], strict=True):
            own = {name: vote for name, vote in zip(names, votes, strict=True) if vote is not None}
            assert own == expected.get(item, {})
        assert pickle.loads(pickle.dumps(dataset)).with_format(None).to_dict() == plain.to_dict()
    assert views[0].column_names == ["item", "text"]


def test_fingerprints_depend_on_the_answers():
    base = Dataset.from_dict(TEXTS)
    other = [{**line, "answer": "ham"} for line in ANSWERS]
    first, second, third = (gather_votes(rows, dataset=base)._fingerprint for rows in (ANSWERS, ANSWERS, other))
    assert first == second != third


def test_items_may_have_different_widths_but_not_different_types():
    answers = [{"item": 3, "worker": "a", "answer": 1}]
    narrow = Dataset.from_dict({"item": [3, 4]}, features=Features({"item": Value("int16")}))
    assert gather_votes(answers, dataset=narrow)["votes"][:] == [[1], [None]]
    with pytest.raises(ValueError, match="'item' holds string in the dataset and int64 in the answers.*cast_column"):
        gather_votes(answers, dataset=Dataset.from_dict({"item": ["3"]}))


BAD_DATASETS = {
    "column": ({"id": ["t1"]}, "no column 'item' .*its columns are id.*rename_column"),
    "votes": ({"item": ["t1"], "votes": [0]}, "column 'votes' already"),
    "missing": ({"item": ["t1", None]}, r"'item' of the dataset has no value \(None\) in row 1"),
    "no answers": ({"item": ["x1"]}, "no row of the dataset has answers: .*'x1', … in the dataset and 't2', …"),
}


@pytest.mark.parametrize("case", BAD_DATASETS)
def test_bad_datasets_raise_an_error(case):
    columns, message = BAD_DATASETS[case]
    with pytest.raises(ValueError, match=message):
        gather_votes(ANSWERS, dataset=Dataset.from_dict(columns))


# ---------------------------------------------------------------------- errors
def test_two_answers_of_a_source_on_an_item_raise_an_error_with_both_lines():
    lines = [*ANSWERS, {"item": "t1", "worker": "ann", "answer": "spam"}]
    message = "worker 'ann' gives two answers on item 't1': 'ham' in line 1 and 'spam' in line 5, counted from 0. Keep"
    with pytest.raises(ValueError, match=message):
        gather_votes(lines)
    with pytest.raises(ValueError, match=message):
        gather_votes(Dataset.from_list(lines).cast_column("answer", ClassLabel(names=["ham", "spam"])))
    lines = [*ANSWERS, {**ANSWERS[0], "answer": "ham"}, {**ANSWERS[1], "answer": "spam"}]
    with pytest.raises(
        ValueError, match=r"'spam' in line 4 and 'ham' in line 5, counted from 0 \(1 more such pairs\)"
    ):
        gather_votes(lines)


@pytest.mark.parametrize("column", ["item", "worker", "answer"])
@pytest.mark.parametrize("kind", [list, Dataset.from_list, pd.DataFrame], ids=str)
@pytest.mark.parametrize("missing", [None, "", float("nan")], ids=str)
def test_missing_values_raise_an_error_with_column_and_line(column, kind, missing):
    if kind == Dataset.from_list and isinstance(missing, float):
        missing = None
    lines = [ANSWERS[0], {**ANSWERS[1], column: missing}]
    with pytest.raises(ValueError, match=f"'{column}' of the answers has no value in line 1"):
        gather_votes(kind(lines))


def test_bad_tables_raise_an_error():
    line = {"item": 0, "worker": "a", "answer": 1}
    cases = [
        ([{"item": 0, "worker": "a"}], "no column 'answer'; the columns are item, worker"),
        ([line, {"item": 0, "worker": "a"}], "no column 'answer' in line 1"),
        (pd.DataFrame({"item": [0]}), "no column 'worker'; the columns are item"),
        (Dataset.from_dict({"worker": [0]}), "no column 'item'; the columns are worker"),
        ([], "no answers"),
        ([line, {**line, "item": "x"}], "'item' of the answers has values of different types"),
        ([{**line, "answer": 0.5}], "'answer' has 0.5 in line 0; it must hold integers or text"),
        ([line, {**line, "item": 1, "answer": -1}], "'answer' has -1 in line 1, which stands for a missing vote"),
        ([{**line, "answer": [1]}], "'answer' of the answers holds list.*class numbers or class names"),
        ([{**line, "worker": {"x": 1}}], "'worker' of the answers holds struct.*text or integers"),
    ]
    for rows, message in cases:
        with pytest.raises(ValueError, match=message):
            gather_votes(rows)
    with pytest.raises(ValueError, match="three different columns"):
        gather_votes([line], label="item")
    with pytest.raises(ValueError, match="'votes' can't be the item"):
        gather_votes([line], row="votes")
    with pytest.raises(TypeError, match="DatasetDict with the splits train: pass one of them"):
        gather_votes(DatasetDict({"train": Dataset.from_list([line])}))
    with pytest.raises(TypeError, match="a str.*pandas"):
        gather_votes("answers.csv")
    with pytest.raises(TypeError, match="dataset= is a DatasetDict"):
        gather_votes([line], dataset=DatasetDict({"train": Dataset.from_list([line])}))


def test_lists_are_the_same_in_chunks(monkeypatch):
    whole = gather_votes(ANSWERS, dataset=Dataset.from_dict(TEXTS)).to_dict()
    monkeypatch.setattr("glc_hf.labels.answers._PLACES", 2)
    assert gather_votes(ANSWERS, dataset=Dataset.from_dict(TEXTS)).to_dict() == whole
    assert gather_votes(ANSWERS).to_dict() == VOTES


def test_a_million_answers_are_gathered_in_seconds():
    rng = np.random.default_rng(0)
    pairs = rng.permutation(100_000 * 20)[:1_000_000]
    labels = rng.integers(0, 3, len(pairs))
    rows = pd.DataFrame({"item": pairs // 20, "worker": pairs % 20, "answer": labels})
    started = time.perf_counter()
    dataset = gather_votes(rows)
    assert time.perf_counter() - started < 8.0  # about one second on an idle core
    votes = read_votes(dataset, votes_column="votes", num_labels=3)
    assert np.bincount(votes.labels).tolist() == np.bincount(labels).tolist()


def test_lists_of_large_datasets_keep_their_kind():
    features = Features({"item": Value("string"), "tokens": LargeList(Value("string"))})
    data = Dataset.from_dict({"item": ["t1"], "tokens": [["a", "b"]]}, features=features)
    assert gather_votes(ANSWERS, dataset=data).features["tokens"] == LargeList(Value("string"))


def test_each_block_of_a_dataset_has_its_own_lists(tmp_path):
    blocks = []
    for items in (["t1", "t2"], ["t3"], ["t4", "t5", "t6"]):  # files: blocks in memory are merged
        Dataset.from_dict({"item": items}).save_to_disk(tmp_path / items[0])
        blocks.append(load_from_disk(tmp_path / items[0]))
    dataset = gather_votes(ANSWERS, dataset=concatenate_datasets(blocks))
    chunks = dataset.data.column("votes").chunks
    assert [len(chunk) for chunk in chunks] == [2, 1, 3]
    assert len({chunk.buffers()[-1].address for chunk in chunks}) == 3  # a pickle of one has nothing of the others
