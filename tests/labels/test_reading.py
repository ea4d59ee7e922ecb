# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, Features, Image, Value

from glc_hf.labels.columns import find_label_column
from glc_hf.labels.reading import read_flags, read_integers, read_labels


def test_labels_are_read_in_the_order_that_the_user_sees(rows, sentences):
    for dataset in (rows, rows.shuffle(seed=0), rows.select([5, 5, 1]), rows.select(range(100, 200))):
        column = read_labels(dataset, "label", 5)
        assert column.offsets is None
        assert column.values.tolist() == dataset["label"][:]
    for dataset in (sentences, sentences.shuffle(seed=0), sentences.select([5, 5, 1]), sentences.select(range(9, 99))):
        values, offsets = read_labels(dataset, "labels", 5)
        pieces = [values[start:stop].tolist() for start, stop in pairwise(offsets)]
        assert pieces == dataset["labels"][:]
        assert offsets.dtype == np.int64


def test_reading_looks_at_no_other_column_and_through_every_format():
    features = Features({"image": Image(), "label": Value("int64"), "trusted": Value("bool")})
    dataset = Dataset.from_dict(
        {"image": [{"bytes": b"no image", "path": None}] * 3, "label": [0, 1, 2], "trusted": [True, False, False]},
        features=features,
    )
    for view in (dataset, dataset.with_format("torch"), dataset.with_transform(lambda batch: {})):
        assert read_labels(view, "label", 3).values.tolist() == [0, 1, 2]
        assert read_flags(view, "trusted").values.tolist() == [True, False, False]


def test_flags_are_read_for_rows_and_for_tokens(rows, sentences):
    shuffled = rows.shuffle(seed=0)
    assert read_flags(shuffled, "trusted").values.tolist() == shuffled["trusted"][:]
    column = read_flags(sentences, "token_trusted")
    assert column.values.tolist() == [flag for flags in sentences["token_trusted"] for flag in flags]
    assert np.array_equal(column.offsets, read_labels(sentences, "labels", 5).offsets)


def test_bad_labels_are_named(sentences):
    dataset = Dataset.from_dict({"label": [0, 4, 1]})
    with pytest.raises(ValueError, match="label 4 .*row 1"):
        read_labels(dataset, "label", 3)
    assert read_labels(dataset, "label", None).values.tolist() == [0, 4, 1]
    with pytest.raises(ValueError, match="label -2 .*row 0, token 1"):
        read_labels(Dataset.from_dict({"label": [[-100, -2]]}), "label", None)
    with pytest.raises(ValueError, match=r"no value \(None\) in row 2"):
        read_labels(Dataset.from_dict({"label": [[1], [0], None]}), "label", None)
    with pytest.raises(ValueError, match=r"no value \(None\) in row 1, token 0"):
        read_integers(Dataset.from_dict({"label": [[1], [None], [2]]}), "label")
    with pytest.raises(ValueError, match="no column 'label'; the columns are labels"):
        read_labels(sentences, "label", 5)


def test_bad_flags_are_named_with_the_method_and_the_way_out(rows):
    with pytest.raises(ValueError, match="method 'glc' .*no column 'flag'.*mark_trusted"):
        read_flags(rows, "flag", method="glc")
    with pytest.raises(ValueError, match=r"'number' holds int64.*Value\(\"bool\"\).*mark_trusted"):
        read_flags(rows, "number")


def test_the_label_column_is_found_by_its_usual_names(rows):
    rows = rows.select(range(10))
    assert find_label_column(rows, None) == "label"
    assert find_label_column(rows.add_column("labels", rows["label"]), None) == "labels"
    assert find_label_column(rows.rename_column("label", "intent"), None) == "intent"
    assert find_label_column(rows, "number") == "number"
    assert find_label_column(rows.to_iterable_dataset(), None) == "label"
    with pytest.raises(ValueError, match="no label_column 'tag'"):
        find_label_column(rows, "tag")
    with pytest.raises(ValueError, match=r"label_column=.*Columns: text, number, trusted"):
        find_label_column(rows.remove_columns("label"), None)
    two = rows.rename_column("label", "fine").add_column("coarse", rows["label"], feature=ClassLabel(num_classes=5))
    with pytest.raises(ValueError, match=r"several columns hold classes \(fine, coarse\)"):
        find_label_column(two, None)
