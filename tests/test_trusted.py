# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`mark_trusted` on datasets and splits."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from datasets import Dataset, DatasetDict, LargeList, List, Value
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from glc_hf import align_flags, corrupt_labels, mark_trusted
from glc_hf.randomness import random_uint64
from glc_hf.trusted import quotas


@pytest.fixture
def unmarked(rows):
    return rows.remove_columns("trusted")


def flags_of(dataset) -> np.ndarray:
    return np.array(dataset["trusted"])


@pytest.mark.parametrize(("fraction", "number"), [(0, 0), (1e-9, 1), (0.1, 200), (0.12345, 247), (1, 2000)])
def test_a_fraction_is_exact(unmarked, fraction, number):
    marked = mark_trusted(unmarked, fraction=fraction)
    assert marked.features["trusted"] == Value("bool")
    assert flags_of(marked).sum() == number


def test_the_rows_with_the_smallest_words_are_drawn(unmarked):
    words = random_uint64("trusted", 4, np.arange(2000))
    assert np.array_equal(flags_of(mark_trusted(unmarked, count=30, seed=4)), words <= np.sort(words)[29])


def test_a_larger_draw_contains_the_smaller_one_and_seeds_differ(unmarked):
    small, large = (flags_of(mark_trusted(unmarked, count=count)) for count in (50, 500))
    assert (large[small]).all()
    assert not np.array_equal(small, flags_of(mark_trusted(unmarked, count=50, seed=1)))


def test_the_draw_depends_on_position_or_index_column(unmarked):
    shuffled = unmarked.shuffle(seed=0)
    assert np.array_equal(flags_of(mark_trusted(shuffled, count=99)), flags_of(mark_trusted(unmarked, count=99)))

    def numbers(dataset) -> set[int]:
        marked = mark_trusted(dataset, count=99, index_column="number")
        return {number for number, flag in zip(marked["number"], marked["trusted"], strict=True) if flag}

    assert numbers(shuffled) == numbers(unmarked)


def test_repeated_rows_are_drawn_separately(unmarked):
    assert flags_of(mark_trusted(unmarked.select([3] * 50), count=7)).sum() == 7


def test_indices_are_positions_or_values_of_the_index_column(unmarked):
    shuffled = unmarked.shuffle(seed=0)
    assert np.flatnonzero(flags_of(mark_trusted(shuffled, indices=[5, 0, 5]))).tolist() == [0, 5]
    numbers = shuffled["number"][:]
    marked = mark_trusted(shuffled, indices=np.array(numbers[10:12]), index_column="number")
    assert np.flatnonzero(flags_of(marked)).tolist() == [10, 11]
    assert not flags_of(mark_trusted(unmarked, indices=[])).any()


# ---------------------------------------------------------------------- per class
def test_stratified_draws_are_in_proportion(unmarked):
    marked = mark_trusted(unmarked, fraction=0.1, stratify=True)
    labels, flags = np.array(marked["label"]), flags_of(marked)
    assert flags.sum() == 200
    for label in range(5):
        assert abs(flags[labels == label].sum() - 0.1 * (labels == label).sum()) < 1
        words = random_uint64("trusted", 0, np.flatnonzero(labels == label))
        chosen = flags[labels == label]
        assert words[chosen].max() < words[~chosen].min()


def test_a_rare_class_gets_one_row_if_enough_rows_are_drawn():
    dataset = Dataset.from_dict({"label": [0] * 990 + [7] * 9 + [3]})
    flags = flags_of(mark_trusted(dataset, count=3, stratify=True))
    assert [flags[:990].sum(), flags[990:999].sum(), flags[999:].sum()] == [1, 1, 1]
    flags = flags_of(mark_trusted(dataset, count=2, stratify=True))
    assert flags[:990].sum() == 2


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=20), st.floats(0, 1))
def test_quotas_add_up_and_do_not_exceed_class_sizes(sizes, fraction):
    sizes = np.array(sizes)
    number = round(fraction * sizes.sum())
    shares = quotas(sizes, number)
    assert shares.sum() == number
    assert (shares >= 0).all()
    assert (shares <= sizes).all()
    if number >= len(sizes):
        assert (shares >= 1).all()
    if (number * sizes >= sizes.sum()).all() or number < len(sizes):
        assert (np.abs(shares - number * sizes / sizes.sum()) < 1).all()


# ---------------------------------------------------------------------- tokens
def test_the_number_of_drawn_tokens_is_exact_and_ignored_tokens_are_never_drawn(sentences):
    dataset = sentences.remove_columns("trusted")
    for source in (dataset, dataset.shuffle(seed=0), dataset.select(range(50, 150))):
        labels = [label for row in source["labels"] for label in row]
        marked = mark_trusted(source, fraction=0.25, level="token", label_column="labels")
        assert marked.features["trusted"] == List(Value("bool"))
        assert [len(flags) for flags in marked["trusted"]] == [len(row) for row in source["labels"]]
        flags = np.array([flag for row in marked["trusted"] for flag in row])
        assert flags.sum() == round(0.25 * sum(label != -100 for label in labels))
        assert not flags[np.array(labels) == -100].any()
        assert marked["labels"][:] == source["labels"][:]


def test_token_flags_are_the_same_for_any_chunk_size(sentences, monkeypatch):
    dataset = sentences.remove_columns("trusted").shuffle(seed=0)
    whole = mark_trusted(dataset, fraction=0.25, level="token", label_column="labels")
    monkeypatch.setattr("glc_hf.labels.storage.CHUNK_SIZE", 50)
    assert mark_trusted(dataset, fraction=0.25, level="token", label_column="labels")[:] == whole[:]


def test_trusted_tokens_keep_their_labels(sentences, matrix):
    marked = mark_trusted(sentences.remove_columns("trusted"), fraction=0.5, level="token", label_column="labels")
    for row in corrupt_labels(marked, matrix, label_column="labels"):
        for new, old, flag in zip(row["labels"], row["clean_label"], row["trusted"], strict=True):
            assert new == old or not flag


def test_tokens_can_be_drawn_per_class(sentences):
    dataset = sentences.remove_columns("trusted")
    marked = mark_trusted(dataset, fraction=0.2, level="token", label_column="labels", stratify=True)
    labels = np.array([label for row in marked["labels"] for label in row])
    flags = np.array([flag for row in marked["trusted"] for flag in row])
    for label in range(5):
        assert abs(flags[labels == label].sum() - 0.2 * (labels == label).sum()) < 1


def test_token_flags_have_the_list_type_of_the_labels():
    for feature, expected in (
        (LargeList(Value("int64")), LargeList(Value("bool"))),
        (List(Value("int64"), 2), List(Value("bool"), 2)),
    ):
        dataset = Dataset.from_dict({"label": [[0, 1], [2, 3]]}).cast_column("label", feature)
        marked = mark_trusted(dataset, count=4, level="token")
        assert marked.features["trusted"] == expected
        assert marked["trusted"][:] == [[True, True], [True, True]]


def test_rows_with_lists_are_marked_as_rows_by_default(sentences):
    marked = mark_trusted(sentences.remove_columns("trusted"), count=10)
    assert flags_of(marked).sum() == 10


# ---------------------------------------------------------------------- splits
def test_the_train_split_of_a_dataset_dict_is_marked(unmarked):
    splits = DatasetDict(train=unmarked, test=unmarked)
    marked = mark_trusted(splits, count=3)
    assert flags_of(marked["train"]).sum() == 3
    assert marked["test"] is splits["test"]


def test_all_splits_are_marked_if_there_is_no_train_split(unmarked):
    splits = DatasetDict(a=unmarked, b=unmarked.select(range(100)))
    assert {name: flags_of(split).sum() for name, split in mark_trusted(splits, fraction=0.1).items()} == {
        "a": 200,
        "b": 10,
    }
    with pytest.raises(ValueError, match="rows of one split, but there are a, b"):
        mark_trusted(splits, indices=[0])


# ---------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "exactly one of fraction=, count= and indices="),
        ({"fraction": 0.1, "count": 3}, "exactly one of fraction=, count= and indices="),
        ({"fraction": 1.5}, r"fraction must lie in \[0, 1\], got 1.5 .*count="),
        ({"fraction": float("nan")}, r"fraction must lie in \[0, 1\]"),
        ({"count": -1}, "count must be a whole number"),
        ({"count": 2.5}, "count must be a whole number"),
        ({"count": 2001}, "count=2001 is more than the 2000 rows"),
        ({"indices": [0, 2000]}, "indices= names 2000, .*rows are 0…1999"),
        ({"indices": [-1]}, "indices= names -1"),
        ({"indices": [1], "index_column": "number"}, "indices= names 1, which is not in column 'number'"),
        ({"indices": [True, False]}, "flatnonzero"),
        ({"indices": [0.5]}, "list of integers"),
        ({"indices": [0], "stratify": True}, "stratify=True"),
        ({"indices": [0], "level": "token"}, "indices= names rows"),
        ({"fraction": 0.1, "level": "tokens"}, "level must be"),
        ({"fraction": 0.1, "level": "token"}, r'level="token" draws from lists .*ClassLabel'),
        ({"fraction": 0.1, "stratify": True, "label_column": "text"}, "'text' holds string"),
        ({"fraction": 0.1, "index_column": "id"}, "no index_column 'id'"),
        ({"fraction": 0.1, "trusted_column": "number"}, "column 'number' already"),
    ],
)
def test_bad_arguments_raise_an_error(unmarked, options, message):
    with pytest.raises(ValueError, match=message):
        mark_trusted(unmarked, **options)


def test_stratify_by_row_is_refused_for_lists(sentences):
    with pytest.raises(ValueError, match="'labels' holds lists"):
        mark_trusted(sentences.remove_columns("trusted"), fraction=0.1, stratify=True, label_column="labels")


def test_marking_corrupted_labels_is_warned_about(unmarked, matrix):
    noisy = corrupt_labels(unmarked, matrix, trusted_column=None)
    with pytest.warns(UserWarning, match="Mark first, then corrupt"):
        mark_trusted(noisy, fraction=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mark_trusted(unmarked, fraction=0.1)


# ---------------------------------------------------------------------- flags of words and of tokens
@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    """Splits words into letters, between two special tokens."""
    vocabulary = {token: number for number, token in enumerate(("[U]", "[C]", "a", "b", "##a", "##b"))}
    inner = Tokenizer(models.WordPiece(vocabulary, unk_token="[U]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(single="[C] $A [C]", special_tokens=[("[C]", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="[U]", pad_token="[U]")


@given(
    rows=st.lists(
        st.lists(st.tuples(st.text("ab", min_size=1, max_size=4), st.booleans()), min_size=1, max_size=5),
        min_size=1,
        max_size=4,
    ),
    max_length=st.integers(3, 12),
)
@settings(max_examples=40, deadline=None)
def test_tokens_get_the_flags_of_their_words(tokenizer, rows, max_length):
    batch = {"tokens": [[word for word, _ in row] for row in rows], "trusted": [[f for _, f in row] for row in rows]}
    encoded = tokenizer(batch["tokens"], is_split_into_words=True, truncation=True, max_length=max_length)
    letters = [[flag for word, flag in row for _ in word][: max_length - 2] for row in rows]
    expected = [[False, *flags, False] for flags in letters]
    assert align_flags(batch, encoded) == expected
    assert [len(flags) for flags in expected] == [len(ids) for ids in encoded["input_ids"]]
    one = tokenizer(batch["tokens"][0], is_split_into_words=True, truncation=True, max_length=max_length)
    assert align_flags({"trusted": batch["trusted"][0]}, one) == expected[0]


def test_flags_of_rows_and_missing_flags_stay_and_wrong_ones_raise(tokenizer):
    encoded = tokenizer([["ab", "a"], ["b"]], is_split_into_words=True)
    assert align_flags({"trusted": [True, "no"]}, encoded) == [True, "no"]
    assert align_flags({"reviewed": [["yes", 0], None]}, encoded, "reviewed") == [
        [False, True, True, False, False],
        None,
    ]
    assert align_flags({}, encoded) == [None, None]
    with pytest.raises(ValueError, match="row 0 of the batch has 1 flags in 'trusted' for at least 2 words"):
        align_flags({"trusted": [[True], [True]]}, encoded)
    with pytest.raises(ValueError, match="'maybe'"):
        align_flags({"trusted": [["maybe", "no"], [True]]}, encoded)
