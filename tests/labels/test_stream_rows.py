# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Values that a stream may hold, and errors for those that it may not."""

from __future__ import annotations

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, Features, Image, IterableDataset, List, Value

from glc_hf import corrupt_labels, mark_trusted
from tests.labels.streamed import arrow, python


def test_nothing_is_decoded(matrix):
    pictures = Dataset.from_dict(
        {"image": [{"bytes": b"no image", "path": None}] * 20, "label": list(range(5)) * 4},
        features=Features({"image": Image(), "label": ClassLabel(num_classes=5)}),
    )

    def generate():
        yield from ({"image": {"bytes": b"no image", "path": None}, "label": i % 5} for i in range(20))

    for stream in (arrow(pictures), IterableDataset.from_generator(generate, features=pictures.features)):
        noisy = corrupt_labels(mark_trusted(stream, fraction=0.1), matrix)
        assert noisy.features["image"] == Image()
        read = list(noisy.cast_column("image", Image(decode=False)))
        assert [row["image"]["bytes"] for row in read] == [b"no image"] * 20
        with pytest.raises(Exception, match="cannot identify image"):
            next(iter(noisy))


def test_class_names_in_a_generator_are_understood(matrix):
    features = Features({"label": ClassLabel(names=["ant", "bee", "cat", "dog", "eel"]), "id": Value("int32")})

    def generate():
        yield from ({"label": ["cat", "eel", "ant"][i % 3], "id": i} for i in range(100))

    stream = IterableDataset.from_generator(generate, features=features)
    whole = Dataset.from_list(list(generate()), features=features)
    for options in ({}, {"index_column": "id"}):
        noisy = corrupt_labels(stream, matrix, trusted_column=None, **options)
        assert list(noisy) == list(corrupt_labels(whole, matrix, trusted_column=None, **options))


def test_numpy_and_tensors_in_a_generator_are_understood(matrix):
    import torch

    def generate():
        yield from ({"label": np.int64(i % 5), "trusted": np.bool_(i < 3), "id": torch.tensor(i)} for i in range(40))

    noisy = list(corrupt_labels(IterableDataset.from_generator(generate), matrix, index_column="id"))
    whole = Dataset.from_dict({"label": [i % 5 for i in range(40)], "trusted": [i < 3 for i in range(40)]})
    assert [row["label"] for row in noisy] == corrupt_labels(whole, matrix)["label"][:]


@pytest.mark.parametrize("stream", [arrow, python])
@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("label", [0, 1, 9, 1], "label 9 .*row 2"),
        ("label", [0, None, 2, 1], r"'label' has no value \(None\) in row 1"),
        ("label", [0.5, 1.0, 2.0, 1.0], "'label' holds double"),
        ("label", ["a", "b", "c", "d"], "'label' holds string"),
        ("trusted", [1, 0, 2, 1], "'trusted' has 2 in row 2.*mark_trusted"),
        ("trusted", ["yes", "maybe", "no", "no"], "'trusted' has 'maybe' in row 1.*mark_trusted"),
        ("trusted", [1.0, 0.0, 0.0, 0.5], "'trusted' has 0.5 in row 3.*mark_trusted"),
        ("trusted", [True, None, True, True], "'trusted' has None in row 1.*mark_trusted"),
        ("id", [1, 2, None, 3], r"'id' has no value \(None\) in row 2"),
        ("id", [[1], [2], [3], [4]], "index_column 'id' holds lists"),
        ("id", [0.5, 1.5, 2.5, 3.5], "'id' holds double"),
    ],
)
def test_bad_rows_of_a_stream_raise_an_error_with_the_row(matrix, stream, column, values, message):
    columns = {"label": [0, 1, 2, 3], "trusted": [True, False, False, False], "id": [1, 2, 3, 4]} | {column: values}
    source = stream(Dataset.from_dict(columns), 1)
    with pytest.raises(ValueError, match=message):
        list(corrupt_labels(source, matrix, index_column="id" if column == "id" else None))


@pytest.mark.parametrize("stream", [arrow, python])
@pytest.mark.parametrize("flags", [[1, 0, 0, 1], [1.0, 0.0, 0.0, 1.0], ["Yes", "no", "N", "true"]], ids=str)
def test_flags_of_a_stream_may_be_numbers_or_words(matrix, stream, flags):
    columns = {"label": [0, 1, 2, 3], "trusted": [True, False, False, True]}
    expected = corrupt_labels(Dataset.from_dict(columns), matrix)["label"][:]
    noisy = corrupt_labels(stream(Dataset.from_dict({**columns, "trusted": flags}), 1), matrix)
    assert [row["label"] for row in noisy] == expected


def test_bad_rows_late_in_a_stream_are_named_by_their_position(matrix):
    dataset = Dataset.from_dict({"label": [0] * 2500 + [7], "id": list(range(3000, 5501))})
    for stream in (arrow, python):
        with pytest.raises(ValueError, match="label 7 .*row 2500,"):
            list(corrupt_labels(stream(dataset), matrix, trusted_column=None))
        with pytest.raises(ValueError, match="label 7 .*the row with id=5500,"):
            list(corrupt_labels(stream(dataset), matrix, trusted_column=None, index_column="id"))


def test_classes_out_of_range_are_named_if_features_are_known(matrix):
    numbers = arrow(Dataset.from_dict({"label": [0, 1, 9, 3]}), 1)
    with pytest.raises(ValueError, match="label 9 .*row 2,"):
        list(corrupt_labels(numbers.cast_column("label", ClassLabel(num_classes=5)), matrix, trusted_column=None))
    tokens = arrow(Dataset.from_dict({"label": [[0, -100], [-100, 1]]}), 1)
    tags = tokens.cast_column("label", List(ClassLabel(num_classes=5)))
    assert [row["label"].count(-100) for row in corrupt_labels(tags, matrix, trusted_column=None)] == [1, 1]


def test_mixed_values_of_a_stream_raise_an_error_with_the_row(matrix):
    def generate():
        yield from ({"label": value} for value in [0, 1, "cat"])

    with pytest.raises(ValueError, match="row 2 has 'cat'"):
        list(corrupt_labels(IterableDataset.from_generator(generate), matrix, trusted_column=None))


def test_errors_known_in_advance_are_raised_before_the_first_row(rows, matrix):
    source = arrow(rows)
    with pytest.raises(ValueError, match="'flag'.*mark_trusted"):
        corrupt_labels(source, matrix, trusted_column="flag")
    with pytest.raises(ValueError, match="no label_column 'tag'"):
        corrupt_labels(source, matrix, label_column="tag")
    with pytest.raises(ValueError, match="no index_column 'id'"):
        corrupt_labels(source, matrix, index_column="id")
    with pytest.raises(ValueError, match="the corruption matrix has 3 classes, column 'label' has 5"):
        corrupt_labels(source, np.eye(3))
    with pytest.raises(ValueError, match="'label' holds|classes are integers"):
        corrupt_labels(source.cast_column("label", Value("string")), matrix)
    with pytest.raises(ValueError, match="'clean_label' already"):
        corrupt_labels(corrupt_labels(source, matrix), matrix)
    with pytest.raises(ValueError, match="'flag'.*mark_trusted"):
        next(iter(corrupt_labels(python(rows), matrix, trusted_column="flag")))
