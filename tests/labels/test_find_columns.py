# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Columns found by their names and kinds."""

from __future__ import annotations

import pytest
from datasets import ClassLabel, Features, Image, List, Value

from glc_hf.cli.options import DataArguments
from glc_hf.labels.columns import find_columns


TEXT, NUMBER, CLASS, FLAG = Value("string"), Value("int64"), ClassLabel(names=["a", "b"]), Value("bool")
WORDS, TAGS = List(Value("string")), List(ClassLabel(names=["a", "b"]))


def find(features: dict, task: str = "auto", label: str | None = None, **named: str):
    """With the flags in a column `trusted`."""
    return tuple(find_columns(Features(features), DataArguments(**named), task, label, "trusted"))


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ({"text": TEXT, "label": CLASS, "trusted": FLAG}, ("text", ("text",), "label")),
        ({"idx": NUMBER, "sentence": TEXT, "label": NUMBER}, ("text", ("sentence",), "label")),
        ({"title": TEXT, "content": TEXT, "label": NUMBER}, ("text", ("content",), "label")),
        ({"abstract": TEXT, "category": TEXT}, ("text", ("abstract",), "category")),
        ({"premise": TEXT, "hypothesis": TEXT, "label": CLASS}, ("text", ("premise", "hypothesis"), "label")),
        ({"img": Image(), "fine_label": CLASS, "coarse_label": CLASS}, ("image", ("img",), "fine_label")),
        ({"photo": Image(), "animal": CLASS}, ("image", ("photo",), "animal")),
        ({"tokens": WORDS, "pos_tags": TAGS}, ("token", ("tokens",), "pos_tags")),
        ({"text": TEXT, "tokens": WORDS, "ner_tags": TAGS}, ("token", ("tokens",), "ner_tags")),
        ({"text": TEXT, "tokens": WORDS, "label": CLASS}, ("text", ("text",), "label")),
        ({"tokens": WORDS, "tags": WORDS}, ("token", ("tokens",), "tags")),
    ],
)
def test_usual_columns_are_found_by_themselves(features: dict, expected: tuple) -> None:
    assert find(features) == expected


def test_named_columns_come_first() -> None:
    features = {"image": Image(), "text": TEXT, "title": TEXT, "label": CLASS, "mood": CLASS}
    assert find(features, text_column="title", label="mood") == ("text", ("title",), "mood")
    assert find(features, image_column="image") == ("image", ("image",), "label")
    assert find(features, task="text") == ("text", ("text",), "label")
    pair = find(features, text_column="title", text_pair_column="text")
    assert pair == ("text", ("title", "text"), "label")


@pytest.mark.parametrize(
    ("features", "named", "told"),
    [
        ({"text": TEXT, "review": TEXT, "label": CLASS}, {}, "--text-column"),
        ({"first": TEXT, "second": TEXT, "label": CLASS}, {}, "--task"),
        ({"text": TEXT, "label": CLASS, "labels": CLASS}, {}, "--label-column"),
        ({"text": TEXT, "score": NUMBER}, {}, "--label-column"),
        ({"image": Image(), "text": TEXT, "label": CLASS}, {}, "image or text"),
        ({"tokens": WORDS, "pos_tags": TAGS, "ner_tags": TAGS}, {}, "--label-column"),
        ({"text": TEXT, "label": CLASS}, {"text_column": "txt"}, "'txt'"),
        ({"text": TEXT, "label": CLASS}, {"label": "lable"}, "'lable'"),
    ],
)
def test_what_is_ambiguous_or_absent_lists_the_columns(features: dict, named: dict, told: str) -> None:
    with pytest.raises(ValueError) as error:
        find(features, **named)
    assert told in str(error.value)
    assert f"Columns: {', '.join(features)}." in str(error.value)
