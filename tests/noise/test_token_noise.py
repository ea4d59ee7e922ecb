# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`corrupt_labels` on lists of labels."""

from __future__ import annotations

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, Features, LargeList, List, Value, load_from_disk

from glc_hf import corrupt_labels
from glc_hf.labels import storage


def corrupt(dataset, matrix, **options):
    return corrupt_labels(dataset, matrix, label_column="labels", **options)


def lists_of(dataset, column: str = "labels") -> list[list[int]]:
    return dataset[column][:]


def test_ignored_tokens_and_trusted_rows_are_kept(sentences, matrix):
    noisy = corrupt(sentences, matrix)
    changed = 0
    for row in noisy:
        assert len(row["labels"]) == len(row["clean_label"])
        for new, old in zip(row["labels"], row["clean_label"], strict=True):
            assert (new == old) or not (row["trusted"] or old == -100)
            changed += new != old
    assert lists_of(noisy, "clean_label") == lists_of(sentences)
    assert changed > 200
    assert noisy.features["labels"] == noisy.features["clean_label"] == sentences.features["labels"]


def test_flags_may_be_given_per_token(sentences, matrix):
    by_token = corrupt(sentences, matrix, trusted_column="token_trusted")
    everywhere = corrupt(sentences, matrix, trusted_column=None)
    for row, noise in zip(by_token, lists_of(everywhere), strict=True):
        for new, old, flag, drawn in zip(row["labels"], row["clean_label"], row["token_trusted"], noise, strict=True):
            assert new == (old if flag or old == -100 else drawn)


def test_a_draw_depends_only_on_row_and_position(sentences, matrix):
    """Truncating rows, or dropping later rows, does not change the rest."""
    whole = lists_of(corrupt(sentences, matrix, trusted_column=None))
    cut = sentences.map(lambda row: {"labels": row["labels"][:4]}).select(range(50))
    assert lists_of(corrupt(cut, matrix, trusted_column=None)) == [labels[:4] for labels in whole[:50]]


def test_draws_differ_between_tokens_of_a_row_and_between_rows(matrix):
    dataset = Dataset.from_dict({"labels": [[1] * 50] * 50})
    noisy = np.array(lists_of(corrupt(dataset, matrix, trusted_column=None)))
    assert len({tuple(row) for row in noisy}) == 50
    assert len({tuple(column) for column in noisy.T}) == 50


@pytest.mark.parametrize("size", [1, 10, 97])
def test_noise_is_the_same_for_any_chunk_size(sentences, matrix, monkeypatch, size):
    expected = lists_of(corrupt(sentences, matrix))
    shuffled = lists_of(corrupt(sentences.shuffle(seed=0), matrix, trusted_column="token_trusted"))
    monkeypatch.setattr(storage, "CHUNK_SIZE", size)
    assert lists_of(corrupt(sentences, matrix)) == expected
    assert lists_of(corrupt(sentences.shuffle(seed=0), matrix, trusted_column="token_trusted")) == shuffled


def test_noise_is_the_same_on_disk_in_memory_and_in_any_order(sentences, matrix, tmp_path):
    sentences.save_to_disk(tmp_path / "sentences", num_shards=3)
    stored = load_from_disk(tmp_path / "sentences")
    assert corrupt(stored, matrix)[:] == corrupt(sentences, matrix)[:]
    expected = {row["number"]: row["labels"] for row in corrupt(sentences, matrix, index_column="number")}
    shuffled = corrupt(stored.shuffle(seed=3), matrix, index_column="number")
    assert shuffled._indices is not None
    assert {row["number"]: row["labels"] for row in shuffled} == expected


def test_slices_of_lists_are_read_and_written_correctly(sentences, matrix):
    part = sentences.select(range(101, 200))  # a slice of the Arrow table: offsets do not start at zero
    assert part._indices is None
    noisy = corrupt(part, matrix)
    assert lists_of(noisy) == lists_of(corrupt(Dataset.from_dict(part[:], features=part.features), matrix))
    assert lists_of(noisy, "clean_label") == lists_of(sentences)[101:200]


@pytest.mark.parametrize(
    "feature",
    [List(Value("int32")), LargeList(Value("int64")), List(ClassLabel(num_classes=5)), List(Value("int8"), 3)],
)
def test_list_types_are_kept(matrix, feature):
    labels = np.random.default_rng(0).integers(0, 5, (40, 3)).tolist()
    plain = corrupt(Dataset.from_dict({"labels": labels}), matrix, trusted_column=None)
    dataset = Dataset.from_dict({"labels": labels}, features=Features({"labels": feature}))
    noisy = corrupt(dataset, matrix, trusted_column=None)
    assert noisy.features["labels"] == noisy.features["clean_label"] == feature
    assert lists_of(noisy) == lists_of(plain)
    few = dataset.select([7, 3])
    assert lists_of(corrupt(few, matrix, trusted_column=None)) == lists_of(
        corrupt(few.flatten_indices(), matrix, trusted_column=None)
    )
    sliced = corrupt(dataset.select(range(5, 40)), matrix, trusted_column=None)
    assert lists_of(sliced, "clean_label") == labels[5:]
    assert lists_of(sliced) == lists_of(
        corrupt(Dataset.from_dict({"labels": labels[5:]}), matrix, trusted_column=None)
    )


def test_empty_lists_stay_empty(matrix):
    dataset = Dataset.from_dict({"labels": [[], [1, 2], []]})
    assert [len(labels) for labels in lists_of(corrupt(dataset, matrix, trusted_column=None))] == [0, 2, 0]
    nothing = Dataset.from_dict({"labels": [[], []]})
    assert lists_of(corrupt(nothing, matrix, trusted_column=None)) == [[], []]


def test_rows_outside_the_selection_may_hold_anything(matrix):
    dataset = Dataset.from_dict(
        {"labels": [[1, 2], None, [3, None, 99], [4]], "trusted": [[False, True], [True], None, [False]]}
    )
    noisy = corrupt(dataset.select([3, 0]), matrix)
    assert lists_of(noisy, "clean_label") == [[4], [1, 2]]
    assert noisy[1]["labels"][1] == 2


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([[0, 1], [-100, -1]], r"label -1 .*row 1, token 1, is not a class: classes are 0…4, or -100"),
        ([[0, 1], [], [2, 5]], r"label 5 .*row 2, token 1"),
        ([[0, 1], [None, 2]], r"'labels' has no value \(None\) in row 1, token 0"),
        ([[0, 1], None], r"'labels' has no value \(None\) in row 1\."),
        ([[0.0], [1.5]], r"'labels' holds list<item: double>, first row 0: \[0\.0\]"),
        ([["a"], ["b"]], "'labels' holds list<item: string>"),
    ],
)
def test_tokens_that_are_not_classes_raise_an_error_with_row_and_token(matrix, labels, message):
    with pytest.raises(ValueError, match=message):
        corrupt(Dataset.from_dict({"labels": labels}), matrix, trusted_column=None)


def test_there_must_be_one_flag_per_label(matrix):
    dataset = Dataset.from_dict({"labels": [[0, 1], [2, 3]], "trusted": [[True, False], [True]]})
    with pytest.raises(ValueError, match="row 1 has 2 labels and 1 trusted flags"):
        corrupt(dataset, matrix)
    missing = Dataset.from_dict({"labels": [[0, 1], [2, 3]], "trusted": [[True, False], [True, None]]})
    with pytest.raises(ValueError, match="'trusted' has None in row 1, token 1, .*mark_trusted"):
        corrupt(missing, matrix)
