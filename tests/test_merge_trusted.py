# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`merge_trusted` on datasets and streams."""

from __future__ import annotations

import pickle

import pytest
from datasets import ClassLabel, DatasetDict, Value

from glc_hf import corrupt_labels, merge_trusted


@pytest.fixture
def parts(rows):
    rows = rows.remove_columns("trusted")
    return rows.select(range(30)), rows.select(range(30, 100))


def test_trusted_rows_come_first_and_carry_the_flag(rows, parts):
    merged = merge_trusted(*parts)
    assert merged["trusted"][:] == [True] * 30 + [False] * 70
    assert merged.remove_columns("trusted")[:] == rows.remove_columns("trusted").select(range(100))[:]
    assert merged.features["label"] == rows.features["label"]
    assert merge_trusted(*parts, trusted_column="gold")["gold"][:] == merged["trusted"][:]


def test_the_order_of_columns_and_rows_may_differ(parts, matrix):
    trusted, untrusted = parts
    turned = untrusted.select_columns(["number", "label", "text"]).shuffle(seed=0)
    merged = merge_trusted(trusted, turned)
    assert merged.column_names == ["text", "label", "number", "trusted"]
    assert merged["number"][:] == trusted["number"][:] + turned["number"][:]
    noisy = corrupt_labels(merged, matrix)
    for dataset in (noisy, pickle.loads(pickle.dumps(noisy))):
        assert dataset["label"][:30] == trusted["label"][:]
        assert dataset["clean_label"][30:] == turned["label"][:]
        assert dataset["text"][30:] == turned["text"][:]
    stream = merge_trusted(trusted.to_iterable_dataset(), turned.to_iterable_dataset())
    assert list(stream) == list(merged)


def test_repeated_rows_may_be_merged(parts):
    trusted, untrusted = parts
    merged = merge_trusted(trusted.select([0, 0, 0]), untrusted)
    assert merged["trusted"][:4] == [True, True, True, False]


def test_streams_are_merged_like_datasets(parts):
    expected = merge_trusted(*parts)
    merged = merge_trusted(*(part.to_iterable_dataset(num_shards=2) for part in parts))
    assert merged.features == expected.features
    assert list(merged) == list(expected)
    assert merged.num_shards == 4
    untyped = merge_trusted(*(part.to_iterable_dataset().map(lambda row: row) for part in parts))
    assert [row["trusted"] for row in untyped] == expected["trusted"][:]
    shuffled = merged.shuffle(seed=0, buffer_size=50)
    assert sorted(shuffled, key=lambda row: row["number"]) == sorted(expected, key=lambda row: row["number"])


@pytest.mark.parametrize("stream", [False, True])
def test_different_columns_raise_an_error_with_the_difference(parts, stream):
    trusted, untrusted = parts
    names = trusted.features["label"].names
    cases = {
        "'number' is in the trusted dataset only": untrusted.remove_columns("number"),
        "'extra' is in the untrusted dataset only": untrusted.add_column("extra", [0] * 70),
        "'number' is .*int64.* in the trusted and .*string": untrusted.cast_column("number", Value("string")),
        r"'label' has its class names in a different order: \['ant'.* and \['eel'": untrusted.cast_column(
            "label", ClassLabel(names=names[::-1])
        ),
        "'label' is ClassLabel": untrusted.cast_column("label", Value("int64")),
        "column 'trusted' already": untrusted.add_column("trusted", [True] * 70),
    }
    for message, other in cases.items():
        pair = (trusted, other) if not stream else (trusted.to_iterable_dataset(), other.to_iterable_dataset())
        with pytest.raises(ValueError, match=message):
            merge_trusted(*pair)


def test_other_types_are_refused(parts):
    trusted, untrusted = parts
    with pytest.raises(TypeError, match="single splits, not a DatasetDict"):
        merge_trusted(DatasetDict(train=trusted), DatasetDict(train=untrusted))
    with pytest.raises(TypeError, match="to_iterable_dataset"):
        merge_trusted(trusted, untrusted.to_iterable_dataset())
    with pytest.raises(TypeError, match="not list"):
        merge_trusted([], untrusted)
