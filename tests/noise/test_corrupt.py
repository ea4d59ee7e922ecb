# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`corrupt_labels` on datasets and splits with one label per row."""

from __future__ import annotations

import numpy as np
import pytest
from datasets import (
    ClassLabel,
    Dataset,
    DatasetDict,
    Features,
    IterableDatasetDict,
    Value,
    concatenate_datasets,
    load_from_disk,
)

from glc_hf import CorruptionMatrix, corrupt_labels, mark_trusted
from glc_hf.labels import storage


def labels_of(dataset, column: str = "label") -> list[int]:
    return dataset[column][:] if isinstance(dataset, Dataset) else [row[column] for row in dataset]


def by_number(dataset) -> dict[int, int]:
    return dict(zip(dataset["number"], dataset["label"], strict=True))


def test_trusted_rows_keep_their_labels_and_untrusted_rows_get_noise(rows, matrix):
    noisy = corrupt_labels(rows, matrix)
    trusted, before, after = (np.array(noisy[name]) for name in ("trusted", "clean_label", "label"))
    assert np.array_equal(before, rows["label"])
    assert np.array_equal(after[trusted], before[trusted])
    expected = 1 - np.diag(matrix.probs)[before[~trusted]].mean()
    assert (after != before)[~trusted].mean() == pytest.approx(expected, abs=0.04)


def test_classes_keep_their_names_and_columns_their_order(rows, matrix):
    noisy = corrupt_labels(rows, matrix)
    assert noisy.column_names == ["text", "label", "number", "trusted", "clean_label"]
    assert noisy.features["label"] == noisy.features["clean_label"] == rows.features["label"]
    assert noisy.remove_columns(["label", "clean_label"])[:] == rows.remove_columns("label")[:]


def test_a_draw_depends_only_on_the_row(rows, matrix):
    """Flags and labels of other rows and the number of rows do not change a row's noise."""
    everywhere = labels_of(corrupt_labels(rows, matrix, trusted_column=None))
    flagged = labels_of(corrupt_labels(rows, matrix))
    assert [e for e, t in zip(everywhere, rows["trusted"], strict=True) if not t] == [
        f for f, t in zip(flagged, rows["trusted"], strict=True) if not t
    ]
    assert labels_of(corrupt_labels(rows.select(range(500)), matrix)) == flagged[:500]


def test_different_seeds_give_different_noise(rows, matrix):
    first, second = (labels_of(corrupt_labels(rows, matrix, seed=seed)) for seed in (0, 1))
    assert first != second
    assert first == labels_of(corrupt_labels(rows, matrix, seed=0))


@pytest.mark.parametrize("flag", [True, False])
def test_all_rows_or_none_may_be_trusted(rows, matrix, flag):
    rows = rows.remove_columns("trusted").add_column("trusted", [flag] * len(rows))
    assert (labels_of(corrupt_labels(rows, matrix)) == labels_of(rows)) is flag


# ---------------------------------------------------------------------- noise does not depend on storage
@pytest.mark.parametrize("size", [1, 7, 1999, 2000, 10**6])
def test_noise_is_the_same_for_any_chunk_size(rows, matrix, monkeypatch, size):
    expected = labels_of(corrupt_labels(rows, matrix))
    shuffled = labels_of(corrupt_labels(rows.shuffle(seed=0), matrix))
    monkeypatch.setattr(storage, "CHUNK_SIZE", size)
    assert labels_of(corrupt_labels(rows, matrix)) == expected
    assert labels_of(corrupt_labels(rows.shuffle(seed=0), matrix)) == shuffled


@pytest.mark.parametrize("num_shards", [1, 3])
def test_noise_is_the_same_in_memory_and_on_disk(rows, matrix, tmp_path, num_shards):
    rows.save_to_disk(tmp_path / "rows", num_shards=num_shards)
    stored = corrupt_labels(load_from_disk(tmp_path / "rows"), matrix)
    assert stored[:] == corrupt_labels(rows, matrix)[:]


def test_noise_is_the_same_in_a_concatenated_dataset(rows, matrix):
    pieces = concatenate_datasets([rows.select(range(700)), rows.select(range(700, 2000))])
    assert corrupt_labels(pieces, matrix)[:] == corrupt_labels(rows, matrix)[:]


def test_a_shuffled_dataset_is_indexed_by_the_positions_that_the_user_sees(rows, matrix):
    shuffled = rows.shuffle(seed=0)
    assert corrupt_labels(shuffled, matrix)[:] == corrupt_labels(shuffled.flatten_indices(), matrix)[:]


def test_with_an_index_column_noise_is_the_same_in_any_order(rows, matrix):
    expected = by_number(corrupt_labels(rows, matrix, index_column="number"))
    assert by_number(corrupt_labels(rows.shuffle(seed=1), matrix, index_column="number")) == expected
    assert by_number(corrupt_labels(rows.sort("number"), matrix, index_column="number")) == expected
    for shard in range(3):
        part = by_number(corrupt_labels(rows.shard(3, shard), matrix, index_column="number"))
        assert part == {number: expected[number] for number in part}
    assert expected != by_number(corrupt_labels(rows, matrix))


def test_repeated_rows_get_separate_noise(rows, matrix, caplog):
    repeated = rows.select([0] * 200)
    with caplog.at_level("INFO", logger="glc_hf"):
        noisy = corrupt_labels(repeated, matrix, trusted_column=None)
    assert [record.message for record in caplog.records if "more than once" in record.message]
    flat = corrupt_labels(repeated.flatten_indices(), matrix, trusted_column=None)
    assert labels_of(noisy) == labels_of(flat)
    assert len(set(labels_of(noisy))) > 1
    assert set(noisy["clean_label"]) == {rows[0]["label"]}


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64"])
def test_integer_types_are_kept(rows, matrix, dtype):
    narrow = rows.cast_column("label", Value("int64")).cast_column("label", Value(dtype))
    noisy = corrupt_labels(narrow, matrix)
    assert noisy.features["label"] == noisy.features["clean_label"] == Value(dtype)
    assert labels_of(noisy) == labels_of(corrupt_labels(rows, matrix))


def test_rows_outside_the_selection_may_hold_anything(matrix):
    dataset = Dataset.from_dict({"label": [0, -1, 3, None, 99, 1], "trusted": [True, None, False, False, None, False]})
    chosen = dataset.select([5, 2, 0])
    noisy = corrupt_labels(chosen, matrix)
    assert noisy["clean_label"][:] == [1, 3, 0]
    assert noisy["trusted"][:] == [False, False, True]
    assert labels_of(noisy) == labels_of(corrupt_labels(chosen.flatten_indices(), matrix))


def test_an_empty_dataset_stays_empty(rows, matrix):
    assert len(corrupt_labels(rows.select([]), matrix)) == 0
    none = Dataset.from_dict({"label": [], "trusted": []}, features=rows.select_columns(["label", "trusted"]).features)
    assert corrupt_labels(none, matrix).column_names == ["label", "trusted", "clean_label"]


# ---------------------------------------------------------------------- splits
def test_only_flagged_splits_of_a_dataset_dict_get_noise(rows, matrix):
    splits = DatasetDict(train=rows, test=rows.remove_columns("trusted"))
    noisy = corrupt_labels(splits, matrix)
    assert isinstance(noisy, DatasetDict)
    assert noisy["train"][:] == corrupt_labels(rows, matrix)[:]
    assert noisy["test"] is splits["test"]
    with pytest.raises(ValueError, match="none of the splits train has the column 'trusted'.*mark_trusted"):
        corrupt_labels(DatasetDict(train=splits["test"]), matrix)


def test_only_the_train_split_gets_noise_without_a_flag(rows, matrix):
    splits = DatasetDict(train=rows, test=rows)
    noisy = corrupt_labels(splits, matrix, trusted_column=None)
    assert noisy["test"] is splits["test"]
    assert noisy["train"][:] == corrupt_labels(rows, matrix, trusted_column=None)[:]
    with pytest.raises(ValueError, match="which of the splits a, b should have noise"):
        corrupt_labels(DatasetDict(a=rows, b=rows), matrix, trusted_column=None)


def test_streamed_splits_are_handled_like_datasets(rows, matrix):
    splits = IterableDatasetDict(
        train=rows.to_iterable_dataset(), test=rows.remove_columns("trusted").to_iterable_dataset()
    )
    noisy = corrupt_labels(splits, matrix)
    assert isinstance(noisy, IterableDatasetDict)
    assert labels_of(noisy["train"]) == labels_of(corrupt_labels(rows, matrix))
    assert noisy["test"] is splits["test"]
    forgetful = IterableDatasetDict(train=splits["train"].map(lambda row: row))
    with pytest.raises(ValueError, match="columns of split 'train' are not known"):
        corrupt_labels(forgetful, matrix)


# ---------------------------------------------------------------------- bad input
def test_a_missing_flag_column_raises_an_error_with_the_fixes(rows, matrix):
    with pytest.raises(ValueError, match="'trusted'.*mark_trusted.*trusted_column=None"):
        corrupt_labels(rows.remove_columns("trusted"), matrix)


def test_labels_are_not_corrupted_twice(rows, matrix):
    noisy = corrupt_labels(rows, matrix)
    with pytest.raises(ValueError, match="'clean_label' already"):
        corrupt_labels(noisy, matrix)
    again = corrupt_labels(noisy, matrix, seed=1, clean_column="once_noisy")
    assert again["once_noisy"][:] == noisy["label"][:]


def test_a_matrix_of_another_size_raises_an_error_with_both_sizes(rows):
    with pytest.raises(ValueError, match="the corruption matrix has 3 classes, column 'label' has 5"):
        corrupt_labels(rows, np.eye(3))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0, 1, 5, 9], r"label 5 .*row 2, is not a class: classes are 0…4"),
        ([0, -1, 2, 9], r"label -1 .*row 1"),
        ([0, -100, 2, 9], r"label -100 .*row 1"),
        ([0, 1, None], r"'label' has no value \(None\) in row 2"),
        ([None, None], r"'label' has no value \(None\) in row 0"),
        ([0.0, 1.0], r"'label' holds double, first row 0: 0\.0"),
        (["cat", "dog"], r"'label' holds string, first row 0: 'cat'.*class_encode_column"),
        ([True, False], r"'label' holds bool, first row 0: True"),
        ([[[0]], [[1]]], r"'label' holds list<item: list"),
    ],
)
def test_labels_that_are_not_classes_raise_an_error_with_the_first_row(values, message):
    dataset = Dataset.from_dict({"label": values})
    with pytest.raises(ValueError, match=message):
        corrupt_labels(dataset, np.eye(5), trusted_column=None)


def test_errors_name_the_row_that_the_user_sees(matrix):
    dataset = Dataset.from_dict({"label": [0, 7, 1, 2], "number": [10, 11, 12, 13]})
    with pytest.raises(ValueError, match="label 7 .*row 2,"):
        corrupt_labels(dataset.select([3, 2, 1]), matrix, trusted_column=None)
    with pytest.raises(ValueError, match=r"label 7 .*row 2 \(number=11\)"):
        corrupt_labels(dataset.select([3, 2, 1]), matrix, trusted_column=None, index_column="number")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([0, 1, 2], "'trusted' has 2 in row 2, .*flags are booleans, 1/0.*mark_trusted"),
        (["yes", "maybe", "no"], "'trusted' has 'maybe' in row 1, .*true/false.*mark_trusted"),
        ([0.5, 1.0, 0.0], "'trusted' has 0.5 in row 0, .*mark_trusted"),
        ([True, None, False], "'trusted' has None in row 1, .*mark_trusted"),
        ([[True], [False], [True]], "flags are lists, but each row has one label"),
    ],
)
def test_values_that_are_not_flags_raise_an_error_with_row_and_value(matrix, flags, message):
    with pytest.raises(ValueError, match=message):
        corrupt_labels(Dataset.from_dict({"label": [0, 1, 2], "trusted": flags}), matrix)


@pytest.mark.parametrize("flags", [[0, 1, 0], ["no", "YES", "f"], [0.0, 1.0, 0.0]], ids=str)
def test_flags_may_be_numbers_or_words(matrix, flags):
    columns = {"label": [0, 1, 2], "trusted": [False, True, False]}
    noisy = corrupt_labels(Dataset.from_dict({**columns, "trusted": flags}), matrix)
    assert labels_of(noisy) == labels_of(corrupt_labels(Dataset.from_dict(columns), matrix))
    assert noisy["trusted"][:] == flags


@pytest.mark.parametrize(
    ("number", "message"),
    [
        ([4, 5, 4, 5], "rows 0 and 2 both have 4"),
        ([10**12, 5, 10**15, 5], "rows 1 and 3 both have 5"),
        ([0.5, 1.5, 2.5, 3.5], "'number' holds double"),
        ([1, 2, 3, None], r"'number' has no value \(None\) in row 3"),
        ([[1], [2], [3], [4]], "'number' holds lists"),
    ],
)
def test_an_index_column_must_hold_unique_integers(matrix, number, message):
    dataset = Dataset.from_dict({"label": [0, 1, 2, 3], "number": number})
    with pytest.raises(ValueError, match=message):
        corrupt_labels(dataset, matrix, trusted_column=None, index_column="number")


def test_missing_columns_raise_an_error_with_the_columns(rows, matrix):
    with pytest.raises(ValueError, match="no label_column 'tag'; the columns are text, label"):
        corrupt_labels(rows, matrix, label_column="tag")
    with pytest.raises(ValueError, match="no index_column 'id'"):
        corrupt_labels(rows, matrix, index_column="id")


def test_a_type_too_narrow_for_the_classes_is_refused():
    dataset = Dataset.from_dict({"label": [0, 1]}, features=Features({"label": Value("int8")}))
    with pytest.raises(ValueError, match="int8, which ends at 127, but the corruption matrix has 200 classes"):
        corrupt_labels(dataset, CorruptionMatrix.uniform(200, 0.5), trusted_column=None)


def test_an_object_that_is_not_a_dataset_is_refused(matrix):
    with pytest.raises(TypeError, match="not list"):
        corrupt_labels([{"label": 0}], matrix)


def test_class_names_in_a_different_order_are_warned_about(rows, matrix):
    names = rows.features["label"].names
    with pytest.warns(UserWarning, match="calls class 0 'eel', column 'label' calls it 'ant'"):
        corrupt_labels(rows, matrix.with_names(names[::-1]))
    corrupt_labels(rows, matrix.with_names(names))


def test_the_noise_rate_of_a_marked_and_corrupted_dataset_is_that_of_the_matrix():
    dataset = Dataset.from_dict({"label": [3] * 5000}, features=Features({"label": ClassLabel(num_classes=10)}))
    noisy = corrupt_labels(mark_trusted(dataset, fraction=0.5), CorruptionMatrix.flip(10, 0.4))
    wrong = np.array(noisy["label"]) != 3
    trusted = np.array(noisy["trusted"])
    assert not wrong[trusted].any()
    assert wrong[~trusted].mean() == pytest.approx(0.4, abs=0.03)
