# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Noise in streams, in any order and with any reader.

Streams of `to_iterable_dataset` give Arrow tables; after `map` they give Python objects, which is another code path.
"""

from __future__ import annotations

import inspect
import pickle
import warnings

import pytest
from datasets import (
    Dataset,
    Value,
    concatenate_datasets,
    interleave_datasets,
)
from datasets.distributed import split_dataset_by_node
from torch.utils.data import DataLoader

from glc_hf import corrupt_labels, mark_trusted
from tests.labels.streamed import arrow, python, same, typed


STREAMS = pytest.mark.parametrize("stream", [arrow, python, typed])


@pytest.fixture
def rows(rows, monkeypatch) -> Dataset:
    """600 rows, so that they are read in many tables, some shorter than the others."""
    monkeypatch.setattr("datasets.config.DEFAULT_MAX_BATCH_SIZE", 64)
    return rows.select(range(600))


@pytest.fixture
def expected(rows, matrix) -> dict[int, dict]:
    """Each row as in a `Dataset` indexed by positions, by its number."""
    return {row["number"]: row for row in corrupt_labels(rows, matrix)}


def assert_same(read: list[dict], expected: dict[int, dict], number: int | None = None) -> None:
    """Check that each row is as expected, that none is repeated, and that all (or `number`) are there."""
    assert len(read) == (len(expected) if number is None else number)
    assert len({row["number"] for row in read}) == len(read)
    for row in read:
        assert row == expected[row["number"]]


# ---------------------------------------------------------------------- without an index column
@STREAMS
@pytest.mark.parametrize("num_shards", [1, 4])
def test_a_stream_read_in_order_has_the_noise_of_the_dataset(rows, matrix, expected, stream, num_shards):
    noisy = corrupt_labels(stream(rows, num_shards), matrix)
    assert list(noisy) == list(expected.values())
    assert list(noisy) == list(expected.values()), "the second reading differs"


def test_features_are_kept_where_they_are_known(rows, matrix):
    noisy = corrupt_labels(arrow(rows), matrix)
    assert noisy.features == corrupt_labels(rows, matrix).features
    assert corrupt_labels(typed(rows), matrix).features == noisy.features
    assert corrupt_labels(python(rows), matrix).features is None
    assert noisy.column_names == ["text", "label", "number", "trusted", "clean_label"]


@STREAMS
def test_shuffling_a_stream_afterwards_keeps_its_noise(rows, matrix, expected, stream):
    noisy = corrupt_labels(stream(rows), matrix)
    with pytest.warns(UserWarning, match="4 shards of this stream keep their order.*index_column="):
        shuffled = noisy.shuffle(seed=0, buffer_size=100)
    read = list(shuffled)
    assert read != list(expected.values())
    assert_same(read, expected)


def test_one_shard_is_shuffled_without_a_warning(rows, matrix, expected):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(list(corrupt_labels(arrow(rows, 1), matrix).shuffle(seed=0)), expected)


@STREAMS
@pytest.mark.filterwarnings("ignore:the 4 shards of this stream keep their order")
def test_noise_is_the_same_in_every_epoch(rows, matrix, expected, stream):
    """`datasets` shuffles shards from the second epoch on, even if the stream was never shuffled."""
    noisy = corrupt_labels(stream(rows), matrix)
    for epoch in range(3):
        noisy.set_epoch(epoch)
        assert list(noisy) == list(expected.values())
    shuffled = noisy.shuffle(seed=0, buffer_size=100)
    for epoch in range(2):
        shuffled.set_epoch(epoch)
        assert_same(list(shuffled), expected)


@STREAMS
def test_workers_do_not_change_the_noise(rows, matrix, expected, stream):
    noisy = corrupt_labels(stream(rows), matrix)
    assert_same(list(DataLoader(noisy, batch_size=None, num_workers=2)), expected)


@STREAMS
@pytest.mark.parametrize("before", [True, False])
def test_nodes_do_not_change_the_noise(rows, matrix, expected, stream, before):
    read = []
    for rank in range(2):
        source = stream(rows)
        if before:
            noisy = corrupt_labels(split_dataset_by_node(source, rank, 2), matrix)
        else:
            noisy = split_dataset_by_node(corrupt_labels(source, matrix), rank, 2)
        read.append(list(noisy))
    assert len(read[0]) == len(read[1]) == 300
    assert_same(read[0] + read[1], expected)


def test_a_stream_indexed_by_position_can_not_be_sharded(rows, matrix):
    noisy = corrupt_labels(arrow(rows), matrix)
    with pytest.raises(ValueError, match="can't be split into 2 shards.*index_column="):
        noisy.shard(2, 1)
    with pytest.warns(UserWarning, match="one of 2 readers reads this whole stream"):
        noisy.shard(2, 0)
    if "strategy" in inspect.signature(split_dataset_by_node).parameters:  # of datasets 5.1 and later
        with pytest.raises(ValueError, match="num_shards=1"):
            split_dataset_by_node(noisy, 0, 2, strategy="shards")
    assert noisy.reshard().num_shards == 1


def test_a_stream_that_was_shuffled_before_is_refused(rows, matrix):
    shuffled = arrow(rows).shuffle(seed=0)
    mixed = interleave_datasets([arrow(rows), arrow(rows)], probabilities=[0.5, 0.5], seed=0)
    for stream in (
        shuffled,
        shuffled.map(same),
        shuffled.take(5),
        concatenate_datasets([arrow(rows), shuffled]),
        mixed,
    ):
        with pytest.raises(ValueError, match="was shuffled.*index_column="):
            corrupt_labels(stream, matrix)
        with pytest.raises(ValueError, match="was shuffled.*index_column="):
            mark_trusted(stream, fraction=0.1, trusted_column="mine")


@STREAMS
def test_skip_and_take_afterwards_keep_the_noise_of_each_row(rows, matrix, expected, stream):
    noisy = corrupt_labels(stream(rows), matrix)
    assert list(noisy.skip(150).take(300)) == list(expected.values())[150:450]
    assert list(noisy.filter(lambda row: row["label"] == 2)) == [r for r in expected.values() if r["label"] == 2]


@STREAMS
def test_positions_are_counted_after_skip(rows, matrix, stream):
    skipped = corrupt_labels(stream(rows).skip(170), matrix)
    assert list(skipped) == list(corrupt_labels(rows.skip(170), matrix))


@STREAMS
@pytest.mark.parametrize("stop", [1, 31, 32, 33, 64, 65, 199, 200, 201, 599, 600])
def test_a_resumed_stream_continues_with_the_right_rows(rows, matrix, expected, stream, stop):
    noisy = corrupt_labels(stream(rows, 3), matrix)
    for number, _ in enumerate(noisy, start=1):
        if number == stop:
            break
    state = pickle.loads(pickle.dumps(noisy.state_dict()))
    resumed = corrupt_labels(stream(rows, 3), matrix)
    resumed.load_state_dict(state)
    assert list(resumed) == list(expected.values())[stop:]


@STREAMS
def test_a_stream_resumed_twice_continues_with_the_right_rows(rows, matrix, expected, stream):
    state, read = None, []
    while len(read) < 600:
        marked = mark_trusted(stream(rows, 3), indices=[], trusted_column="mine")
        noisy = corrupt_labels(marked, matrix).remove_columns("mine")
        if state is not None:
            noisy.load_state_dict(state)
        for _, row in zip(range(130), noisy, strict=False):
            read.append(row)
            state = noisy.state_dict()
    assert read == list(expected.values())


def test_batches_have_the_same_rows(rows, matrix, expected):
    noisy = corrupt_labels(arrow(rows), matrix)
    labels = [label for batch in noisy.iter(batch_size=77) for label in batch["label"]]
    assert labels == [row["label"] for row in expected.values()]
    tensors = [row["label"] for row in noisy.with_format("torch")]
    assert [int(label) for label in tensors] == labels
    table = noisy.with_format("arrow")
    assert [label for batch in table.iter(batch_size=100) for label in batch["label"].to_pylist()] == labels


# ---------------------------------------------------------------------- with an index column
@pytest.fixture
def numbered(rows, matrix) -> dict[int, dict]:
    """Each row as in a `Dataset` indexed by its number."""
    return {row["number"]: row for row in corrupt_labels(rows, matrix, index_column="number")}


@STREAMS
def test_with_an_index_column_noise_is_the_same_in_every_order(rows, matrix, numbered, stream):
    source = stream(rows)
    noisy = corrupt_labels(source, matrix, index_column="number")
    assert noisy.num_shards == 4
    assert list(noisy) == list(numbered.values())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        after = list(noisy.shuffle(seed=0, buffer_size=100))
    before = list(corrupt_labels(source.shuffle(seed=1, buffer_size=100), matrix, index_column="number"))
    for read in (after, before):
        assert [row["number"] for row in read] != list(numbered)
        assert_same(read, numbered)


@STREAMS
def test_with_an_index_column_each_reader_may_read_a_part(rows, matrix, numbered, stream):
    noisy = corrupt_labels(stream(rows), matrix, index_column="number")
    assert_same(list(DataLoader(noisy, batch_size=None, num_workers=2)), numbered)
    assert_same([row for rank in range(2) for row in split_dataset_by_node(noisy, rank, 2)], numbered)
    assert_same([row for rank in range(3) for row in split_dataset_by_node(noisy, rank, 3)], numbered)
    assert_same([row for index in range(2) for row in noisy.shard(2, index)], numbered)
    noisy.set_epoch(3)
    assert_same(list(noisy), numbered)


@STREAMS
def test_an_indexed_stream_can_be_resumed(rows, matrix, numbered, stream):
    noisy = corrupt_labels(stream(rows), matrix, index_column="number")
    for number, _ in enumerate(noisy, start=1):
        if number == 377:
            break
    resumed = corrupt_labels(stream(rows), matrix, index_column="number")
    resumed.load_state_dict(noisy.state_dict())
    assert list(resumed) == list(numbered.values())[377:]


# ---------------------------------------------------------------------- flags
@STREAMS
def test_flags_of_a_stream_are_drawn_independently(rows, stream):
    source = stream(rows.remove_columns("trusted"))
    marked = mark_trusted(source, fraction=0.1)
    flags = [row["trusted"] for row in marked]
    assert 30 < sum(flags) < 90
    all_rows, no_rows = (mark_trusted(source, fraction=fraction) for fraction in (1.0, 0.0))
    assert all(row["trusted"] for row in all_rows)
    assert not any(row["trusted"] for row in no_rows)
    if marked.features is not None:
        assert marked.features["trusted"] == Value("bool")
    # The rows with the smallest words, as in a dataset.
    exact = mark_trusted(rows.remove_columns("trusted"), count=sum(flags))
    assert flags == exact["trusted"][:]


@STREAMS
def test_indices_mark_rows_of_a_stream(rows, stream):
    source = stream(rows.remove_columns("trusted"))
    assert [i for i, row in enumerate(mark_trusted(source, indices=[3, 500])) if row["trusted"]] == [3, 500]
    number = rows[42]["number"]
    marked = mark_trusted(source.shuffle(seed=0), indices=[number], index_column="number")
    assert [row["number"] for row in marked if row["trusted"]] == [number]


def test_options_that_need_all_rows_are_refused_for_streams(rows):
    source = arrow(rows.remove_columns("trusted"))
    with pytest.raises(ValueError, match="count=5 needs to know all rows.*fraction="):
        mark_trusted(source, count=5)
    with pytest.raises(ValueError, match="stratify=True needs to know all rows"):
        mark_trusted(source, fraction=0.1, stratify=True)


@STREAMS
def test_token_noise_of_a_stream_equals_that_of_a_dataset(sentences, matrix, stream):
    names = {"label_column": "labels"}
    for options in ({}, {"trusted_column": "token_trusted"}, {"index_column": "number"}):
        noisy = corrupt_labels(stream(sentences), matrix, **names, **options)
        assert list(noisy) == list(corrupt_labels(sentences, matrix, **names, **options))
    marked = mark_trusted(stream(sentences.remove_columns("trusted")), fraction=0.3, level="token", **names)
    flags = [row["trusted"] for row in marked]
    number = sum(flag for row in flags for flag in row)
    exact = mark_trusted(sentences.remove_columns("trusted"), count=number, level="token", **names)
    assert flags == exact["trusted"][:]


def test_a_stream_with_noise_can_be_pickled_and_concatenated(rows, matrix, expected):
    noisy = corrupt_labels(arrow(rows), matrix)
    assert list(pickle.loads(pickle.dumps(noisy))) == list(expected.values())
    twice = concatenate_datasets([noisy, noisy])
    assert list(twice) == 2 * list(expected.values())
    assert_same(list(twice.shuffle(seed=0).take(10)), expected, 10)
