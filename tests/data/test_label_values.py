# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Class names that differ only in case or spaces are found and merged, and nothing else changes."""

from __future__ import annotations

from collections import Counter
from typing import Any

from datasets import ClassLabel, Dataset, Features, List, Value
from hypothesis import given, settings
from hypothesis import strategies as st

from glc_hf.data.label_values import different_spellings, normalize_labels, spelling_key


def normalized(labels: list[Any], **features: Any) -> tuple[Dataset, int, int]:
    data = Dataset.from_dict({"label": labels}, features=Features(features) if features else None)
    parts, spellings, classes = normalize_labels({"train": data}, ["label"])
    return parts["train"], spellings, classes


names = st.text(st.sampled_from("aAbB \t\xa0"), max_size=4)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.none() | names, min_size=1, max_size=12))
def test_labels_keep_their_class_and_get_its_most_frequent_spelling(labels: list[str | None]) -> None:
    merged, spellings, classes = normalized(labels, label=Value("string"))
    given_names = {label for label in labels if label is not None and label.strip()}
    assert spellings == len(given_names)
    assert classes == len({spelling_key(name) for name in given_names})
    counts = Counter(" ".join(label.split()) for label in labels if label is not None)
    for before, after in zip(labels, merged["label"], strict=True):
        if before is None or not before.strip():
            assert after == before
            continue
        assert spelling_key(after) == spelling_key(before)
        assert after == " ".join(after.split())
        assert counts[after] == max(counts[name] for name in counts if spelling_key(name) == spelling_key(before))
    again, _, _ = normalize_labels({"train": merged}, ["label"])
    assert again["train"]["label"][:] == merged["label"][:]


def test_the_most_frequent_spelling_of_all_parts_counts() -> None:
    parts = {
        "train": Dataset.from_dict({"text": ["a", "b", "c"], "label": ["Spam", "ham", "Ham"]}),
        "test": Dataset.from_dict({"label": [" spam", "spam", "ham "]}),
    }
    merged, spellings, classes = normalize_labels(parts, ["label"])
    assert merged["train"].to_dict() == {"text": ["a", "b", "c"], "label": ["spam", "ham", "ham"]}
    assert merged["test"]["label"][:] == ["spam", "spam", "ham"]
    assert (spellings, classes) == (6, 2)


def test_known_names_are_used_if_they_are_given() -> None:
    data = Dataset.from_dict({"label": ["spam", "spam", "Ham"]})
    merged, _, _ = normalize_labels({"train": data}, ["label"], names=["SPAM", "ham"])
    assert merged["train"]["label"][:] == ["SPAM", "SPAM", "ham"]


def test_lists_of_names_and_missing_lists_are_kept() -> None:
    votes = [["A", None, "b"], None, [], ["a ", "a", "B"]]
    data = Dataset.from_dict(
        {"votes": votes, "id": range(4)}, features=Features(votes=List(Value("string")), id=Value("int64"))
    )
    merged, _, _ = normalize_labels({"train": data.select([3, 0, 1, 2])}, ["votes"])
    assert merged["train"].to_dict() == {"votes": [["a", "a", "B"], ["a", None, "B"], None, []], "id": [3, 0, 1, 2]}


def test_names_of_a_class_label_are_merged_in_their_order() -> None:
    labels = [0, 1, 2, 3, 1, None]
    merged, _, classes = normalized(labels, label=ClassLabel(names=["Yes", "no", "yes ", "maybe"]))
    assert merged.features["label"].names == ["Yes", "no", "maybe"]
    assert merged["label"][:] == [0, 1, 0, 2, 1, None]
    assert classes == 3


def test_numbers_and_clean_names_are_returned_as_they_are() -> None:
    for labels in ([0, 1, 2], ["a", "b", "a"], [True, False, True]):
        data = Dataset.from_dict({"label": labels})
        assert normalize_labels({"train": data}, ["label"])[0]["train"] is data


def test_spellings_are_listed_with_the_most_frequent_first() -> None:
    assert different_spellings({"a b": 1, "A  b": 3, "c": 9, "ab": 2}) == [["A  b", "a b"]]
