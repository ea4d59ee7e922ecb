# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Labels and flags as files hold them, converted to classes and booleans."""

from __future__ import annotations

from typing import Any

import pytest
from datasets import ClassLabel, Dataset, Features, List, Value

from glc_hf.labels.columns import has_labels, number_of_classes
from glc_hf.labels.encoding import encode_flags, encode_labels


def column(values: list[Any], feature: Any = None, name: str = "label") -> Dataset:
    """A dataset of one column."""
    return Dataset.from_dict({name: values}, features=Features({name: feature}) if feature is not None else None)


def test_names_become_the_same_classes_in_all_parts() -> None:
    parts = {"train": column(["dog", "cat", "dog"]), "test": column(["emu", "cat"])}
    encoded, names = encode_labels(parts, "label")
    assert names == ["cat", "dog", "emu"]
    assert (encoded["train"]["label"][:], encoded["test"]["label"][:]) == ([1, 0, 1], [2, 0])
    assert encoded["train"].features["label"] == ClassLabel(names=names)


def test_names_that_are_numbers_are_sorted_as_numbers() -> None:
    encoded, names = encode_labels({"train": column(["10", "9", "2"])}, "label")
    assert names == ["2", "9", "10"]
    assert encoded["train"]["label"][:] == [2, 1, 0]


def test_integers_are_kept() -> None:
    encoded, names = encode_labels({"train": column([2, 0, 1]), "test": column([3.0, 1.0])}, "label")
    assert names is None
    assert (encoded["train"]["label"][:], encoded["test"]["label"][:]) == ([2, 0, 1], [3, 1])
    assert number_of_classes(list(encoded.values()), "label", names) == 4


def test_booleans_are_class_names() -> None:
    encoded, names = encode_labels({"train": column([True, False])}, "label")
    assert names == ["False", "True"]
    assert encoded["train"]["label"][:] == [1, 0]


def test_names_in_files_take_the_order_of_a_class_label() -> None:
    classes = ClassLabel(names=["zebra", "ant"])
    encoded, names = encode_labels({"train": column([0, 1], classes), "file": column(["ant", "zebra"])}, "label")
    assert names == ["zebra", "ant"]
    assert encoded["file"]["label"][:] == [1, 0]


def test_classes_in_a_different_order_are_matched_by_name() -> None:
    one, other = ClassLabel(names=["a", "b", "c"]), ClassLabel(names=["c", "a", "b"])
    encoded, names = encode_labels({"train": column([0, 1, 2], one), "test": column([0, 1, 2], other)}, "label")
    assert names == ["a", "b", "c"]
    assert encoded["test"]["label"][:] == [2, 0, 1]


@pytest.mark.parametrize(
    ("values", "classes"),
    [([1, 2, 3], [0, 1, 2]), ([0, 1, 2], [0, 1, 2]), ([2, 1], [1, 0])],
    ids=["names", "class numbers, since 0 is not a name", "names, although they could be class numbers"],
)
def test_integers_next_to_classes_named_by_numbers(values: list[int], classes: list[int]) -> None:
    stars = ClassLabel(names=["1", "2", "3"])
    encoded, _ = encode_labels({"train": column([0, 1, 2], stars), "gold": column(values)}, "label")
    assert encoded["gold"]["label"][:] == classes


def test_lists_of_names_become_lists_of_classes() -> None:
    parts = {"train": column([["N", "V"], [], ["N"]]), "test": column([["V", "X", "V"]])}
    encoded, names = encode_labels(parts, "label")
    assert names == ["N", "V", "X"]
    assert (encoded["train"]["label"][:], encoded["test"]["label"][:]) == ([[0, 1], [], [0]], [[1, 2, 1]])


def test_a_second_label_column_is_encoded_the_same_way() -> None:
    train = Dataset.from_dict({"label": ["b", "a"], "noisy": ["a", "a"]})
    encoded, _ = encode_labels({"train": train}, "label", "noisy")
    assert encoded["train"]["noisy"][:] == [0, 0]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"train": column([0.5, 1.0])}, ["train, row 0", "0.5"]),
        ({"train": column(["a", None, "b"])}, ["train, row 1", "missing"]),
        (
            {"train": column([0], ClassLabel(names=["a"])), "the file": column(["a", "b"])},
            ["the file, row 1", "'b'", "classes a"],
        ),
        ({"train": column([["a"], [], ["b", None]])}, ["train, row 2, token 1", "missing"]),
        (
            {
                "train": column([0], ClassLabel(names=["cat"])),
                "gold": column([0, 1], ClassLabel(names=["cat", "cow"])),
            },
            ["gold, row 1", "1 (cow)", "classes cat"],
        ),
        (
            {"train": column([0], ClassLabel(names=["1", "2"])), "gold": column([1, 3])},
            ["gold, row 1", "3 is not a class", "1, 2, or 0 to 1"],
        ),
    ],
)
def test_labels_that_are_not_classes_raise_an_error_with_the_row(
    parts: dict[str, Dataset], expected: list[str]
) -> None:
    with pytest.raises(ValueError) as error:
        encode_labels(parts, "label")
    for part in expected:
        assert part in str(error.value)


@pytest.mark.parametrize(
    "values", [[True, False], [1, 0], ["yes", "no"], ["True", "FALSE"], ["1", "0"], [1.0, 0.0], [" y", "n "]]
)
def test_flags_may_be_words_or_numbers(values: list[Any]) -> None:
    flagged = encode_flags(column(values, name="trusted"), "trusted")
    assert flagged["trusted"][:] == [True, False]
    assert flagged.features["trusted"] == Value("bool")


def test_token_flags_may_be_words_or_numbers() -> None:
    for values in ([[1, 0], [], [0]], [["yes", "no"], [], ["F"]]):
        flagged = encode_flags(column(values, name="trusted"), "trusted")
        assert flagged["trusted"][:] == [[True, False], [], [False]]
        assert flagged.features["trusted"] == List(Value("bool"))


@pytest.mark.parametrize("values", [[1, 2], ["yes", "maybe"], ["yes", None], [0.0, 0.5]])
def test_other_flags_raise_an_error_with_row_and_value(values: list[Any]) -> None:
    with pytest.raises(ValueError, match=f"'trusted' has {values[1]!r} in row 1.*1/0.*true/false.*yes/no"):
        encode_flags(column(values, name="trusted"), "trusted")


def test_splits_published_without_labels_are_recognized() -> None:
    assert not has_labels(column([-1, -1]), "label")
    assert not has_labels(column([None, None], Value("string")), "label")
    assert not has_labels(column([0], name="other"), "label")
    assert has_labels(column([-1, 0]), "label")


@pytest.mark.parametrize("gold", [["hum", "loc"], [0, 1]])
def test_files_without_a_common_label_are_refused(gold: list[Any]) -> None:
    parts = {"the training split": column(["HUM", "LOC"]), "the trusted dataset": column(gold)}
    with pytest.raises(ValueError, match=r"the trusted dataset and the training split have no label in common.*HUM"):
        encode_labels(parts, "label")


def test_a_label_of_only_one_file_is_warned_about() -> None:
    parts = {"the training split": column(["HUM", "LOC"]), "the trusted dataset": column(["HUM", "LOK"])}
    with pytest.warns(UserWarning, match="the trusted dataset has labels that the training split does not have: LOK"):
        encode_labels(parts, "label")


def test_labels_that_start_at_one_are_warned_about() -> None:
    with pytest.warns(UserWarning, match="start at 1"):
        assert number_of_classes([column([1, 2, 3])], "label", None) == 4


# ---------------------------------------------------------------------- classes of votes
def voted(labels: list[Any], *votes: list[Any], features: dict[str, Any] | None = None) -> Dataset:
    """A dataset with labels and the columns `a`, `b` of votes."""
    data = {"label": labels, **dict(zip("ab", votes, strict=False))}
    return Dataset.from_dict(data, features=Features(features) if features else None)


def test_classes_that_occur_as_votes_only_are_classes() -> None:
    parts = {"train": voted(["dog", None, None], ["dog", "ant", None], ["", "cat", "dog"])}
    with pytest.warns(UserWarning, match="a source of votes has labels that column 'label' does not have: ant, cat"):
        encoded, names = encode_labels(parts, "label", unlabeled=("train",), votes=["a", "b"])
    assert names == ["ant", "cat", "dog"]
    assert encoded["train"]["label"][:] == [2, -1, -1]
    assert encoded["train"]["a"][:] == ["dog", "ant", None]


@pytest.mark.parametrize("kind", [Value("int64"), Value("string"), Value("float64"), Value("null")], ids=str)
def test_votes_alone_give_the_names_if_there_is_no_label(kind: Any) -> None:
    features = {"label": kind, "a": List(Value("string"))}
    parts = {"train": voted([None, None], [["b", None], ["c", "a"]], features=features)}
    encoded, names = encode_labels(parts, "label", unlabeled=("train",), votes=["a"])
    assert names == ["a", "b", "c"]
    assert encoded["train"]["label"][:] == [-1, -1]


def test_votes_next_to_numbers_are_numbers() -> None:
    parts = {"train": voted([0, None, 1], [4.0, None, 2.0], [0, -1, 0])}
    encoded, names = encode_labels(parts, "label", unlabeled=("train",), votes=["a", "b"])
    assert names is None
    assert number_of_classes(list(encoded.values()), "label", names, ["a", "b"]) == 5
    assert number_of_classes(list(encoded.values()), "label", names) == 2
    nothing = [voted([None, None], [None, None], features={"label": Value("int64"), "a": Value("int64")})]
    with pytest.raises(ValueError, match="no label in column 'label' and no vote"):
        number_of_classes(nothing, "label", None, ["a"])


def test_class_label_of_a_source_gives_the_order() -> None:
    features = {"label": Value("string"), "a": ClassLabel(names=["zebra", "ant", "emu"])}
    parts = {"train": voted(["ant", None], [0, None], features=features)}
    with pytest.warns(UserWarning, match="does not have: emu, zebra"):
        encoded, names = encode_labels(parts, "label", unlabeled=("train",), votes=["a"])
    assert names == ["zebra", "ant", "emu"]
    assert encoded["train"]["label"][:] == [1, -1]


def test_what_programs_write_for_a_missing_vote_is_no_class() -> None:
    parts = {"train": voted(["dog", "dog"], ["None", "cat"], ["n/a", "dog"])}
    with pytest.warns(UserWarning, match="does not have: cat"):
        _, names = encode_labels(parts, "label", votes=["a", "b"])
    assert names == ["cat", "dog"]


def test_votes_and_labels_with_no_name_in_common_are_an_error() -> None:
    with pytest.raises(ValueError, match="a source of votes and column 'label' have no label in common: DOG and dog"):
        encode_labels({"train": voted(["dog", "dog"], ["DOG", None])}, "label", votes=["a"])
