# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Labels and flags read from Arrow, and the rule that finds the label column."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, Features, Image, Value

from glc_hf.labels.columns import find_label_column
from glc_hf.labels.reading import flags_of_row, read_flags, read_integers, read_labels


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


def test_reading_ignores_other_columns_and_formats():
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


def test_bad_labels_raise_an_error_with_row_and_value(sentences):
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


@pytest.mark.parametrize(
    "values",
    [[True, False], [1, 0], [1.0, 0.0], ["TRUE", "false"], ["t", "F"], ["Yes", "no"], ["y", "N"], [" 1", "0 "]],
    ids=str,
)
def test_flags_may_be_booleans_numbers_or_words(values):
    dataset = Dataset.from_dict({"trusted": values})
    assert read_flags(dataset, "trusted").values.tolist() == [True, False]
    assert read_flags(dataset.select([1, 0, 0]), "trusted").values.tolist() == [False, True, True]
    tokens = read_flags(Dataset.from_dict({"trusted": [[values[1]], [], values]}), "trusted")
    assert tokens.values.tolist() == [False, True, False]
    assert tokens.offsets.tolist() == [0, 1, 1, 3]
    assert [bool(flags_of_row(value, "trusted")) for value in values] == [True, False]
    assert flags_of_row(values, "trusted").tolist() == [True, False]
    assert flags_of_row(np.array(values), "trusted").tolist() == [True, False]


@pytest.mark.parametrize("values", [["yes", "maybe"], [1, 2], [0.0, 0.5], [True, None], ["no", ""], [1, -1]], ids=str)
def test_other_flags_raise_an_error_with_row_value_and_fix(values):
    bad = repr(values[1])
    with pytest.raises(ValueError, match=f"'trusted' has {bad} in row 1, .*true/false.*dataset.filter.*mark_trusted"):
        read_flags(Dataset.from_dict({"trusted": values}), "trusted")
    with pytest.raises(ValueError, match=f"'trusted' has {bad} in row 0, which"):
        read_flags(Dataset.from_dict({"trusted": values}).select([1, 0]), "trusted")
    with pytest.raises(ValueError, match=f"'trusted' has {bad} in row 2, token 1, "):
        read_flags(Dataset.from_dict({"trusted": [[values[0]], [], values]}), "trusted")
    with pytest.raises(ValueError, match=f"a row has {bad} in 'trusted'.*true/false.*mark_trusted"):
        flags_of_row(values[1], "trusted")
    with pytest.raises(ValueError, match="a row has .* in 'trusted'"):
        flags_of_row(values, "trusted")


def test_bad_flag_columns_raise_an_error_with_the_method_and_the_fix(rows):
    with pytest.raises(ValueError, match="method 'glc' .*no column 'flag'.*mark_trusted.*indices=.*were checked"):
        read_flags(rows, "flag", method="glc")
    with pytest.raises(ValueError, match="'number' has .* in row 0.*mark_trusted"):
        read_flags(rows, "number")
    with pytest.raises(ValueError, match=r"'trusted' has None in row 1"):
        read_flags(Dataset.from_dict({"trusted": [[True], None]}), "trusted")
    with pytest.raises(ValueError, match=r"'trusted' holds struct.*first row 0: \{'a': 1\}.*mark_trusted"):
        read_flags(Dataset.from_dict({"trusted": [{"a": 1}]}), "trusted")


def test_the_label_column_is_found_by_name_or_type(rows):
    rows = rows.select(range(10))
    assert find_label_column(rows, None) == "label"
    assert find_label_column(rows.add_column("labels", rows["label"]), None) == "labels"
    assert find_label_column(rows.rename_column("label", "intent"), None) == "intent"
    assert find_label_column(rows, "number") == "number"
    renamed = rows.rename_columns({"label": "topic", "number": "fine_label"})
    assert find_label_column(renamed, None) == "fine_label"  # names of datasets come before types
    assert find_label_column(rows.to_iterable_dataset(), None) == "label"
    with pytest.raises(ValueError, match="no label_column 'tag'"):
        find_label_column(rows, "tag")
    with pytest.raises(ValueError, match=r"name label_column, or .*Columns: text, number, trusted"):
        find_label_column(rows.remove_columns("label"), None)
    with pytest.raises(ValueError, match=r"several .* labels \(class, target\): name label_column\."):
        find_label_column(rows.rename_columns({"label": "class", "number": "target"}), None)
    two = rows.rename_column("label", "fine").add_column("coarse", rows["label"], feature=ClassLabel(num_classes=5))
    with pytest.raises(ValueError, match=r"several columns hold classes \(fine, coarse\)"):
        find_label_column(two, None)
